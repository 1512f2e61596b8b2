import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import type { Records } from '../storage/records.ts'
import { type DevicePosition, latestPositions } from './device-positions.ts'
import { mergedUses, type TokenUses, UNUSED, USE_KIND, usesOfValue, valueOfUses } from './token-record.ts'

/** The use of a token is written this often, for all used tokens together. */
const USE_MS = 60_000
/** Uses in one write: about 200 kB. */
const MAX_WRITES = 500
/** Uses that wait to be written, about 10 MB. Further ones are lost, which happens only if the store answers slowly. */
const MAX_WAITING = 10_000
/** Tokens whose last use is remembered; others may be noted more than once a minute. */
const REMEMBERED = 100_000
/** Characters of the header User-Agent; browsers and Electron name the app behind the first 100. */
const MAX_CLIENT = 200
/** How often uses are written again if another node has changed them meanwhile; after that they wait for the next write. */
const ATTEMPTS = 5

export interface UseOptions {
  /** Milliseconds since 1970; replaced in tests. */
  readonly now?: () => number
  /** How long uses may wait to be written, in ms. Default 60,000. */
  readonly writeMs?: number
  onFault(fault: unknown): void
}

/**
 * When and from where each token was last used, to the minute, and how far its device has read. A request only sets
 * fields, and a crash loses at most the last minute. Each node writes what it has seen; of each token the later counts.
 */
export class UseNotes {
  readonly #records: Pick<Records, 'readRecords' | 'writeRecords'>
  readonly #now: () => number
  readonly #writeMs: number
  readonly #onFault: (fault: unknown) => void
  /** When the last use was noted, in milliseconds since 1970. */
  readonly #notedAt = new LRUCache<string, number>(atMost(REMEMBERED))
  /** What is not written yet. Its values are replaced, never changed. */
  readonly #waiting = new Map<string, TokenUses>()
  #timer: NodeJS.Timeout | undefined
  #writing: Promise<void> | undefined

  constructor(
    records: Pick<Records, 'readRecords' | 'writeRecords'>,
    { now = Date.now, writeMs = USE_MS, onFault }: UseOptions,
  ) {
    this.#records = records
    this.#now = now
    this.#writeMs = writeMs
    this.#onFault = onFault
  }

  /** Notes the use of a token, at most once a minute. */
  note(id: string, client: string | undefined, address: string): void {
    const now = this.#now()
    // The clock may have been set back.
    if (Math.abs(now - (this.#notedAt.get(id) ?? 0)) < USE_MS) return
    const lastUse = { time: now, client: (client ?? '').slice(0, MAX_CLIENT), address }
    const { positions } = this.#waiting.get(id) ?? UNUSED
    if (this.#writeLater(id, { lastUse, positions })) this.#notedAt.set(id, now)
  }

  notePosition(id: string, database: string, token: string): void {
    const position: DevicePosition = { database, token, time: this.#now() }
    const { lastUse, positions } = this.#waiting.get(id) ?? UNUSED
    this.#writeLater(id, { lastUse, positions: latestPositions([position], positions) })
  }

  /** @returns the uses of some tokens, also those that are not written yet */
  async of(ids: readonly string[]): Promise<readonly TokenUses[]> {
    const stored = await this.#records.readRecords(USE_KIND, ids)
    return ids.map((id, at) => mergedUses(this.#waiting.get(id) ?? UNUSED, usesOfValue(stored[at] ?? '{}')))
  }

  /** Forgets what is noted of a token that is gone. */
  forget(id: string): void {
    this.#notedAt.delete(id)
    this.#waiting.delete(id)
  }

  /** @returns false if too many uses wait */
  #writeLater(id: string, uses: TokenUses): boolean {
    if (this.#waiting.size >= MAX_WAITING && !this.#waiting.has(id)) return false
    this.#waiting.set(id, uses)
    if (this.#waiting.size >= MAX_WRITES) void this.#flush()
    else this.#startTimer()
    return true
  }

  #startTimer(): void {
    this.#timer ??= setTimeout(() => void this.#flush(), this.#writeMs).unref()
  }

  /** Writes what waits now; joins a write that runs. Never rejects. */
  #flush(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined
      if (this.#waiting.size > 0) this.#startTimer()
    })
    return this.#writing
  }

  /** If the write fails, the uses are written with the next ones. */
  async #writeAll(): Promise<void> {
    const ids = [...this.#waiting.keys()]
    try {
      for (let at = 0; at < ids.length; at += MAX_WRITES)
        await this.#writeSome(ids.slice(at, at + MAX_WRITES))
    } catch (fault) {
      this.#onFault(fault)
    }
  }

  async #writeSome(ids: readonly string[]): Promise<void> {
    const noted = ids.map((id) => this.#waiting.get(id))
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      const stored = await this.#records.readRecords(USE_KIND, ids)
      const writes = ids.flatMap((id, at) => {
        const expected = stored[at] ?? null
        const uses = noted[at]
        // Without a record the token was revoked.
        if (expected === null || uses === undefined) return []
        return [
          { kind: USE_KIND, key: id, value: valueOfUses(mergedUses(uses, usesOfValue(expected))), expected },
        ]
      })
      if (writes.length > 0 && !(await this.#records.writeRecords(writes))) continue
      for (const [at, id] of ids.entries()) if (this.#waiting.get(id) === noted[at]) this.#waiting.delete(id)
      return
    }
  }

  /** Writes the latest uses. */
  async close(): Promise<void> {
    await this.#writing
    await this.#flush()
    clearTimeout(this.#timer)
  }
}
