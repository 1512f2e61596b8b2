import { readFile } from 'node:fs/promises'
import t from 'tap'
import { BACKUP_METRICS } from '../../src/backup/backup-health.ts'
import { couchStats, statAt } from '../../src/metrics/couch-stats.ts'
import { exposition, METRICS } from '../../src/metrics/exposition.ts'
import { collector, familiesOf, type Metric } from '../../src/metrics/metric.ts'
import { systemInfo } from '../../src/metrics/process-metrics.ts'
import { REPLICATION_METRICS } from '../../src/metrics/replication-metrics.ts'
import { SCRUB_METRICS } from '../../src/scrub/scrub-health.ts'
import { STANDBY_METRICS } from '../../src/standby/standby-health.ts'
import { readPrometheus, sampleOf } from '../helpers/prometheus-text.ts'
import { MEASURED } from './measured.ts'

t.test('every metric is exposed in the format of Prometheus', async (t) => {
  const families = readPrometheus(await exposition(familiesOf(METRICS, MEASURED)))
  t.strictSame(
    [...families.keys()],
    METRICS.map(({ name }) => name),
  )
  const value = (name: string, labels?: Record<string, string>) => sampleOf(families, name, labels)
  t.equal(value('couchdb_httpd_requests_total'), 23, 'answered requests are counted')
  t.equal(value('couchdb_httpd_request_methods', { method: 'GET' }), 19)
  t.equal(value('couchdb_httpd_status_codes', { code: '201' }), 6)
  t.equal(value('couchdb_httpd_bulk_requests_total'), 7)
  t.equal(value('couchdb_httpd_view_reads_total'), 6)
  t.equal(value('couchdb_httpd_purge_requests_total'), 1)
  t.equal(value('couchdb_httpd_clients_requesting_changes'), 9)
  t.equal(value('couchdb_request_time_seconds_count'), 4)
  t.equal(value('settee_http_requests_total', { route: '/:db/_changes', status: 'aborted' }), 7)
  t.equal(value('settee_http_request_duration_seconds_bucket', { class: 'document', le: '0.0025' }), 2)
  t.equal(value('couchdb_open_databases'), 4)
  t.equal(value('couchdb_commits_total'), 3)
  t.equal(value('couchdb_document_writes_total'), 181)
  t.equal(value('settee_commit_writes_sum'), 204)
  t.equal(value('settee_commit_writes_bucket', { le: '256' }), 3)
  t.equal(value('settee_commit_updates_bucket', { le: '0' }), 1)
  t.equal(value('settee_database_thread_answering', { thread: 'database-3' }), 0)
  t.equal(value('settee_database_thread_queue', { thread: 'database-2' }), 2)
  t.equal(
    value('settee_database_thread_queue', { thread: 'database-3' }),
    undefined,
    'an unknown value has no sample',
  )
  t.equal(value('settee_thread_busy_seconds_total', { thread: 'database-3' }), 20)
  t.equal(value('settee_event_loop_delay_seconds', { thread: 'database-1', stat: 'p99' }), 0.01)
  t.equal(
    value('settee_event_loop_delay_seconds', { thread: 'http' }),
    undefined,
    'an unmeasured value has no sample',
  )
  t.equal(value('settee_credential_checks_total', { outcome: 'wrong' }), 3)
  t.equal(value('settee_info', { version: '1.2.3' }), 1)
})

t.test('values that the system does not report are omitted', async (t) => {
  const process = { ...MEASURED.process, openFiles: null, residentBytes: null, diskFreeBytes: null }
  const families = readPrometheus(await exposition(familiesOf(METRICS, { ...MEASURED, process })))
  for (const name of ['couchdb_open_os_files', 'process_resident_memory_bytes', 'settee_data_free_bytes']) {
    t.strictSame(families.get(name)?.samples, [], name)
  }
})

t.test('a label may have any value', async (t) => {
  const account = 'a"b\\c\nd'
  const metric: Metric<number> = {
    name: 'settee_tenant_bytes',
    type: 'gauge',
    help: 'Bytes.',
    labels: ['account'],
    read: (value) => [{ labels: { account }, value }],
  }
  const families = await collector([metric], async () => 5)()
  t.equal(sampleOf(readPrometheus(await exposition(families)), 'settee_tenant_bytes', { account }), 5)
})

t.test('every metric declares the labels of its samples', async (t) => {
  for (const { name, labels = [], samples } of familiesOf(METRICS, MEASURED)) {
    for (const { labels: given = {} } of samples) {
      t.strictSame(
        Object.keys(given).filter((label) => label !== 'le'),
        labels,
        name,
      )
    }
  }
})

t.test('two metrics with the same name are refused', async (t) => {
  const [first] = familiesOf(METRICS, MEASURED)
  if (first === undefined) throw new Error('no metric')
  await t.rejects(async () => exposition([first, first]), /already been registered/)
})

t.test('docs/operating.md lists every metric', async (t) => {
  const page = await readFile(new URL('../../docs/operating.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| `((?:couchdb|settee|process)_\w+)`(?: by (.*?))? \| (\w+) \| /gm)]
  t.strictSame(
    rows.map(([, name, labels = '', type]) => [name, labels, type]),
    [...METRICS, ...BACKUP_METRICS, ...SCRUB_METRICS, ...STANDBY_METRICS, ...REPLICATION_METRICS].map(
      ({ name, labels = [], type }) => [name, labels.map((label) => `\`${label}\``).join(', '), type],
    ),
  )
})

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

t.test('request times are in milliseconds', async (t) => {
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

t.test('a path finds a stat or one of its members, and nothing else', async (t) => {
  const stats = couchStats(MEASURED)
  t.equal(statAt(stats, []), stats)
  t.equal(statAt(stats, ['couchdb', 'commits', 'value']), 3)
  for (const path of ['nothing', 'couchdb/nothing', 'couchdb/commits/value/x', 'constructor', '__proto__']) {
    t.equal(statAt(stats, path.split('/')), undefined, path)
  }
})

t.test('values that the system does not report are omitted', async (t) => {
  const process = { ...MEASURED.process, openFiles: null, residentBytes: null }
  t.equal(statAt(couchStats({ ...MEASURED, process }), ['couchdb', 'open_os_files']), undefined)
  t.notOk('other' in systemInfo({ ...MEASURED, process }).memory)
})

t.test('_system', async (t) => {
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
