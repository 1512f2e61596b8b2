/** Which calls a standby serves. */
import t from 'tap'
import { isServedByStandby } from '../../src/http/plugins/standby-writes.ts'
import { startMemoryServer } from './memory-server.ts'

/** Every call that is no plain read and changes nothing that a standby copies. */
const SERVED = [
  'POST /_dbs_info',
  'POST /_session',
  'DELETE /_session',
  'POST /:db/_all_docs',
  'POST /:db/_all_docs/queries',
  'POST /:db/_design_docs',
  'POST /:db/_design_docs/queries',
  'POST /:db/_local_docs',
  'POST /:db/_local_docs/queries',
  'POST /:db/_partition/:partition/_all_docs',
  'POST /:db/_partition/:partition/_all_docs/queries',
  'POST /:db/_partition/:partition/_find',
  'POST /:db/_partition/:partition/_explain',
  'POST /:db/_bulk_get',
  'POST /:db/_revs_diff',
  'POST /:db/_missing_revs',
  'POST /:db/_changes',
  'POST /:db/_find',
  'POST /:db/_explain',
  'POST /:db/_ensure_full_commit',
  'POST /:db/_compact',
  'POST /:db/_compact/:ddoc',
  'POST /:db/_view_cleanup',
  'POST /_settee/backups',
  'DELETE /_settee/backups/:id',
  'POST /_settee/check',
  'DELETE /_settee/alarms/:alarm',
  'DELETE /_settee/databases/:db/alarms/:alarm',
]
const CONFIG = /^(?:POST|PUT|DELETE) (?:\/_node\/:node)?\/_config/
const QUERIES = /^\w+ \/:db\/(?:_partition\/:partition\/)?_design\/:ddoc\/_(?:view\/:view|show|list)/

t.test('a standby serves reads, logins and the care of its own files, and nothing else', async (t) => {
  const { app } = await startMemoryServer(t)
  const calls = app.paths.flatMap(({ url, methods }) =>
    Object.keys(methods).map((method) => ({ method, url })),
  )
  const served = calls
    .filter(({ method, url }) => method !== 'GET' && isServedByStandby(method, url))
    .map(({ method, url }) => `${method} ${url}`)
    .filter((call) => !CONFIG.test(call) && !QUERIES.test(call))
  t.same(served.sort(), [...SERVED].sort())
  const refused = calls.filter(({ method, url }) => method === 'GET' && !isServedByStandby(method, url))
  t.ok(refused.length > 0 && refused.every(({ url }) => url.includes('/_update')))
})
