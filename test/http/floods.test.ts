/** Strangers who send without end, and an account that connects from the same network. */
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { until } from '../helpers/until.ts'
import { startSecureMemoryServer } from './http2-client.ts'

const CONNECTIONS = 8
const RATE = 100
const basic = (login: string) => `Authorization: Basic ${Buffer.from(login).toString('base64')}`
const get = (path: string, header = 'X: y') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`
const logIn = (body: string) =>
  `POST /_session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
const WRONG_COOKIE = 'AuthSession=YTpiOmM'

/** What a client does with each connection of a flood; it is opened anew when it is closed. */
type Use = (socket: Socket) => void

/** Sends the same without end. */
function pour(request: string): Use {
  const bytes = request.repeat(Math.ceil(20_000 / request.length))
  return (socket) => {
    const write = (): void => {
      while (!socket.destroyed && socket.write(bytes)) {
        // Until the socket asks to wait for `drain`.
      }
    }
    socket.on('drain', write)
    write()
  }
}

/** Sends something, and leaves a moment later. */
function leave(bytes: string): Use {
  return (socket) => {
    if (bytes !== '') socket.write(bytes)
    setTimeout(() => socket.destroy(), 5)
  }
}

/** Sends a head that does not end, line by line. */
const drip: Use = (socket) => {
  socket.write('GET /_up HTTP/1.1\r\n')
  const drops = setInterval(() => socket.write('a: b\r\n'), 20)
  socket.on('close', () => clearInterval(drops))
}

/** Has 100 streams open at any time. */
const streams: Use = (socket) => {
  const session = connectHttp2('https://localhost', { createConnection: () => socket })
  session.on('error', () => undefined)
  const one = () => {
    if (session.destroyed) return
    const stream = session.request({ ':path': '/_session', cookie: WRONG_COOKIE })
    stream.on('error', () => undefined).on('close', () => setImmediate(one))
    stream.resume()
  }
  for (let at = 0; at < 100; at += 1) one()
}

const FLOODS: Readonly<Record<string, Use>> = {
  'without credentials': pour(get('/_up')),
  'with a wrong password': pour(get('/_session', basic('nobody:wrong'))),
  'with a wrong cookie': pour(get('/_session', `Cookie: ${WRONG_COOKIE}`)),
  'of refused heads': pour(get(`/${'x'.repeat(40_000)}`)),
  'of small bodies': pour(logIn('{}')),
  'of bodies of blank lines': pour(logIn('\r\n'.repeat(20_000))),
  'of what is not HTTP': pour('no HTTP\r\n\r\n'),
  'that leaves before an answer': leave(get('/_up').repeat(1000)),
  'of connections without a request': leave(''),
  'of heads that do not end': drip,
}
const SECURE_FLOODS: Readonly<Record<string, { readonly use: Use; readonly protocol: string }>> = {
  'without credentials over TLS': { use: pour(get('/_up')), protocol: 'http/1.1' },
  'of handshakes': { use: leave(''), protocol: 'http/1.1' },
  'of streams over HTTP/2': { use: streams, protocol: 'h2' },
}

t.setTimeout(900_000)

for (const [name, use] of Object.entries(FLOODS)) {
  t.test(`a flood ${name}: an account of the same network is served meanwhile`, (t) => besideFlood(t, use))
}

for (const [name, { use, protocol }] of Object.entries(SECURE_FLOODS)) {
  t.test(`a flood ${name}: an account of the same network is served meanwhile`, (t) =>
    besideFlood(t, use, protocol),
  )
}

/** @param protocol over TLS; undefined: HTTP/1 without TLS */
async function besideFlood(t: Test, use: Use, protocol?: string): Promise<void> {
  const settings = { 'settee/stranger_requests': `${RATE}` }
  const { config, app, port, url } = await startSecureMemoryServer(t, settings)
  await setAdmin(config, 'anna', 'secret')
  const login = await fetch(`${url}/_session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'anna', password: 'secret' }),
  })
  const cookie = `Cookie: ${(login.headers.get('set-cookie') ?? '').split(';', 1)[0]}`
  const securePort = app.secure!.address.port
  const open = (alpn: string) => () => {
    const there = { host: '127.0.0.1', localAddress: '127.0.0.2' }
    const tls = { ...there, port: securePort, rejectUnauthorized: false, ALPNProtocols: [alpn] }
    const socket = protocol === undefined ? connect({ ...there, port }) : connectTls(tls)
    socket.on('error', () => undefined)
    t.teardown(() => socket.destroy())
    return socket
  }
  let parsed = 0
  app.server.prependListener('request', () => {
    parsed += 1
  })
  const flood = startFlood(open(protocol ?? ''), use)
  t.teardown(() => flood.end())
  await until(() => flood.opened() >= CONNECTIONS)
  await sleep(300)
  const [before, since] = [parsed, performance.now()]
  const client = () => clientOn(open('http/1.1')())
  for (const header of [basic('anna:secret'), cookie]) {
    const { ask } = client()
    t.match(await ask(get('/_all_dbs', header)), /^HTTP\/1.1 200/, header.slice(0, 15))
    const write = `PUT /x HTTP/1.1\r\nHost: a\r\n${header}\r\nContent-Length: 2\r\n\r\n{}`
    t.match(await ask(write), /^HTTP\/1.1 (?:201|412)/, 'with a body')
  }
  const page = client()
  t.match(await page.ask('OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n'), /^HTTP/)
  t.match(await page.ask(get('/x', basic('anna:secret'))), /^HTTP\/1.1 200/, 'after a preflight')
  // Two seconds of both kinds of tokens may have been left.
  const paid = 2 * RATE * (2 + (performance.now() - since) / 1000)
  const others = parsed - before
  t.ok(others < paid + CONNECTIONS, `${others} requests were parsed meanwhile, ${Math.ceil(paid)} paid for`)
}

function clientOn(socket: Socket) {
  const ask = async (request: string) => {
    socket.write(request)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    return answer.toString()
  }
  return { ask }
}

function startFlood(open: () => Socket, use: Use) {
  let isOver = false
  let opened = 0
  const one = () => {
    const socket = open()
    // A TLS socket emits it too, and takes what is written before its handshake is over.
    socket.on('connect', () => {
      opened += 1
      if (!isOver) use(socket)
    })
    socket.on('close', () => isOver || setTimeout(one, 5))
    if (use !== streams) socket.resume()
  }
  for (let at = 0; at < CONNECTIONS; at += 1) one()
  return {
    opened: () => opened,
    end: () => {
      isOver = true
    },
  }
}
