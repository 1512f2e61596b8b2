/** Behind nginx with deploy/nginx.conf, with the configuration of an old guide, and with one line missing. */
import { constants } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { connect as connectPlain } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { type Nginx, startNginx } from '../../helpers/nginx.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { device, liveSync } from '../../protocol/devices.ts'
import { editInTurns, overHttp1, secureRemote } from '../../proxy/secure-devices.ts'

/** How long devices sync while nginx reloads, in milliseconds. */
const LIVE_MS = Number(process.env.SETTEE_PROXY_SECONDS ?? 120) * 1000
/** The pause between two edits. */
const PAUSE_MS = 500
t.setTimeout(240_000 + LIVE_MS)

/** The promised delay of changes behind a buffering proxy: architecture.md, "The path of a feed". */
const HEARTBEAT_MS = 25_000
const LOGIN = 'user:password'
const GUIDE = new URL('../../proxy/guide.conf', import.meta.url)

/** A server that trusts its proxy, with an admin of the same name as in the guide. */
async function start(t: Test) {
  const logFile = join(await temporaryFolder(t), 'settee.log')
  const env = { COUCHDB_USER: 'user', COUCHDB_PASSWORD: 'password' }
  const server = await startTestServer(t, { env, logFile, logLevel: 'debug' })
  const key = '/_node/_local/_config/settee/trusted_proxies'
  await server.request('PUT', key, { auth: LOGIN, body: '"127.0.0.1"' })
  await server.request('PUT', '/db', { auth: LOGIN })
  return { ...server, logFile }
}

/** A client at another address than the proxy. */
function client(t: Test, { ca, url }: Nginx, allowH2: boolean) {
  const dispatcher = new Agent({ allowH2, connect: { ca }, localAddress: '127.0.0.2' })
  t.teardown(() => dispatcher.destroy())
  return async (method: string, path: string, body: string | Buffer | null = null) => {
    const authorization = `Basic ${Buffer.from(LOGIN).toString('base64')}`
    const answer = await request(url + path, {
      method: method as 'GET',
      dispatcher,
      headers: { authorization, 'content-type': 'application/json' },
      body,
    })
    return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
  }
}

function handshake(port: number, options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, ...options }, () => resolve(socket))
    socket.once('error', reject)
  })
}

/** A server's answer to a ClientHello of SSL 3.0 (1996). */
function helloOfSsl3(port: number): Promise<Buffer> {
  const body = Buffer.concat([
    Buffer.from([3, 0]),
    Buffer.alloc(32, 7),
    // No session, one cipher (RSA with AES-128), no compression.
    Buffer.from([0, 0, 2, 0, 0x2f, 1, 0]),
  ])
  const message = Buffer.concat([Buffer.from([1, 0, 0, body.length]), body])
  const record = Buffer.concat([Buffer.from([22, 3, 0, 0, message.length]), message])
  return new Promise((resolve) => {
    const socket = connectPlain(port, '127.0.0.1', () => socket.write(record))
    const heard: Buffer[] = []
    socket.on('data', (chunk) => heard.push(chunk))
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(Buffer.concat(heard)))
  })
}

t.test('with deploy/nginx.conf', async (t) => {
  const server = await start(t)
  const nginx = await startNginx(t, { upstream: server.url })

  for (const allowH2 of [false, true]) {
    t.test(`addresses and cookies are those of TLS, by HTTP/${allowH2 ? 2 : 1.1}`, async (t) => {
      const call = client(t, nginx, allowH2)
      const id = `a-${allowH2}`
      const made = await call('PUT', `/db/${id}`, '{}')
      t.match(made, { status: 201, headers: { location: `${nginx.url}/db/${id}` } })
      const session = await call('POST', '/_session', '{"name":"user","password":"password"}')
      t.match(session.headers['set-cookie'], /; Secure/)
    })
  }

  t.test('both logs show the client of a request', async (t) => {
    const call = client(t, nginx, false)
    await call('GET', '/db/whose-is-it')
    await nginx.logged(/^127\.0\.0\.2 .*"GET \/db\/whose-is-it HTTP/m)
    const lines = (await readFile(server.logFile, 'utf8'))
      .split('\n')
      .filter((line) => line.includes('whose-is-it'))
    t.match(JSON.parse(lines[0] ?? '{}'), { path: '/db/whose-is-it', address: '127.0.0.2' })
  })

  t.test('paths arrive unchanged, and so do large bodies', async (t) => {
    const call = client(t, nginx, true)
    t.match(await call('PUT', '/with%2Fslash'), { status: 201 })
    t.match(await call('PUT', '/db/_design%2Fmobile', '{}'), { status: 201 })
    t.match(await call('GET', '/db/_design/mobile'), { status: 200 })
    const bytes = Buffer.alloc(20 * 1024 * 1024, 'settee ')
    t.match(await call('PUT', '/db/file/large', bytes), { status: 201 })
    t.equal((await call('GET', '/db/file/large')).text.length, bytes.length)
  })

  t.test('current protocols, and no older ones', async (t) => {
    // Debian's OpenSSL would refuse old protocols because of their ciphers. Here, only the line with the protocols
    // counts.
    const lax = (text: string) => text.replace('ssl_protocols', 'ssl_ciphers ALL:@SECLEVEL=0; ssl_protocols')
    const { port, ca } = await startNginx(t, { upstream: server.url, edit: lax })
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const socket = await handshake(port, { ca, minVersion: version, maxVersion: version })
      t.equal(socket.getProtocol(), version)
      socket.destroy()
    }
    for (const version of ['TLSv1', 'TLSv1.1'] as const) {
      const old = { ca, minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0' }
      await t.rejects(handshake(port, old), { code: /PROTOCOL_VERSION/ }, version)
    }
    const answer = await helloOfSsl3(port)
    // An alert or no answer, but no ServerHello.
    t.ok(answer.length === 0 || answer[0] === 21, answer.toString('hex'))
    const allowing = (text: string) => lax(text).replace('TLSv1.2 TLSv1.3', 'TLSv1.1 TLSv1.2')
    const old = await startNginx(t, { upstream: server.url, edit: allowing })
    const version = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
    const socket = await handshake(old.port, { ca: old.ca, ...version })
    t.equal(socket.getProtocol(), 'TLSv1.1', 'which is how a refusal is told from a client that cannot ask')
    socket.destroy()
  })

  t.test('a returning client resumes its TLS session', async (t) => {
    const { port, ca } = nginx
    // With a ticket, the client would not need the cache.
    const version = { ca, maxVersion: 'TLSv1.2', secureOptions: constants.SSL_OP_NO_TICKET } as const
    const first = await handshake(port, version)
    const session = first.getSession()
    first.destroy()
    const second = await handshake(port, { ...version, ...(session && { session }) })
    t.ok(second.isSessionReused())
    second.destroy()
  })

  t.test('a live sync continues while nginx reloads', async (t) => {
    const address = `https://${LOGIN}@127.0.0.1:${nginx.port}/db`
    const devices = [await device(t), await device(t)] as const
    const syncs = devices.map((each) => {
      return liveSync(t, each, secureRemote(address, overHttp1(t, { ca: nginx.ca })))
    })
    const half = performance.now() + LIVE_MS / 2
    let isReloaded = false
    const { edits, slowest } = await editInTurns(devices, LIVE_MS, async () => {
      // Between two edits the connections are idle, as they are most of the time.
      await sleep(PAUSE_MS)
      if (isReloaded || performance.now() < half) return
      isReloaded = true
      await nginx.reload()
    })
    t.ok(isReloaded)
    t.match(await nginx.errorLog(), /reconfiguring|gracefully shutting down/)
    t.comment(`${edits} edits in ${LIVE_MS / 1000} s, the slowest took ${Math.round(slowest)} ms`)
    for (const { errors, denied } of syncs) t.strictSame([errors, denied], [[], []])
    for (const { stop } of syncs) await stop()
    t.equal((await server.request('GET', '/db', { auth: LOGIN })).json.doc_count, 3 + 1 + edits + 1)
  })
})

t.test('with the configuration of an old guide, over TLS 1.2', async (t) => {
  const server = await start(t)
  const nginx = await startNginx(t, { upstream: server.url, file: GUIDE })
  const made = await client(t, nginx, false)('PUT', '/db/a', '{}')
  t.match(made, { status: 201, headers: { location: 'https://127.0.0.1/db/a' } }, 'its $host drops the port')
  await nginx.logged(/^127\.0\.0\.2 .*"PUT \/db\/a HTTP/m)
  const socket = await handshake(nginx.port, { ca: nginx.ca })
  t.equal(socket.getProtocol(), 'TLSv1.2')
  socket.destroy()
  const fetch = overHttp1(t, { ca: nginx.ca, maxVersion: 'TLSv1.2' })
  const address = `https://${LOGIN}@127.0.0.1:${nginx.port}/db`
  const devices = [await device(t), await device(t)] as const
  const syncs = devices.map((each) => liveSync(t, each, secureRemote(address, fetch)))
  const { slowest } = await editInTurns(devices, 0)
  t.ok(slowest < HEARTBEAT_MS)
  for (const { errors } of syncs) t.strictSame(errors, [])
})

/** Removes the line that turns off buffering, or replaces it by one that ignores settee's header against buffering. */
const FORGOTTEN = [
  ['the line is missing', ''],
  ['nginx is told to hold answers back', 'proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;'],
] as const

for (const [what, line] of FORGOTTEN) {
  t.test(`where ${what}, live sync works within the heartbeat`, async (t) => {
    const server = await start(t)
    const nginx = await startNginx(t, {
      upstream: server.url,
      edit: (text) => text.replace('proxy_buffering off;', line),
    })
    const fetch = overHttp1(t, { ca: nginx.ca })
    const address = `https://${LOGIN}@127.0.0.1:${nginx.port}/db`
    const devices = [await device(t), await device(t)] as const
    for (const each of devices) liveSync(t, each, secureRemote(address, fetch))
    const { slowest } = await editInTurns(devices, 0)
    t.ok(slowest < HEARTBEAT_MS, `the slowest edit took ${Math.round(slowest)} ms`)
  })
}
