/** Metrics and the measurements that they are read from. */
import { countOf, type HistogramCounts } from '../core/histogram.ts'
import type { HeapSize, LoopDelay, ThreadReport } from '../threads/thread-stats.ts'

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
  /** The suffix of the name, for the parts of a histogram or a summary. */
  readonly suffix?: '_bucket' | '_sum' | '_count'
}

/** @template M the measurements that the metric is read from */
export interface Metric<M> {
  /** In Prometheus' form: units as words, `_total` for counters. */
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary'
  readonly help: string
  /** The names of its labels. A label has few values, and none comes from a client. */
  readonly labels?: readonly string[]
  read(measured: M): readonly Sample[]
}

/** A metric with its current values. */
export interface Family extends Omit<Metric<never>, 'read'> {
  readonly samples: readonly Sample[]
}

/** Reports metrics of another part of the server; see {@link collector}. */
export type Collector = () => Promise<readonly Family[]>

/** @returns each metric with its values */
export function familiesOf<M>(metrics: readonly Metric<M>[], measured: M): Family[] {
  return metrics.map(({ read, ...metric }) => ({ ...metric, samples: read(measured) }))
}

/**
 * Makes a collector, which `_prometheus` calls at each scrape (`Services.collectors`).
 * @param measure must be quick: a scrape waits for it for one second at most
 */
export function collector<M>(metrics: readonly Metric<M>[], measure: () => M | Promise<M>): Collector {
  return async () => familiesOf(metrics, await measure())
}

/** The single sample of a metric without labels; none if the value is unknown. */
export function single(value: number | null): Sample[] {
  return value === null ? [] : [{ value }]
}

/** The samples of a histogram: the count below each bound, the sum and the total count. */
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

/** The samples of a summary without quantiles: its sum and count. */
export function summarySamples(histogram: HistogramCounts): Sample[] {
  return [
    { value: histogram.sum, suffix: '_sum' },
    { value: countOf(histogram), suffix: '_count' },
  ]
}

/** The current measurements of a server, from which `_prometheus`, `_stats` and `_system` are made. */
export interface Measurements {
  readonly version: string
  readonly http: HttpCounts
  readonly credentials: CredentialCounts
  readonly databases: DatabaseCounts
  /** The database threads that were started so far. */
  readonly threads: readonly ThreadReport[]
  readonly sandboxThreads: number
  readonly process: ProcessFacts
}

export interface HttpCounts {
  readonly requests: readonly RequestCount[]
  /** Seconds from a request's head to the end of its answer, without answers that wait for changes. */
  readonly durations: readonly {
    readonly class: string
    readonly method: string
    readonly seconds: HistogramCounts
  }[]
  /** Answers whose connection ended before the answer did. */
  readonly broken: number
  /** Invalid requests: not HTTP, or a head that was too large or took too long. */
  readonly invalid: number
  readonly underWay: number
  /** By the kind of feed. */
  readonly openFeeds: Readonly<Record<string, number>>
  readonly openConnections: number
  readonly connections: number
  readonly receivedBytes: number
  readonly sentBytes: number
  readonly bodyMemory: { readonly used: number; readonly size: number }
  readonly bodyFiles: { readonly used: number; readonly size: number }
}

/** Finished requests of one route, method and status. */
export interface RequestCount {
  /** The route's pattern, never a path from a client. */
  readonly route: string
  readonly method: string
  /** null: the client disconnected before the answer. */
  readonly status: number | null
  readonly count: number
}

interface CredentialCounts {
  /** Checked pairs of name and password. */
  readonly right: number
  readonly wrong: number
  /** The checks among them that had to compute a hash. */
  readonly hashed: number
  /** Checks that wait to compute a hash. */
  readonly waiting: number
}

interface DatabaseCounts {
  readonly count: number
  readonly compactions: number
}

/** Measurements of the process and of its HTTP thread. */
export interface ProcessFacts {
  /** Seconds since 1970. */
  readonly startedAt: number
  readonly uptime: number
  readonly cpuSeconds: number
  /** Bytes; null where the system does not report it. */
  readonly residentBytes: number | null
  /** The number of file descriptors; null where the system does not report it. */
  readonly openFiles: number | null
  /** Bytes that can still be written to the disk of the data folder; null where the system does not report it. */
  readonly diskFreeBytes: number | null
  readonly contextSwitches: number
  readonly heap: HeapSize
  readonly delay: LoopDelay | null
  readonly busySeconds: number
}

/** @returns the result of a promise; null if it fails, or takes longer than `ms` milliseconds */
export function orNullAfter<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(null), ms)
    const end = (result: T | null) => {
      clearTimeout(late)
      resolve(result)
    }
    promise.then(end, () => end(null))
  })
}
