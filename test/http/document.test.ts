/**
 * One document over HTTP: its address, and the contents of its attachments behind it; protocol.md 3.1, 3.2, 7.3. The
 * parameters and answers are in test/surface.
 */

import { gunzipSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { digestOf, storeRevisions } from '../documents/stored-attachments.ts'
import { boundaryOf, partsOf } from '../helpers/multipart-parts.ts'
import { sharedTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

t.test('one document', async (t) => {
  const startShared = sharedTestServer(t)
  async function start(t: Test) {
    const server = await startShared()
    const call = connect(t, server)
    await call('PUT', '/db')
    const put = (path: string, doc: unknown) => call('PUT', path, { body: JSON.stringify(doc) })
    return { call, put }
  }

  t.test('revisions whose ids have different forms are in the order of CouchDB', async (t) => {
    const { call } = await start(t)
    const hex = (start: string) => `1-${start.padEnd(32, '0')}`
    const revs = [hex('ff'), `1-c3a9${'a'.repeat(28)}`, '1-é', hex('96'), '1-zz', '1-9', '1-']
    const docs = [3, 4, 5, 6, 2, 0, 1].map((at) => ({ _id: 'a', _rev: revs[at] }))
    const body = JSON.stringify({ new_edits: false, docs })
    await call('POST', '/db/_bulk_docs', { body, headers: { 'content-type': 'application/json' } })
    const [best, ...others] = revs
    t.strictSame((await call('GET', '/db/a?conflicts=true')).json, {
      _id: 'a',
      _rev: best,
      _conflicts: others,
    })
    t.match(await call('GET', '/db/_changes?style=all_docs'), {
      json: { results: [{ id: 'a', changes: revs.map((rev) => ({ rev })) }] },
    })
    t.match(await call('GET', '/db/_all_docs'), { json: { rows: [{ value: { rev: best } }] } })
  })

  t.test('ids in addresses', async (t) => {
    const { call, put } = await start(t)
    const cases: [written: string, id: string, ...read: string[]][] = [
      ['/db/a%2Fb', 'a/b', '/db/a%2fb', '/db//a%2Fb/'],
      ['/db/a+b', 'a b', '/db/a%20b'],
      ['/db/a%2Bb', 'a+b', '/db/a%2bb'],
      ['/db/%C3%A9%F0%9F%98%80', 'é😀', '/db/%c3%a9%f0%9f%98%80'],
      ['/db/..%2f..%2f', '../../', '/db/..%2F..%2F'],
      ['/db/%25', '%', '/db/%25'],
      ['/db/a%3Fb%23', 'a?b#', '/db/a%3fb%23'],
      ['/db/__proto__', '', '/db/__proto__'],
      ['/db/_design/d', '_design/d', '/db/_design%2Fd', '/db/_design%2fd'],
      ['/db/_design%2Fe', '_design/e', '/db/_design/e', '/db/_design/e/'],
      ['/db/_design/f%2Fg', '_design/f/g', '/db/_design%2Ff%2Fg'],
      ['/db/_local/l', '_local/l', '/db/_local%2Fl'],
      ['/db/_local/a%2Fb', '_local/a/b', '/db/_local%2Fa%2Fb'],
    ]
    for (const [written, id, ...read] of cases) {
      const answer = await put(written, {})
      if (id === '') {
        t.equal(answer.status, 400, 'an id may not begin with an underscore')
        continue
      }
      t.match(answer, { status: 201, json: { id } }, written)
      for (const path of read) t.match(await call('GET', path), { status: 200, json: { _id: id } }, path)
    }
  })

  t.test('a revision whose id is no valid header is stored and read, without an ETag', async (t) => {
    const { call } = await start(t)
    for (const [doc, _rev] of [
      ['/db/line', '1-a\nb'],
      ['/db/euro', '1-€'],
      ['/db/empty', '1-'],
    ] as const) {
      t.match(await call('PUT', `${doc}?new_edits=false`, { body: JSON.stringify({ _rev }) }), {
        status: 201,
        json: { rev: _rev },
      })
      t.match(await call('GET', doc), { status: 200, json: { _rev } })
    }
    t.equal((await call('GET', '/db/euro')).headers.etag, undefined)
    t.equal((await call('GET', '/db/empty')).headers.etag, '"1-"')
  })
})

t.test('multipart answers', async (t) => {
  const CODED = 'a text that is stored as gzip'
  const STORED = gzipSync(CODED)
  const BIG = Buffer.alloc(
    700_000,
    Uint8Array.from({ length: 251 }, (_, i) => i),
  )

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

  t.test('JSON for clients that do not name a multipart type', async (t) => {
    const { get } = await start(t)
    for (const accept of [undefined, '*/*', 'application/json', 'multipart/mixed, application/json']) {
      const answer = await get('/db/x?attachments=true', accept)
      t.match(answer, { status: 200, headers: { 'content-type': 'application/json', etag: '"2-d"' } })
      t.equal(answer.headers['content-length'], String(answer.bytes.length))
      t.match(answer.json, {
        _attachments: {
          big: { data: BIG.toString('base64') },
          coded: {
            data: Buffer.from(CODED).toString('base64'),
            encoding: undefined,
            digest: digestOf(STORED),
          },
        },
      })
      t.ok(answer.text.endsWith('}\n'))
    }
    t.match(await get('/db/x?attachments=true', undefined, 'HEAD'), { status: 200, text: '' })
  })

  t.test('JSON with contents is compressed if the client accepts it', async (t) => {
    const { call } = await start(t)
    const answer = await call('GET', '/db/x?attachments=true', { headers: { 'accept-encoding': 'gzip' } })
    t.match(answer.headers, { 'content-encoding': 'gzip', 'content-length': undefined })
    t.match(JSON.parse(gunzipSync(answer.bytes).toString()), { _id: 'x', _attachments: { old: {} } })
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
})
