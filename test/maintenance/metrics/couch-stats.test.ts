/** The tree of CouchDB's stats, and its system; protocol.md 15. */
import t from 'tap'
import { couchStats, statAt } from '../../../src/metrics/couch-stats.ts'
import { systemInfo } from '../../../src/metrics/process-metrics.ts'
import { MEASURED } from './measured.ts'

t.test('a stat has a value, a type and a description', async (t) => {
  const stats = couchStats(MEASURED)
  t.strictSame(statAt(stats, ['couchdb', 'httpd', 'requests']), {
    value: 23,
    type: 'counter',
    desc: 'answered requests',
  })
  const values: [path: string, value: number][] = [
    ['commits', 3],
    ['document_writes', 181],
    ['open_databases', 4],
    ['open_os_files', 40],
    ['httpd/bulk_requests', 7],
    ['httpd/view_reads', 6],
    ['httpd/purge_requests', 1],
    ['httpd/clients_requesting_changes', 9],
    ['httpd_request_methods/GET', 19],
    ['httpd_request_methods/COPY', 0],
    ['httpd_request_methods/OTHER', 1],
    ['httpd_status_codes/200', 15],
    ['httpd_status_codes/500', 0],
    ['request_time/value/n', 4],
  ]
  for (const [path, value] of values) {
    const found = statAt(stats, ['couchdb', ...path.split('/')])
    t.match(typeof found === 'number' ? { value: found } : found, { value }, path)
  }
})

t.test('the times of requests are in milliseconds', async (t) => {
  const found = statAt(couchStats(MEASURED), ['couchdb', 'request_time', 'value']) as {
    arithmetic_mean: number
    percentile: [number, number][]
    histogram: [number, number][]
  }
  t.equal(Math.round(found.arithmetic_mean * 10) / 10, 51.5)
  t.strictSame(
    found.percentile.map(([p]) => p),
    [50, 75, 90, 95, 99, 999],
  )
  t.ok(found.percentile.every(([, ms]) => ms > 0 && ms <= 250))
  t.equal(
    found.histogram.reduce((sum, [, count]) => sum + count, 0),
    4,
  )
})

t.test('a path leads down to a member of a stat, and nowhere else', async (t) => {
  const stats = couchStats(MEASURED)
  t.equal(statAt(stats, []), stats)
  t.equal(statAt(stats, ['couchdb', 'commits', 'value']), 3)
  for (const path of ['nothing', 'couchdb/nothing', 'couchdb/commits/value/x', 'constructor', '__proto__']) {
    t.equal(statAt(stats, path.split('/')), undefined, path)
  }
})

t.test('what the system does not say is left out', async (t) => {
  const process = { ...MEASURED.process, openFiles: null, residentBytes: null }
  t.equal(statAt(couchStats({ ...MEASURED, process }), ['couchdb', 'open_os_files']), undefined)
  t.notOk('other' in systemInfo({ ...MEASURED, process }).memory)
})

t.test('the system', async (t) => {
  t.strictSame(systemInfo(MEASURED), {
    uptime: 61,
    memory: { processes: 400, processes_used: 200, binary: 40, other: 560 },
    run_queue: 3,
    message_queues: { 'database-1': 1, 'database-2': 2 },
    process_count: 6,
    os_proc_count: 2,
    context_switches: 77,
    io_input: 1000,
    io_output: 2000,
  })
})
