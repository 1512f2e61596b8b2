/** The metrics of databases, of the threads that own them, and of tenants. */
import { addHistograms, type HistogramCounts } from '../core/histogram.ts'
import type { Hosted } from '../hosted/hosted.ts'
import type { LoopDelay, ThreadReport, ThreadStats } from '../threads/thread-stats.ts'
import { commitsOf, openDatabases, updatesOf } from './couch-stats.ts'
import {
  type Collector,
  collector,
  histogramSamples,
  type Measurements,
  type Metric,
  type Sample,
  single,
} from './metric.ts'

export const DATABASE_METRICS: readonly Metric<Measurements>[] = [
  {
    name: 'couchdb_open_databases',
    type: 'gauge',
    help: 'Databases with open files.',
    read: ({ threads }) => single(openDatabases(threads)),
  },
  {
    name: 'couchdb_commits_total',
    type: 'counter',
    help: 'Transactions that became durable.',
    read: ({ threads }) => single(commitsOf(threads)),
  },
  {
    name: 'couchdb_document_writes_total',
    type: 'counter',
    help: 'Documents written.',
    read: ({ threads }) => single(updatesOf(threads)),
  },
  {
    name: 'settee_databases',
    type: 'gauge',
    help: 'Number of databases.',
    read: ({ databases }) => single(databases.count),
  },
  {
    name: 'settee_compactions_running',
    type: 'gauge',
    help: 'Databases being compacted.',
    read: ({ databases }) => single(databases.compactions),
  },
  {
    name: 'settee_commit_writes',
    type: 'histogram',
    help: 'Writes that shared a commit: documents, _local documents, settings, chunks of attachments.',
    read: ({ threads }) => commitSamples(threads, ({ commits }) => commits.writes),
  },
  {
    name: 'settee_commit_updates',
    type: 'histogram',
    help: 'Documents with a new sequence number that shared a commit.',
    read: ({ threads }) => commitSamples(threads, ({ commits }) => commits.updates),
  },
  {
    name: 'settee_commit_duration_seconds',
    type: 'histogram',
    help: 'Seconds until a commit was durable.',
    read: ({ threads }) => commitSamples(threads, ({ commits }) => commits.seconds),
  },
  {
    name: 'settee_database_thread_answering',
    type: 'gauge',
    help: '1 if the thread answered the scrape within a second; if 0, its other numbers are older.',
    labels: ['thread'],
    read: ({ threads }) => byThread(threads, ({ isAnswering }) => Number(isAnswering)),
  },
  {
    name: 'settee_database_thread_calls',
    type: 'gauge',
    help: 'Calls and streams under way in the thread.',
    labels: ['thread'],
    read: ({ threads }) => byThread(threads, ({ calls }) => calls),
  },
  {
    name: 'settee_database_thread_queue',
    type: 'gauge',
    help: "Calls that wait in the thread for their database's turn.",
    labels: ['thread'],
    read: ({ threads }) => byThread(threads, ({ stats }) => stats?.waitingCalls),
  },
  {
    name: 'settee_thread_busy_seconds_total',
    type: 'counter',
    help: 'Seconds in which the event loop of a thread was busy; its rate is the busy share.',
    labels: ['thread'],
    read: ({ process, threads }) => [
      { labels: { thread: HTTP_THREAD }, value: process.busySeconds },
      ...byThread(threads, ({ busySeconds }) => busySeconds),
    ],
  },
  {
    name: 'settee_event_loop_delay_seconds',
    type: 'gauge',
    help: 'Delay of the event loop since the last scrape, in seconds: mean, p50, p99, max. Absent in the first scrape.',
    labels: ['thread', 'stat'],
    read: ({ process, threads }) => [
      ...delaySamples(HTTP_THREAD, process.delay),
      ...threads.flatMap(({ number, stats }) => delaySamples(nameOf(number), stats?.delay ?? null)),
    ],
  },
  {
    name: 'settee_thread_heap_bytes',
    type: 'gauge',
    help: "Bytes of JavaScript objects in a thread's heap.",
    labels: ['thread'],
    read: ({ process, threads }) => [
      { labels: { thread: HTTP_THREAD }, value: process.heap.used },
      ...byThread(threads, ({ stats }) => stats?.heap.used),
    ],
  },
  {
    name: 'settee_sandbox_threads',
    type: 'gauge',
    help: 'Threads that run functions of design documents.',
    read: ({ sandboxThreads }) => single(sandboxThreads),
  },
  {
    name: 'settee_function_calls_total',
    type: 'counter',
    help: 'Calls of design functions that returned a result.',
    read: ({ threads }) => single(sum(threads, ({ functions }) => functions.done)),
  },
  {
    name: 'settee_function_failures_total',
    type: 'counter',
    help: 'Batches of calls of design functions that failed: time, memory, syntax.',
    read: ({ threads }) => single(sum(threads, ({ functions }) => functions.failed)),
  },
  {
    name: 'settee_function_calls_under_way',
    type: 'gauge',
    help: 'Calls of design functions that wait for a thread or are running.',
    read: ({ threads }) => single(sum(threads, ({ functionCalls }) => functionCalls)),
  },
]

const HTTP_THREAD = 'http'

function nameOf(number: number): string {
  return `database-${number}`
}

/** One sample for each thread that has a value. */
function byThread(
  threads: readonly ThreadReport[],
  numberOf: (report: ThreadReport) => number | undefined,
): Sample[] {
  return threads.flatMap((report) => {
    const value = numberOf(report)
    return value === undefined ? [] : [{ labels: { thread: nameOf(report.number) }, value }]
  })
}

function delaySamples(thread: string, delay: LoopDelay | null): Sample[] {
  return Object.entries(delay ?? {}).map(([stat, value]) => ({ labels: { thread, stat }, value }))
}

function sum(threads: readonly ThreadReport[], numberOf: (stats: ThreadStats) => number): number {
  return threads.reduce((total, { stats }) => total + (stats === null ? 0 : numberOf(stats)), 0)
}

function commitSamples(
  threads: readonly ThreadReport[],
  histogramOf: (stats: ThreadStats) => HistogramCounts,
): Sample[] {
  const each = threads.flatMap(({ stats }) => (stats === null ? [] : [histogramOf(stats)]))
  const [first, ...others] = each
  return first === undefined ? [] : histogramSamples(others.reduce(addHistograms, first))
}

type TenantUsage = Awaited<ReturnType<Hosted['tenantUsage']>>

/** Maximum number of accounts in the metrics, those with the most bytes first: a scrape is one text. */
const MAX_ACCOUNTS = 5000

function gauge(
  name: string,
  help: string,
  numberOf: (usage: TenantUsage[number]) => number,
): Metric<TenantUsage> {
  return {
    name,
    type: 'gauge',
    help,
    labels: ['account'],
    read: (usage) => usage.map((each) => ({ labels: { account: each.account }, value: numberOf(each) })),
  }
}

const TENANT_METRICS: readonly Metric<TenantUsage>[] = [
  gauge('settee_tenant_bytes', "Bytes of an account's databases.", ({ bytes }) => bytes),
  gauge('settee_tenant_documents', "Documents in an account's databases.", ({ documents }) => documents),
  gauge('settee_tenant_indexes', "Indexes of an account's databases.", ({ indexes }) => indexes),
  gauge('settee_tenant_databases', 'Databases of an account.', ({ databases }) => databases),
  gauge('settee_tenant_feeds', 'Waiting feeds of an account.', ({ feeds }) => feeds),
]

/** @returns the collector of the tenants' metrics for `_prometheus` */
export function tenantCollector(hosted: Pick<Hosted, 'tenantUsage'>): Collector {
  return collector(TENANT_METRICS, () => hosted.tenantUsage(MAX_ACCOUNTS))
}
