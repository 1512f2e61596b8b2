/** settee's own TLS: its certificate, refused clients, and HTTP/1.1 over it. */
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { copyFile, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { listenSecurely, type SecureListener } from '../../src/http/transport/secure-listener.ts'
import { certificateFiles, makeCertificate } from '../helpers/certificates.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { openSession, startSecureMemoryServer } from './http2-client.ts'
import { startMemoryServer } from './memory-server.ts'

function handshake(t: Test, url: string, options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const { hostname: host, port } = new URL(url)
    const socket = connect({ host, port: Number(port), ...options }, () => resolve(socket))
    socket.once('error', reject)
    t.teardown(() => socket.destroy())
  })
}

/** All bytes until the connection ends. */
async function saidBy(socket: TLSSocket): Promise<string> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => chunks.push(chunk))
  socket.on('error', () => undefined)
  await new Promise((resolve) => socket.once('close', resolve))
  return Buffer.concat(chunks).toString('latin1')
}

/** The serial number of the certificate that a new connection is shown. */
async function serial(t: Test, url: string): Promise<string> {
  const socket = await handshake(t, url, { rejectUnauthorized: false })
  const { serialNumber } = socket.getPeerCertificate()
  socket.destroy()
  return serialNumber
}

t.test('a certificate that is replaced', async (t) => {
  const { secureUrl, tls, lines } = await startSecureMemoryServer(t)
  const { ask, open } = await openSession(t, secureUrl, tls.cert)
  await ask('PUT /db')
  const feed = open({ ':path': '/db/_changes?feed=continuous&heartbeat=20' })
  const first = await serial(t, secureUrl)
  const errors = () => lines.filter((line) => line.includes('the old one stays')).length

  t.test('is used for new connections', async (t) => {
    const next = await makeCertificate()
    await writeFile(tls.certFile, next.cert)
    await writeFile(tls.keyFile, next.key)
    await until(async () => (await serial(t, secureUrl)) !== first)
    t.equal(errors(), 0, 'no error is logged while the certificate and the key do not match')
  })

  t.test('is not used if the two files do not match, which is logged once', async (t) => {
    const before = await serial(t, secureUrl)
    const { cert, key } = await makeCertificate()
    await writeFile(tls.certFile, cert)
    await until(() => errors() === 1)
    t.equal(await serial(t, secureUrl), before)
    t.match(
      lines.find((line) => line.includes('the old one stays')),
      /the key does not belong to the certificate/,
    )
    await sleep(200)
    t.equal(errors(), 1)
    await writeFile(tls.keyFile, key)
    await until(async () => (await serial(t, secureUrl)) !== before)
  })

  t.test('is not used if it is missing or invalid', async (t) => {
    const before = await serial(t, secureUrl)
    const told = errors()
    await copyFile(tls.certFile, `${tls.certFile}.kept`)
    await rm(tls.certFile)
    await until(() => errors() === told + 1)
    await writeFile(tls.certFile, 'nonsense')
    await until(() => errors() === told + 2)
    t.equal(await serial(t, secureUrl), before)
    t.notOk(lines.some((line) => line.includes('PRIVATE KEY')))
  })

  t.test('cuts off no connection', async (t) => {
    t.notOk(feed.stream.closed)
    const before = feed.text().length
    await until(() => feed.text().length > before)
    t.match(await ask('GET /db'), { status: 200 }, 'connections from before the certificate stay open')
  })
})

/** As certbot has it: `live/` holds links, and a renewal has them lead elsewhere, one after the other. */
async function renew(folder: string, round: number): Promise<void> {
  const [archive, live] = [join(folder, 'archive'), join(folder, 'live')]
  for (const each of [archive, live]) await mkdir(each, { recursive: true })
  for (const [name, text] of Object.entries(await makeCertificate())) {
    const target = join(archive, `${name}${round}.pem`)
    await writeFile(target, text)
    await symlink(target, join(live, `${name}.new`))
    await rename(join(live, `${name}.new`), join(live, `${name}.pem`))
  }
}

t.test('a certificate that is a link to another', async (t) => {
  const folder = await temporaryFolder(t)
  await renew(folder, 1)
  const [certFile, keyFile] = [join(folder, 'live', 'cert.pem'), join(folder, 'live', 'key.pem')]
  const logFile = join(folder, 'log')
  const tls = { certFile, keyFile }
  const { secureUrl } = await startTestServer(t, { tls, tlsLookMs: 200, logFile, logLevel: 'error' })
  const first = await serial(t, secureUrl)
  await renew(folder, 2)
  await until(async () => (await serial(t, secureUrl)) !== first)
  const options = { rejectUnauthorized: false, ALPNProtocols: ['h2', 'http/1.1'] }
  t.equal((await handshake(t, secureUrl, options)).alpnProtocol, 'h2')
  const old = {
    ...options,
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  } as const
  await t.rejects(handshake(t, secureUrl, old), { code: /PROTOCOL_VERSION/ }, 'TLS 1.1 is refused as before')
  t.equal(await readFile(logFile, 'utf8'), '')
})

t.test('no request is served before the app is ready', async (t) => {
  let opening: Promise<SecureListener> | undefined
  let wasEarly: boolean | undefined
  const { certFile, keyFile, cert } = await certificateFiles(t)
  const settings = { 'ssl/cert_file': certFile, 'ssl/key_file': keyFile }
  await startMemoryServer(t, settings, (app) => {
    app.addHook('onReady', async () => {
      await sleep(300)
      wasEarly = app.secure !== null
    })
    opening = listenSecurely(app, { host: '127.0.0.1', port: 0 })
  })
  const secure = await opening
  t.equal(wasEarly, false)
  const { ask, session } = await openSession(t, secure?.url ?? '', cert)
  t.match(await ask('GET /_up'), { status: 200 })
  await secure?.close()
  if (!session.closed) await once(session, 'close')
  t.ok(session.closed, 'closing ends the open session')
})

t.test('refused clients', async (t) => {
  const { secureUrl, tls, port, app } = await startSecureMemoryServer(t)
  for (const version of ['TLSv1', 'TLSv1.1'] as const) {
    const old = { minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0', ca: tls.cert }
    await t.rejects(handshake(t, secureUrl, old), { code: /PROTOCOL_VERSION/ }, version)
  }
  const socket = await handshake(t, secureUrl, { ca: tls.cert, minVersion: 'TLSv1.3' })
  t.equal(socket.alpnProtocol, false, 'a client without ALPN gets HTTP/1.1')
  socket.write('GET /_up HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  t.match(await saidBy(socket), /^HTTP\/1\.1 200 /)
  await t.rejects(request(secureUrl.replace('https:', 'http:')), 'plain HTTP')
  const { body } = await request(`http://127.0.0.1:${port}/_up`)
  await body.dump()
  await until(() => app.connectionTally.counts().openConnections <= 1)
})

t.test('unfinished handshakes give way to new connections', async (t) => {
  const { secureUrl, tls } = await startSecureMemoryServer(t, { 'settee/max_connections': '2' })
  const { hostname, port } = new URL(secureUrl)
  const { connect: connectPlain } = await import('node:net')
  const silent = [1, 2, 3].map(() => connectPlain(Number(port), hostname))
  const gone = silent.map((socket) => new Promise((resolve) => socket.once('close', resolve)))
  for (const socket of silent) {
    socket.on('error', () => undefined)
    t.teardown(() => socket.destroy())
    if (socket.connecting) await once(socket, 'connect')
  }
  await gone[0]
  const { ask } = await openSession(t, secureUrl, tls.cert)
  t.match(await ask('GET /_up'), { status: 200 })
})

t.test('HTTP/1.1 over TLS is HTTP/1.1', async (t) => {
  const settings = { 'chttpd/max_http_request_size': '1000' }
  const { secureUrl, tls, app } = await startSecureMemoryServer(t, settings)
  const dispatcher = new Agent({ connections: 1, connect: { ca: tls.cert } })
  t.teardown(() => dispatcher.destroy())

  t.test('addresses, cookies, connections that are kept', async (t) => {
    for (let n = 0; n < 3; n++) {
      const { statusCode, headers, body } = await request(`${secureUrl}/db${n}`, {
        method: 'PUT',
        dispatcher,
      })
      await body.dump()
      t.match({ statusCode, headers }, { statusCode: 201, headers: { location: `${secureUrl}/db${n}` } })
      t.equal(headers.connection, 'keep-alive')
    }
    const { openConnections, sentBytes } = app.connectionTally.counts()
    t.equal(openConnections, 1)
    t.ok(sentBytes > 0)
  })

  t.test('a body that is refused while it is sent', async (t) => {
    const socket = await handshake(t, secureUrl, { ca: tls.cert })
    const heard = saidBy(socket)
    socket.write('PUT /db0/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n')
    const writing = setInterval(() => socket.writable && socket.write(`1f4\r\n${'x'.repeat(500)}\r\n`), 5)
    t.match(await heard, /^HTTP\/1\.1 413 .*"error":"too_large"/s)
    clearInterval(writing)
  })

  t.test('Expect: 100-continue, pipelined requests, and invalid HTTP', async (t) => {
    const expecting = await handshake(t, secureUrl, { ca: tls.cert })
    const head = 'PUT /db0/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n'
    expecting.write(`${head}Expect: 100-continue\r\n\r\n`)
    await once(expecting, 'readable')
    expecting.write('{}')
    t.match(await saidBy(expecting), /100 Continue.*HTTP\/1\.1 201 /s)
    const ahead = await handshake(t, secureUrl, { ca: tls.cert })
    const get = 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n'
    const last = 'GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
    ahead.write(get + get + last)
    t.match(await saidBy(ahead), /200 .*200 .*404 /s)
    const nonsense = await handshake(t, secureUrl, { ca: tls.cert })
    nonsense.write('\r\nnonsense\r\n\r\n')
    t.match(await saidBy(nonsense), /^HTTP\/1\.1 400 .*"error":"bad_request"/s)
  })
})

t.test('an answer in small pieces is sent piece by piece over HTTP/1.1', async (t) => {
  const { secureUrl, tls } = await startSecureMemoryServer(t, {}, (app) => {
    app.get('/_pieces', { config: { access: 'public' } }, async (_request, reply) => {
      reply.hijack()
      for (const piece of ['one', 'two', 'three']) {
        reply.raw.write(piece)
        await turn()
      }
      reply.raw.end()
    })
  })
  const agent = new Agent({ connections: 1, connect: { ca: tls.cert } })
  t.teardown(() => agent.destroy())
  const times: number[] = []
  for (let n = 0; n < 31; n += 1) {
    const begun = performance.now()
    const { body } = await request(`${secureUrl}/_pieces`, { dispatcher: agent })
    t.equal(await body.text(), 'onetwothree')
    times.push(performance.now() - begun)
  }
  // Each answer with a piece that is held back takes 40 ms; on a busy machine any may take long.
  const fastest = Math.min(...times)
  t.ok(fastest < 25, `${fastest.toFixed(1)} ms: held back, a piece takes 40`)
})

t.test('an unused connection is closed without an answer', async (t) => {
  const options = { headTimeoutMs: 100, idleMs: 100 }
  const { secureUrl, tls } = await startSecureMemoryServer(t, {}, undefined, options)
  const socket = await handshake(t, secureUrl, { ca: tls.cert, ALPNProtocols: ['http/1.1'] })
  t.equal(await saidBy(socket), '')
})

t.test('errors at the start for invalid files', async (t) => {
  const { certFile, keyFile } = await certificateFiles(t)
  const other = await certificateFiles(t)
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const otherKind = `${keyFile}.rsa`
  await writeFile(otherKind, privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const cases = [
    [{ certFile, keyFile: other.keyFile }, /the key does not belong to the certificate/],
    [{ certFile, keyFile: otherKind }, /the key does not belong to the certificate/],
    [{ certFile: `${certFile}.none`, keyFile }, /ssl\/cert_file: .* cannot be read \(ENOENT\)/],
    [{ certFile: keyFile, keyFile }, /cannot be used/],
  ] as const
  for (const [tls, reason] of cases) await t.rejects(startTestServer(t, { tls }), { message: reason })
})

t.test('an expired certificate is logged', async (t) => {
  const tls = await certificateFiles(t, { notAfter: new Date(Date.now() - 1000) })
  const logFile = `${tls.certFile}.log`
  await startTestServer(t, { tls, logFile, logLevel: 'error' })
  await until(async () => (await readFile(logFile, 'utf8')).includes('has expired'))
  t.pass('in the log')
})
