/** Writing attachments, by PUT and by the upload form; protocol.md 3.7, 7.2, 7.4. */
import { readdirSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect as connectSocket } from 'node:net'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { follows, md5, named, related } from '../helpers/related.ts'
import { sharedTestServer } from '../helpers/server.ts'
import { storedRows } from '../helpers/stored-rows.ts'
import { type Answer, connect } from './client.ts'

/** Writing attachments over HTTP: protocol.md 7.2, 7.4, 19.6, and false lengths and digests. */
t.test('PUT and DELETE', async (t) => {
  const startShared = sharedTestServer(t)
  const TEXT = 'This is a base64 encoded text'
  const UNKNOWN = `1-${'0'.repeat(32)}`
  const LARGE = Buffer.alloc(1_500_000, 'settee')
  const RELATED = { 'content-type': 'multipart/related;boundary="B"' }

  async function start(t: Test) {
    const server = await startShared()
    const call = connect(t, server)
    await call('PUT', '/db')
    return { ...server, call, rows: () => storedRows(server.dataDir, 'db') }
  }

  function revOf({ json }: Answer): string {
    return (json as { rev: string }).rev
  }

  t.test('rights', async (t) => {
    const { call, url } = await start(t)
    await call('PUT', '/_node/_local/_config/admins/root', { json: 'root' })
    const admin = { auth: 'root:root' }
    await call('PUT', '/db/_security', { ...admin, json: { members: { names: ['anna'] } } })
    t.match(await call('PUT', '/db/doc/a', { body: 'x' }), { status: 401 })
    t.match(await call('DELETE', '/db/doc/a'), { status: 401 })
    t.match(await call('PUT', '/db/_design/d/a', { body: 'x' }), { status: 401 })
    t.match(await call('PUT', '/db/_design/d/a', { ...admin, body: 'x' }), { status: 201 }, url)
  })

  t.test('gzip is stored as sent, other encodings are refused', async (t) => {
    const { call } = await start(t)
    const zipped = gzipSync(TEXT)
    const send = (coding: string, body: Buffer) =>
      call('PUT', '/db/doc/a', {
        body,
        headers: { 'content-encoding': coding, 'content-type': 'text/plain' },
      })
    t.match(await send('br', zipped), {
      status: 415,
      json: { error: 'bad_content_type', reason: 'Only gzip and identity content-encodings are supported' },
    })
    t.match(await send('gzip', Buffer.from(TEXT)), {
      status: 400,
      json: { reason: 'Request body is not properly gzipped.' },
    })
    t.match(await send('GZIP', zipped), { status: 201 })
    t.match((await call('GET', '/db/doc?att_encoding_info=true')).json, {
      _attachments: {
        a: { length: 29, digest: md5(zipped), encoding: 'gzip', encoded_length: zipped.length, revpos: 1 },
      },
    })
    const coded = await call('GET', '/db/doc/a', { headers: { 'accept-encoding': 'gzip' } })
    t.ok(coded.bytes.equals(zipped))
    t.match(coded.headers, { 'content-encoding': 'gzip' })
    t.equal((await call('GET', '/db/doc/a')).text, TEXT)
  })

  t.test('uploads in chunks, with Expect, and without a body', async (t) => {
    const { call, url } = await start(t)
    const chunked = await upload(`${url}/db/chunked/a`, { 'transfer-encoding': 'chunked' }, [LARGE, LARGE])
    t.equal(chunked.status, 201)
    t.equal((await call('GET', '/db/chunked/a')).bytes.length, 2 * LARGE.length)
    const headers = { expect: '100-continue', 'content-length': String(LARGE.length) }
    t.strictSame(await upload(`${url}/db/expect/a`, headers, [LARGE]), { status: 201, continued: true })
    t.match(await call('PUT', '/db/empty/a'), { status: 201 })
    t.match(
      await call('PUT', '/db/empty/b', {
        headers: { 'if-match': revOf(await call('GET', '/db/empty').then(rev)) },
        body: '',
      }),
      { status: 201 },
    )
    t.match((await call('GET', '/db/empty')).json, { _attachments: { a: { length: 0 }, b: { length: 0 } } })
  })

  /** The answer to a document's GET, with its revision where an answer to a PUT has it. */
  function rev(answer: Answer): Answer {
    return { ...answer, json: { rev: (answer.json as { _rev: string })._rev } }
  }

  function upload(url: string, headers: Record<string, string>, chunks: readonly Buffer[]) {
    return new Promise<{ status: number; continued: boolean }>((resolve, reject) => {
      let continued = false
      const request = httpRequest(url, { method: 'PUT', headers }, (answer: IncomingMessage) => {
        answer.resume().on('end', () => resolve({ status: answer.statusCode ?? 0, continued }))
      })
      request.on('error', reject)
      const send = () => {
        for (const chunk of chunks) request.write(chunk)
        request.end()
      }
      if (headers.expect === undefined) send()
      else {
        request.on('continue', () => {
          continued = true
          send()
        })
        request.flushHeaders()
      }
    })
  }

  t.test('a body with a length that is too large is refused before it is read', async (t) => {
    const { call, url, rows } = await start(t)
    await call('PUT', '/_node/_local/_config/couchdb/max_attachment_size', { json: '1000' })
    const refused = { status: 413, json: { error: 'attachment_too_large', reason: 'a/b' } }
    t.match(await call('PUT', '/db/doc/a/b', { body: Buffer.alloc(1001) }), refused)
    const headers = { expect: '100-continue', 'content-length': '1001' }
    t.strictSame(await upload(`${url}/db/doc/a`, headers, []), { status: 413, continued: false })
    const chunked = await upload(`${url}/db/doc/a`, { 'transfer-encoding': 'chunked' }, [Buffer.alloc(1001)])
    t.equal(chunked.status, 413)
    t.match(await call('PUT', '/db/doc/a', { body: Buffer.alloc(1000) }), { status: 201 })
    const body = related('B', { _attachments: { 'a/b': follows(LARGE) } }, [{ content: LARGE }])
    t.match(await call('PUT', '/db/other', { body, headers: RELATED }), refused)
    t.strictSame(rows(), { blobs: 1, chunks: 1 })
  })

  t.test('a document followed by its attachments', async (t) => {
    const { call, url, rows } = await start(t)
    const doc = { n: 1, _attachments: { foo: follows('one'), bar: follows(LARGE), baz: follows(LARGE) } }
    const parts = [{ content: 'one' }, { content: LARGE }, { content: LARGE }]
    const body = Buffer.concat([related('B', doc, parts), Buffer.from('epilogue')])
    const made = await call('PUT', '/db/doc', { body, headers: RELATED })
    t.match(made, {
      status: 201,
      json: { ok: true, id: 'doc', rev: /^1-/ },
      headers: { location: `${url}/db/doc`, etag: `"${revOf(made)}"` },
    })
    t.equal((await call('GET', '/db/doc/foo')).text, 'one')
    t.ok((await call('GET', '/db/doc/bar')).bytes.equals(LARGE))
    t.strictSame(rows(), { blobs: 2, chunks: 7 }, 'the same content is stored once')
    const update = { _rev: revOf(made), _attachments: { foo: { stub: true }, bar: follows('new') } }
    const gzipped = gzipSync(related('=_x y', update, [{ content: 'new', ...named('bar') }]))
    const headers = {
      'content-type': 'Multipart/Related; type=x; boundary="=_x y"',
      'content-encoding': 'gzip',
    }
    t.match(await call('PUT', '/db/doc', { body: gzipped, headers }), { status: 201 })
    t.match((await call('GET', '/db/doc')).json, { _attachments: { foo: { revpos: 1 }, bar: { revpos: 2 } } })
    t.match(await call('GET', '/db/doc/baz'), { status: 404 })
    const replicated = related('B', { _revisions: { start: 2, ids: ['b', 'a'] }, ...doc }, parts)
    t.match(await call('PUT', '/db/copy?new_edits=false', { body: replicated, headers: RELATED }), {
      status: 201,
      json: { rev: '2-b' },
    })
    t.equal(rows().blobs, 3)
  })

  t.test('lies leave nothing behind', async (t) => {
    const { call, rows } = await start(t)
    const entries = (more: object) => ({ _attachments: { a: follows(LARGE), ...more } })
    const part = { content: LARGE }
    const longer = { ...follows(LARGE), length: LARGE.length - 1 }
    const cases: [title: string, body: Buffer, status: number, reason?: string][] = [
      ['length', related('B', entries({ a: longer }), [part]), 400, 'attachment longer than expected'],
      [
        'digest',
        related('B', entries({ b: follows('b', { digest: md5('c') }) }), [part, { content: 'b' }]),
        400,
        'md5_mismatch',
      ],
      ['part missing', related('B', entries({ b: follows('b') }), [part]), 400],
      ['part too many', related('B', entries({}), [part, part]), 400],
      ['another boundary', related('C', entries({}), [part]), 400],
      ['no end', related('B', entries({}), [part]).subarray(0, -2), 400],
      ['name', related('B', entries({ '../b': follows('b') }), [part, { content: 'b' }]), 400],
      [
        'stub',
        related('B', entries({ b: { stub: true, revpos: 1 } }), [part]),
        412,
        'Invalid attachment stub in doc for b',
      ],
      ['no JSON', related('B', '{', [part]), 400, 'invalid UTF-8 JSON'],
    ]
    for (const [title, body, status, reason] of cases) {
      const answer = await call('PUT', '/db/doc', { body, headers: RELATED })
      t.match(answer, { status, ...(reason && { json: { reason } }) }, title)
      t.strictSame(rows(), { blobs: 0, chunks: 0 }, title)
    }
    const noBoundary = { 'content-type': 'multipart/related' }
    t.match(await call('PUT', '/db/doc', { body: cases[0]?.[1] ?? '', headers: noBoundary }), { status: 400 })
    const { rev } = (await call('PUT', '/db/doc', { json: {} })).json as { rev: string }
    t.match(await call('PUT', '/db/doc/a', { body: LARGE }), { status: 409 })
    t.match(await call('PUT', `/db/doc/a?rev=${UNKNOWN}`, { body: LARGE }), { status: 409 })
    const stale = related('B', entries({}), [part])
    t.match(await call('PUT', '/db/doc', { body: stale, headers: RELATED }), { status: 409 })
    t.strictSame(rows(), { blobs: 0, chunks: 0 })
    t.match(await call('PUT', `/db/doc/a?rev=${rev}`, { body: LARGE }), { status: 201 })
    t.strictSame(rows(), { blobs: 1, chunks: 6 })
  })

  t.test('a cut upload leaves nothing behind', async (t) => {
    const { call, url, dataDir, rows } = await start(t)
    const large = Buffer.alloc(9 * 1024 * 1024, 'settee')
    const multipart = related('B', { _attachments: { a: follows('one') } }, [{ content: 'one' }])
    const head = (path: string, type: string, length: number) =>
      `PUT ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\n\r\n`
    const uploads: Buffer[] = []
    for (let end = 0; end < multipart.length; end += 7) {
      const sent = head('/db/doc', RELATED['content-type'], multipart.length)
      uploads.push(Buffer.concat([Buffer.from(sent), multipart.subarray(0, end)]))
    }
    // Of one that comes in chunks: after each of them.
    const inChunks = `PUT /db/doc HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${RELATED['content-type']}\r\nTransfer-Encoding: chunked\r\n\r\n`
    let chunked = Buffer.from(inChunks)
    for (let at = 0; at < multipart.length; at += 11) {
      uploads.push(chunked)
      const chunk = multipart.subarray(at, at + 11)
      chunked = Buffer.concat([
        chunked,
        Buffer.from(`${chunk.length.toString(16)}\r\n`),
        chunk,
        Buffer.from('\r\n'),
      ])
    }
    uploads.push(chunked, chunked.subarray(0, -1))
    for (const end of [0, 1, 256 * 1024, 8 * 1024 * 1024, 8 * 1024 * 1024 + 1, large.length - 1]) {
      uploads.push(
        Buffer.concat([Buffer.from(head('/db/doc/a', 'a/b', large.length)), large.subarray(0, end)]),
      )
    }
    await Promise.all(uploads.map((bytes) => sendAndCut(url, bytes)))
    t.match(await call('GET', '/db/doc'), { status: 404 })
    t.strictSame(rows(), { blobs: 0, chunks: 0 })
    t.strictSame(readdirSync(join(dataDir, 'tmp')), [])
    t.match(await call('PUT', '/db/doc', { body: multipart, headers: RELATED }), { status: 201 })
  })

  /** Sends all of it, then closes; resolves when the server has closed, too. */
  function sendAndCut(url: string, bytes: Buffer): Promise<void> {
    const { port } = new URL(url)
    return new Promise((resolve, reject) => {
      const socket = connectSocket(Number(port), '127.0.0.1', () => {
        socket.end(bytes)
      })
      socket.resume().on('close', () => resolve())
      socket.on('error', reject)
    })
  }
})

/** CouchDB's upload form for browsers, over the wire; protocol.md 1.2, 3.7. */
t.test('the upload form', async (t) => {
  const startShared = sharedTestServer(t)
  /** A form as a browser sends it. */
  async function formOf(fields: Readonly<Record<string, string | File>>) {
    const form = new FormData()
    for (const [name, value] of Object.entries(fields)) form.append(name, value)
    const sent = new Response(form)
    const type = sent.headers.get('content-type') ?? ''
    return { body: Buffer.from(await sent.arrayBuffer()), headers: { 'content-type': type } }
  }

  t.test("the form's files become attachments", async (t) => {
    const server = await startShared()
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
    t.match(await post('/db/x%2Fy', { _rev: rev, _attachments: other }), {
      status: 201,
      json: { rev: /^2-/ },
    })
    t.match((await call('GET', '/db/x%2Fy')).json, {
      n: 1,
      _attachments: { 'a b.txt': { stub: true }, large: { length: 3_000_000 } },
    })
    t.equal((await post('/db/x%2Fy', { _rev: rev })).status, 409)
    t.match(await post('/db/_design/d', { _doc: '{"language":"javascript"}' }), { status: 201 })
    t.equal((await post('/db/_local/l', { _doc: '{}' })).status, 400)
  })

  t.test('forms from other pages, and other bodies', async (t) => {
    const server = await startShared()
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
})
