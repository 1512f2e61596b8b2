/** CouchDB's `_stats`, as far as settee has the same counts; protocol.md 15. */
import { addHistograms, countOf, Histogram, type HistogramCounts, percentile } from '../core/histogram.ts'
import type { ThreadReport } from '../threads/thread-stats.ts'
import type { HttpCounts, Measurements, RequestCount } from './metric.ts'

interface Stat {
  readonly value: unknown
  readonly type: 'counter' | 'histogram'
  readonly desc: string
}

interface Stats {
  readonly [name: string]: Stat | Stats
}

/** CouchDB lists these from the start; others appear with the first such request. */
const METHODS = ['COPY', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT']
const CODES = [
  200, 201, 202, 206, 301, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 416, 417, 500, 503, 507,
].map(String)

/** All statistics, as a tree. */
export function couchStats(measured: Measurements): Stats {
  const { http, threads, process } = measured
  return {
    couchdb: {
      commits: counter(commitsOf(threads), 'transactions that became durable'),
      document_writes: counter(updatesOf(threads), 'documents written'),
      open_databases: counter(openDatabases(threads), 'databases with open files'),
      ...(process.openFiles !== null && {
        open_os_files: counter(process.openFiles, 'open file descriptors of the process'),
      }),
      request_time: {
        value: distribution(requestSeconds(http)),
        type: 'histogram',
        desc: 'milliseconds from the head of a request to the end of its answer',
      },
      httpd: httpStats(measured),
      httpd_request_methods: counters(
        METHODS,
        requestsOf(http, ({ method }) => method),
        (method) => `requests with the method ${method}`,
      ),
      httpd_status_codes: counters(CODES, statusesOf(http), (code) => `answers with the status ${code}`),
    },
    mango: {
      unindexed_queries: counter(
        threads.reduce((sum, { stats }) => sum + (stats?.unindexedQueries ?? 0), 0),
        'queries that used only the index of all ids',
      ),
    },
  }
}

function httpStats({ http }: Measurements): Stats {
  return {
    requests: counter(
      requestsBy(http, ({ status }) => status !== null),
      'answered requests',
    ),
    bulk_requests: counter(
      requestsBy(http, ({ route }) => /^\/:db\/_bulk_(?:docs|get)$/.test(route)),
      'requests to _bulk_docs and _bulk_get',
    ),
    view_reads: counter(
      requestsBy(http, ({ route }) => VIEWS.test(route)),
      'requests to views',
    ),
    purge_requests: counter(
      requestsBy(http, ({ route }) => route === '/:db/_purge'),
      'requests to _purge',
    ),
    clients_requesting_changes: counter(clientsOfFeeds(http), 'feeds that wait for changes'),
  }
}

function counter(value: number, desc: string): Stat {
  return { value, type: 'counter', desc }
}

function counters(
  names: readonly string[],
  counts: ReadonlyMap<string, number>,
  describe: (name: string) => string,
): Stats {
  const all = new Set([...names, ...counts.keys()])
  return Object.fromEntries([...all].map((name) => [name, counter(counts.get(name) ?? 0, describe(name))]))
}

/** The members of CouchDB's histograms that settee can compute, in milliseconds, since the start. */
function distribution(seconds: HistogramCounts): object {
  const n = countOf(seconds)
  return {
    n,
    arithmetic_mean: n === 0 ? 0 : (seconds.sum / n) * 1000,
    percentile: [50, 75, 90, 95, 99, 999].map((p) => [
      p,
      percentile(seconds, p === 999 ? 0.999 : p / 100) * 1000,
    ]),
    histogram: seconds.bounds.map((bound, at) => [bound * 1000, seconds.counts[at] ?? 0]),
  }
}

/** @returns the value at a path of the tree, down to a stat's own members; undefined: there is none */
export function statAt(stats: Stats, path: readonly string[]): unknown {
  let found: unknown = stats
  for (const name of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined
    found = (found as Readonly<Record<string, unknown>>)[name]
  }
  return found
}

export function openDatabases(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats?.openDatabases ?? 0), 0)
}

/** The number of transactions that became durable. */
export function commitsOf(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats === null ? 0 : countOf(stats.commits.writes)), 0)
}

/** The number of assigned sequence numbers. */
export function updatesOf(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats?.commits.updates.sum ?? 0), 0)
}

/** Upper bounds of a request's duration, in seconds. */
export const REQUEST_SECONDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
]

/** The routes of views. */
export const VIEWS: RegExp = /^\/:db\/_design\/:ddoc\/_view\/:view(?:\/queries)?$/

const EMPTY = new Histogram(REQUEST_SECONDS).counts()

/** The number of requests that match. */
export function requestsBy(
  { requests }: Pick<HttpCounts, 'requests'>,
  matches: (request: RequestCount) => boolean,
): number {
  return requests.reduce((sum, request) => sum + (matches(request) ? request.count : 0), 0)
}

/** The number of requests by the name that `nameOf` gives; requests with null are left out. */
export function requestsOf(
  { requests }: HttpCounts,
  nameOf: (request: RequestCount) => string | null,
): Map<string, number> {
  const sums = new Map<string, number>()
  for (const request of requests) {
    const name = nameOf(request)
    if (name !== null) sums.set(name, (sums.get(name) ?? 0) + request.count)
  }
  return sums
}

/** The number of answers by status. */
export function statusesOf(http: HttpCounts): Map<string, number> {
  return requestsOf(http, ({ status }) => (status === null ? null : String(status)))
}

/** The number of feeds that wait for changes. */
export function clientsOfFeeds({ openFeeds }: Pick<HttpCounts, 'openFeeds'>): number {
  const { longpoll = 0, continuous = 0, eventsource = 0 } = openFeeds
  return longpoll + continuous + eventsource
}

/** The durations of all requests, in seconds. */
export function requestSeconds({ durations }: HttpCounts): HistogramCounts {
  return durations.reduce((sum, { seconds }) => addHistograms(sum, seconds), EMPTY)
}
