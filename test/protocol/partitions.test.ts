/** Partitioned databases through the server and real clients; protocol.md 4.10. */

import { CloudantV1 } from '@ibm-cloud/cloudant'
import { NoAuthAuthenticator } from '@ibm-cloud/cloudant/auth/index.js'
import nano from 'nano'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { call } from './call.ts'

const DESIGN = {
  views: {
    n: { map: 'function (doc) { emit(doc.n, null) }', reduce: '_count' },
    own: {
      map: 'function (doc) { emit(doc.n, 1) }',
      reduce: 'function (keys, values) { return sum(values) }',
    },
  },
}

async function partitioned(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  t.match(await call(server, 'PUT', '/db?partitioned=true'), { status: 201 })
  const docs = [
    { _id: 'a:1', n: 1 },
    { _id: 'a:2', n: 2 },
    { _id: 'a:3', _deleted: true },
    { _id: 'b:1', n: 1 },
    { _id: '_design/d', ...DESIGN },
  ]
  t.match(await call(server, 'POST', '/db/_bulk_docs', { body: { docs } }), { status: 201 })
  return server
}

const FORM = { status: 400, json: { error: 'illegal_docid', reason: 'Doc id must be of form partition:id' } }

t.test('documents without a partition are refused wherever they come in or are asked for', async (t) => {
  const server = await partitioned(t)
  const ask = (method: string, path: string, body?: unknown) => call(server, method, path, { body })
  const refused: [method: string, path: string, body?: unknown][] = [
    ['PUT', '/db/plain', {}],
    ['PUT', '/db/plain?new_edits=false', { _rev: '1-a' }],
    ['PUT', '/db/a:9', { _id: 'plain' }],
    ['POST', '/db', {}],
    ['POST', '/db', { _id: 'plain' }],
    ['POST', '/db/_bulk_docs', { docs: [{ _id: 'a:8' }, { _id: 'plain' }] }],
    ['POST', '/db/_bulk_docs', { docs: [{ _id: 'a:8' }, {}] }],
    [
      'POST',
      '/db/_bulk_docs',
      {
        new_edits: false,
        docs: [
          { _id: 'a:8', _rev: '1-a' },
          { _id: 'plain', _rev: '1-a' },
        ],
      },
    ],
    ['PUT', '/db/plain/file', {}],
    ['GET', '/db/plain'],
    ['GET', '/db/plain?open_revs=all'],
    ['GET', '/db/plain/file'],
    ['DELETE', '/db/plain?rev=1-a'],
    ['POST', '/db/_revs_diff', { 'a:1': ['1-a'], plain: ['1-a'] }],
    ['POST', '/db/_missing_revs', { plain: ['1-a'] }],
    ['POST', '/db/_purge', { plain: ['1-a'] }],
    ['POST', '/db/_all_docs', { keys: ['a:1', 'plain'] }],
  ]
  for (const [method, path, body] of refused)
    t.match(await ask(method, path, body), FORM, `${method} ${path}`)
  t.match(await ask('GET', '/db/a:8'), { status: 404 }, 'nothing of a refused request is stored')
  t.match((await ask('POST', '/db/_bulk_get', { docs: [{ id: 'plain' }, { id: 'a:1' }] })).json, {
    results: [
      { id: 'plain', docs: [{ error: { ...FORM.json, id: 'plain', rev: null } }] },
      { id: 'a:1', docs: [{ ok: { _id: 'a:1' } }] },
    ],
  })
  const others: [method: string, path: string, status: number, error?: string][] = [
    ['PUT', '/db/:x', 400, 'illegal_partition'],
    ['PUT', '/db/a:', 400, 'illegal_docid'],
    ['PUT', '/db/a:_x', 400, 'illegal_docid'],
    ['GET', '/db/:x', 404, 'not_found'],
    ['GET', '/db/a:_x', 404, 'not_found'],
    ['PUT', '/db/a:b:c', 201],
    ['PUT', '/db/_local/x', 201],
    ['PUT', '/db/_design/x', 201],
  ]
  for (const [method, path, status, error] of others) {
    const expected = { status, ...(error !== undefined && { json: { error } }) }
    t.match(await ask(method, path, method === 'PUT' ? {} : undefined), expected, `${method} ${path}`)
  }
  await call(server, 'PUT', '/plain')
  t.match(await ask('PUT', '/plain/_design/x', { ...DESIGN, options: { partitioned: true } }), {
    status: 400,
    json: {
      error: 'invalid_design_doc',
      reason: 'partitioned option cannot be true in a non-partitioned database.',
    },
  })
})

t.test('a partition has its own information and lists, also after a restart', async (t) => {
  const server = await partitioned(t)
  const get = async (path: string) => (await call(server, 'GET', path)).json
  const check = async (t: Test) => {
    t.match(await get('/db'), { props: { partitioned: true } })
    const info = { db_name: 'db', partition: 'a', doc_count: 2, doc_del_count: 1 }
    t.strictSame(await get('/db/_partition/a'), { ...info, sizes: { active: 16, external: 16 } })
    t.match(await get('/db/_partition/none'), {
      doc_count: 0,
      doc_del_count: 0,
      sizes: { active: 0, external: 0 },
    })
    t.match(await get('/db/_partition/a/_all_docs'), {
      total_rows: 4,
      offset: 1,
      rows: [{ id: 'a:1' }, { id: 'a:2' }],
    })
    t.match(await get('/db/_partition/a/_all_docs?descending=true&limit=1&startkey="z"'), {
      offset: 1,
      rows: [{ id: 'a:2' }],
    })
    t.match(await get('/db/_partition/a/_all_docs?skip=9'), { offset: 3, rows: [] })
    t.match(await get('/db/_all_docs?partition=b'), { offset: 3, rows: [{ id: 'b:1' }] })
    t.match(await get('/db/_partition/b/_design/d/_view/n?reduce=false'), {
      total_rows: 3,
      offset: 2,
      rows: [{ id: 'b:1', key: 1 }],
    })
    t.match(await get('/db/_partition/a/_design/d/_view/own'), { rows: [{ value: 2 }] })
    t.match(await get('/db/_partition/a/_design/d/_info'), { name: 'd' })
  }
  await t.test('at first', check)
  await server.stop()
  await server.start()
  await t.test('after the restart', check)
})

t.test('refusals below the address of a partition', async (t) => {
  const server = await partitioned(t)
  await call(server, 'PUT', '/plain')
  const find = { body: { selector: {} } }
  const refused: [method: string, path: string, status: number, json: object, sent?: { body: unknown }][] = [
    ['GET', '/plain/_partition/a', 400, { error: 'bad_request', reason: 'database is not partitioned' }],
    ['GET', '/plain/_partition/_a/_all_docs', 400, { reason: 'database is not partitioned' }],
    ['GET', '/plain/_partition/a/_nothing', 400, { reason: 'database is not partitioned' }],
    ['POST', '/plain/_partition/a/_find', 400, { reason: 'database is not partitioned' }, find],
    [
      'GET',
      '/plain/_all_docs?partition=a',
      400,
      { error: 'query_parse_error', reason: '`partition` parameter is not supported on this db' },
    ],
    ['POST', '/plain/_find', 400, { error: 'query_parse_error' }, { body: { selector: {}, partition: 'a' } }],
    ['GET', '/db/_partition', 400, { error: 'bad_request', reason: 'invalid_partition_req' }],
    ['GET', '/db/_partition/', 400, { error: 'bad_request', reason: 'invalid_partition_req' }],
    ['POST', '/db/_partition/a', 405, { reason: 'Only GET allowed' }, find],
    [
      'GET',
      '/db/_partition/_a',
      400,
      { error: 'illegal_partition', reason: 'Partition must not start with an underscore' },
    ],
    [
      'GET',
      '/db/_partition/a:b/_all_docs',
      400,
      { error: 'illegal_partition', reason: 'Partition must not contain a colon' },
    ],
    [
      'GET',
      '/db/_partition/a/_all_docs?partition=b',
      400,
      { reason: 'Conflicting value for `partition` in query string' },
    ],
    [
      'POST',
      '/db/_partition/a/_find',
      400,
      { reason: 'Conflicting value for `partition` in query string' },
      { body: { selector: {}, partition: 'b' } },
    ],
    [
      'POST',
      '/db/_find',
      400,
      { error: 'illegal_partition', reason: 'Partition must be a string' },
      { body: { selector: {}, partition: 1 } },
    ],
    [
      'POST',
      '/db/_partition/a/_find',
      400,
      { reason: /^No partitioned index exists/ },
      { body: { selector: {}, sort: ['n'] } },
    ],
    [
      'POST',
      '/db/_find',
      400,
      { reason: /^No global index exists/ },
      { body: { selector: {}, sort: ['n'] } },
    ],
    ['GET', '/db/_partition/a/a:1', 404, { error: 'not_found', reason: 'missing' }],
    ['GET', '/db/_partition/a/_changes', 404, { error: 'not_found', reason: 'missing' }],
    ['GET', '/db/_design/d/_view/n', 400, { error: 'query_parse_error' }],
  ]
  for (const [method, path, status, json, sent] of refused) {
    t.match(await call(server, method, path, sent), { status, json }, `${method} ${path}`)
  }
})

t.test('_find examines only its partition', async (t) => {
  const server = await partitioned(t)
  const idsOf = async (path: string, body: object) => {
    const { json } = await call(server, 'POST', path, { body })
    const { docs, execution_stats: stats } = json as Found
    return [docs.map(({ _id }) => _id).join(), stats.total_docs_examined]
  }
  const selector = { n: { $gt: 0 } }
  const execution_stats = true
  t.same(await idsOf('/db/_partition/a/_find', { selector, execution_stats }), ['a:1,a:2', 2])
  t.same(await idsOf('/db/_find', { selector, execution_stats, partition: 'b' }), ['b:1', 1])
  t.same(await idsOf('/db/_find?partition=b', { selector, execution_stats }), ['b:1', 1])
  const byId = { selector: { _id: { $gt: null } }, sort: [{ _id: 'desc' }], execution_stats }
  t.same(await idsOf('/db/_partition/a/_find', byId), ['a:2,a:1', 2])
  t.same(await idsOf('/db/_partition/a/_find', { selector: { _id: 'b:1' }, execution_stats }), ['', 0])
  t.match((await call(server, 'POST', '/db/_partition/a/_explain', { body: { selector } })).json, {
    partitioned: true,
    opts: { partition: 'a' },
    mrargs: { partition: 'a' },
  })
})

interface Found {
  readonly docs: readonly { readonly _id: string }[]
  readonly execution_stats: { readonly total_docs_examined: number }
}

t.test('json indexes serve either single partitions or the whole database', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/db?partitioned=true')
  const ids = ['a', 'aa', 'b'].flatMap((name) => Array.from({ length: 40 }, (_, n) => `${name}:${n}`))
  const docs = ids.map((_id, at) => ({ _id, n: at % 10 }))
  await call(server, 'POST', '/db/_bulk_docs', { body: { docs } })
  const post = async (path: string, body: object) =>
    (await call(server, 'POST', path, { body })).json as Found & {
      readonly warning?: string
      bookmark: string
    }
  const idsOf = ({ docs }: Found) => docs.map(({ _id }) => _id)
  const of = (name: string, n: number) =>
    docs.filter((doc) => doc._id.startsWith(name) && doc.n === n).map(({ _id }) => _id)
  const asked = { selector: { n: 3 }, execution_stats: true }

  await post('/db/_index', { index: { fields: ['n'] }, name: 'own', ddoc: 'own' })
  const found = await post('/db/_partition/a/_find', asked)
  t.same(idsOf(found).sort(), of('a:', 3).sort())
  t.match(found, { execution_stats: { total_keys_examined: 4, total_docs_examined: 4 } })
  t.equal(found.warning, undefined)
  t.match(
    await post('/db/_find', asked),
    { warning: /^No matching index found/ },
    'a partitioned index is not used for a global query',
  )
  t.match(await post('/db/_find', { selector: {}, sort: ['n'] }), { reason: /^No global index exists/ })

  const pages: string[] = []
  const sorted = { selector: { n: { $gte: 2 } }, sort: [{ n: 'desc' }], limit: 7 }
  for (let bookmark = 'nil'; ; ) {
    const page = await post('/db/_partition/aa/_find', { ...sorted, bookmark })
    if (page.docs.length === 0) break
    pages.push(...idsOf(page))
    bookmark = page.bookmark
  }
  t.same(pages.length, 32)
  t.same([...pages].sort(), [2, 3, 4, 5, 6, 7, 8, 9].flatMap((n) => of('aa:', n)).sort())

  await post('/db/_index', { index: { fields: ['n'] }, name: 'all', ddoc: 'all', partitioned: false })
  const everywhere = await post('/db/_find', asked)
  t.same(idsOf(everywhere).sort(), of('', 3).sort())
  t.match(everywhere, { execution_stats: { total_keys_examined: 12 } })
  t.same(idsOf(await post('/db/_partition/b/_find', asked)).sort(), of('b:', 3).sort())
  t.match(await post('/db/_partition/b/_explain', asked), {
    index: { name: 'own', partitioned: true },
    mrargs: { partition: 'b', start_key: [3] },
  })
  t.match(await post('/db/_explain', asked), {
    index: { name: 'all', partitioned: false },
    mrargs: { partition: null },
  })
  t.match((await call(server, 'GET', '/db/_index')).json, {
    indexes: [{ name: '_all_docs' }, { name: 'all', partitioned: false }, { name: 'own', partitioned: true }],
  })
})

t.test('nano', async (t) => {
  const server = await startTestServer(t)
  const couch = nano(server.url)
  await couch.db.create('db', { partitioned: true })
  const db = couch.use<{ n: number }>('db')
  await db.bulk({
    docs: [
      { _id: 'a:1', n: 1 },
      { _id: 'a:2', n: 2 },
      { _id: 'b:1', n: 1 },
      { _id: '_design/d', ...DESIGN },
    ],
  })
  t.match(await db.partitionInfo('a'), { partition: 'a', doc_count: 2 })
  t.match(await db.partitionedList('a', { include_docs: true, limit: 1 }), {
    rows: [{ id: 'a:1', doc: { n: 1 } }],
  })
  t.match(await db.partitionedFind('a', { selector: { n: 2 } }), { docs: [{ _id: 'a:2' }] })
  t.match(await db.partitionedView('a', 'd', 'n', { reduce: false, key: 2 }), { rows: [{ id: 'a:2' }] })
  t.match(await db.partitionedView('b', 'd', 'n', {}), { rows: [{ key: null, value: 1 }] })
})

t.test("Cloudant's SDK", async (t) => {
  const server = await startTestServer(t)
  const service = CloudantV1.newInstance({ authenticator: new NoAuthAuthenticator(), serviceUrl: server.url })
  const db = 'db'
  await service.putDatabase({ db, partitioned: true })
  await service.postBulkDocs({
    db,
    bulkDocs: {
      docs: [
        { _id: 'a:1', n: 1 },
        { _id: 'a:2', n: 2 },
        { _id: 'b:1', n: 1 },
      ],
    },
  })
  await service.putDesignDocument({
    db,
    ddoc: 'd',
    designDocument: { ...DESIGN, options: { partitioned: true } },
  })
  const partition = { db, partitionKey: 'a' }
  t.match((await service.getDatabaseInformation({ db })).result, { props: { partitioned: true } })
  t.match((await service.getPartitionInformation(partition)).result, { docCount: 2, sizes: { external: 14 } })
  const all = await service.postPartitionAllDocs({ ...partition, includeDocs: true, startKey: 'a:2' })
  t.match(all.result, { rows: [{ id: 'a:2', doc: { n: 2 } }] })
  const view = await service.postPartitionView({ ...partition, ddoc: 'd', view: 'n', reduce: false })
  t.match(view.result, { rows: [{ id: 'a:1' }, { id: 'a:2' }] })
  t.match((await service.postPartitionFind({ ...partition, selector: { n: { $gte: 2 } } })).result, {
    docs: [{ _id: 'a:2' }],
  })
  t.match((await service.postPartitionExplain({ ...partition, selector: { n: 1 } })).result, {
    partitioned: true,
  })
})
