/** HTTP/2: streams, and how requests end. */
import { once } from 'node:events'
import { type ClientHttp2Session, constants, type OutgoingHttpHeaders } from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { CouchError } from '../../src/core/errors.ts'
import { answerInstead } from '../../src/http/plugins/error-replies.ts'
import { openStream } from '../../src/http/transport/json-stream.ts'
import { serveRewritten } from '../../src/http/transport/rewritten-request.ts'
import { listenSecurely } from '../../src/http/transport/secure-listener.ts'
import { certificateFiles } from '../helpers/certificates.ts'
import { startTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { startAccountsServer } from './accounts-server.ts'
import { connect } from './client.ts'
import { openSession, type Session, type Stream, startSecureMemoryServer } from './http2-client.ts'
import { frame, openFrames, requestHead, reset } from './http2-frames.ts'

t.test('streams', async (t) => {
  const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR, NGHTTP2_INTERNAL_ERROR } = constants
  const MB = 1024 * 1024
  const PUBLIC = { config: { access: 'public' } } as const

  /** Whatever it ends with. */
  function closed(session: ClientHttp2Session): Promise<void> {
    return new Promise((resolve) => session.once('close', () => resolve()))
  }

  t.test('requests and answers', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t)
    const { ask } = await openSession(t, secureUrl, tls.cert)
    const { host } = new URL(secureUrl)

    t.test("addresses have the client's host", async (t) => {
      t.match(await ask('PUT /db'), { status: 201, headers: { location: `https://${host}/db` } })
      const named = await ask('PUT /db/a', { headers: { ':authority': 'notes.localhost:1' }, body: '{}' })
      t.match(named, { status: 201, headers: { location: 'https://notes.localhost:1/db/a' } })
    })

    t.test('a request with two hosts is refused', async (t) => {
      const answer = await ask('GET /db', { headers: { ':authority': 'notes.example', host: 'elsewhere' } })
      t.match(answer, { status: 400, json: { error: 'bad_request', reason: /differs/ } })
    })

    t.test('a body needs no length', async (t) => {
      t.match(await ask('PUT /db/c', { body: '{"text":"ä"}' }), { status: 201 })
      t.match(await ask('GET /db/c'), { json: { text: 'ä' } })
      t.match(await ask('PUT /db/c'), { status: 400 })
      t.match(await ask('PUT /db/c', { body: '' }), { status: 400 })
    })

    t.test('HEAD, COPY, 304, and errors of the head', async (t) => {
      const { headers } = await ask('GET /db/c')
      const head = await ask('HEAD /db/c')
      t.match(head, {
        status: 200,
        text: '',
        headers: { etag: headers.etag, 'content-length': headers['content-length'] },
      })
      t.match(await ask('COPY /db/c', { headers: { destination: 'd' } }), { status: 201, json: { id: 'd' } })
      t.match(await ask('GET /db/c', { headers: { 'if-none-match': headers.etag as string } }), {
        status: 304,
        text: '',
      })
      t.match(await ask('GET /%zz'), { status: 400, json: { error: 'bad_request' } })
      t.match(await ask('PATCH /db'), { status: 405 })
      t.match(await ask('GET /db'), { status: 200 })
    })

    t.test('answers have no headers about the connection', async (t) => {
      const { headers } = await ask('GET /', { headers: { prefer: 'return=minimal' } })
      t.equal(headers.connection, undefined)
      t.equal((await ask('GET /nowhere')).headers['keep-alive'], undefined)
    })
  })

  t.test('a rewritten request keeps its body', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t, {}, (app) => {
      app.all('/_rewritten/*', PUBLIC, async (request, reply) =>
        serveRewritten(request, reply, { address: request.url.replace('/_rewritten', '') }),
      )
    })
    const { ask } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    t.match(await ask('PUT /_rewritten/db/a', { body: '{"n":1}' }), { status: 201 })
    t.match(await ask('GET /_rewritten/_rewritten/db/a'), { status: 200, json: { n: 1 } })
    const text = 'x'.repeat(MB)
    t.match(await ask('PUT /_rewritten/db/large', { body: JSON.stringify({ text }) }), { status: 201 })
    t.match(await ask('GET /db/large'), { json: { text } })
    t.match(await ask('PUT /_rewritten/db/none'), { status: 400 })
    t.match(await ask('DELETE /_rewritten/db/none'), { status: 404 })
    t.match(await ask('HEAD /_rewritten/db/a'), { status: 200 })
  })

  t.test('a large body, and a large answer', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t)
    const { ask, open } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    const bytes = Buffer.alloc(20 * MB, 'settee ')
    t.match(await ask('PUT /db/file/large', { body: bytes }), { status: 201 })
    const { stream, heard } = open({ ':path': '/db/file/large' })
    let length = 0
    stream.on('data', (chunk: Buffer) => {
      length += chunk.length
    })
    t.match(await heard, { status: 200, isWhole: true })
    t.equal(length, bytes.length)
  })

  t.test('a cut body is never complete, whatever the reset code', async (t) => {
    const { secureUrl, tls, app } = await startSecureMemoryServer(t)
    const { ask } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    for (const [id, code] of [
      ['cancelled', NGHTTP2_CANCEL],
      ['closed', NGHTTP2_NO_ERROR],
    ] as const) {
      const before = app.requestTally.counts().underWay
      const socket = await openFrames(secureUrl, tls.cert)
      const head = {
        ':method': 'PUT',
        ':path': `/db/${id}/file`,
        ':scheme': 'https',
        ':authority': 'localhost',
      }
      socket.write(Buffer.concat([requestHead(1, head), frame('data', 1, Buffer.from('the first half'))]))
      await until(() => app.requestTally.counts().underWay === before + 1)
      socket.write(reset(1, code))
      await until(() => app.requestTally.counts().underWay === before)
      t.match(await ask(`GET /db/${id}`), { status: 404 }, id)
      socket.destroy()
    }
  })

  t.test('a body that is refused', async (t) => {
    const settings = { 'chttpd/max_http_request_size': '1000' }
    const { secureUrl, tls } = await startSecureMemoryServer(t, settings)
    const { ask, open } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')

    t.test('by its length, before any of it is sent', async (t) => {
      const headers = { ':method': 'PUT', ':path': '/db/a', 'content-length': '2000', expect: '100-continue' }
      const { stream, heard } = open(headers, false)
      let isTold = false
      stream.on('continue', () => {
        isTold = true
      })
      t.match(await heard, { status: 413, code: NGHTTP2_NO_ERROR, json: { error: 'too_large' } })
      t.notOk(isTold)
    })

    t.test('while it is sent; the connection goes on', async (t) => {
      const { stream, heard } = open({ ':method': 'PUT', ':path': '/db/a' }, false)
      const writing = setInterval(() => stream.writable && stream.write('x'.repeat(500)), 5)
      t.match(await heard, { status: 413, code: NGHTTP2_NO_ERROR, json: { error: 'too_large' } })
      clearInterval(writing)
      t.match(await ask('GET /db'), { status: 200 })
    })

    t.test('that no handler reads', async (t) => {
      const { stream, heard } = open({ ':method': 'PUT', ':path': '/absent/a' }, false)
      stream.write('x')
      const answer = await heard
      t.ok((answer.status ?? 0) >= 400)
      t.equal(answer.code, NGHTTP2_NO_ERROR)
    })
  })

  t.test('Expect: 100-continue is answered when the body is read', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t)
    const { ask, open } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    const { stream, heard } = open({ ':method': 'PUT', ':path': '/db/a', expect: '100-continue' }, false)
    await once(stream, 'continue')
    stream.end('{}')
    t.match(await heard, { status: 201 })
  })

  t.test('a body that never arrives', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t, { 'settee/body_timeout': '1' })
    const { ask, open } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    const { stream, heard } = open({ ':method': 'PUT', ':path': '/db/a' }, false)
    stream.write('{')
    // What other streams bring does not count.
    const others = setInterval(() => void ask('PUT /db/b', { body: '{"x":1}' }), 50)
    t.match(await heard, { status: 408, code: NGHTTP2_NO_ERROR })
    clearInterval(others)
    t.match(await ask('GET /db'), { status: 200 })
  })

  t.test('a broken answer does not look complete', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t, {}, (app) => {
      app.get('/_broken', PUBLIC, async (request, reply) => {
        const stream = openStream(request, reply, { status: 200 })
        await stream.write(Buffer.from('the first half'))
        stream.fail(new Error('broken'))
      })
    })
    const { ask } = await openSession(t, secureUrl, tls.cert)
    const answer = await ask('GET /_broken')
    t.match(answer, { status: 200, isWhole: false, code: NGHTTP2_INTERNAL_ERROR })
    t.match(await ask('GET /'), { status: 200 })
  })

  t.test('a request that is answered in place of its handler', async (t) => {
    let late: Promise<unknown> = Promise.resolve()
    const { secureUrl, tls, app, lines } = await startSecureMemoryServer(t, {}, (app) => {
      const begin = async (request: FastifyRequest, reply: FastifyReply, go: () => unknown) => {
        answerInstead(new CouchError('unauthorized'), request, reply)
        late = sleep(50).then(go)
        await late
      }
      app.get('/_sends', PUBLIC, async (request, reply) => {
        await begin(request, reply, () => undefined)
        return { late: true }
      })
      app.get('/_streams', PUBLIC, async (request, reply) => {
        await begin(request, reply, async () => {
          const stream = openStream(request, reply, { status: 200 })
          await stream.write(Buffer.alloc(MB))
          await stream.end()
        })
      })
    })
    const { ask } = await openSession(t, secureUrl, tls.cert)
    for (const path of ['/_sends', '/_streams']) {
      const answer = await ask(`GET ${path}`)
      t.match(answer, { status: 401, isWhole: true, json: { error: 'unauthorized' } }, path)
      await late
      t.match(await ask(`HEAD ${path}`), { status: 401, text: '' }, `HEAD ${path}`)
      await late
      t.match(await ask('GET /'), { status: 200 }, 'its connection goes on')
    }
    await until(() => app.requestTally.counts().underWay === 0)
    t.notOk(lines.some((line) => /"level":[56]0/.test(line)))
  })

  t.test('a HEAD whose client leaves before the answer', async (t) => {
    let go: () => void = () => undefined
    const { secureUrl, tls, app } = await startSecureMemoryServer(t, {}, (app) => {
      app.get('/_slow', PUBLIC, async () => {
        await new Promise<void>((resolve) => {
          go = resolve
        })
        return {}
      })
    })
    const { open } = await openSession(t, secureUrl, tls.cert)
    const { stream } = open({ ':method': 'HEAD', ':path': '/_slow' })
    await until(() => app.requestTally.counts().underWay === 1)
    stream.close(NGHTTP2_CANCEL)
    await until(() => app.requestTally.counts().underWay === 0)
    go()
    await sleep(50)
    const { underWay, broken } = app.requestTally.counts()
    t.same([underWay, broken], [0, 1], 'each end is counted once')
  })

  t.test('feeds', async (t) => {
    const { secureUrl, tls, app } = await startSecureMemoryServer(t)
    const { ask, open, session } = await openSession(t, secureUrl, tls.cert)
    await ask('PUT /db')
    await ask('PUT /db/a', { body: '{}' })
    const feed = '/db/_changes?feed=continuous&heartbeat=20'

    t.test('send changes and heartbeats', async () => {
      const { stream, until } = open({ ':path': feed })
      await until(/"id":"a".*\n\n\n/s)
      stream.close()
    })

    t.test('end when their clients cancel them, with any reset code', async () => {
      const before = 0
      await until(() => app.requestTally.counts().underWay === before)
      for (const code of [NGHTTP2_CANCEL, NGHTTP2_NO_ERROR]) {
        const opened = [open({ ':path': feed }), open({ ':path': feed }), open({ ':path': feed })]
        for (const each of opened) await each.until(/"id":"a"/)
        for (const { stream } of opened) stream.close(code)
        await until(() => app.requestTally.counts().underWay === before)
        await until(() => app.activeRequests.size === 0)
      }
    })

    t.test('a connection has at most 128', async (t) => {
      t.equal(session.remoteSettings.maxConcurrentStreams, 128)
    })
  })

  t.test('a connection above the limit gets the reason, and is closed', async (t) => {
    const slow: (() => void)[] = []
    const { secureUrl, tls, app } = await startSecureMemoryServer(
      t,
      { 'settee/max_connections': '1' },
      (app) => {
        app.get('/_slow', PUBLIC, async () => {
          await new Promise<void>((resolve) => slow.push(resolve))
          return { slow: true }
        })
      },
    )
    const idle = await openSession(t, secureUrl, tls.cert)
    await idle.ask('GET /')
    const gone = closed(idle.session)
    const busy = await openSession(t, secureUrl, tls.cert)
    await gone
    t.pass('one that is idle makes room')
    const asked = busy.ask('GET /_slow')
    await until(() => slow.length === 1)
    const third = await openSession(t, secureUrl, tls.cert)
    const refused = closed(third.session)
    t.match(await third.ask('GET /'), { status: 503, json: { reason: /max_connections/ } })
    await refused
    slow[0]?.()
    t.match(await asked, { status: 200 })
    t.equal(app.connectionTally.counts().openConnections, 1)
  })

  t.test('counters of connections', async (t) => {
    const { secureUrl, tls, app } = await startSecureMemoryServer(t)
    const { ask, session } = await openSession(t, secureUrl, tls.cert)
    for (let n = 0; n < 10; n++) await ask('GET /')
    const { openConnections, connections, receivedBytes, sentBytes } = app.connectionTally.counts()
    t.strictSame([openConnections, connections], [1, 1])
    t.ok(receivedBytes > 100 && sentBytes > 1000, `${receivedBytes} received, ${sentBytes} sent`)
    t.equal(app.requestTally.counts().broken, 0)
    session.close()
    await until(() => app.connectionTally.counts().openConnections === 0)
  })

  t.test('an idle connection ends, one with a silent feed does not', async (t) => {
    const server = await startSecureMemoryServer(t, {}, undefined, { idleMs: 200 })
    const { secureUrl, tls } = server
    const busy = await openSession(t, secureUrl, tls.cert)
    await busy.ask('PUT /db')
    const feed = busy.open({ ':path': '/db/_changes?feed=continuous' })
    const idle = await openSession(t, secureUrl, tls.cert)
    await idle.ask('GET /db')
    await closed(idle.session)
    await sleep(500)
    t.notOk(feed.stream.closed)
    feed.stream.close()
    await closed(busy.session)
  })

  t.test('the end', async (t) => {
    let let1: () => void = () => undefined
    const server = await startSecureMemoryServer(t, {}, (app) => {
      app.get('/_slow', PUBLIC, async () => {
        await new Promise<void>((resolve) => {
          let1 = resolve
        })
        return { slow: true }
      })
    })
    const { secureUrl, tls } = server
    const [idle, busy] = [
      await openSession(t, secureUrl, tls.cert),
      await openSession(t, secureUrl, tls.cert),
    ]
    const plain = await request(server.url)
    await plain.body.dump()
    const asked = busy.ask('GET /_slow')
    await idle.ask('GET /')
    const goaways = [once(idle.session, 'goaway'), once(busy.session, 'goaway')]
    const closing = server.closeAll()
    for (const goaway of goaways) t.equal((await goaway)[0], NGHTTP2_NO_ERROR)
    // Node 20 throws; later ones tell it on the stream.
    const [refused] = await once(busy.session.request({ ':path': '/' }), 'error')
    t.match(refused, { code: 'ERR_HTTP2_GOAWAY_SESSION' }, 'no new streams')
    let1()
    t.match(await asked, { status: 200, isWhole: true }, 'a request under way is answered completely')
    await closing
  })

  t.test('requests that do not end are cut', async (t) => {
    const server = await startSecureMemoryServer(
      t,
      {},
      (app) => {
        app.get('/_never', PUBLIC, () => new Promise(() => undefined))
      },
      { closeGraceMs: 100 },
    )
    const { ask } = await openSession(t, server.secureUrl, server.tls.cert)
    const asked = ask('GET /_never')
    await until(() => server.app.requestTally.counts().underWay === 1)
    await server.closeAll()
    t.match(await asked, { status: undefined, isWhole: false })
    t.ok(server.lines.some((line) => line.includes('connections were cut')))
  })
})

/** The server ends requests: after a revocation, and when it stops. Over a complete server. */
t.test('ends', async (t) => {
  const MB = 1024 * 1024
  const LARGE = 6 * MB
  const FEED = '/db/_changes?since=now&feed='

  /** Requests that last, each on a stream of one connection. */
  const KINDS = {
    continuous: [`GET ${FEED}continuous&heartbeat=100`, 'feed'],
    longpoll: [`GET ${FEED}longpoll`, 'feed'],
    eventsource: [`GET ${FEED}eventsource`, 'feed'],
    'slow feed': ['GET /db/_changes?include_docs=true', 'slow'],
    download: ['GET /db/file/large', 'slow'],
    upload: ['PUT /db/new/file', 'writer'],
    bulk: ['POST /db/_bulk_docs', 'writer'],
  } as const
  type Kind = keyof typeof KINDS

  const basic = (auth: string) => `Basic ${Buffer.from(auth).toString('base64')}`

  /** Begins one; its reader takes nothing after the head, or its writer goes on writing. */
  function last(t: Test, { open }: Session, kind: Kind, auth: string): Stream {
    const [line, role] = KINDS[kind]
    const [method, path] = line.split(' ')
    const headers: OutgoingHttpHeaders = { ':method': method, ':path': path, authorization: basic(auth) }
    if (kind === 'bulk') headers['content-type'] = 'application/json'
    const opened = open(headers, role !== 'writer')
    const { stream } = opened
    if (role === 'slow') stream.pause()
    if (role !== 'writer') return opened
    stream.write('{"docs":[')
    const pace = setInterval(() => stream.writable && stream.write(' '), 50)
    stream.once('close', () => clearInterval(pace))
    t.teardown(() => clearInterval(pace))
    return opened
  }

  function lastAll(t: Test, session: Session, auth: string): Map<Kind, Stream> {
    const kinds = Object.keys(KINDS) as Kind[]
    return new Map(kinds.map((kind) => [kind, last(t, session, kind, auth)]))
  }

  const playing = (streams: Map<Kind, Stream>, role: string) =>
    [...streams].filter(([kind]) => KINDS[kind][1] === role)

  t.test('a revoked right ends its own streams, and no others of the connection', async (t) => {
    const { app, config, remove, lines, ...server } = await startAccountsServer(t, ['v', 'w'])
    const call = connect(t, server)
    await call('PUT', '/db', { auth: 's:s' })
    await call('PUT', '/db/_security', { auth: 's:s', json: { members: { names: ['v', 'w'] } } })
    await call('PUT', '/db/file/large', { auth: 's:s', body: Buffer.alloc(LARGE, 'settee ') })
    await call('PUT', '/db/long', { auth: 's:s', json: { text: 'settee '.repeat(MB / 7) } })
    const tls = await certificateFiles(t)
    await config.set('ssl', 'cert_file', tls.certFile)
    await config.set('ssl', 'key_file', tls.keyFile)
    const secure = await listenSecurely(app, { host: '127.0.0.1', port: 0 })
    t.teardown(() => secure.close())
    const session = await openSession(t, secure.url, tls.cert)
    const [victims, others] = [lastAll(t, session, 'v:v'), lastAll(t, session, 'w:w')]
    await until(() => app.requestTally.counts().underWay === victims.size + others.size)
    for (const [, { until: has }] of playing(victims, 'feed')) await has(/\n/)
    remove('v')
    for (const [kind, { heard }] of playing(victims, 'feed')) {
      t.match(await heard, { status: 200, isWhole: true }, `${kind} ends in order`)
    }
    for (const [kind, { stream, heard }] of playing(victims, 'slow')) {
      await until(() => stream.destroyed || stream.rstCode !== 0)
      t.match(await heard, { isWhole: false }, `${kind} is cut`)
    }
    for (const [kind, { heard }] of playing(victims, 'writer')) {
      t.match(await heard, { status: 401, isWhole: true, json: { error: 'unauthorized' } }, kind)
    }
    for (const [kind, { stream }] of others) t.notOk(stream.closed, `${kind} of another goes on`)
    await call('PUT', '/db/marked', { auth: 'w:w', body: '{}' })
    for (const [, { until: has }] of playing(others, 'feed')) await has(/"marked"/)
    t.match(await session.ask('GET /db/new', { headers: { authorization: basic('w:w') } }), { status: 404 })
    const cuts = lines.filter((line) => line.includes('the rights of its caller were revoked'))
    t.ok(cuts.length >= 4)
    session.session.destroy()
  })

  t.test('stopping the server', async (t) => {
    const tls = await certificateFiles(t)
    const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
    const server = await startTestServer(t, { tls, env })
    const auth = 'anna:secret'
    await server.request('PUT', '/db', { auth })
    await server.request('PUT', '/db/file/large', { auth, body: Buffer.alloc(LARGE, 'settee ') })
    const idle = await openSession(t, server.secureUrl, tls.cert)
    const session = await openSession(t, server.secureUrl, tls.cert)
    const streams = lastAll(t, session, auth)
    const { stream, heard } = session.open({ ':path': '/db/file/large', authorization: basic(auth) })
    await streams.get('continuous')?.until(/\n\n/)
    const gone = [idle, session].map(
      (each) => new Promise((resolve) => each.session.once('close', () => resolve(each))),
    )
    const closing = server.close()
    for (const [kind, feed] of playing(streams, 'feed')) {
      t.match(await feed.heard, { status: 200, isWhole: true }, `${kind} ends in order`)
    }
    t.match((await streams.get('longpoll')?.heard)?.json, { results: [], last_seq: /^\d+-/ })
    stream.resume()
    t.match(await heard, { status: 200, isWhole: true }, 'a download that is taken comes to its end')
    for (const [kind, writer] of playing(streams, 'writer')) {
      t.match(await writer.heard, { isWhole: false }, `${kind} is cut when its time is over`)
    }
    await closing
    await Promise.all(gone)
    t.pass('no connection is left')
  })
})
