import { readFile } from 'node:fs/promises'
import t from 'tap'
import { BACKUP_METRICS } from '../../../src/backup/backup-health.ts'
import { exposition, METRICS } from '../../../src/metrics/exposition.ts'
import { collector, familiesOf, type Metric } from '../../../src/metrics/metric.ts'
import { readPrometheus, sampleOf } from '../../helpers/prometheus-text.ts'
import { MEASURED } from './measured.ts'

t.test('every metric is told, as Prometheus reads it', async (t) => {
  const families = readPrometheus(await exposition(familiesOf(METRICS, MEASURED)))
  t.strictSame(
    [...families.keys()],
    METRICS.map(({ name }) => name),
  )
  const value = (name: string, labels?: Record<string, string>) => sampleOf(families, name, labels)
  t.equal(value('couchdb_httpd_requests_total'), 23, 'those that were answered')
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
  t.equal(value('settee_database_thread_queue', { thread: 'database-3' }), undefined, 'not known')
  t.equal(value('settee_thread_busy_seconds_total', { thread: 'database-3' }), 20)
  t.equal(value('settee_event_loop_delay_seconds', { thread: 'database-1', stat: 'p99' }), 0.01)
  t.equal(value('settee_event_loop_delay_seconds', { thread: 'http' }), undefined, 'not measured yet')
  t.equal(value('settee_credential_checks_total', { outcome: 'wrong' }), 3)
  t.equal(value('settee_info', { version: '1.2.3' }), 1)
})

t.test('what the system does not say is left out', async (t) => {
  const process = { ...MEASURED.process, openFiles: null, residentBytes: null, diskFreeBytes: null }
  const families = readPrometheus(await exposition(familiesOf(METRICS, { ...MEASURED, process })))
  for (const name of ['couchdb_open_os_files', 'process_resident_memory_bytes', 'settee_data_free_bytes']) {
    t.strictSame(families.get(name)?.samples, [], name)
  }
})

t.test('a label may hold anything', async (t) => {
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

t.test('every label that a metric has is named with it', async (t) => {
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

t.test('two metrics of one name are refused', async (t) => {
  const [first] = familiesOf(METRICS, MEASURED)
  if (first === undefined) throw new Error('no metric')
  await t.rejects(async () => exposition([first, first]), /already been registered/)
})

t.test('docs/operating.md lists them', async (t) => {
  const page = await readFile(new URL('../../../docs/operating.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| `((?:couchdb|settee|process)_\w+)`(?: by (.*?))? \| (\w+) \| /gm)]
  t.strictSame(
    rows.map(([, name, labels = '', type]) => [name, labels, type]),
    [...METRICS, ...BACKUP_METRICS].map(({ name, labels = [], type }) => [
      name,
      labels.map((label) => `\`${label}\``).join(', '),
      type,
    ]),
  )
})
