/**
 * Every path with every method: what an admin is answered who sends nothing but the method, and 405 with the list of
 * protocol.md 1.5 for the rest. A path without a row here fails.
 */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'COPY', 'PATCH', 'OPTIONS', 'DELETE'] as const

interface Row {
  /** An address of the path; `db` is a database with the document `doc`, `_design/d` and `_local/l`. */
  readonly example: string
  readonly allow: string
  /** The status of each method that has a meaning; HEAD is as GET. */
  readonly statuses: Readonly<Record<string, number>>
}

function row(example: string, allow: string, statuses: Row['statuses']): Row {
  return { example, allow, statuses }
}

const DOCUMENT = 'DELETE,GET,HEAD,POST,PUT,COPY'
const ATTACHMENT = 'DELETE,GET,HEAD,PUT'
const NOWHERE = { GET: 404, POST: 404, PUT: 404, COPY: 404, DELETE: 404 }
/** A POST without the content type that it demands. */
const LIST = { GET: 200, POST: 415 }

const ROWS: Readonly<Record<string, Row>> = {
  '/': row('/', 'GET,HEAD', { GET: 200 }),
  '/_up': row('/_up', 'GET,HEAD', { GET: 200 }),
  '/_uuids': row('/_uuids', 'GET', { GET: 200 }),
  '/_session': row('/_session', 'GET,HEAD,POST,DELETE', { GET: 200, POST: 415, DELETE: 200 }),
  '/_all_dbs': row('/_all_dbs', 'GET,HEAD', { GET: 200 }),
  '/_dbs_info': row('/_dbs_info', 'GET,HEAD,POST', LIST),
  '/_db_updates': row('/_db_updates', 'GET', { GET: 200 }),
  '/_active_tasks': row('/_active_tasks', 'GET,HEAD', { GET: 200 }),
  '/_membership': row('/_membership', 'GET', { GET: 200 }),
  '/_node': row('/_node', 'GET,HEAD', { GET: 400, POST: 400, PUT: 400, COPY: 400, DELETE: 400 }),
  '/_node/:node': row('/_node/_local', 'GET,HEAD', { GET: 200 }),
  '/_node/:node/*': row('/_node/_local/x', 'GET,HEAD', NOWHERE),
  '/_node/:node/_config': row('/_node/_local/_config', 'GET', { GET: 200 }),
  '/_node/:node/_config/_reload': row('/_node/_local/_config/_reload', 'POST', { POST: 200 }),
  '/_node/:node/_config/:section': row('/_node/_local/_config/log', 'GET', { GET: 200 }),
  '/_node/:node/_config/:section/:key': row('/_node/_local/_config/log/level', 'GET,PUT,DELETE', {
    GET: 200,
    PUT: 400,
    DELETE: 200,
  }),
  '/_node/:node/_prometheus': row('/_node/_local/_prometheus', 'GET', { GET: 200 }),
  '/_node/:node/_stats': row('/_node/_local/_stats', 'GET', { GET: 200 }),
  '/_node/:node/_stats/*': row('/_node/_local/_stats/couchdb', 'GET', { GET: 200 }),
  '/_node/:node/_system': row('/_node/_local/_system', 'GET', { GET: 200 }),
  '/_settee/backups': row('/_settee/backups', 'GET,HEAD,POST', { GET: 200, POST: 415 }),
  '/_settee/backups/:id': row('/_settee/backups/2026-01-01T00-00-00Z', 'GET,HEAD,DELETE', {
    GET: 404,
    DELETE: 404,
  }),
  '/_settee/accounts': row('/_settee/accounts', 'GET,HEAD,POST', { GET: 404, POST: 415 }),
  '/_settee/accounts/:name': row('/_settee/accounts/anna', 'GET,HEAD,PUT,DELETE', {
    GET: 404,
    PUT: 404,
    DELETE: 404,
  }),
  '/_settee/owners/:name': row('/_settee/owners/db', 'GET,HEAD,PUT', { GET: 404, PUT: 404 }),
  '/_settee/account': row('/_settee/account', 'GET,HEAD', { GET: 404 }),
  '/_settee/sign-up': row('/_settee/sign-up', 'POST', { POST: 415 }),
  '/_settee/databases/:db/size': row('/_settee/databases/_users/size', 'GET,HEAD', { GET: 200 }),
  '/_config': row('/_config', 'GET', { GET: 200 }),
  '/_config/_reload': row('/_config/_reload', 'POST', { POST: 200 }),
  '/_config/:section': row('/_config/log', 'GET', { GET: 200 }),
  '/_config/:section/:key': row('/_config/log/level', 'GET,PUT,DELETE', { GET: 200, PUT: 400, DELETE: 200 }),
  '/_settee/tokens': row('/_settee/tokens', 'GET,HEAD,POST', LIST),
  '/_settee/tokens/:id': row('/_settee/tokens/x', 'DELETE', { DELETE: 404 }),
  '/_settee/backups/:id/restore': row('/_settee/backups/x/restore', 'POST', { POST: 415 }),
  '/_settee/alarms': row('/_settee/alarms', 'GET,HEAD', { GET: 200 }),
  '/_settee/alarms/:alarm': row('/_settee/alarms/x', 'DELETE', { DELETE: 404 }),
  '/_settee/databases/:db/alarms': row('/_settee/databases/_users/alarms', 'GET,HEAD', { GET: 200 }),
  '/_settee/databases/:db/alarms/:alarm': row('/_settee/databases/_users/alarms/x', 'DELETE', {
    DELETE: 404,
  }),
  '/_settee/databases/:db/history': row('/_settee/databases/_users/history', 'GET,HEAD', { GET: 200 }),
  '/_settee/databases/:db/version': row('/_settee/databases/_users/version', 'GET,HEAD', { GET: 400 }),
  '/_settee/databases/:db/rewind': row('/_settee/databases/_users/rewind', 'POST', { POST: 415 }),
  '/_cluster_setup': row('/_cluster_setup', 'GET,POST', LIST),
  '/:db': row('/db', 'DELETE,GET,HEAD,POST', { GET: 200, POST: 415, PUT: 412, DELETE: 200 }),
  '/:db/_security': row('/db/_security', 'PUT,GET', { GET: 200, PUT: 400 }),
  '/:db/_revs_limit': row('/db/_revs_limit', 'PUT,GET', { GET: 200, PUT: 400 }),
  '/:db/_ensure_full_commit': row('/db/_ensure_full_commit', 'POST', { POST: 415 }),
  '/:db/_compact': row('/db/_compact', 'POST', { POST: 415 }),
  '/:db/_compact/:ddoc': row('/db/_compact/d', 'POST', { POST: 415 }),
  '/:db/_view_cleanup': row('/db/_view_cleanup', 'POST', { POST: 202 }),
  '/:db/_purge': row('/db/_purge', 'POST', { POST: 415 }),
  '/:db/_purged_infos': row('/db/_purged_infos', 'GET', { GET: 200 }),
  '/:db/_purged_infos_limit': row('/db/_purged_infos_limit', 'GET,PUT', { GET: 200, PUT: 400 }),
  '/:db/_bulk_docs': row('/db/_bulk_docs', 'POST', { POST: 415 }),
  '/:db/_bulk_get': row('/db/_bulk_get', 'POST', { POST: 415 }),
  '/:db/_revs_diff': row('/db/_revs_diff', 'POST', { POST: 415 }),
  '/:db/_missing_revs': row('/db/_missing_revs', 'POST', { POST: 415 }),
  '/:db/_all_docs': row('/db/_all_docs', 'GET,HEAD,POST', LIST),
  '/:db/_design_docs': row('/db/_design_docs', 'GET,HEAD,POST', LIST),
  '/:db/_local_docs': row('/db/_local_docs', 'GET,HEAD,POST', LIST),
  '/:db/_all_docs/queries': row('/db/_all_docs/queries', 'POST', { POST: 400 }),
  '/:db/_design_docs/queries': row('/db/_design_docs/queries', 'POST', { POST: 400 }),
  '/:db/_local_docs/queries': row('/db/_local_docs/queries', 'POST', { POST: 400 }),
  '/:db/_changes': row('/db/_changes', 'GET,POST,HEAD', LIST),
  '/:db/_find': row('/db/_find', 'POST', { POST: 415 }),
  '/:db/_explain': row('/db/_explain', 'POST', { POST: 415 }),
  '/:db/_index': row('/db/_index', 'GET', { GET: 200 }),
  '/:db/_temp_view': row('/db/_temp_view', 'POST', { POST: 410 }),
  '/:db/_design/:ddoc/_view/:view': row('/db/_design/d/_view/v', 'GET,POST,HEAD', LIST),
  '/:db/_design/:ddoc/_view/:view/queries': row('/db/_design/d/_view/v/queries', 'POST', { POST: 415 }),
  '/:db/_design/:ddoc/_info': row('/db/_design/d/_info', 'GET', { GET: 200 }),
  '/:db/:docid': row('/db/doc', DOCUMENT, { GET: 200, POST: 400, PUT: 400, COPY: 400, DELETE: 409 }),
  '/:db/_design/:ddoc': row('/db/_design/d', DOCUMENT, {
    GET: 200,
    POST: 400,
    PUT: 400,
    COPY: 400,
    DELETE: 409,
  }),
  '/:db/_local/:local': row('/db/_local/l', DOCUMENT, {
    GET: 200,
    POST: 400,
    PUT: 400,
    COPY: 400,
    DELETE: 200,
  }),
  '/:db/_local/:local/*': row('/db/_local/l/a', 'GET,HEAD', {
    GET: 400,
    POST: 400,
    PUT: 400,
    COPY: 400,
    DELETE: 400,
  }),
  '/:db/:docid/*': row('/db/doc/a', ATTACHMENT, { GET: 404, PUT: 409, DELETE: 404 }),
  '/:db/_design/:ddoc/*': row('/db/_design/d/a', ATTACHMENT, { GET: 404, PUT: 409, DELETE: 404 }),
  '/:db/_design/:ddoc/_*': row('/db/_design/d/_nothing', 'GET,HEAD', {
    GET: 404,
    POST: 404,
    PUT: 404,
    COPY: 404,
    DELETE: 404,
  }),
}

t.test('the table has a row for every path, and no other', async (t) => {
  const { app } = await startMemoryServer(t)
  t.strictSame(app.paths.map(({ url }) => url).sort(), Object.keys(ROWS).sort())
  for (const { url, allow, methods } of app.paths) {
    t.equal(ROWS[url]?.allow, allow, url)
    t.strictSame(Object.keys(ROWS[url]?.statuses ?? {}).sort(), Object.keys(methods).sort(), url)
  }
})

t.test('what each answers', async (t) => {
  const call = connect(t, await startTestServer(t))
  const map = 'function (doc) { emit(doc._id) }'
  const docs = [{ _id: 'doc' }, { _id: '_design/d', views: { v: { map } } }, { _id: '_local/l' }]
  for (const [at, [url, { example, allow, statuses }]] of Object.entries(ROWS).entries()) {
    const path = example.replace(/^\/db\b/, `/db${at}`)
    if (path !== example) {
      await call('PUT', `/db${at}`)
      await call('POST', `/db${at}/_bulk_docs`, { json: { docs } })
    }
    for (const method of METHODS) {
      const answer = await call(method, path)
      const expected = statuses[method === 'HEAD' ? 'GET' : method] ?? 405
      t.equal(answer.status, expected, `${method} ${url}`)
      if (method === 'HEAD') t.equal(answer.text, '')
      if (expected !== 405) continue
      t.equal(answer.headers.allow, allow)
      const said = { error: 'method_not_allowed', reason: `Only ${allow} allowed` }
      if (method !== 'HEAD') t.strictSame(answer.json, said)
    }
  }
})
