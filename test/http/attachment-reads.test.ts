/** Reading attachments at their own addresses; protocol.md 7.4, 19.6. */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as open } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { digestOf, storeRevisions } from '../documents/stored-attachments.ts'
import { partsOf } from '../helpers/multipart-parts.ts'
import { sharedTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

/** Reading attachments on their own addresses; protocol.md 7.4, 19.6. */
t.test('contents', async (t) => {
  const startShared = sharedTestServer(t)
  const TEXT = 'This is a base64 encoded text'
  const DIGEST = 'aEI7pOYCRBLTRQvvqYrrJQ=='

  async function start(t: Test) {
    const call = connect(t, await startShared())
    await call('PUT', '/db')
    const attach = (path: string, name: string, content_type: string, data: Buffer) =>
      call('PUT', path, {
        body: JSON.stringify({ _attachments: { [name]: { content_type, data: data.toString('base64') } } }),
      })
    return { call, attach }
  }

  t.test('an attachment and its headers', async (t) => {
    const { call, attach } = await start(t)
    const { json } = await attach('/db/doc', 'a/b c.txt', 'text/plain; charset=utf-8', Buffer.from(TEXT))
    for (const path of ['/db/doc/a/b%20c.txt', '/db/doc/a%2Fb+c.txt', '/db//doc//a/b%20c.txt/']) {
      const answer = await call('GET', path, { headers: { 'accept-encoding': 'gzip, br' } })
      t.equal(answer.status, 200, path)
      t.equal(answer.text, TEXT)
      t.match(answer.headers, {
        'content-type': 'text/plain; charset=utf-8',
        'content-length': String(TEXT.length),
        etag: `"${DIGEST}"`,
        'cache-control': 'must-revalidate',
        'accept-ranges': 'bytes',
        'content-security-policy': 'sandbox',
      })
      t.equal(answer.headers['content-encoding'], undefined)
    }
    const head = await call('HEAD', '/db/doc/a/b%20c.txt')
    t.match(head, {
      status: 200,
      text: '',
      headers: { 'content-length': String(TEXT.length), etag: `"${DIGEST}"` },
    })
    const known = await call('GET', '/db/doc/a/b%20c.txt', { headers: { 'if-none-match': `"${DIGEST}"` } })
    t.match(known, { status: 304, text: '', headers: { etag: `"${DIGEST}"` } })
    const { rev } = json as { rev: string }
    await call('PUT', '/db/doc', { body: JSON.stringify({ _rev: rev }) })
    const missing = { status: 404, json: { error: 'not_found', reason: 'Document is missing attachment' } }
    t.match(await call('GET', '/db/doc/a/b%20c.txt'), missing)
    t.match(await call('HEAD', '/db/doc/a/b%20c.txt'), { status: 404, text: '' })
    t.equal(
      (await call('GET', `/db/doc/a/b%20c.txt?rev=${rev}`)).text,
      TEXT,
      'the attachment of an old revision is readable',
    )
    t.match(await call('GET', '/db/none/a'), { status: 404, json: { error: 'not_found', reason: 'missing' } })
    t.match(await call('GET', '/db/doc/a?rev=x'), { status: 400, json: { reason: 'Invalid rev format' } })
  })

  t.test('large and empty ones, bytes of any kind, types of any kind', async (t) => {
    const { call, attach } = await start(t)
    const large = Buffer.alloc(
      3_000_000,
      Uint8Array.from({ length: 251 }, (_, i) => i),
    )
    await attach('/db/large', 'bin', 'application/json', large)
    const answer = await call('GET', '/db/large/bin')
    t.ok(answer.bytes.equals(large))
    t.equal(answer.headers['content-length'], '3000000')
    await attach('/db/empty', 'nothing', 'text/plain', Buffer.alloc(0))
    t.match(await call('GET', '/db/empty/nothing'), {
      status: 200,
      text: '',
      headers: { 'content-length': '0' },
    })
    for (const [i, type] of ['text/plain\nSet-Cookie: a=b', '', 'текст'].entries()) {
      await attach(`/db/type-${i}`, 'x', type, Buffer.from('x'))
      const odd = await call('GET', `/db/type-${i}/x`)
      t.strictSame(
        [odd.status, odd.headers['content-type']],
        [200, 'application/octet-stream'],
        JSON.stringify(type),
      )
    }
  })

  t.test('attachments of design documents', async (t) => {
    const { call, attach } = await start(t)
    await attach('/db/_design/d', 'index.html', 'text/html', Buffer.from('<p>'))
    for (const path of ['/db/_design/d/index.html', '/db/_design%2Fd/index.html']) {
      t.match(
        await call('GET', path),
        { status: 200, text: '<p>', headers: { 'content-type': 'text/html' } },
        path,
      )
    }
    t.match(await call('GET', '/db/_design/d/_view/x'), { status: 404, json: { reason: 'missing' } })
  })

  t.test('_local documents have no attachments', async (t) => {
    const { call } = await start(t)
    t.match(await call('GET', '/db/_local/l/a'), { status: 400, json: { error: 'bad_request' } })
  })
})

/** Reading attachments: ranges, codings, validators; protocol.md 7.4, 19.6. */
t.test('ranges, codings and validators', async (t) => {
  const TEXT = 'This is a base64 encoded text'
  const ETAG = '"aEI7pOYCRBLTRQvvqYrrJQ=="'
  const CODED = 'a text that is stored as gzip'
  const STORED = gzipSync(CODED)
  const CODED_ETAG = `"${digestOf(STORED).slice(4)}"`

  async function start(t: Test) {
    const server = await startStoredServer(t)
    const { store } = server
    const call = connect(t, server)
    const attachments = [
      { name: 'plain', content: TEXT },
      { name: 'coded', content: CODED, gzip: true, type: 'text/markdown' },
    ]
    await storeRevisions(store, 'doc', { rev: '1-a', attachments })
    const ask = (range: string, headers: Record<string, string> = {}, path = '/db/doc/plain') =>
      call('GET', path, { headers: { range, ...headers } })
    return { ...server, call, ask }
  }

  t.test('several ranges', async (t) => {
    const { ask, call } = await start(t)
    const answer = await ask('bytes=0-3,-4,5-6')
    t.match(answer, { status: 206, headers: { etag: ETAG, 'accept-ranges': 'bytes' } })
    t.match(answer.headers['content-type'], /^multipart\/byteranges; boundary="[0-9a-f]{32}"$/)
    t.equal(answer.headers['content-length'], String(answer.bytes.length))
    t.same(
      partsOf(answer.headers['content-type'], answer.bytes).map(({ headers, text }) => [headers, text]),
      [
        ['bytes 0-3/29', 'This'],
        ['bytes 25-28/29', 'text'],
        ['bytes 5-6/29', 'is'],
      ].map(([place, text]) => [{ 'content-type': 'text/plain', 'content-range': place }, text]),
    )
    const head = await call('HEAD', '/db/doc/plain', { headers: { range: 'bytes=0-3,-4,5-6' } })
    t.match(head, { status: 206, text: '' })
    t.equal(head.headers['content-length'], String(answer.bytes.length))
  })

  t.test('every Range gets an answer, and a 206 has exactly its bytes', async (t) => {
    const { ask } = await start(t)
    const number = fc.nat(40).map(String)
    const spec = fc.oneof(
      fc.tuple(number, number).map((pair) => pair.join('-')),
      number.map((first) => `${first}-`),
      number.map((last) => `-${last}`),
      fc.string({ unit: 'grapheme-ascii', maxLength: 5 }),
    )
    const header = fc.array(spec, { maxLength: 5 }).map((specs) => `bytes=${specs.join(',')}`)
    await fc.assert(
      fc.asyncProperty(header, async (range) => {
        const { status, headers, bytes, text } = await ask(range)
        if (status === 200) return text === TEXT
        if (status === 416) return headers['content-range'] === 'bytes */29'
        const parts = headers['content-range']
          ? [{ headers: headers as Record<string, string>, text }]
          : partsOf(headers['content-type'], bytes)
        return (
          status === 206 &&
          parts.every((part) => {
            const [, start, end] = /^bytes (\d+)-(\d+)\/29$/.exec(part.headers['content-range'] ?? '') ?? []
            return part.text === TEXT.slice(Number(start), Number(end) + 1)
          })
        )
      }),
      { numRuns: 300 },
    )
  })

  t.test('gzip content is sent as it is, or inflated', async (t) => {
    const { call } = await start(t)
    const get = (accept?: string, method = 'GET') =>
      call(method, '/db/doc/coded', { headers: accept === undefined ? {} : { 'accept-encoding': accept } })
    const common = {
      'content-type': 'text/markdown',
      etag: CODED_ETAG,
      'accept-ranges': 'none',
      vary: 'Accept-Encoding',
    }
    for (const accept of ['gzip', 'br, gzip;q=0.5', '*']) {
      const answer = await get(accept)
      t.match(answer, { status: 200, headers: { ...common, 'content-encoding': 'gzip' } }, accept)
      t.ok(answer.bytes.equals(STORED))
      t.equal(answer.headers['content-length'], String(STORED.length))
    }
    for (const accept of [undefined, 'br', 'gzip;q=0', 'identity']) {
      const answer = await get(accept)
      t.match(answer, { status: 200, text: CODED, headers: common }, String(accept))
      t.equal(answer.headers['content-encoding'], undefined)
      t.equal(answer.headers['content-length'], String(CODED.length))
    }
    t.match(await get('gzip', 'HEAD'), {
      status: 200,
      text: '',
      headers: { 'content-encoding': 'gzip', 'content-length': String(STORED.length) },
    })
    const ranged = await call('GET', '/db/doc/coded', { headers: { range: 'bytes=0-3' } })
    t.match(ranged, { status: 200, text: CODED }, 'there are no ranges of it')
  })

  t.test('a plain content is never compressed', async (t) => {
    const { call } = await start(t)
    const answer = await call('GET', '/db/doc/plain', { headers: { 'accept-encoding': 'gzip, br' } })
    t.match(answer, { status: 200, text: TEXT, headers: { 'accept-ranges': 'bytes' } })
    t.equal(answer.headers['content-encoding'], undefined)
    t.equal(answer.headers.vary, 'Origin')
  })
})

/** Downloads that end before their end, and contents that go while they are read. */
t.test('downloads that are cut', async (t) => {
  const BIG = Buffer.alloc(20_000_000, 'settee ')
  /** Bytes that gzip does not compress. */
  const NOISE = randomBytes(20_000_000)

  async function start(t: Test) {
    const server = await startStoredServer(t)
    const attachments = [
      { name: 'big', content: BIG },
      { name: 'coded', content: NOISE, gzip: true },
    ]
    await storeRevisions(server.store, 'doc', { rev: '1-a', attachments })
    return server
  }

  /** Asks, and reads no more than the first bytes of the answer. */
  async function begin(t: Test, port: number, path: string, headers = '') {
    const socket = open(port, '127.0.0.1')
    t.after(() => socket.destroy())
    socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`)
    const [first] = (await once(socket, 'data')) as [Buffer]
    socket.pause()
    return { socket, head: first.toString('latin1') }
  }

  t.test('a client that leaves midway leaves no content pinned', async (t) => {
    const { port, held } = await start(t)
    const asked: [path: string, headers?: string][] = [
      ['/db/doc/big'],
      ['/db/doc/big', 'Range: bytes=0-9999999,10000000-19999999\r\n'],
      ['/db/doc/coded'],
      ['/db/doc/coded', 'Accept-Encoding: gzip\r\n'],
      ['/db/doc?attachments=true'],
      ['/db/doc?attachments=true', 'Accept: multipart/related\r\n'],
      ['/db/doc?open_revs=all&attachments=true'],
      ['/db/doc?open_revs=all', 'Accept: multipart/mixed\r\n'],
    ]
    for (const [path, headers] of asked) {
      const { socket, head } = await begin(t, port, path, headers)
      t.match(head, /^HTTP\/1.1 20[06] /, path)
      await until(() => held() > 0)
      socket.destroy()
      await until(() => held() === 0)
      t.equal(held(), 0, `${path} ${headers ?? ''}`)
    }
  })

  t.test('a stalled reader pins the content, and no more is read than the connection takes', async (t) => {
    const { port, held, store } = await start(t)
    let reads = 0
    const readBlob = store.readBlob
    store.readBlob = (...args) => {
      reads += 1
      return readBlob.apply(store, args)
    }
    const { socket } = await begin(t, port, '/db/doc/big')
    let before = -1
    while (before !== reads) {
      before = reads
      await sleep(100)
    }
    t.ok(reads < 70, `${reads} of 77 steps were read for who takes none`)
    t.equal(held(), 1)
    socket.destroy()
    await until(() => held() === 0)
  })

  t.test('content being read survives new revisions and a compaction', async (t) => {
    const { port, store, held } = await start(t)
    const { socket, head } = await begin(t, port, '/db/doc/big', 'Connection: close\r\n')
    await storeRevisions(store, 'doc', { rev: '1-a', superseded: true }, { rev: '2-b', ancestors: ['1-a'] })
    await store.compact()
    const chunks: Buffer[] = []
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    socket.resume()
    await once(socket, 'end')
    const answer = Buffer.concat([Buffer.from(head, 'latin1'), ...chunks])
    t.ok(answer.subarray(answer.indexOf('\r\n\r\n') + 4).equals(BIG))
    await until(() => held() === 0)
    await store.compact()
    t.equal(await store.referenceBlob(1), null, 'the blob is removed by the next compaction')
  })

  t.test('content that is gone before the head gets a proper answer', async (t) => {
    const server = await start(t)
    const call = connect(t, server)
    server.store.referenceBlob = async () => null
    const gone = { status: 404, json: { error: 'not_found', reason: 'Document is missing attachment' } }
    for (const headers of [{}, { range: 'bytes=0-5' }, { range: 'bytes=0-5,7-8' }]) {
      t.match(await call('GET', '/db/doc/big', { headers }), gone)
    }
    t.match(await call('GET', '/db/doc/coded'), gone)
    t.match(await call('GET', '/db/doc?attachments=true'), gone)
    t.match(await call('GET', '/db/doc?open_revs=all&attachments=true'), gone)
  })
})
