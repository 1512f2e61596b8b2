/**
 * How many accounts each address has tried to make, as records, so that nodes count together and a restart forgets
 * nothing. An address is stored for the time of its window.
 */
import { CouchError } from '../core/errors.ts'
import { jsonObjectIn } from '../core/json.ts'
import { allRecords, type Records, type RecordWrite, readRecord } from '../storage/records.ts'

const KIND = 'sign_up'
/** How often an attempt is counted anew while others of the same address are. */
const MAX_TRIES = 50

/** Records that one write removes. */
const BATCH = 100

/** The attempts of an address. */
interface Attempts {
  readonly count: number
  /** When they no longer count, in ms since 1970. */
  readonly until: number
}

export class SignUpCounts {
  readonly #records: Records
  readonly #now: () => number

  /** @param now ms since 1970 */
  constructor(records: Records, now: () => number = Date.now) {
    this.#records = records
    this.#now = now
  }

  /**
   * Counts an attempt, unless the address has used up its number: then nothing is written.
   * @param windowMs for how long the first attempt counts, and all that follow it
   * @param max attempts in a window
   * @returns the attempts with this one, and when they no longer count, in ms
   * @throws unavailable while too many attempts of the address are counted at once
   */
  async add(address: string, windowMs: number, max: number): Promise<{ current: number; ttl: number }> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const text = await readRecord(this.#records, KIND, address)
      const now = this.#now()
      const { count, until } = attemptsOf(text, now) ?? { count: 0, until: now + windowMs }
      const counted = { current: count + 1, ttl: until - now }
      if (count >= max) return counted
      const value = JSON.stringify({ count: count + 1, until })
      if (await this.#records.writeRecords([{ kind: KIND, key: address, value, expected: text }]))
        return counted
    }
    throw new CouchError('unavailable')
  }

  /** Removes what no longer counts. */
  async sweep(): Promise<void> {
    const now = this.#now()
    let over: RecordWrite[] = []
    for await (const { kind, key, value } of allRecords(this.#records, KIND)) {
      if (attemptsOf(value, now) === null) over.push({ kind, key, value: null, expected: value })
      if (over.length < BATCH) continue
      await this.#remove(over)
      over = []
    }
    await this.#remove(over)
  }

  /** If an address has tried again meanwhile, the others are removed the next time. */
  async #remove(records: readonly RecordWrite[]): Promise<void> {
    if (records.length > 0) await this.#records.writeRecords(records)
  }
}

/** @returns null if there are none that count; those of a damaged record do not */
function attemptsOf(text: string | null, now: number): Attempts | null {
  const { count, until } = jsonObjectIn(text) ?? {}
  if (typeof count !== 'number' || typeof until !== 'number') return null
  return until <= now ? null : { count, until }
}
