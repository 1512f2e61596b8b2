/** Documents with the contents of their attachments over HTTP: protocol.md 3.1, 3.2, 4.2, 7.3. */
import { gunzipSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { digestOf, storeRevisions } from '../documents/stored-attachments.ts'
import { boundaryOf, partsOf } from '../helpers/multipart-parts.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)
const BIG = Buffer.alloc(
  700_000,
  Uint8Array.from({ length: 251 }, (_, i) => i),
)

interface Rows {
  readonly rows: readonly [{ readonly doc: { readonly _attachments: { readonly coded: unknown } } }]
}

async function start(t: Test) {
  const server = await startStoredServer(t)
  const call = connect(t, server)
  const { store } = server
  const old = { name: 'old', content: 'old one', revpos: 1 }
  await storeRevisions(
    store,
    'x',
    { rev: '1-a', superseded: true, attachments: [old] },
    { rev: '2-c', ancestors: ['1-a'], body: '{"n":"c"}' },
    {
      rev: '2-d',
      ancestors: ['1-a'],
      body: '{"n":"d"}',
      attachments: [
        { name: 'big', content: BIG, type: 'image/png', revpos: 2 },
        { name: 'coded', content: CODED, gzip: true, revpos: 2 },
        old,
      ],
    },
  )
  await storeRevisions(store, 'plain', { rev: '1-a', body: '{"n":1}' })
  const get = (path: string, accept?: string, method = 'GET') =>
    call(method, path, { headers: accept === undefined ? {} : { accept } })
  return { ...server, call, get }
}

t.test('a document and its attachments behind it', async (t) => {
  const { get, held } = await start(t)
  const answer = await get('/db/x?attachments=true', 'multipart/related')
  t.match(answer, { status: 200, headers: { etag: '"2-d"', vary: 'Accept' } })
  t.match(answer.headers['content-type'], /^multipart\/related; boundary="[0-9a-f]{32}"$/)
  t.equal(answer.headers['content-length'], String(answer.bytes.length))
  const [document, ...parts] = partsOf(answer.headers['content-type'], answer.bytes)
  t.same(document?.headers, { 'content-type': 'application/json' })
  t.ok(document?.text.endsWith('}'), 'without a newline')
  t.match(document?.json, {
    _id: 'x',
    n: 'd',
    _attachments: {
      big: { content_type: 'image/png', length: BIG.length, follows: true },
      coded: { follows: true, length: 29, encoding: 'gzip', encoded_length: STORED.length },
      old: { follows: true },
    },
  })
  const header = (name: string, type: string, length: number) => ({
    'content-disposition': `attachment; filename="${name}"`,
    'content-type': type,
    'content-length': String(length),
  })
  t.same(
    parts.map(({ headers }) => headers),
    [
      header('big', 'image/png', BIG.length),
      { ...header('coded', 'text/plain', STORED.length), 'content-encoding': 'gzip' },
      header('old', 'text/plain', 7),
    ],
  )
  t.ok(parts[0]?.content.equals(BIG))
  t.equal(gunzipSync(parts[1]?.content as Buffer).toString(), CODED)
  t.equal(parts[2]?.text, 'old one')
  const head = await get('/db/x?attachments=true', 'multipart/related', 'HEAD')
  t.match(head, { status: 200, text: '' })
  t.equal(head.headers['content-length'], String(answer.bytes.length))
  t.equal(held(), 0)
})

t.test('a multipart answer is never compressed', async (t) => {
  const { call } = await start(t)
  for (const [path, type] of [
    ['/db/x?attachments=true', 'multipart/related'],
    ['/db/x?open_revs=all', 'multipart/mixed'],
  ] as const) {
    const headers = { accept: type, 'accept-encoding': 'gzip, br' }
    const answer = await call('GET', path, { headers })
    t.equal(answer.headers['content-encoding'], undefined)
    t.ok(partsOf(answer.headers['content-type'], answer.bytes).length > 1)
  }
})

t.test('JSON for all who do not name a multipart type', async (t) => {
  const { get } = await start(t)
  for (const accept of [undefined, '*/*', 'application/json', 'multipart/mixed, application/json']) {
    const answer = await get('/db/x?attachments=true', accept)
    t.match(answer, { status: 200, headers: { 'content-type': 'application/json', etag: '"2-d"' } })
    t.equal(answer.headers['content-length'], String(answer.bytes.length))
    t.match(answer.json, {
      _attachments: {
        big: { data: BIG.toString('base64') },
        coded: { data: Buffer.from(CODED).toString('base64'), encoding: undefined, digest: digestOf(STORED) },
      },
    })
    t.ok(answer.text.endsWith('}\n'))
  }
  t.match(await get('/db/x?attachments=true', undefined, 'HEAD'), { status: 200, text: '' })
})

t.test('JSON with contents is compressed for who asks for that', async (t) => {
  const { call } = await start(t)
  const answer = await call('GET', '/db/x?attachments=true', { headers: { 'accept-encoding': 'gzip' } })
  t.match(answer.headers, { 'content-encoding': 'gzip', 'content-length': undefined })
  t.match(JSON.parse(gunzipSync(answer.bytes).toString()), { _id: 'x', _attachments: { old: {} } })
})

t.test('without contents to follow the answer is JSON', async (t) => {
  const { get } = await start(t)
  const since = encodeURIComponent('["2-d"]')
  for (const path of ['/db/plain?attachments=true', `/db/x?atts_since=${since}`, '/db/x']) {
    const answer = await get(path, 'multipart/related')
    t.match(answer, { status: 200, headers: { 'content-type': 'application/json' } }, path)
    t.equal(answer.headers['content-length'], String(answer.bytes.length))
    t.ok(answer.text.endsWith('}\n'))
  }
})

t.test('atts_since', async (t) => {
  const { get } = await start(t)
  const since = (revs: unknown) => `/db/x?atts_since=${encodeURIComponent(JSON.stringify(revs))}`
  const answer = await get(since(['1-a']), 'multipart/related')
  const [document, ...parts] = partsOf(answer.headers['content-type'], answer.bytes)
  t.match(document?.json._attachments, { big: { follows: true }, old: { stub: true } })
  t.equal(parts.length, 2)
  t.match((await get(since(['1-a']))).json, {
    _attachments: { coded: { data: String }, old: { stub: true, length: 7 } },
  })
  t.match((await get(`${since(['1-a'])}&att_encoding_info=true`)).json, {
    _attachments: { coded: { encoding: 'gzip', encoded_length: STORED.length } },
  })
  t.match(await get('/db/x?atts_since=x'), { status: 400, json: { reason: 'invalid UTF-8 JSON' } })
  t.match(await get(since('1-a')), { status: 400, json: { reason: 'Invalid list of revisions' } })
  for (const revs of [[1], ['bad']]) {
    t.match(await get(since(revs)), { status: 400, json: { reason: 'Invalid rev format' } })
  }
  t.match(await get('/db/x?open_revs=all&atts_since=x'), { status: 400 })
})

t.test('If-None-Match and what is not there', async (t) => {
  const { call, get } = await start(t)
  for (const accept of ['multipart/related', 'application/json']) {
    const headers = { accept, 'if-none-match': '"2-d"' }
    t.match(await call('GET', '/db/x?attachments=true', { headers }), { status: 304, text: '' })
    t.match(await get('/db/no?attachments=true', accept), {
      status: 404,
      json: { error: 'not_found', reason: 'missing' },
    })
  }
})

t.test('open_revs as multipart/mixed', async (t) => {
  const { get } = await start(t)
  const revs = encodeURIComponent('["2-d","2-c","9-no"]')
  const answer = await get(`/db/x?open_revs=${revs}`, 'multipart/mixed')
  t.match(answer, { status: 200, headers: { 'transfer-encoding': 'chunked', vary: 'Accept' } })
  t.match(answer.headers['content-type'], /^multipart\/mixed; boundary="[0-9a-f]{32}"$/)
  const [first, second, third] = partsOf(answer.headers['content-type'], answer.bytes)
  t.match(first?.headers, { 'content-type': /^multipart\/related; boundary="[0-9a-f]{32}"$/ })
  t.not(boundaryOf(first?.headers['content-type']), boundaryOf(answer.headers['content-type']))
  const nested = partsOf(first?.headers['content-type'], first?.content as Buffer)
  t.ok(nested[1]?.content.equals(BIG))
  t.match(second, { headers: { 'content-type': 'application/json' }, json: { _rev: '2-c', n: 'c' } })
  t.match(third, {
    headers: { 'content-type': 'application/json; error="true"' },
    json: { missing: '9-no' },
  })
  t.match(await get(`/db/x?open_revs=${revs}`, 'multipart/mixed', 'HEAD'), { status: 200, text: '' })
  t.match(await get('/db/no?open_revs=all', 'multipart/mixed'), { status: 404 })
  for (const accept of [undefined, '*/*', 'application/json']) {
    const { json, headers } = await get('/db/x?open_revs=all', accept)
    t.match(json, [{ ok: { _rev: '2-d' } }, { ok: { _rev: '2-c' } }])
    t.equal(headers['content-type'], 'application/json')
  }
})

t.test('_bulk_get as multipart', async (t) => {
  const { call } = await start(t)
  const ask = (accept: string, query = '') =>
    call('POST', `/db/_bulk_get${query}`, {
      json: { docs: [{ id: 'x', rev: '2-d' }, { id: 'plain' }, { id: 'no', rev: '1-a' }] },
      headers: { accept },
    })
  for (const type of ['multipart/mixed', 'multipart/related']) {
    const answer = await ask(type)
    t.equal(answer.status, 200)
    t.match(answer.headers['content-type'], new RegExp(`^${type}; boundary="[0-9a-f]{32}"$`))
    const [first, second, third] = partsOf(answer.headers['content-type'], answer.bytes)
    t.match(first?.headers, { 'x-doc-id': 'x', 'x-rev-id': '2-d' })
    const nested = partsOf(first?.headers['content-type'], first?.content as Buffer)
    t.equal(nested.length, 4)
    t.match(second?.json, { _id: 'plain' })
    t.match(third?.json, { id: 'no', rev: '1-a', error: 'not_found', reason: 'missing' })
  }
  for (const accept of ['*/*', 'multipart/mixed, application/json', 'text/html']) {
    const { json } = await ask(accept)
    t.match(json, {
      results: [{ id: 'x', docs: [{ ok: { _attachments: { big: { stub: true } } } }] }, {}, {}],
    })
  }
  const inline = await ask('*/*', '?attachments=true&att_encoding_info=true')
  t.match(inline.json, {
    results: [{ docs: [{ ok: { _attachments: { coded: { data: String, encoding: 'gzip' } } } }] }, {}, {}],
  })
  t.match(
    await call('POST', '/db/_bulk_get', {
      body: '{',
      headers: { accept: 'multipart/mixed', 'content-type': 'application/json' },
    }),
    {
      status: 400,
      headers: { 'content-type': 'application/json' },
    },
  )
})

t.test('att_encoding_info where documents come in rows', async (t) => {
  const { get } = await start(t)
  const stub = { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), length: 29, stub: true }
  const info = { encoding: 'gzip', encoded_length: STORED.length }
  const data = Buffer.from(CODED).toString('base64')
  const coded = async (query: string) => {
    const { json } = await get(`/db/_all_docs?key="x"&include_docs=true${query}`)
    return (json as Rows).rows[0].doc._attachments.coded
  }
  t.same(await coded(''), stub)
  t.same(await coded('&att_encoding_info=true'), { ...stub, ...info })
  t.match(await coded('&attachments=true'), { data, encoding: undefined })
  t.match(await coded('&attachments=true&att_encoding_info=true'), { data, ...info })
})
