/** What CouchDB tells at `_stats`, of it all that settee counts; protocol.md 15. */
import { countOf, type HistogramCounts, percentile } from '../../core/histogram.ts'
import { commitsOf, openDatabases, updatesOf } from './database-sums.ts'
import { clientsOfFeeds, requestSeconds, requestsBy, requestsOf, statusesOf, VIEWS } from './http-sums.ts'
import type { Measurements } from './measurements.ts'

export interface Stat {
  readonly value: unknown
  readonly type: 'counter' | 'histogram'
  readonly desc: string
}

export interface Stats {
  readonly [name: string]: Stat | Stats
}

/** CouchDB has these from its start on; of others there is a stat once there was such a request. */
const METHODS = ['COPY', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT']
const CODES = [
  200, 201, 202, 206, 301, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 416, 417, 500, 503, 507,
].map(String)

/** The whole tree. */
export function couchStats(measured: Measurements): Stats {
  const { http, threads, process } = measured
  return {
    couchdb: {
      commits: counter(commitsOf(threads), 'transactions that became durable'),
      document_writes: counter(updatesOf(threads), 'documents that were written'),
      open_databases: counter(openDatabases(threads), 'databases whose files are held open'),
      ...(process.openFiles !== null && {
        open_os_files: counter(process.openFiles, 'file descriptors that the process has open'),
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
        requestsBy(http, ({ route, status }) => route === '/:db/_find' && status === 200),
        'queries that had no index but that of all ids',
      ),
    },
  }
}

function httpStats({ http }: Measurements): Stats {
  return {
    requests: counter(
      requestsBy(http, ({ status }) => status !== null),
      'requests that were answered',
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

/** The members of CouchDB's histograms that a histogram of settee's knows, in milliseconds, since the start. */
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

/**
 * What stands at a path of the tree, down to a stat's own members.
 * @returns undefined when nothing does
 */
export function statAt(stats: Stats, path: readonly string[]): unknown {
  let found: unknown = stats
  for (const name of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined
    found = (found as Readonly<Record<string, unknown>>)[name]
  }
  return found
}
