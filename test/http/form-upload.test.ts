/** CouchDB's upload form for browsers, over the wire; protocol.md 1.2, 3.7. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

/** A form as a browser sends it. */
async function formOf(fields: Readonly<Record<string, string | File>>) {
  const form = new FormData()
  for (const [name, value] of Object.entries(fields)) form.append(name, value)
  const sent = new Response(form)
  const type = sent.headers.get('content-type') ?? ''
  return { body: Buffer.from(await sent.arrayBuffer()), headers: { 'content-type': type } }
}

t.test('files go to a document', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const referer = `${server.url}/_utils/index.html`
  const post = async (path: string, fields: Record<string, string | File>) => {
    const { body, headers } = await formOf(fields)
    return call('POST', path, { body, headers: { ...headers, referer } })
  }
  const _attachments = new File(['hello'], 'a b.txt', { type: 'text/plain' })
  const first = await post('/db/x%2Fy', { _doc: '{"n":1}', _attachments })
  t.match(first, { status: 201, json: { ok: true, id: 'x/y', rev: /^1-/ } })
  const { rev } = first.json as { rev: string }
  t.equal(first.headers.etag, `"${rev}"`)
  const read = await call('GET', '/db/x%2Fy/a%20b.txt')
  t.match(read, { status: 200, text: 'hello', headers: { 'content-type': 'text/plain' } })
  const other = new File([Buffer.alloc(3_000_000, 7)], 'large')
  t.match(await post('/db/x%2Fy', { _rev: rev, _attachments: other }), { status: 201, json: { rev: /^2-/ } })
  t.match((await call('GET', '/db/x%2Fy')).json, {
    n: 1,
    _attachments: { 'a b.txt': { stub: true }, large: { length: 3_000_000 } },
  })
  t.equal((await post('/db/x%2Fy', { _rev: rev })).status, 409)
  t.match(await post('/db/_design/d', { _doc: '{"language":"javascript"}' }), { status: 201 })
  t.equal((await post('/db/_local/l', { _doc: '{}' })).status, 400)
})

t.test('who sends it from elsewhere, or something else', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const { body, headers } = await formOf({ _doc: '{}' })
  const cases: [referer: string | undefined, reason: string][] = [
    [undefined, 'Referer header required.'],
    ['http://elsewhere/', 'Referer header must match host.'],
    [`http://x@${new URL(server.url).host}.evil/`, 'Referer header must match host.'],
    ['rubbish', 'Referer header must match host.'],
    ['', 'Referer header must match host.'],
  ]
  for (const [referer, reason] of cases) {
    const ask = { body, headers: { ...headers, ...(referer !== undefined && { referer }) } }
    t.match(
      await call('POST', '/db/doc', ask),
      { status: 400, json: { error: 'bad_request', reason } },
      reason,
    )
  }
  t.match(await call('POST', '/db/doc', { json: {} }), {
    status: 400,
    json: { reason: 'Referer header required.' },
  })
  const referer = `${server.url}/`
  for (const type of ['application/json', 'multipart/related; boundary=x']) {
    t.match(await call('POST', '/db/doc', { body, headers: { referer, 'content-type': type } }), {
      status: 415,
      json: { error: 'bad_content_type', reason: 'Content-Type must be multipart/form-data' },
    })
  }
  const cut = body.subarray(0, body.length - 10)
  for (const [sent, type] of [
    [cut, headers['content-type']],
    [body, 'multipart/form-data'],
    [Buffer.alloc(0), headers['content-type']],
  ] as const) {
    t.equal(
      (await call('POST', '/db/doc', { body: sent, headers: { referer, 'content-type': type } })).status,
      400,
    )
  }
  t.match((await call('GET', '/db')).json, { doc_count: 0 })
})
