/**
 * How databases have grown: their sizes on each day of the last month. A database is measured about a minute after it
 * was written to, while it is still open, so an idle one costs nothing. Records keep the sizes, so that a start opens no
 * database. One node measures; others read its records, which are up to ten minutes old.
 */
import type { Logger } from 'pino'
import { type Clock, systemClock } from '../changes/source.ts'
import { isJsonObject } from '../core/json.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { collectRecords, type RecordWrite, readRecord, type ServerRecord } from '../storage/records.ts'
import type { Duty } from '../threads/claims.ts'
import type { Databases } from '../threads/databases.ts'
import { RecordQueue } from '../threads/record-queue.ts'

const KIND = 'growth'
const DAY_MS = 24 * 60 * 60 * 1000
const DAYS = 31
/** Of more databases, those are forgotten that were written to least recently. 2 kB of memory each. */
const MAX_DATABASES = 2000
const MEASURE_MS = 60_000
/** Databases that are measured in one round. */
const ROUND = 500
const SAVE_MS = 10 * 60_000

/** The size of a database at the end of a day, or now. */
export interface DaySize {
  /** The day in UTC, as `2025-03-01`. */
  readonly date: string
  readonly doc_count: number
  readonly doc_del_count: number
  /** Bytes: of the file, and in use in it. */
  readonly file: number
  readonly active: number
}

/** A day as it is stored: days since 1970, then the numbers of a {@link DaySize} in its order. */
type Day = readonly [day: number, docCount: number, deletedCount: number, file: number, active: number]

interface Grown {
  /** A later database of the same name begins anew. */
  readonly incarnation: number
  /** The oldest first. */
  readonly days: readonly Day[]
}

interface GrowthOptions {
  readonly databases: Pick<
    Databases,
    'get' | 'updates' | 'watchUpdates' | 'readRecords' | 'listRecords' | 'writeRecords'
  >
  /** The node that has it measures. */
  readonly duty: Duty
  readonly logger: Pick<Logger, 'warn'>
  readonly clock?: Clock
  /** The time, in ms since 1970. */
  now?(): number
}

export class Growth {
  readonly #options: GrowthOptions
  readonly #clock: Clock
  readonly #now: () => number
  /** Those written to least recently first. */
  #grown = new Map<string, Grown>()
  readonly #records: RecordQueue
  /** The last update of the catalog that was looked at. */
  #since = 0
  readonly #ends: readonly (() => void)[]
  #cancelMeasure: (() => void) | null = null
  #work: Promise<unknown> = Promise.resolve()
  #isClosed = false

  private constructor(options: GrowthOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#now = options.now ?? Date.now
    this.#records = new RecordQueue({
      clock: this.#clock,
      delay: SAVE_MS,
      recordOf: (name) => this.#recordOf(name),
      writeRecords: (writes) => options.databases.writeRecords(writes),
      onFault: (fault) => this.#warn(fault),
    })
    this.#ends = [
      options.databases.watchUpdates(() => this.#plan()),
      options.duty.onChange(() => {
        if (options.duty.isHeld) this.#then(() => this.#load())
      }),
    ]
  }

  /** @throws as `listRecords` */
  static async open(options: GrowthOptions): Promise<Growth> {
    const growth = new Growth(options)
    if (options.duty.isHeld) await growth.#load()
    return growth
  }

  /** Reads the records. Writes from before are not looked at. */
  async #load(): Promise<void> {
    const { databases } = this.#options
    const records = await collectRecords(databases, KIND)
    const { lastSeq } = await databases.updates({ since: Number.MAX_SAFE_INTEGER }, 1)
    const byLastDay = records.flatMap(grownOf).sort(([, a], [, b]) => lastDay(a) - lastDay(b))
    this.#grown = new Map(byLastDay.slice(-MAX_DATABASES))
    this.#since = lastSeq
  }

  /**
   * @returns the days of the last month on which the database was written to, the oldest first
   * @throws as `readRecords`
   */
  async of({
    name,
    incarnation,
  }: {
    readonly name: string
    readonly incarnation: number
  }): Promise<readonly DaySize[]> {
    const { databases, duty } = this.#options
    const grown = duty.isHeld ? this.#grown.get(name) : grownIn(await readRecord(databases, KIND, name))
    if (grown === undefined || grown.incarnation !== incarnation) return []
    return grown.days.filter(([day]) => day > this.#today() - DAYS).map(daySize)
  }

  #today(): number {
    return Math.floor(this.#now() / DAY_MS)
  }

  #plan(): void {
    if (this.#isClosed || !this.#options.duty.isHeld) return
    this.#cancelMeasure ??= this.#clock.after(MEASURE_MS, () => {
      this.#cancelMeasure = null
      void this.measure()
    })
  }

  /** Measures the databases that were written to since the last round; never rejects. For tests and the timer. */
  measure(): Promise<unknown> {
    return this.#then(() => this.#round())
  }

  #then(work: () => Promise<void>): Promise<unknown> {
    this.#work = this.#work.then(work).catch((fault: unknown) => this.#warn(fault))
    return this.#work
  }

  #warn(fault: unknown): void {
    this.#options.logger.warn({ err: fault }, 'could not record how databases have grown')
  }

  async #round(): Promise<void> {
    const { rows } = await this.#options.databases.updates({ since: this.#since }, ROUND)
    for (const { seq, name, type } of rows) {
      if (this.#isClosed || !this.#options.duty.isHeld) return
      if (type === 'deleted') this.#forget(name)
      else await this.#measure(name)
      this.#since = seq
    }
    if (rows.length === ROUND) this.#plan()
  }

  #forget(name: string): void {
    if (this.#grown.delete(name)) this.#records.add(name)
  }

  async #measure(name: string): Promise<void> {
    try {
      const database = await this.#options.databases.get(name)
      const { doc_count, doc_del_count, sizes } = await database.info(SYSTEM_USER)
      const today = this.#today()
      const day: Day = [today, doc_count, doc_del_count, sizes.file, sizes.active]
      const before = this.#grown.get(name)
      const known = before?.incarnation === database.incarnation ? before.days : []
      const kept = known.filter(([each]) => each > today - DAYS && each < today)
      this.#grown.delete(name)
      this.#grown.set(name, { incarnation: database.incarnation, days: [...kept, day] })
      this.#records.add(name)
      for (const oldest of this.#grown.keys()) {
        if (this.#grown.size <= MAX_DATABASES) break
        this.#forget(oldest)
      }
    } catch {
      // It was deleted, or its thread died; its next write measures it again.
    }
  }

  #recordOf(key: string): RecordWrite {
    const grown = this.#grown.get(key)
    return { kind: KIND, key, value: grown === undefined ? null : JSON.stringify(grown) }
  }

  /** Stops measuring, and writes the records. Call it before the databases are closed. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const end of this.#ends) end()
    this.#cancelMeasure?.()
    await this.#work
    await this.#records.close()
  }
}

function daySize([day, docCount, deletedCount, file, active]: Day): DaySize {
  const date = new Date(day * DAY_MS).toISOString().slice(0, 10)
  return { date, doc_count: docCount, doc_del_count: deletedCount, file, active }
}

function lastDay({ days }: Grown): number {
  return days.at(-1)?.[0] ?? 0
}

function grownOf({ key, value }: ServerRecord): [name: string, grown: Grown][] {
  const grown = grownIn(value)
  return grown === undefined ? [] : [[key, grown]]
}

/** @returns undefined if there is none, or none that this version understands */
function grownIn(value: string | null): Grown | undefined {
  const read = value === null ? null : parsed(value)
  if (!isJsonObject(read) || typeof read.incarnation !== 'number' || !Array.isArray(read.days))
    return undefined
  const days = read.days.filter(isDay)
  return days.length === 0 ? undefined : { incarnation: read.incarnation, days }
}

function parsed(value: string): unknown {
  try {
    return JSON.parse(value)
  } catch {
    return null
  }
}

function isDay(value: unknown): value is Day {
  return Array.isArray(value) && value.length === 5 && value.every((each) => Number.isSafeInteger(each))
}
