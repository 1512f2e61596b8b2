import { readdir } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { onlyOneServer, settled, startTestServer } from '../helpers/server.ts'
import { call } from './call.ts'

t.test('LiveSync counts compromised chunks before it starts to sync', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/vault')
  const docs = [
    { _id: 'obsydian_livesync_version', type: 'versioninfo' },
    { _id: 'f:1', type: 'plain' },
    { _id: 'h:+1', type: 'leaf', data: 'x' },
    { _id: 'k1', type: 'leaf' },
  ]
  await call(server, 'POST', '/vault/_bulk_docs', { body: { docs } })
  const ids: string[] = []
  for (const bound of [{ $lt: 'h:' }, { $gt: 'h;' }]) {
    const body = { selector: { _id: bound, type: 'leaf' }, limit: 1000 }
    const { status, json } = await call(server, 'POST', '/vault/_find', { body })
    t.equal(status, 200)
    ids.push(...(json as { docs: { _id: string }[] }).docs.map(({ _id }) => _id))
  }
  t.strictSame(ids, ['k1'])
  t.match(await call(server, 'POST', '/vault/_explain', { body: { selector: { _id: 'x' } } }), {
    status: 200,
    json: { dbname: 'vault', index: { name: '_all_docs' }, mrargs: { start_key: 'x', end_key: 'x' } },
  })
  t.match(await call(server, 'GET', '/vault/_index?limit=5'), { status: 200, json: { total_rows: 1 } })
  t.match(await call(server, 'GET', '/vault/_index?limit=0'), {
    status: 400,
    json: { error: 'invalid_list_index_params' },
  })
  t.match(await call(server, 'PUT', '/vault/_index', { body: {} }), { status: 405 })
  await call(server, 'PUT', '/_node/_local/_config/mango/default_limit', { body: '"2"' })
  await settled(server)
  const few = await call(server, 'POST', '/vault/_find', { body: { selector: {} } })
  t.equal((few.json as { docs: unknown[] }).docs.length, 2, 'mango/default_limit')
  const stats = await call(server, 'GET', '/_node/_local/_stats/mango/unindexed_queries')
  // Each node counts its own.
  t.match(stats.json, { value: server.settingsMs === undefined ? 3 : Number, type: 'counter' })
  t.match(await call(server, 'GET', '/vault/_find'), { status: 405 })
  const mixed = { selector: {}, sort: ['a', { b: 'desc' }] }
  t.match(await call(server, 'POST', '/vault/_find', { body: mixed }), {
    status: 400,
    json: { error: 'unsupported_mixed_sort' },
  })
  t.match(await call(server, 'POST', '/vault/_find', { body: { selector: { a: 'x'.repeat(1_100_000) } } }), {
    status: 413,
    json: { error: 'too_large' },
  })
})

t.test('searches that find nothing delay no save, and end when their clients disconnect', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const text = 'a'.repeat(20_000)
  for (let n = 0; n < 4; n++) {
    const docs = Array.from({ length: 250 }, (_, at) => ({ _id: `${n}-${at}`, text }))
    await call(server, 'POST', '/notes/_bulk_docs', { body: { docs } })
  }
  const body = JSON.stringify({ selector: { text: { $regex: 'b(c|d)*e(f|g)*$' } } })
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const searches = Array.from({ length: 40 }, () => {
    const search = request(`${server.url}/notes/_find`, { method: 'POST', headers, agent: false })
    search.on('error', () => undefined)
    search.end(body)
    return search
  })
  const waits: number[] = []
  for (let n = 0; n < 20; n++) {
    const start = performance.now()
    t.equal((await call(server, 'PUT', `/notes/saved-${n}`, { body: {} })).status, 201)
    waits.push(performance.now() - start)
  }
  // A page of one search takes a few milliseconds; forty pages per turn would take hundreds.
  t.ok((waits.sort((a, b) => a - b)[10] ?? 0) < 300, `half the saves took ${waits[10]} ms`)
  for (const search of searches) search.destroy()
  const start = performance.now()
  const { json } = await call(server, 'POST', '/notes/_find', { body: { selector: { _id: '0-0' } } })
  t.match(json, { docs: [{ _id: '0-0' }] })
  t.ok(performance.now() - start < 10_000, 'nobody waits for searches whose clients have left')
})

const DESIGN = {
  views: {
    kind: { map: 'function (doc) { if (doc.kind) emit(doc.kind, doc.size) }', reduce: '_sum' },
    odd: { map: 'doc => emit(doc._id)' },
  },
}

t.test('views through a listening server, over its threads and a restart', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/_design/d', { body: DESIGN })
  const docs = Array.from({ length: 600 }, (_, n) => ({ _id: `n${n}`, kind: `k${n % 3}`, size: n }))
  await call(server, 'POST', '/notes/_bulk_docs', { body: { docs } })
  const view = '/notes/_design/d/_view/kind'
  const sums = { rows: [0, 1, 2].map((n) => ({ key: `k${n}`, value: 59_700 + 200 * n })) }
  t.strictSame((await call(server, 'GET', `${view}?group=true`)).json, sums)
  const { json } = await call(server, 'GET', `${view}?reduce=false&include_docs=true&limit=2&key="k1"`)
  t.match(json, { total_rows: 600, offset: 200, rows: [{ id: 'n1', doc: { size: 1 } }, { id: 'n10' }] })
  const keys = await call(server, 'POST', '/notes/_design/d/_view/odd', { body: { keys: ['n7', 'n5'] } })
  t.match(keys.json, { rows: [{ id: 'n7' }, { id: 'n5' }] })
  const queries = [{ group: true }, { reduce: false, limit: 0 }]
  const both = await call(server, 'POST', `${view}/queries`, { body: { queries } })
  t.match(both.json, { results: [sums, { total_rows: 600, rows: [] }] })
  const escaped = view.replace('_design/', '_design%2F')
  t.strictSame(
    (await call(server, 'GET', `${escaped}?group=true`)).json,
    sums,
    'CouchDB redirects to the other',
  )
  await server.stop()
  await server.start()
  t.strictSame((await call(server, 'GET', `${view}?group=true`)).json, sums)
})

t.test('missing views and invalid queries', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/_design/d', { body: DESIGN })
  const missing = { error: 'not_found', reason: 'missing_named_view' }
  t.match(await call(server, 'GET', '/notes/_design/d/_view/none'), { status: 404, json: missing })
  t.match(await call(server, 'GET', '/notes/_design/none/_view/none'), {
    status: 404,
    json: { reason: 'missing' },
  })
  t.match(await call(server, 'GET', '/notes/_design/d/_view/odd?group=true'), {
    status: 400,
    json: { error: 'query_parse_error' },
  })
  t.match(await call(server, 'PUT', '/notes/_design/d/_view/odd'), { status: 405 })
  t.match(await call(server, 'POST', '/notes/_temp_view', { body: {} }), {
    status: 410,
    json: { error: 'gone' },
  })
  t.match(await call(server, 'GET', '/notes/_design/d/_info'), {
    status: 200,
    json: { name: 'd', view_index: { language: 'javascript' } },
  })
})

t.test(
  'a compaction removes the index of a design document that has changed',
  onlyOneServer('It needs the files of a database.'),
  async (t) => {
    const server = await startTestServer(t)
    const ask = (method: string, path: string, body?: unknown) => call(server, method, path, { body })
    await ask('PUT', '/db')
    await ask('PUT', '/db/x', { n: 1 })
    const design = (map: string, _rev?: string) =>
      ask('PUT', '/db/_design/d', { _rev, views: { v: { map } } })
    const first = await design('function (doc) { emit(doc.n, 1) }')
    await ask('GET', '/db/_design/d/_view/v')
    await design('function (doc) { emit(doc.n, 2) }', (first.json as { rev: string }).rev)
    await ask('GET', '/db/_design/d/_view/v')
    const files = async () => {
      const names = await readdir(join(server.dataDir, 'indexes'), { recursive: true })
      return names.filter((name) => name.endsWith('.sqlite')).length
    }
    t.equal(await files(), 2)
    t.match(await ask('POST', '/db/_compact', {}), { status: 202 })
    while ((await files()) > 1) await setTimeout(10)
    t.match(await ask('GET', '/db/_design/d/_view/v'), { json: { rows: [{ key: 1, value: 2 }] } })
  },
)
