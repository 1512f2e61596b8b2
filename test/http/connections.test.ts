/** Connections, their limits and ends, the turns of their requests, and trusted proxies. */
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, connect, connect as connectSocket, type Socket } from 'node:net'
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { answerClientError } from '../../src/http/transport/client-errors.ts'
import { ClientNetworks } from '../../src/http/transport/connection.ts'
import { guardConnections } from '../../src/http/transport/connections.ts'
import { startTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { connect as connectTo } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('limits and ends', async (t) => {
  /** Longer than any test may take: where it counts, the test would run out of time. */
  const NEVER = 600_000

  async function serve(t: Test, answer: RequestListener, graceMs = NEVER) {
    const server = createServer(answer).listen(0, '127.0.0.1')
    const cuts: number[] = []
    guardConnections(server, { graceMs, onCut: (count) => cuts.push(count) })
    await once(server, 'listening')
    t.teardown(() => server.closeAllConnections())
    return { server, cuts, close: () => closed(server) }
  }

  function closed(server: Server): Promise<void> {
    return new Promise((resolve) => {
      server.close(() => resolve())
    })
  }

  interface Connection {
    readonly socket: Socket
    readonly ended: Promise<unknown>
    /** What has come so far. */
    text(): string
  }

  /** A connection that the server has accepted. */
  async function open(t: Test, server: Server): Promise<Connection> {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    const chunks: Buffer[] = []
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', () => undefined)
    await once(server, 'connection')
    return { socket, ended: once(socket, 'close'), text: () => Buffer.concat(chunks).toString('latin1') }
  }

  const GET = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'
  const PART = 'PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nthe first bytes'

  t.test('connections without a request end at once', async (t) => {
    const { server, cuts, close } = await serve(t, (_, response) => response.end('served'))
    const [silent, used, half] = [await open(t, server), await open(t, server), await open(t, server)]
    used.socket.write(GET)
    half.socket.write('GET / HT')
    while (!used.text().endsWith('served')) await once(used.socket, 'data')
    await close()
    for (const { ended } of [silent, used, half]) await ended
    t.equal(silent.text(), '')
    t.strictSame(cuts, [])
  })

  t.test('requests that have arrived are answered', async (t) => {
    const { server, cuts, close } = await serve(t, (_, response) => response.end('served'))
    const [fresh, used] = [await open(t, server), await open(t, server)]
    used.socket.write(GET)
    await once(used.socket, 'data')
    // In the same turn, so that the server closes before it has read them.
    for (const { socket } of [fresh, used]) socket.write(GET)
    await close()
    for (const { ended } of [fresh, used]) await ended
    t.match(fresh.text(), /served$/)
    t.match(used.text(), /served.*served$/s)
    t.strictSame(cuts, [])
  })

  t.test('a connection ends after the answer that was under way', async (t) => {
    let finish = () => undefined as unknown
    const { server, cuts, close } = await serve(t, (_, response) => {
      response.write('first ')
      finish = () => response.end('last')
    })
    const waiting = await open(t, server)
    waiting.socket.write(GET)
    await once(waiting.socket, 'data')
    let isClosed = false
    const closing = close().then(() => {
      isClosed = true
    })
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate)
    t.notOk(isClosed)
    finish()
    await closing
    await waiting.ended
    t.match(waiting.text(), /first .*last/s)
    t.strictSame(cuts, [])
  })

  t.test('an answer that is written but not read yet is not cut', async (t) => {
    const bytes = Buffer.alloc(20_000_000, 'settee ')
    const { server, cuts, close } = await serve(t, (_, response) => response.end(bytes))
    const slow = await open(t, server)
    slow.socket.write(GET)
    await once(slow.socket, 'data')
    slow.socket.pause()
    const closing = close()
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate)
    slow.socket.resume()
    await closing
    await slow.ended
    t.equal(slow.text().split('\r\n\r\n')[1]?.length, bytes.length)
    t.strictSame(cuts, [])
  })

  t.test('requests that do not end are cut after the grace period', async (t) => {
    const bytes = Buffer.alloc(20_000_000)
    const { server, cuts, close } = await serve(
      t,
      (request, response) => {
        if (request.method === 'GET') response.end(bytes)
      },
      500,
    )
    const [upload, stalled, silent] = [await open(t, server), await open(t, server), await open(t, server)]
    upload.socket.write(PART)
    stalled.socket.write(GET)
    await once(stalled.socket, 'data')
    stalled.socket.pause()
    await close()
    stalled.socket.resume()
    for (const { ended } of [upload, stalled, silent]) await ended
    t.strictSame(cuts, [2])
    await close()
    t.strictSame(cuts, [2], 'closing again does nothing')
  })

  t.test('requests in a row on one connection', async (t) => {
    const finish: (() => void)[] = []
    const { server, close } = await serve(t, (_, response) => finish.push(() => response.end('served')))
    const { socket, ended, text } = await open(t, server)
    socket.write(GET + GET)
    while (finish.length < 2) await once(server, 'request')
    const closing = close()
    for (const answer of finish) {
      await new Promise(setImmediate)
      answer()
    }
    await closing
    await ended
    t.match(text(), /served.*served$/s)
  })

  t.test('a server that never listened', async (t) => {
    const server = createServer()
    guardConnections(server, { graceMs: NEVER, onCut: () => t.fail('there was nothing to cut') })
    await closed(server)
  })

  t.test('hundreds of broken connections end over several turns of the event loop', async (t) => {
    const app = { connections: { onInvalidRequest: () => undefined } }
    let ended = 0
    const destroy = () => {
      for (const until = performance.now() + 1; performance.now() < until; );
      ended += 1
    }
    const broken = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    for (let n = 0; n < 50; n += 1)
      answerClientError.call(app as never, broken as never, { destroy } as never)
    t.ok(ended > 0 && ended < 10, `${ended} at once`)
    while (ended < 50) await turn()
  })
})

/** A client that sends requests without end, and another one that sends few. */
t.test('turns', async (t) => {
  const UP = 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n'
  /** Together 64 kB, about one read. */
  const MANY = 2000
  const CONNECTIONS = 8
  const AUTHORIZATION = `Basic ${Buffer.from('anna:secret').toString('base64')}`

  /** A server with an admin, so that not everybody is one. */
  async function start(t: Test, settings: Record<string, string>) {
    const server = await startMemoryServer(t, settings)
    await setAdmin(server.config, 'anna', 'secret')
    return server
  }

  interface Client {
    readonly socket: Socket
    answers(): number
  }

  function open(t: Test, port: number, localAddress: string): Client {
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    t.teardown(() => socket.destroy())
    let count = 0
    socket.on('data', (chunk) => {
      count += chunk.toString('latin1').split('HTTP/1.1 ').length - 1
    })
    socket.on('error', () => undefined)
    return { socket, answers: () => count }
  }

  t.test('networks', async (t) => {
    const networks = new ClientNetworks()
    for (let at = 0; at < 20_000; at += 1) networks.of(`10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`)
    t.equal(networks.size, 10_000, 'are forgotten when there are too many')
  })

  t.test('a bucket', async (t) => {
    const bucket = new ClientNetworks().of('192.0.2.1').anonymous
    const taken = (now: number) => {
      let count = 0
      while (bucket.take(10, now)) count += 1
      return count
    }
    t.equal(taken(1000), 20, 'holds the tokens of two seconds')
    t.equal(taken(1500), 5, 'fills again')
    bucket.charge()
    t.equal(bucket.tokens(10, 1500), -1)
    bucket.refund()
    t.equal(taken(60_000), 20)
  })

  t.test('pipelined requests without an account wait for tokens', async (t) => {
    const settings = { 'settee/stranger_requests': '100' }
    const { port, app, url } = await start(t, settings)
    let [most, served] = [0, 0]
    app.server.prependListener('request', () => {
      most += 1
    })
    const clients = Array.from({ length: CONNECTIONS }, () => open(t, port, '127.0.0.2'))
    for (const { socket } of clients) socket.write(UP.repeat(10 * MANY))
    const since = performance.now()
    await until(() => {
      served = clients.reduce((sum, { answers }) => sum + answers(), 0)
      return served > 150
    })
    const headers = { authorization: AUTHORIZATION }
    const { status } = await fetch(`${url}/_session`, { headers })
    t.equal(status, 200, 'another network is served meanwhile')
    await sleep(500)
    served = clients.reduce((sum, { answers }) => sum + answers(), 0)
    const seconds = (performance.now() - since) / 1000
    t.ok(served <= 200 + 100 * (seconds + 1), `${served} answers in ${seconds} s`)
    t.ok(most <= served + MANY, `beyond one read, what is not served is not parsed either: ${most} requests`)
  })

  t.test('pipelined requests with an account are all answered, in their order', async (t) => {
    const settings = { 'settee/stranger_requests': '1' }
    const { port } = await start(t, settings)
    const { socket } = open(t, port, '127.0.0.2')
    const chunks: Buffer[] = []
    socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    const head = (at: number) =>
      `GET /_session HTTP/1.1\r\nHost: a\r\nX-Couch-Request-ID: r${at}\r\nAuthorization: ${AUTHORIZATION}\r\n\r\n`
    socket.write(head(0))
    await until(() => chunks.length > 0)
    socket.write(Array.from({ length: 500 }, (_, at) => head(at + 1)).join(''))
    const ids = () => [
      ...Buffer.concat(chunks)
        .toString()
        .matchAll(/X-Couch-Request-ID: r(\d+)/gi),
    ]
    await until(() => ids().length === 501)
    t.same(
      ids().map(([, id]) => Number(id)),
      Array.from({ length: 501 }, (_, at) => at),
    )
  })

  t.test('refused heads and preflights take tokens, too', async (t) => {
    const cors = { 'chttpd/enable_cors': 'true', 'cors/origins': '*' }
    const { port, app } = await start(t, { ...cors, 'settee/stranger_requests': '10' })
    const preflight =
      'OPTIONS /db HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n'
    const client = open(t, port, '127.0.0.2')
    client.socket.write(preflight.repeat(100))
    await until(() => client.answers() >= 15)
    await sleep(200)
    t.ok(client.answers() < 30, `${client.answers()} preflights`)
    for (let at = 0; at < 50; at += 1) open(t, port, '127.0.0.3').socket.write('no HTTP\r\n\r\n')
    await sleep(300)
    t.ok(app.requestTally.invalid < 40, `${app.requestTally.invalid} heads`)
  })

  t.test('a client behind a trusted proxy has its own tokens', async (t) => {
    const settings = { 'settee/trusted_proxies': '127.0.0.1', 'settee/stranger_requests': '10' }
    const { url } = await start(t, settings)
    const ask = (address: string) =>
      fetch(`${url}/_up`, { headers: { 'x-forwarded-for': address } }).then(({ status }) => status)
    const flood = Array.from({ length: 60 }, () => ask('192.0.2.1'))
    let isOver = false
    void Promise.all(flood).then(() => {
      isOver = true
    })
    t.equal(await ask('192.0.2.2'), 200)
    t.notOk(isOver, 'the other one waits')
    t.same(new Set(await Promise.all(flood)), new Set([200]), 'the request is answered')
  })

  t.test('a network has a share of the connections', async (t) => {
    const { port, url, app } = await start(t, { 'settee/max_network_connections': '10' })
    const slow =
      'POST /_session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{'
    for (let at = 0; at < 10; at += 1) open(t, port, '127.0.0.2').socket.write(slow)
    await until(() => app.requestTally.counts().underWay === 10)
    const heard: string[] = []
    for (let at = 0; at < 20; at += 1) {
      const { socket } = open(t, port, '127.0.0.2')
      socket.on('data', (chunk: Buffer) => heard.push(chunk.toString()))
      socket.write(slow)
    }
    await until(() => heard.length === 20)
    t.ok(heard.every((text) => /^HTTP\/1.1 503.*settee\/max_network_connections/s.test(text)))
    t.equal((await fetch(`${url}/_up`)).status, 200)
    t.equal((await fetch(`${url}/_session`)).status, 200, 'others have theirs')
  })

  t.test('a trusted proxy has all of the connections', async (t) => {
    const settings = { 'settee/max_network_connections': '1', 'settee/trusted_proxies': '127.0.0.1' }
    const { port } = await start(t, settings)
    const clients = Array.from({ length: 5 }, () => open(t, port, '127.0.0.1'))
    for (const { socket } of clients) socket.write(UP)
    await until(() => clients.every(({ answers }) => answers() === 1))
    t.pass('it speaks for many')
  })
})

/** `settee/trusted_proxies`. */
t.test('trusted proxies', async (t) => {
  const TRUSTED = { 'settee/trusted_proxies': 'loopback' }

  t.test('Location uses the host that a trusted proxy forwards', async (t) => {
    const server = await startTestServer(t)
    const call = connectTo(t, server)
    const { host } = new URL(server.url)
    let at = 0
    const located = async (headers: Record<string, string>) =>
      String((await call('PUT', `/d${at++}`, { headers })).headers.location).replace(/\d+$/, '#')
    const cases: [headers: Record<string, string>, base: string][] = [
      [{}, `http://${host}`],
      [{ 'x-forwarded-host': 'mysite.com' }, 'http://mysite.com'],
      [{ 'x-forwarded-host': 'mysite.com:8443, inner' }, 'http://mysite.com:8443'],
      [{ 'x-forwarded-ssl': 'on' }, `https://${host}`],
      [{ 'x-forwarded-ssl': 'off' }, `http://${host}`],
      [{ 'x-forwarded-proto': 'https' }, `https://${host}`],
      [{ 'x-forwarded-proto': 'javascript' }, `http://${host}`],
      [{ 'x-forwarded-host': 'a/b?c"<' }, `http://${host}`],
    ]
    for (const [headers] of cases) {
      t.equal(await located(headers), `http://${host}/d#`, `nobody is trusted: ${JSON.stringify(headers)}`)
    }
    const trust = (value: string) =>
      call('PUT', '/_node/_local/_config/settee/trusted_proxies', { json: value })
    t.equal((await trust('127.0.0.1')).status, 200)
    for (const [headers, base] of cases)
      t.equal(await located(headers), `${base}/d#`, JSON.stringify(headers))
    t.equal((await trust('192.0.2.0/24, ::1')).status, 200)
    t.equal(
      await located({ 'x-forwarded-host': 'mysite.com' }),
      `http://${host}/d#`,
      'a change of the trusted proxies takes effect at once',
    )
    for (const wrong of ['localhost', '10.0.0.0/33', '0.0.0.0/0', '1.2.3', '*', '10.0.0.1,,']) {
      t.equal((await trust(wrong)).status, 400, wrong)
    }
  })

  /** A server that reports the client's address. */
  async function addresses(t: Test, settings: Record<string, string>) {
    const server = await startMemoryServer(t, settings, (app) => {
      app.get('/-address', { config: { access: 'public' } }, async (request) => ({
        address: request.address,
      }))
    })
    const call = connectTo(t, server)
    return async (forwarded?: string) => {
      const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded }
      return ((await call('GET', '/-address', { headers })).json as { address: string }).address
    }
  }

  t.test('the address of the client', async (t) => {
    const untrusting = await addresses(t, {})
    for (const forged of [undefined, '192.0.2.1', '192.0.2.1, 127.0.0.1', 'x']) {
      t.equal(await untrusting(forged), '127.0.0.1', 'a forged header is ignored')
    }
    const trusting = await addresses(t, { 'settee/trusted_proxies': 'loopback, 10.0.0.0/8, 2001:db8::/32' })
    const cases: [forwarded: string | undefined, address: string][] = [
      [undefined, '127.0.0.1'],
      ['192.0.2.1', '192.0.2.1'],
      ['203.0.113.9, 192.0.2.1', '192.0.2.1'],
      ['203.0.113.9, 192.0.2.1, 10.1.2.3', '192.0.2.1'],
      ['203.0.113.9, 192.0.2.1, 2001:db8::5, 10.1.2.3', '192.0.2.1'],
      ['10.9.9.9, 10.1.2.3', '10.9.9.9'],
      ['10.9.9.9, 192.0.2.77, 127.0.0.1', '192.0.2.77'],
      ['2001:db9::1', '2001:db9::1'],
      ['::ffff:192.0.2.1', '192.0.2.1'],
      ['192.0.2.1:4711', '192.0.2.1'],
      ['[2001:db9::1]:4711', '2001:db9::1'],
      ['192.0.2.1,', '192.0.2.1'],
      ['unknown', '127.0.0.1'],
      ['<script>', '127.0.0.1'],
      ['', '127.0.0.1'],
      [`${'1.2.3.4, '.repeat(2000)}192.0.2.1`, '192.0.2.1'],
    ]
    for (const [forwarded, expected] of cases)
      t.equal(await trusting(forwarded), expected, forwarded?.slice(0, 60) ?? 'none')
  })

  t.test('the cookie is Secure only if a trusted proxy says that the connection is', async (t) => {
    for (const [settings, headers, secure] of [
      [{}, { 'x-forwarded-proto': 'https' }, false],
      [{}, { 'x-forwarded-ssl': 'on' }, false],
      [TRUSTED, {}, false],
      [TRUSTED, { 'x-forwarded-proto': 'http' }, false],
      [TRUSTED, { 'x-forwarded-proto': 'https' }, true],
      [TRUSTED, { 'x-forwarded-ssl': 'on' }, true],
    ] as const) {
      const server = await startMemoryServer(t, settings)
      const call = connectTo(t, server)
      await call('PUT', '/_config/admins/s', { body: '"s"' })
      const answer = await call('POST', '/_session', { json: { name: 's', password: 's' }, headers })
      t.equal(
        /; Secure/.test(String(answer.headers['set-cookie'])),
        secure,
        JSON.stringify([settings, headers]),
      )
    }
  })

  t.test('a lockout applies to the client, not to the proxy', async (t) => {
    const server = await startMemoryServer(t, TRUSTED)
    const call = connectTo(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const login = async (password: string, address: string) =>
      (await call('GET', '/_all_dbs', { auth: `s:${password}`, headers: { 'x-forwarded-for': address } }))
        .status
    for (let guess = 0; guess < 5; guess++) t.equal(await login(`${guess}`, `9.9.9.${guess}, 192.0.2.1`), 401)
    t.equal(await login('s', '9.9.9.8, 192.0.2.1'), 403, 'whatever he says stands before him')
    t.equal(await login('s', '192.0.2.2'), 200)
    t.equal(await login('s', ''), 200)
  })

  t.test('the longest header is read quickly', async (t) => {
    const server = await startMemoryServer(t, { 'settee/trusted_proxies': 'uniquelocal, loopback' })
    const socket = connectSocket(server.port, '127.0.0.1')
    t.after(() => socket.destroy())
    const forwarded = Array(5000).fill('10.0.0.1').join(', ')
    socket.write(
      `GET /_up HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ${forwarded}\r\nConnection: close\r\n\r\n`,
    )
    let text = ''
    for await (const chunk of socket) text += String(chunk)
    t.match(text, /^HTTP\/1.1 200/)
  })
})
