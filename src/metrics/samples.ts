/**
 * The recent past of the server: a sample of each minute of a day, and of each half hour of 31 days
 * (docs/settee-api.md, "Samples"). Both are rings of records with a fixed place in one buffer. A record has the number of its
 * minute or half hour, so a gap stays a gap, and a checksum, so a record that was half written counts as missing.
 */
import { crc32 } from 'node:zlib'

interface Column {
  readonly name: string
  readonly unit: string
}

/** The values of a sample, in the order of their columns. New columns are added at the end. */
export const COLUMNS = [
  { name: 'answers_ok', unit: 'answers per second with a status below 400' },
  { name: 'answers_4xx', unit: 'answers per second' },
  { name: 'answers_5xx', unit: 'answers per second' },
  { name: 'saves', unit: 'documents written per second' },
  { name: 'received_bytes', unit: 'bytes per second' },
  { name: 'sent_bytes', unit: 'bytes per second' },
  { name: 'feeds', unit: 'open feeds that wait for changes' },
  { name: 'connections', unit: 'open connections' },
  { name: 'memory_bytes', unit: 'bytes of resident memory' },
  { name: 'data_bytes', unit: 'bytes of databases and indexes' },
  { name: 'free_bytes', unit: 'bytes free on the disk of the data folder' },
  { name: 'delay', unit: 'longest delay of the event loop of the HTTP thread, in seconds' },
  { name: 'busy', unit: 'share of the time that the HTTP thread was busy, 0 to 1' },
  { name: 'databases', unit: 'databases' },
] as const satisfies readonly Column[]

export type ColumnName = (typeof COLUMNS)[number]['name']

/** The values of one sample; null: unknown. */
export type Sampled = Readonly<Record<ColumnName, number | null>>

export type Period = 'day' | 'month'

export interface SampleSeries {
  readonly period: Period
  /** Seconds since 1970 at which the first point begins. */
  readonly start: number
  /** Seconds from one point to the next. */
  readonly step: number
  readonly points: number
  /** For each column a value for each point; NaN where there is none. A column is made when it is read. */
  readonly mean: Iterable<readonly [ColumnName, Float64Array]>
  /** The greatest value of a minute within each point; null for a day. */
  readonly max: Iterable<readonly [ColumnName, Float64Array]> | null
}

/** The part of the buffer that has changed and must be stored. */
export interface Changed {
  readonly start: number
  readonly end: number
}

const MINUTE_MS = 60_000
const MINUTES_OF_HALF_HOUR = 30
const DAY_POINTS = 24 * 60
const MONTH_POINTS = 31 * 48

/** Columns that a record has room for. */
const ROOM = 14
/** Multiples divide a disk's sector, so that no record crosses two of them. */
const MINUTE_RECORD = 128
const HALF_HOUR_RECORD = 256

const HEADER = Buffer.from('settee samples 1\n')
const HEADER_BYTES = HALF_HOUR_RECORD
const DAY_BYTES = DAY_POINTS * MINUTE_RECORD

/** The size of the buffer. */
export const SAMPLE_BYTES: number = HEADER_BYTES + DAY_BYTES + MONTH_POINTS * HALF_HOUR_RECORD

export class Samples {
  /** All samples as they are stored. */
  readonly content: Buffer
  readonly #minutes: Ring
  readonly #halfHours: Ring
  /** The half hour of the last minute that was added; its record is not made yet. */
  #openHalfHour: number

  /**
   * @param stored an earlier {@link content}, of which records with a fault are dropped; anything else counts as empty
   * @param now in ms since 1970
   */
  constructor(stored: Uint8Array, now: number) {
    this.content = Buffer.alloc(SAMPLE_BYTES)
    if (HEADER.equals(stored.subarray(0, HEADER.length))) this.content.set(stored.subarray(0, SAMPLE_BYTES))
    else HEADER.copy(this.content)
    this.#minutes = new Ring(this.content, HEADER_BYTES, {
      slots: DAY_POINTS,
      bytes: MINUTE_RECORD,
      width: ROOM,
    })
    this.#halfHours = new Ring(this.content, HEADER_BYTES + DAY_BYTES, {
      slots: MONTH_POINTS,
      bytes: HALF_HOUR_RECORD,
      width: 2 * ROOM,
    })
    this.#openHalfHour = halfHourOf(minuteOf(now))
    this.#summarizeStored()
  }

  /** A server that stopped has left half hours without a record. */
  #summarizeStored(): void {
    const halfHours = new Set(this.#minutes.numbers().map(halfHourOf))
    for (const halfHour of halfHours) {
      if (halfHour !== this.#openHalfHour && !this.#halfHours.has(halfHour)) this.#summarize(halfHour)
    }
  }

  #summarize(halfHour: number): Changed | null {
    const summary = this.#summaryOf(halfHour)
    return summary === null ? null : this.#halfHours.put(halfHour, summary)
  }

  /** The means of all columns, then the greatest values; null without a sample. */
  #summaryOf(halfHour: number): Float64Array | null {
    const first = halfHour * MINUTES_OF_HALF_HOUR
    const summary = new Float64Array(2 * ROOM).fill(Number.NaN)
    const known = Array.from({ length: MINUTES_OF_HALF_HOUR }, (_, n) => first + n).filter((minute) =>
      this.#minutes.has(minute),
    )
    if (known.length === 0) return null
    for (let column = 0; column < ROOM; column += 1) {
      const values = known
        .map((minute) => this.#minutes.value(minute, column))
        .filter((value) => !Number.isNaN(value))
      if (values.length === 0) continue
      summary[column] = rounded(values.reduce((sum, value) => sum + value, 0) / values.length)
      summary[ROOM + column] = Math.max(...values)
    }
    return summary
  }

  /**
   * Adds the sample of a minute that has just ended. A second one for the same minute replaces it, as after a clock has
   * gone back.
   * @param now in ms since 1970
   * @returns what has changed in {@link content}
   */
  add(now: number, sampled: Sampled): readonly Changed[] {
    // A timer may be a little early.
    const minute = Math.round(now / MINUTE_MS) - 1
    const values = new Float64Array(ROOM).fill(Number.NaN)
    for (const [at, { name }] of COLUMNS.entries()) values[at] = rounded(sampled[name] ?? Number.NaN)
    const halfHour = halfHourOf(minute)
    const ended = this.#openHalfHour
    // Before the new minute takes the place of one of a day ago.
    const summarized = ended === halfHour ? null : this.#summarize(ended)
    this.#openHalfHour = halfHour
    const added = this.#minutes.put(minute, values)
    return summarized === null ? [added] : [summarized, added]
  }

  /** @param now in ms since 1970; later samples, of a clock that has gone back, are left out */
  read(period: Period, now: number): SampleSeries {
    const last = minuteOf(now) - 1
    if (period === 'day') {
      const first = last - DAY_POINTS + 1
      const mean = columnsOf(DAY_POINTS, (point, column) => this.#minutes.value(first + point, column))
      return { period, start: first * 60, step: 60, points: DAY_POINTS, mean, max: null }
    }
    const current = halfHourOf(last)
    const first = current - MONTH_POINTS + 1
    const summary = this.#summaryOf(current)
    const value = (point: number, place: number) => {
      if (first + point === current) return summary?.[place] ?? Number.NaN
      return this.#halfHours.value(first + point, place)
    }
    return {
      period,
      start: first * MINUTES_OF_HALF_HOUR * 60,
      step: MINUTES_OF_HALF_HOUR * 60,
      points: MONTH_POINTS,
      mean: columnsOf(MONTH_POINTS, value),
      max: columnsOf(MONTH_POINTS, (point, column) => value(point, ROOM + column)),
    }
  }
}

function minuteOf(now: number): number {
  return Math.floor(now / MINUTE_MS)
}

function halfHourOf(minute: number): number {
  return Math.floor(minute / MINUTES_OF_HALF_HOUR)
}

/** Six significant digits: a longer number would only make answers longer. */
function rounded(value: number): number {
  return Number(value.toPrecision(6))
}

/** Yields one column after the other: all at once would hold the thread for several milliseconds. */
function* columnsOf(
  points: number,
  value: (point: number, column: number) => number,
): Generator<readonly [ColumnName, Float64Array], void> {
  for (const [column, { name }] of COLUMNS.entries()) {
    const values = new Float64Array(points)
    for (let point = 0; point < points; point += 1) values[point] = value(point, column)
    yield [name, values]
  }
}

interface RingShape {
  readonly slots: number
  /** Bytes of a record: its number, its values, and their checksum at the end. */
  readonly bytes: number
  readonly width: number
}

/** Records by number; each replaces the one that is `slots` older. */
class Ring {
  readonly #content: Buffer
  readonly #offset: number
  readonly #shape: RingShape

  /** Drops records whose checksum is wrong, or that are in the wrong place. */
  constructor(content: Buffer, offset: number, shape: RingShape) {
    this.#content = content
    this.#offset = offset
    this.#shape = shape
    for (let slot = 0; slot < shape.slots; slot += 1) {
      const record = this.#record(slot)
      const number = record.readDoubleLE(0)
      const isWhole = record.readUInt32LE(shape.bytes - 4) === this.#checksum(record)
      if (!isWhole || this.#slotOf(number) !== slot) record.fill(0)
    }
  }

  #record(slot: number): Buffer {
    const start = this.#offset + slot * this.#shape.bytes
    return this.#content.subarray(start, start + this.#shape.bytes)
  }

  #checksum(record: Buffer): number {
    return crc32(record.subarray(0, this.#shape.bytes - 4))
  }

  #slotOf(number: number): number {
    return number % this.#shape.slots
  }

  /** The number of an empty record is 0, which is long ago. */
  has(number: number): boolean {
    return number > 0 && this.#content.readDoubleLE(this.#startOf(number)) === number
  }

  #startOf(number: number): number {
    return this.#offset + this.#slotOf(number) * this.#shape.bytes
  }

  /** @returns NaN if there is no such record */
  value(number: number, column: number): number {
    if (!this.has(number)) return Number.NaN
    return this.#content.readDoubleLE(this.#startOf(number) + 8 * (column + 1))
  }

  put(number: number, values: Float64Array): Changed {
    const slot = this.#slotOf(number)
    const record = this.#record(slot)
    record.writeDoubleLE(number, 0)
    for (let column = 0; column < this.#shape.width; column += 1)
      record.writeDoubleLE(values[column] ?? Number.NaN, 8 * (column + 1))
    record.writeUInt32LE(this.#checksum(record), this.#shape.bytes - 4)
    const start = this.#startOf(number)
    return { start, end: start + this.#shape.bytes }
  }

  numbers(): number[] {
    return Array.from({ length: this.#shape.slots }, (_, slot) => this.#record(slot).readDoubleLE(0)).filter(
      (number) => number > 0,
    )
  }
}
