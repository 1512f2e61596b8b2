/** The route table: every route is documented, and closed by default. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { type Ask, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.setTimeout(900_000)

/** Every path with every method, sent by an admin without anything else; 405 with the list of protocol.md 1.5 for the others. */
t.test('the table', async (t) => {
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

  /** A path for which functions decide about methods. */
  function anyMethod(example: string, status: number): Row {
    const statuses = { GET: status, POST: status, PUT: status, COPY: status, DELETE: status }
    return { example, allow: 'COPY,DELETE,GET,HEAD,POST,PUT', statuses }
  }

  const DOCUMENT = 'DELETE,GET,HEAD,POST,PUT,COPY'
  const ATTACHMENT = 'DELETE,GET,HEAD,PUT'
  const NOWHERE = { GET: 404, POST: 404, PUT: 404, COPY: 404, DELETE: 404 }
  /** A POST without the content type that it demands. */
  const LIST = { GET: 200, POST: 415 }

  const ROWS: Readonly<Record<string, Row>> = {
    '/': row('/', 'GET,HEAD', { GET: 200 }),
    '/_up': row('/_up', 'GET,HEAD', { GET: 200 }),
    '/_utils': row('/_utils', 'GET,HEAD', { GET: 301 }),
    '/_utils/*': row('/_utils/none.js', 'GET,HEAD', { GET: 404 }),
    '/_uuids': row('/_uuids', 'GET', { GET: 200 }),
    '/_session': row('/_session', 'GET,HEAD,POST,DELETE', { GET: 200, POST: 415, DELETE: 200 }),
    '/_all_dbs': row('/_all_dbs', 'GET,HEAD', { GET: 200 }),
    '/_dbs_info': row('/_dbs_info', 'GET,HEAD,POST', LIST),
    '/_db_updates': row('/_db_updates', 'GET', { GET: 200 }),
    '/_active_tasks': row('/_active_tasks', 'GET,HEAD', { GET: 200 }),
    '/_replicate': row('/_replicate', 'POST', { POST: 415 }),
    '/_scheduler/jobs': row('/_scheduler/jobs', 'GET,HEAD', { GET: 200 }),
    '/_scheduler/jobs/:id': row('/_scheduler/jobs/x', 'GET,HEAD', { GET: 404 }),
    '/_scheduler/docs': row('/_scheduler/docs', 'GET,HEAD', { GET: 200 }),
    '/_scheduler/docs/*': row('/_scheduler/docs/x', 'GET,HEAD', { GET: 400 }),
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
    '/_settee/client': row('/_settee/client', 'GET,HEAD', { GET: 200 }),
    '/_settee/configuration': row('/_settee/configuration', 'GET,HEAD', { GET: 200 }),
    '/_settee/samples': row('/_settee/samples', 'GET,HEAD', { GET: 200 }),
    '/_settee/standby': row('/_settee/standby', 'GET,HEAD', { GET: 200 }),
    '/_settee/moves': row('/_settee/moves', 'GET,HEAD,POST', { GET: 200, POST: 415 }),
    '/_settee/moves/:id': row('/_settee/moves/x', 'GET,HEAD,DELETE', { GET: 404, DELETE: 404 }),
    '/_settee/moves/:id/databases': row('/_settee/moves/x/databases', 'GET,HEAD', { GET: 404 }),
    '/_settee/databases/:db/indexes': row('/_settee/databases/_users/indexes', 'GET,HEAD', { GET: 200 }),
    '/_settee/log': row('/_settee/log', 'GET,HEAD', { GET: 200 }),
    '/_settee/standby/settings': row('/_settee/standby/settings', 'GET,HEAD', { GET: 200 }),
    '/_settee/standby/tokens': row('/_settee/standby/tokens', 'GET,HEAD', { GET: 200 }),
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
    '/_settee/databases': row('/_settee/databases', 'GET,HEAD', { GET: 200 }),
    '/_settee/databases/:db': row('/_settee/databases/_users', 'GET,HEAD', { GET: 200 }),
    '/_settee/databases/:db/growth': row('/_settee/databases/_users/growth', 'GET,HEAD', { GET: 200 }),
    '/_settee/databases/:db/conflicts': row('/_settee/databases/_users/conflicts', 'GET,HEAD', { GET: 200 }),
    '/_settee/databases/:db/size': row('/_settee/databases/_users/size', 'GET,HEAD', { GET: 200 }),
    '/_config': row('/_config', 'GET', { GET: 200 }),
    '/_config/_reload': row('/_config/_reload', 'POST', { POST: 200 }),
    '/_config/:section': row('/_config/log', 'GET', { GET: 200 }),
    '/_config/:section/:key': row('/_config/log/level', 'GET,PUT,DELETE', {
      GET: 200,
      PUT: 400,
      DELETE: 200,
    }),
    '/_settee/tokens': row('/_settee/tokens', 'GET,HEAD,POST', LIST),
    '/_settee/tokens/:id': row('/_settee/tokens/x', 'DELETE', { DELETE: 404 }),
    '/_settee/vaults': row('/_settee/vaults', 'POST', { POST: 415 }),
    '/_settee/check': row('/_settee/check', 'GET,HEAD,POST', { GET: 200, POST: 415 }),
    '/_settee/check/give-up': row('/_settee/check/give-up', 'POST', { POST: 415 }),
    '/_settee/backups/:id/verify': row('/_settee/backups/x/verify', 'POST', { POST: 415 }),
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
    '/:db/_design/:ddoc/_show': anyMethod('/db/_design/d/_show', 404),
    '/:db/_design/:ddoc/_show/:fn': anyMethod('/db/_design/d/_show/x', 404),
    '/:db/_design/:ddoc/_show/:fn/*': anyMethod('/db/_design/d/_show/x/a/b', 404),
    '/:db/_design/:ddoc/_update': anyMethod('/db/_design/d/_update', 404),
    '/:db/_design/:ddoc/_update/:fn': anyMethod('/db/_design/d/_update/x', 404),
    '/:db/_design/:ddoc/_update/:fn/*': anyMethod('/db/_design/d/_update/x/a/b', 404),
    '/:db/_design/:ddoc/_rewrite': anyMethod('/db/_design/d/_rewrite', 404),
    '/:db/_design/:ddoc/_rewrite/*': anyMethod('/db/_design/d/_rewrite/a/b', 404),
    '/:db/_design/:ddoc/_list': row('/db/_design/d/_list', 'GET,POST,HEAD', { GET: 404, POST: 415 }),
    '/:db/_design/:ddoc/_list/:fn': row('/db/_design/d/_list/x', 'GET,POST,HEAD', { GET: 404, POST: 415 }),
    '/:db/_design/:ddoc/_list/:fn/:view': row('/db/_design/d/_list/x/v', 'GET,POST,HEAD', {
      GET: 404,
      POST: 415,
    }),
    '/:db/_design/:ddoc/_list/:fn/:other/:view': row('/db/_design/d/_list/x/d/v', 'GET,POST,HEAD', {
      GET: 404,
      POST: 415,
    }),
    '/:db/_design/:ddoc/_list/:fn/:other/:view/*': row('/db/_design/d/_list/x/d/v/y', 'GET,POST,HEAD', {
      GET: 404,
      POST: 415,
    }),
    '/:db/_changes': row('/db/_changes', 'GET,POST,HEAD', LIST),
    '/:db/_find': row('/db/_find', 'POST', { POST: 415 }),
    '/:db/_explain': row('/db/_explain', 'POST', { POST: 415 }),
    '/:db/_index': row('/db/_index', 'GET,POST', { GET: 200, POST: 415 }),
    '/:db/_index/_bulk_delete': row('/db/_index/_bulk_delete', 'POST', { POST: 415 }),
    '/:db/_index/:ddoc/:type/:name': row('/db/_index/d/json/n', 'DELETE', { DELETE: 404 }),
    '/:db/_index/_design/:ddoc/:type/:name': row('/db/_index/_design/d/json/n', 'DELETE', { DELETE: 404 }),
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
    '/:db/_partition': row('/db/_partition', 'GET', {
      GET: 400,
      POST: 400,
      PUT: 400,
      COPY: 400,
      DELETE: 400,
    }),
    '/:db/_partition/:partition': row('/db/_partition/p', 'GET', { GET: 400 }),
    '/:db/_partition/:partition/*': row('/db/_partition/p/x', 'GET', {
      GET: 400,
      POST: 400,
      PUT: 400,
      COPY: 400,
      DELETE: 400,
    }),
    '/:db/_partition/:partition/_all_docs': row('/db/_partition/p/_all_docs', 'GET,HEAD,POST', {
      GET: 400,
      POST: 415,
    }),
    '/:db/_partition/:partition/_all_docs/queries': row('/db/_partition/p/_all_docs/queries', 'POST', {
      POST: 400,
    }),
    '/:db/_partition/:partition/_find': row('/db/_partition/p/_find', 'POST', { POST: 415 }),
    '/:db/_partition/:partition/_explain': row('/db/_partition/p/_explain', 'POST', { POST: 415 }),
    '/:db/_partition/:partition/_design/:ddoc/_view/:view': row(
      '/db/_partition/p/_design/d/_view/v',
      'GET,POST,HEAD',
      { GET: 400, POST: 415 },
    ),
    '/:db/_partition/:partition/_design/:ddoc/_view/:view/queries': row(
      '/db/_partition/p/_design/d/_view/v/queries',
      'POST',
      { POST: 415 },
    ),
    '/:db/_partition/:partition/_design/:ddoc/_info': row('/db/_partition/p/_design/d/_info', 'GET', {
      GET: 400,
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

  t.test('the answer of each', async (t) => {
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
})

/** The errors of protocol.md 1.2 that settee's calls can meet, each with its status, word and reason. Those of `_changes`, of rights and of contents stand in test/surface/, of views in test/query/views.test.ts. */
t.test('the catalogue', async (t) => {
  type Case = readonly [line: string, ask: Ask, reason: string]

  const TOO_LONG = 'y'.repeat(300)
  const NO_HEX = 'z'.repeat(32)
  const docs = (...all: unknown[]): Ask => ({ json: { docs: all } })
  /** A document whose one attachment follows it, and says that it is so long. */
  const following = (length: number): Ask => ({
    headers: { 'content-type': 'multipart/related;boundary="b"' },
    body:
      `--b\r\ncontent-type: application/json\r\n\r\n{"_attachments":{"a":{"follows":true,"length":${length},` +
      '"content_type":"text/plain"}}}\r\n--b\r\n\r\nabcd\r\n--b--',
  })

  const BAD_REQUEST: readonly Case[] = [
    ...['_bulk_docs', '_bulk_get', '_revs_diff', '_missing_revs', '_purge'].flatMap((call): Case[] => [
      [`POST /db/${call}`, { json: [] }, 'Request body must be a JSON object'],
      [
        `POST /db/${call}`,
        { body: '{', headers: { 'content-type': 'application/json' } },
        'invalid UTF-8 JSON',
      ],
      [
        `POST /db/${call}`,
        { headers: { 'content-type': 'application/json', 'content-length': '0' } },
        'invalid UTF-8 JSON',
      ],
    ]),
    ['POST /db/_all_docs', { json: [] }, 'Request body must be a JSON object'],
    ['POST /_dbs_info', { json: [] }, 'Request body must be a JSON object'],
    ['POST /_dbs_info', { json: {} }, '`keys` member must exist.'],
    ['PUT /db/x', { json: [] }, 'Document must be a JSON object'],
    ['POST /db', { json: 1 }, 'Document must be a JSON object'],
    ['POST /db/_bulk_docs', docs(1), 'Document must be a JSON object'],
    ['GET /db/doc?rev=abc', {}, 'Invalid rev format'],
    ['GET /db/doc?rev=a-b', {}, 'Invalid rev format'],
    [`GET /db/doc?rev=1-${NO_HEX}`, {}, 'Invalid rev format'],
    ['GET /db/doc?open_revs=%5B%22x%22%5D', {}, 'Invalid rev format'],
    ['GET /db/doc?atts_since=%5B%22x%22%5D', {}, 'Invalid rev format'],
    ['PUT /db/doc', { json: { _rev: 1 } }, 'Invalid rev format'],
    ['PUT /db/doc', { json: {}, headers: { 'if-match': '"x"' } }, 'Invalid rev format'],
    ['POST /db/_revs_diff', { json: { doc: ['x'] } }, 'Invalid rev format'],
    ['GET /db/doc?open_revs=%7B%7D', {}, 'Invalid list of revisions'],
    ['POST /db/_purge', { json: { doc: '1-x' } }, 'Invalid list of revisions'],
    ['GET /db/doc?open_revs=x', {}, 'invalid UTF-8 JSON'],
    [
      'PUT /db/doc?rev=1-a',
      { json: { _rev: '1-b' } },
      'Document rev from request body and query string have different values',
    ],
    [
      'DELETE /db/doc?rev=1-a',
      { headers: { 'if-match': '"1-b"' } },
      'Document rev and etag have different values',
    ],
    [
      'DELETE /db?rev=1-a',
      {},
      'You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?',
    ],
    ['POST /db/_bulk_docs', { json: {} }, 'POST body must include `docs` parameter.'],
    ['POST /db/_bulk_docs', { json: { docs: {} } }, '`docs` parameter must be an array.'],
    ['POST /db/_bulk_docs', { json: { docs: [], new_edits: 1 } }, '`new_edits` parameter must be a boolean.'],
    [
      'PUT /db/doc?new_edits=false',
      { json: {} },
      'When `new_edits: false`, the document needs `_rev` or `_revisions` specified',
    ],
    ['POST /db/_bulk_get', { json: {} }, "Missing JSON list of 'docs'."],
    ['POST /db/_bulk_get?rev=1-a', docs(), '"rev" query parameter is not acceptable'],
    [
      'PUT /db/x',
      { json: { _attachments: { _x: { data: '' } } } },
      "Attachment name '_x' starts with prohibited character '_'",
    ],
    ['PUT /db/x', { json: { _attachments: { a: { data: '!' } } } }, 'Invalid attachment data for a'],
    ['PUT /db/x', following(2), 'attachment longer than expected'],
    ['PUT /db/x', following(9), 'attachment shorter than expected'],
    ['GET /db/_local', {}, 'Invalid _local document id.'],
    ['PUT /db/_local/', { json: {} }, 'Invalid _local document id.'],
    ['PUT /db/_local/a/b', { json: {} }, '_local documents do not accept attachments.'],
    ['COPY /db/doc', {}, 'Destination header is mandatory for COPY.'],
    ['COPY /db/doc', { headers: { destination: 'http://x/y' } }, 'Destination URL must be relative.'],
    ['GET /db/_all_docs?keys=1', {}, '`keys` parameter must be an array.'],
    ['POST /db/_all_docs', { json: { keys: 1 } }, '`keys` body member must be an array.'],
    ['POST /db/_all_docs/queries', { json: {} }, 'POST body must include `queries` parameter.'],
    ['POST /db/_all_docs/queries', { json: { queries: {} } }, '`queries` member must be an array.'],
    ['PUT /other?q=0', {}, 'The `q` value should be a positive integer.'],
    ['PUT /other?n=x', {}, 'The `n` value should be a positive integer.'],
    ['GET /db/%zz', {}, 'invalid_url_encoding'],
    ['GET /db/doc?x=%f', {}, 'invalid_url_encoding'],
    ['PUT /_node/_local/_config/a/b', { json: 1 }, 'a JSON string expected'],
    ['POST /db/doc', { json: {} }, 'Referer header required.'],
    [
      'POST /db/_bulk_docs',
      { json: {}, headers: { 'content-encoding': 'gzip' } },
      'Request body is not properly gzipped.',
    ],
  ]

  const OTHERS: readonly (readonly [...Case, status: number, error: string])[] = [
    ...['/db/_all_docs', '/_all_dbs', '/_dbs_info'].flatMap((path) =>
      (
        [
          ['descending=x', 'Invalid boolean parameter: "x"'],
          ['limit=x', 'Invalid value for integer: "x"'],
          ['skip=-1', 'Invalid value for positive integer: "-1"'],
        ] as const
      ).map(([query, reason]) => [`GET ${path}?${query}`, {}, reason, 400, 'query_parse_error'] as const),
    ),
    [
      'PUT /Other',
      {},
      "Name: 'Other'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, " +
        'and / are allowed. Must begin with a letter.',
      400,
      'illegal_database_name',
    ],
    [
      `PUT /${TOO_LONG}`,
      {},
      `At least one path segment of \`${TOO_LONG.slice(0, 256)}\` is too long.`,
      400,
      'database_name_too_long',
    ],
    ['POST /db', { json: { _id: '' } }, 'Document id must not be empty', 400, 'illegal_docid'],
    ['POST /db', { json: { _id: 1 } }, 'Document id must be a string', 400, 'illegal_docid'],
    ['PUT /db/x', { json: { _id: 1 } }, 'Document id must be a string', 400, 'illegal_docid'],
    ['POST /db', { json: { _id: 'x'.repeat(8001) } }, 'Document id is too long', 400, 'illegal_docid'],
    ['POST /db', { json: { _id: '_design/' } }, 'Illegal document id `_design/`', 400, 'illegal_docid'],
    ['POST /db', { json: { _id: '_local/' } }, 'Illegal document id `_local/`', 400, 'illegal_docid'],
    [
      'PUT /db/_x',
      { json: {} },
      'Only reserved document ids may start with underscore.',
      400,
      'illegal_docid',
    ],
    ['PUT /db/x', { json: { _x: 1 } }, 'Bad special document member: _x', 400, 'doc_validation'],
    ['PUT /db/x', { json: { _deleted: 1 } }, 'Bad special document member: _deleted', 400, 'doc_validation'],
    ...(
      [
        [{ start: '1', ids: ['a'] }, "_revisions.start isn't an integer."],
        [{ start: 1, ids: 'a' }, "_revisions.ids isn't a array."],
        [{ start: 1, ids: [1] }, "RevId isn't a string"],
        [{ start: 1, ids: [NO_HEX] }, "RevId isn't a valid hexadecimal"],
      ] as const
    ).map(
      ([_revisions, reason]) =>
        ['PUT /db/x', { json: { _revisions } }, reason, 400, 'doc_validation'] as const,
    ),
    ['GET /db/x', {}, 'missing', 404, 'not_found'],
    ['GET /db/gone', {}, 'deleted', 404, 'not_found'],
    ['GET /db/_x', {}, 'missing', 404, 'not_found'],
    ['GET /other', {}, 'Database does not exist.', 404, 'not_found'],
    ['GET /Never.Legal', {}, 'Database does not exist.', 404, 'not_found'],
    ['GET /_stats', {}, 'Database does not exist.', 404, 'not_found'],
    ['GET /db/doc/a', {}, 'Document is missing attachment', 404, 'not_found'],
    ['GET /db/_changes?filter=x/y', {}, 'missing', 404, 'not_found'],
    ['GET /_node/_local/_config/a/b', {}, 'unknown_config_value', 404, 'not_found'],
    ['GET /_node/other/_config', {}, 'no such node: other', 404, 'not_found'],
    ['PUT /db/doc', { json: {} }, 'Document update conflict.', 409, 'conflict'],
    ['PUT /db/doc/a?rev=9-a', { body: 'x' }, 'missing_rev', 409, 'not_found'],
    ['POST /db/_temp_view', { json: {} }, 'Temporary views are not supported in CouchDB', 410, 'gone'],
    ['PUT /db', {}, 'The database could not be created, the file already exists.', 412, 'file_exists'],
    [
      'PUT /db/x',
      { json: { _attachments: { a: { stub: true } } } },
      'Invalid attachment stub in x for a',
      412,
      'missing_stub',
    ],
    ['POST /db', { body: '{}' }, 'Content-Type must be application/json', 415, 'bad_content_type'],
    [
      'POST /db/_bulk_docs',
      { json: {}, headers: { 'content-encoding': 'br' } },
      'br is not a supported content encoding.',
      415,
      'bad_content_type',
    ],
    [
      'PUT /db/doc/a',
      { body: 'x', headers: { 'content-encoding': 'br' } },
      'Only gzip and identity content-encodings are supported',
      415,
      'bad_content_type',
    ],
    [
      'PUT /_node/_local/_config/query_servers/x',
      { json: 'y' },
      'Config section blacklisted for modification over HTTP API.',
      403,
      'forbidden',
    ],
  ]

  t.test('errors, protocol.md 1.2', async (t) => {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { json: {} })
    await call('PUT', '/db/gone', { json: { _deleted: true } })
    const { update_seq: before } = (await call('GET', '/db')).json as { update_seq: string }
    const all = [...BAD_REQUEST.map((each) => [...each, 400, 'bad_request'] as const), ...OTHERS]
    for (const [line, ask, reason, status, error] of all) {
      const [method = '', path = ''] = line.split(' ')
      const answer = await call(method, path, ask)
      t.strictSame(
        [answer.status, answer.headers['content-type'], answer.text],
        [status, 'application/json', `${JSON.stringify({ error, reason })}\n`],
        line.slice(0, 80),
      )
    }
    t.match((await call('GET', '/db')).json, { update_seq: before }, 'nothing was stored')
  })
})
