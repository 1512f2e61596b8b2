/**
 * How databases have grown: their sizes on each day of the last month. A database is measured about a minute after it
 * was written to, while it is still open, so an idle one costs nothing. Records keep the sizes, so that a start opens no
 * database.
 */
import type { Logger } from 'pino'
import { SYSTEM_USER } from '../auth/accounts.ts'
import { type Clock, systemClock } from '../changes/source.ts'
import { isJsonObject } from '../core/json.ts'
import { collectRecords, type RecordWrite, type ServerRecord } from '../storage/records.ts'
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
  readonly databases: Pick<Databases, 'get' | 'updates' | 'watchUpdates' | 'listRecords' | 'writeRecords'>
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
  readonly #grown: Map<string, Grown>
  readonly #records: RecordQueue
  /** The last update of the catalog that was looked at. */
  #since: number
  readonly #unwatch: () => void
  #cancelMeasure: (() => void) | null = null
  #work: Promise<unknown> = Promise.resolve()
  #isClosed = false

  private constructor(options: GrowthOptions, grown: Map<string, Grown>, since: number) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#now = options.now ?? Date.now
    this.#grown = grown
    this.#since = since
    this.#records = new RecordQueue({
      clock: this.#clock,
      delay: SAVE_MS,
      recordOf: (name) => this.#recordOf(name),
      writeRecords: (writes) => options.databases.writeRecords(writes),
      onFault: (fault) => this.#warn(fault),
    })
    this.#unwatch = options.databases.watchUpdates(() => this.#plan())
  }

  /** Reads the records. Writes from before are not looked at. @throws as `listRecords` */
  static async open(options: GrowthOptions): Promise<Growth> {
    const records = await collectRecords(options.databases, KIND)
    const { lastSeq } = await options.databases.updates({ since: Number.MAX_SAFE_INTEGER }, 1)
    const read = records.flatMap(grownOf)
    const byLastDay = read.sort(([, a], [, b]) => lastDay(a) - lastDay(b))
    return new Growth(options, new Map(byLastDay.slice(-MAX_DATABASES)), lastSeq)
  }

  /** @returns the days of the last month on which the database was written to, the oldest first */
  of({ name, incarnation }: { readonly name: string; readonly incarnation: number }): readonly DaySize[] {
    const grown = this.#grown.get(name)
    if (grown === undefined || grown.incarnation !== incarnation) return []
    return grown.days.filter(([day]) => day > this.#today() - DAYS).map(daySize)
  }

  #today(): number {
    return Math.floor(this.#now() / DAY_MS)
  }

  #plan(): void {
    if (this.#isClosed) return
    this.#cancelMeasure ??= this.#clock.after(MEASURE_MS, () => {
      this.#cancelMeasure = null
      void this.measure()
    })
  }

  /** Measures the databases that were written to since the last round; never rejects. For tests and the timer. */
  measure(): Promise<unknown> {
    this.#work = this.#work.then(() => this.#round()).catch((fault: unknown) => this.#warn(fault))
    return this.#work
  }

  #warn(fault: unknown): void {
    this.#options.logger.warn({ err: fault }, 'could not record how databases have grown')
  }

  async #round(): Promise<void> {
    const { rows } = await this.#options.databases.updates({ since: this.#since }, ROUND)
    for (const { seq, name, type } of rows) {
      if (this.#isClosed) return
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
    this.#unwatch()
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

/** @returns nothing for a record that this version does not understand */
function grownOf({ key, value }: ServerRecord): [name: string, grown: Grown][] {
  const read = parsed(value)
  if (!isJsonObject(read) || typeof read.incarnation !== 'number' || !Array.isArray(read.days)) return []
  const days = read.days.filter(isDay)
  return days.length === 0 ? [] : [[key, { incarnation: read.incarnation, days }]]
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
