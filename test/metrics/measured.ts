/** Measurements of a server after some work of every kind. */
import { Histogram } from '../../src/core/histogram.ts'
import { REQUEST_SECONDS } from '../../src/metrics/couch-stats.ts'
import type { Measurements } from '../../src/metrics/metric.ts'
import { CommitTally } from '../../src/storage/commit-tally.ts'
import type { ThreadReport } from '../../src/threads/thread-stats.ts'

function seconds(...values: number[]) {
  const histogram = new Histogram(REQUEST_SECONDS)
  for (const value of values) histogram.add(value)
  return histogram.counts()
}

function report(
  number: number,
  commits: readonly (readonly [writes: number, updates: number])[],
): ThreadReport {
  const tally = new CommitTally()
  for (const [writes, updates] of commits) tally.add(writes, updates, 2)
  return {
    number,
    isAnswering: true,
    calls: 2,
    busySeconds: 1.5,
    stats: {
      commits: tally.counts(),
      functions: { done: 10, failed: 1 },
      unindexedQueries: 4,
      openDatabases: 2,
      waitingCalls: number,
      functionCalls: 0,
      heap: { total: 100, used: 50, external: 10 },
      delay: { mean: 0.001, p50: 0.001, p99: 0.01, max: 0.02 },
    },
  }
}

const silent: ThreadReport = {
  number: 3,
  isAnswering: false,
  calls: 9,
  busySeconds: 20,
  stats: null,
}

export const MEASURED: Measurements = {
  version: '1.2.3',
  http: {
    requests: [
      { route: '/:db/:docid', method: 'GET', status: 200, count: 5 },
      { route: '/:db/:docid', method: 'GET', status: 404, count: 1 },
      { route: '/:db/:docid', method: 'PUT', status: 201, count: 2 },
      { route: '/:db/_bulk_docs', method: 'POST', status: 201, count: 3 },
      { route: '/:db/_bulk_get', method: 'POST', status: 200, count: 4 },
      { route: '/:db/_purge', method: 'POST', status: 201, count: 1 },
      { route: '/:db/_design/:ddoc/_view/:view', method: 'GET', status: 200, count: 6 },
      { route: '/:db/_changes', method: 'GET', status: null, count: 7 },
      { route: 'none', method: 'OTHER', status: 405, count: 1 },
    ],
    durations: [
      { class: 'document', method: 'GET', seconds: seconds(0.001, 0.002, 0.003) },
      { class: 'bulk_docs', method: 'POST', seconds: seconds(0.2) },
    ],
    broken: 7,
    invalid: 2,
    underWay: 4,
    openFeeds: { normal: 1, longpoll: 2, continuous: 3, eventsource: 4 },
    openConnections: 8,
    connections: 9,
    receivedBytes: 1000,
    sentBytes: 2000,
    bodyMemory: { used: 10, size: 100 },
    bodyFiles: { used: 20, size: 200 },
  },
  credentials: { right: 5, wrong: 3, hashed: 2, waiting: 1 },
  databases: { count: 12, compactions: 1 },
  threads: [
    report(1, [
      [1, 1],
      [200, 180],
    ]),
    report(2, [[3, 0]]),
    silent,
  ],
  sandboxThreads: 2,
  process: {
    startedAt: 1_700_000_000,
    uptime: 61.5,
    cpuSeconds: 12.5,
    residentBytes: 1000,
    openFiles: 40,
    diskFreeBytes: 5000,
    contextSwitches: 77,
    heap: { total: 200, used: 100, external: 20 },
    delay: null,
    busySeconds: 3.25,
  },
}
