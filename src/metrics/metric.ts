/** What a metric is: its name, what it means, and how it is read off what was measured. */
import { countOf, type HistogramCounts } from '../core/histogram.ts'

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
  /** What follows the name, for the parts of a histogram or a summary. */
  readonly suffix?: '_bucket' | '_sum' | '_count'
}

/** @template M what it is read off */
export interface Metric<M> {
  /** As Prometheus wants it: units in words, `_total` on what only grows. */
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary'
  readonly help: string
  /** The names of its labels, whose values are few and never what somebody sent. */
  readonly labels?: readonly string[]
  read(measured: M): readonly Sample[]
}

/** A metric with the values of one moment. */
export interface Family extends Omit<Metric<never>, 'read'> {
  readonly samples: readonly Sample[]
}

/** Tells numbers that another part of the house has; see {@link collector}. */
export type Collector = () => Promise<readonly Family[]>

/** @returns each metric with its values */
export function familiesOf<M>(metrics: readonly Metric<M>[], measured: M): Family[] {
  return metrics.map(({ read, ...metric }) => ({ ...metric, samples: read(measured) }))
}

/**
 * Makes a collector, which `_prometheus` asks at each scrape (`Services.collectors`).
 * @param measure must be quick: a scrape waits for it, a second at the most
 */
export function collector<M>(metrics: readonly Metric<M>[], measure: () => M | Promise<M>): Collector {
  return async () => familiesOf(metrics, await measure())
}

/** The one value of a metric without labels; none where it is not known. */
export function single(value: number | null): Sample[] {
  return value === null ? [] : [{ value }]
}

/** The samples of a histogram: how many were below each bound, their sum, and how many there were. */
export function histogramSamples(
  { bounds, counts, sum }: HistogramCounts,
  labels: Readonly<Record<string, string>> = {},
): Sample[] {
  let below = 0
  const buckets = counts.map((count, at): Sample => {
    below += count
    const le = at < bounds.length ? String(bounds[at]) : '+Inf'
    return { labels: { ...labels, le }, value: below, suffix: '_bucket' }
  })
  return [...buckets, { labels, value: sum, suffix: '_sum' }, { labels, value: below, suffix: '_count' }]
}

/** The samples of a summary without quantiles: a mean is what is divided. */
export function summarySamples(histogram: HistogramCounts): Sample[] {
  return [
    { value: histogram.sum, suffix: '_sum' },
    { value: countOf(histogram), suffix: '_count' },
  ]
}
