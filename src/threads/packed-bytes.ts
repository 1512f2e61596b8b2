/** How bytes cross from one thread to another: short ones as texts, others by handing over their memory. */
import type { TransferListItem } from 'node:worker_threads'
import { type ByteText, bytesOfText, byteText, discard } from '../core/bytes.ts'

/** Longer bytes are handed over, since a string is copied once in each thread (docs/decisions/0006). */
const MAX_TEXT_BYTES = 16 * 1024
/** The memory of shorter bodies is left to the garbage collector, in bytes. */
const MIN_DISCARDED_BYTES = 256 * 1024

const NO_BYTES = new Uint8Array(0)

export interface PackedArgs {
  readonly args: readonly unknown[]
  /** Which argument is a body whose bytes are sent as a text; -1 for none. */
  readonly textAt: number
}

/**
 * Packs the arguments of a call: a short body as a text, other bytes with memory of their own.
 * @param transfers receives the memory that is handed over
 */
export function packArgs(args: readonly unknown[], transfers: TransferListItem[]): PackedArgs {
  // The position is sent along, because the JSON of a user may look like anything.
  const textAt = args.findIndex(isShortBody)
  const packed = args.map((arg, at) => (at === textAt ? shortBytesAsTexts(arg) : ownBytes(arg, transfers)))
  return { args: packed, textAt }
}

function isShortBody(arg: unknown): boolean {
  if (typeof arg !== 'object' || arg === null || !('bytes' in arg)) return false
  return arg.bytes instanceof Uint8Array && arg.bytes.length <= MAX_TEXT_BYTES
}

/** Reverses {@link packArgs}. */
export function unpackArgs({ args, textAt }: PackedArgs): readonly unknown[] {
  if (textAt < 0) return args
  const { bytes } = args[textAt] as { readonly bytes: ByteText }
  return args.with(textAt, { bytes: bytesOfText(bytes) })
}

/** The same value with short byte arrays as {@link ByteText}, at the top or one level below. */
export function shortBytesAsTexts(value: unknown): unknown {
  return withBytes(value, (bytes) => (bytes.length > MAX_TEXT_BYTES ? bytes : byteText(bytes)))
}

/**
 * The same value with byte arrays that own their memory, at the top or one level below. Only such memory can be handed
 * to another thread; Node's small Buffers share one pool. Bytes in lists or at deeper levels are copied.
 * @param transfers receives the memory that is handed over
 */
export function ownBytes(value: unknown, transfers: TransferListItem[]): unknown {
  return withBytes(value, (bytes) => {
    const own = owned(bytes)
    transfers.push(own.buffer as ArrayBuffer)
    return own
  })
}

/** Called for every message, and most have no bytes: it allocates nothing before it finds some. */
function withBytes(value: unknown, change: (bytes: Uint8Array) => unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  if (value instanceof Uint8Array) return change(value)
  let changed: Record<string, unknown> | undefined
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name]
    if (!(member instanceof Uint8Array)) continue
    changed ??= { ...value }
    changed[name] = change(member)
  }
  return changed ?? value
}

function owned(bytes: Uint8Array): Uint8Array {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength && bytes.byteLength > 0
  // A plain Uint8Array in either case: the class Buffer does not survive the post.
  return isWhole ? new Uint8Array(bytes.buffer) : Uint8Array.prototype.slice.call(bytes)
}

/**
 * Frees the memory of a long body when its call has ended: the garbage collector kept four of 8 MB at a time. It waits
 * until the answer is posted, which may share the memory.
 * @returns the call
 */
export function discardingBody<T>(args: readonly unknown[], call: Promise<T>): Promise<T> {
  const bytes = args.map(bytesIn).find(({ length }) => length > MIN_DISCARDED_BYTES)
  return bytes === undefined ? call : call.finally(() => setTimeout(discard, 1, bytes))
}

function bytesIn(arg: unknown): Uint8Array {
  const isBody = typeof arg === 'object' && arg !== null && 'bytes' in arg && arg.bytes instanceof Uint8Array
  return isBody ? (arg.bytes as Uint8Array) : NO_BYTES
}
