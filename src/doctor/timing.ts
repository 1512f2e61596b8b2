/** How long the doctor waits for what. All in milliseconds. */
export interface Pace {
  readonly requestMs: number
  /** For a name, and for a connection. */
  readonly connectMs: number
  /** Asked of the feed. */
  readonly heartbeatMs: number
  /** How long the feed is watched when nothing comes. */
  readonly feedMs: number
  /** After how many heartbeats the feed is known to pass. */
  readonly beats: number
  /** For all bodies together. */
  readonly bodiesMs: number
  /** What one may take beyond that: a line may be slower than it was before. */
  readonly bodyGraceMs: number
  /** Bytes of the bodies that are tried, smallest first. */
  readonly bodies: readonly number[]
  /** How long feeds are kept open; null: they are not. */
  readonly longMs: number | null
  /** Asked of the feed that is kept open. */
  readonly longHeartbeatMs: number
}

const MIB = 1_048_576
/**
 * Just above a size, since proxies count in powers of two and with nothing around: nginx's default takes 1 MiB exactly
 * (`client_max_body_size 1m`).
 */
const SIZES = [1, 10, 64].map((mebibytes) => mebibytes * MIB + 1024)

const USUAL: Pace = {
  requestMs: 5000,
  connectMs: 3000,
  heartbeatMs: 1000,
  feedMs: 3500,
  beats: 2,
  bodiesMs: 6000,
  bodyGraceMs: 4000,
  bodies: SIZES,
  longMs: null,
  longHeartbeatMs: 10_000,
}

/** Longer than proxies cut: nginx after 60 s, Cloudflare after 100. */
const LONG_MS = 115_000

/** @returns the waits of a doctor that may be quick, or has time */
export function paceOf({ quick, long }: { readonly quick: boolean; readonly long: boolean }): Pace {
  if (quick)
    return { ...USUAL, feedMs: 2800, beats: 1, bodies: SIZES.slice(0, 1), bodiesMs: 2000, bodyGraceMs: 500 }
  return long ? { ...USUAL, bodiesMs: 300_000, bodyGraceMs: 60_000, longMs: LONG_MS } : USUAL
}

/**
 * Waits for a promise, but not for ever.
 * @param ms waited at the most
 * @throws Error with the code TIMEOUT, or as the promise; what is waited for goes on
 */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error('no answer in time'), { code: 'TIMEOUT' })), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
