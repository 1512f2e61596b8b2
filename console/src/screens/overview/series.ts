/** The samples of `/_settee/samples`, as the plots and their table need them. Pure. */

/** The answer of `/_settee/samples`. */
export interface SampleSeries {
  readonly period: Period
  /** Seconds since 1970. */
  readonly start: number
  /** Seconds. */
  readonly step: number
  readonly points: number
  readonly mean: Readonly<Record<string, Values>>
  /** The greatest values within each point; absent for a day. */
  readonly max?: Readonly<Record<string, Values>>
}

export type Period = 'day' | 'month'

/** null: unknown. */
type Values = readonly (number | null)[]

/** The middle of each point, in seconds since 1970. */
export function timesOf({ start, step, points }: SampleSeries): number[] {
  return Array.from({ length: points }, (_, at) => start + (at + 0.5) * step)
}

/** @returns the values of a column; all unknown if the server does not have it */
export function meanOf({ mean, points }: SampleSeries, column: string): Values {
  return mean[column] ?? Array.from({ length: points }, () => null)
}

function maxOf(series: SampleSeries, column: string): Values {
  return series.max?.[column] ?? meanOf(series, column)
}

interface Summary {
  /** The newest value; null if the last points are unknown. */
  readonly now: number | null
  readonly mean: number
  readonly peak: number
  /** Seconds since 1970. */
  readonly peakAt: number
  readonly least: number
  readonly leastAt: number
}

/** Points that may be missing at the end: the newest one is stored a moment after its minute. */
const LATE_POINTS = 2

/** @returns null if no value is known */
export function summaryOf(series: SampleSeries, column: string): Summary | null {
  const mean = meanOf(series, column)
  const known = mean.filter((value) => value !== null)
  if (known.length === 0) return null
  const peaks = maxOf(series, column).map((value) => value ?? Number.NEGATIVE_INFINITY)
  const peak = peaks.reduce((greatest, value) => Math.max(greatest, value))
  const least = known.reduce((smallest, value) => Math.min(smallest, value))
  const timeAt = (at: number) => series.start + (at + 0.5) * series.step
  const newest = mean.findLastIndex((value) => value !== null)
  return {
    now: newest >= series.points - 1 - LATE_POINTS ? (mean[newest] ?? null) : null,
    mean: known.reduce((sum, value) => sum + value, 0) / known.length,
    peak,
    peakAt: timeAt(peaks.indexOf(peak)),
    least,
    leastAt: timeAt(mean.indexOf(least)),
  }
}

/** How many points are drawn as one, since a plot has fewer pixels than points: five minutes, and three hours. */
const DRAWN_AS_ONE = { day: 5, month: 6 } as const

/** @returns the means of neighbouring points, as they are drawn */
export function drawnOf(series: SampleSeries): SampleSeries {
  const together = DRAWN_AS_ONE[series.period]
  const points = Math.ceil(series.points / together)
  const groups = Array.from({ length: points }, (_, group) =>
    Array.from({ length: together }, (_, at) => group * together + at),
  )
  const mean = Object.fromEntries(
    Object.entries(series.mean).map(([column, values]) => [
      column,
      groups.map((group) => meanAt(values, group)),
    ]),
  )
  const { period, start, step } = series
  return { period, start, step: step * together, points, mean }
}

/** Whether there is anything to show. */
export function hasSamples({ mean }: SampleSeries): boolean {
  return Object.values(mean).some((values) => values.some((value) => value !== null))
}

interface Row {
  /** When it begins, in seconds since 1970. */
  readonly time: number
  /** The mean of each column; null: unknown. */
  readonly means: Readonly<Record<string, number | null>>
}

/**
 * Sums points up for a table: hours of a day, or days of a month, the newest first. Rows without a value are left out.
 * @param offset of the time zone from UTC, in seconds, so that a row is a whole hour or day there
 */
export function rowsOf(series: SampleSeries, columns: readonly string[], offset: number): Row[] {
  const length = series.period === 'day' ? 3600 : 86_400
  const groups = new Map<number, number[]>()
  for (let at = 0; at < series.points; at += 1) {
    const group = Math.floor((series.start + at * series.step + offset) / length)
    groups.set(group, [...(groups.get(group) ?? []), at])
  }
  const rows = [...groups].map(([group, points]) => ({
    time: group * length - offset,
    means: Object.fromEntries(
      columns.map((column) => [column, meanAt(meanOf(series, column), points)] as const),
    ),
  }))
  return rows.filter(({ means }) => Object.values(means).some((value) => value !== null)).toReversed()
}

function meanAt(values: Values, points: readonly number[]): number | null {
  const known = points.flatMap((at) => values[at] ?? [])
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}

/** Rates below this are shown per minute: a household saves a note now and then. In 1/s. */
const PER_MINUTE_BELOW = 1

/** By what a rate is multiplied to be read easily: 1 for rates per second, 60 for rates per minute. */
export function rateFactor(greatest: number): 1 | 60 {
  return greatest < PER_MINUTE_BELOW ? 60 : 1
}
