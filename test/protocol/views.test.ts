import t from 'tap'
import { call, serve } from './served.ts'

const DESIGN = {
  views: {
    kind: { map: 'function (doc) { if (doc.kind) emit(doc.kind, doc.size) }', reduce: '_sum' },
    odd: { map: 'doc => emit(doc._id)' },
  },
}

t.test('views through a listening server, over its threads and a restart', async (t) => {
  const server = await serve(t)
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

t.test('what is no view, and what is no way to ask', async (t) => {
  const server = await serve(t)
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
