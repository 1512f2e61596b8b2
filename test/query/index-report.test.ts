/** `GET /_settee/databases/{db}/indexes` of a listening server. */
import t from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const auth = 'anna:secret'
const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }

async function call(server: TestServer, method: string, path: string, body?: unknown) {
  const { status, json, text } = await server.request(method, path, {
    auth,
    ...(body !== undefined && { body }),
  })
  if (status >= 400) throw new Error(`${method} ${path}: ${text}`)
  return json
}

t.test('fields and views with what is known of them; a read builds nothing', async (t) => {
  const server = await startTestServer(t, { env })
  await call(server, 'PUT', '/notes')
  const docs = Array.from({ length: 30 }, (_, n) => ({ _id: `n${n}`, book: n % 3, text: 'x' }))
  await call(server, 'POST', '/notes/_bulk_docs', { docs })
  await call(server, 'POST', '/notes/_index', { index: { fields: ['book'] }, ddoc: 'by-book', name: 'book' })
  await call(server, 'PUT', '/notes/_design/app', {
    views: {
      lib: { x: 'exports.x = 1' },
      all: { map: 'function (doc) { emit(doc.book) }', reduce: '_count' },
      twice: { map: 'function (doc) { emit(1); emit(2) }', reduce: 'function () { return 1 }' },
    },
  })
  await call(server, 'PUT', '/notes/_design/rules', { validate_doc_update: 'function () {}' })
  await call(server, 'PUT', '/notes/_design/old', { language: 'erlang', views: { v: { map: 'fun()' } } })
  const path = '/_settee/databases/notes/indexes'
  const unbuilt = { built: false, updating: false, progress: null, rows: 0, bytes: 0, last_use: null }
  const first = await call(server, 'GET', path)
  t.match(first, {
    next: null,
    bytes: 0,
    indexes: [
      {
        ddoc: '_design/app',
        type: 'view',
        language: 'javascript',
        runs: true,
        views: [
          { name: 'all', reduce: '_count', rows: 0 },
          { name: 'twice', reduce: 'function', rows: 0 },
        ],
        views_total: 2,
        ...unbuilt,
      },
      { ddoc: '_design/by-book', name: 'book', type: 'json', def: { fields: [{ book: 'asc' }] }, ...unbuilt },
      { ddoc: '_design/old', language: 'erlang', runs: false, ...unbuilt },
    ],
  })
  t.equal(first.indexes[0].pending, first.update_seq)

  await call(server, 'GET', '/notes/_design/app/_view/twice?limit=1&reduce=false')
  await call(server, 'POST', '/notes/_find', { selector: { book: 1 } })
  await call(server, 'PUT', '/notes/later', { book: 1 })
  const { indexes, bytes } = await call(server, 'GET', path)
  const [app, book] = indexes
  t.match(app, { built: true, rows: 90, views: [{ rows: 30 }, { rows: 60 }], pending: 1 })
  t.match(book, { built: true, rows: 30, pending: 1 })
  t.ok(Date.now() - Date.parse(book.last_use) < 60_000)
  t.ok(app.bytes > 0 && bytes >= app.bytes + book.bytes)

  const names: string[] = []
  for (let after = ''; ; ) {
    const page = await call(server, 'GET', `${path}?limit=1&after=${encodeURIComponent(after)}`)
    names.push(...page.indexes.map((each: { ddoc: string }) => each.ddoc))
    if (page.next === null) break
    after = page.next
  }
  t.same(names, ['_design/app', '_design/by-book', '_design/old'], 'page by page')
})

t.test('the progress of a build', async (t) => {
  const server = await startTestServer(t, { env })
  await call(server, 'PUT', '/notes')
  const docs = Array.from({ length: 1500 }, (_, n) => ({ _id: `n${n}` }))
  await call(server, 'POST', '/notes/_bulk_docs', { docs })
  const map = 'function (doc) { for (var i = 0; i < 5000; i++); emit(null) }'
  await call(server, 'PUT', '/notes/_design/slow', { views: { v: { map } } })
  const building = call(server, 'GET', '/notes/_design/slow/_view/v?limit=0')
  let isDone = false
  void building.finally(() => {
    isDone = true
  })
  const seen: { done: number; total: number }[] = []
  while (!isDone) {
    const [row] = (await call(server, 'GET', '/_settee/databases/notes/indexes')).indexes
    if (row.progress !== null) seen.push(row.progress)
  }
  await building
  t.ok(seen.length > 0)
  t.ok(seen.every(({ done, total }, at) => done <= total && done >= (seen[at - 1]?.done ?? 0)))
  const [row] = (await call(server, 'GET', '/_settee/databases/notes/indexes')).indexes
  t.match(row, { updating: false, progress: null, pending: 0, rows: 1500 })
})
