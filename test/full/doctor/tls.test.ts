/** Certificates, protocols and HTTP versions, against servers that have each fault. */
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { createServer, type Server as HttpsServer, type ServerOptions } from 'node:https'
import { type AddressInfo, createServer as createNetServer, type Server, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { authority, type Issued, issue } from '../../doctor/certificates.ts'
import { answerAsCouch } from '../../doctor/couch.ts'
import { look } from '../../doctor/looking.ts'

const { root, middle } = await authority()
const leaf = await issue({ name: 'leaf', issuer: middle })

async function listen(t: Test, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    ;(server as Partial<HttpsServer>).closeAllConnections?.()
  })
  return (server.address() as AddressInfo).port
}

async function https(t: Test, own: Issued, more: readonly Issued[], options: ServerOptions = {}) {
  const cert = [own, ...more].map(({ pem }) => pem).join('\n')
  const server = createServer({ key: own.key, cert, ...options }, answerAsCouch())
  return `https://anna:secret@127.0.0.1:${await listen(t, server)}/notes`
}

/** @param meet handles each connection; the server sends nothing by itself */
function createMute(meet: (socket: Socket) => void = () => undefined): Server {
  const sockets = new Set<Socket>()
  const server = createNetServer((socket) => {
    sockets.add(socket.on('error', () => undefined))
    meet(socket)
  })
  const closeAllConnections = () => {
    for (const socket of sockets) socket.destroy()
  }
  return Object.assign(server, { closeAllConnections })
}

t.test('a valid chain passes with the given authority', async (t) => {
  const address = await https(t, leaf, [middle])
  const looked = await look(address, { ca: root.pem })
  t.match(looked.one('certificate'), {
    state: 'fine',
    text: /^Trusted through the given file; .*Test Middle, valid until \d{4}-/,
  })
  t.match(looked.one('protocols'), { state: 'fine', text: /^TLSv1\.3/ })
  t.match(looked.one('http'), { state: 'note', text: /six connections/ })
  t.match(looked.cures('http'), [/^nginx: http2 on;/])
  t.equal(looked.one('credentials').state, 'fine')
  const phone = await look(address, { ca: root.pem, mobile: true })
  t.match(phone.one('certificate'), { state: 'note', text: /^Phones trust this certificate only/ })
})

t.test('nothing is sent to a server without a valid certificate', async (t) => {
  let requests = 0
  const cert = await issue({ name: 'self' })
  const server = createServer({ key: cert.key, cert: cert.pem }, (_request, response) => {
    requests += 1
    response.end()
  })
  const looked = await look(`https://anna:secret@127.0.0.1:${await listen(t, server)}/notes`)
  t.match(looked.one('certificate'), { state: 'wrong', text: /self-signed/ })
  t.match(looked.cures('certificate'), [/nginx: ssl_certificate/, /Caddy/, /Traefik/, /Cloudflare/])
  t.match(looked.findings.at(-1), { name: 'rest', state: 'skipped', text: /No password is sent/ })
  t.equal(requests, 0)
})

t.test('each fault of a certificate', async (t) => {
  const rows: [what: string, own: Issued, more: Issued[], text: RegExp][] = [
    ['own authority', leaf, [middle, root], /an authority of your own/],
    ['own authority, not sent', leaf, [middle], /^The server does not send the certificate of Test Root/],
    ['incomplete', leaf, [], /certificate of Test Middle, and no device knows it/],
    [
      'incomplete, of a public one',
      await issue({ name: 'a', issuer: middle, linksToIssuer: true }),
      [],
      /^The chain is incomplete: the server does not send the certificate of Test Middle/,
    ],
  ]
  for (const [what, own, more, text] of rows) {
    const looked = await look(await https(t, own, more))
    t.match(looked.one('certificate'), { state: 'wrong', text }, what)
  }
  const known: [what: string, own: Issued, text: RegExp, state: 'wrong' | 'note'][] = [
    [
      'expired',
      await issue({ name: 'old', issuer: middle, from: -90, to: -1 }),
      /^The certificate of old expired on/,
      'wrong',
    ],
    [
      'not yet',
      await issue({ name: 'new', issuer: middle, from: 2 }),
      /is valid only from .*: a clock is wrong/,
      'wrong',
    ],
    [
      'soon',
      await issue({ name: 'soon', issuer: middle, from: -80, to: 3 }),
      /expires on .*has not been renewed/,
      'note',
    ],
    [
      'another name',
      await issue({ name: 'b', issuer: middle, hosts: ['other.example'] }),
      /is not for 127\.0\.0\.1/,
      'wrong',
    ],
    [
      'no name',
      await issue({ name: 'localhost', issuer: middle, hosts: null }),
      /names its host only in CN/,
      'wrong',
    ],
  ]
  for (const [what, own, text, state] of known) {
    const address = await https(t, own, [middle])
    const { findings } = await look(
      what === 'no name' ? address.replace('127.0.0.1', 'localhost') : address,
      {
        ca: root.pem,
      },
    )
    const found = findings.filter(({ name }) => name === 'certificate')
    t.match(found, [{ state, text }], what)
  }
  // A trusted root does not complete a chain without its intermediate certificate.
  const { findings } = await look(await https(t, leaf, []), { ca: root.pem })
  t.match(
    findings.filter(({ name }) => name === 'certificate'),
    [{ state: 'wrong', text: /does not send/ }],
  )
})

t.test('a server with its name only in CN gets no password', async (t) => {
  let asked = 0
  const own = await issue({ name: 'localhost', issuer: middle, hosts: null })
  const server = createServer({ key: own.key, cert: `${own.pem}\n${middle.pem}` }, () => asked++)
  const { findings } = await look(`https://anna:secret@localhost:${await listen(t, server)}/notes`, {
    ca: root.pem,
  })
  t.match(findings.at(-1), { name: 'rest', text: /No password is sent/ })
  t.equal(asked, 0)
})

t.test('an additional expired certificate in the chain does no harm', async (t) => {
  const old = await issue({ name: 'Old Root', isAuthority: true })
  const { name, keys } = { name: 'Test Root', keys: root.keys }
  const cross = await issue({ name, keys, issuer: old, isAuthority: true, from: -90, to: -1 })
  const { findings, one } = await look(await https(t, leaf, [middle, cross]), { ca: root.pem })
  t.strictSame(
    findings.filter((each) => each.name === 'certificate' && each.state === 'wrong'),
    [],
  )
  t.equal(one('credentials').state, 'fine')
})

t.test('what iOS also refuses', async (t) => {
  const all = await issue({ name: 'all', issuer: middle, isForAnything: true })
  const unsaid = await look(await https(t, all, [middle]), { ca: root.pem, mobile: true })
  t.match(
    unsaid.findings.filter(({ state, name }) => state === 'wrong' && name === 'certificate'),
    [{ text: /does not say that it is for servers/, cures: [{ line: /serverAuth/ }] }],
  )
  const short = await issue({ name: 'rsa', issuer: middle, rsaBits: 1024, to: 1000 })
  const { findings } = await look(await https(t, short, [middle], { ciphers: 'DEFAULT@SECLEVEL=0' }), {
    ca: root.pem,
    mobile: true,
  })
  const texts = findings.filter(({ name }) => name === 'certificate').map(({ text }) => text)
  t.match(texts, [
    /^Phones trust/,
    /^The RSA key has 1024 bits/,
    /^The certificate is valid for more than 825 days/,
  ])
})

t.test('protocols and ciphers', async (t) => {
  const old = { minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
  const also = await look(await https(t, leaf, [middle], old), { ca: root.pem })
  t.match(also.one('protocols'), { state: 'note', text: /^TLSv1\.3, but the server also accepts TLSv1\.1/ })
  t.match(also.cures('protocols')[0], 'nginx: ssl_protocols TLSv1.2 TLSv1.3;')
  const only = await look(await https(t, leaf, [middle], { ...old, maxVersion: 'TLSv1.1' }), { ca: root.pem })
  t.match(only.one('protocols'), { state: 'wrong', text: /supports TLSv1\.1 at most/ })
  const rsa = await issue({ name: 'rsa', issuer: middle, rsaBits: 2048 })
  const plain = { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' } as const
  const address = await https(t, rsa, [middle], plain)
  t.match((await look(address, { ca: root.pem })).one('protocols'), {
    state: 'note',
    text: /forward secrecy/,
  })
  const phone = await look(address, { ca: root.pem, mobile: true })
  t.match(phone.one('protocols'), { state: 'wrong', text: /forward secrecy/ })
})

t.test('a port without TLS, and one with', async (t) => {
  const http = createHttpServer(answerAsCouch())
  const port = await listen(t, http)
  const looked = await look(`https://anna:secret@127.0.0.1:${port}/notes`)
  t.match(looked.one('protocols'), { state: 'wrong', text: /does not use TLS/ })
  const address = (await https(t, leaf, [middle])).replace('https:', 'http:')
  t.match((await look(address)).one('server'), { state: 'wrong' })
  t.match((await look(address)).cures('server'), [/https:/])
})

t.test('servers with faulty TLS, and silent ones', async (t) => {
  const rows: [what: string, server: Server, text: RegExp][] = [
    ['mute', createMute(), /^TLS fails: no answer in time/],
    ['shut', createMute((socket) => socket.destroy()), /^TLS fails: the connection was closed/],
    ['without a certificate', createServer({}), /^TLS fails: ERR_SSL\S+HANDSHAKE_FAILURE/],
  ]
  for (const [what, server, text] of rows) {
    const address = `https://anna:secret@127.0.0.1:${await listen(t, server)}/notes`
    const looked = await look(address, { limits: { requestMs: what === 'mute' ? 500 : 30_000 } })
    t.match(looked.findings.at(-1), { name: 'protocols', state: 'wrong', text }, what)
    t.match(looked.cures('protocols'), [/^nginx: ssl_certificate/, /^Caddy/, /^Traefik/, /^Cloudflare/])
  }
})

t.test('a wrong password is sent only once over HTTP/2, too', async (t) => {
  let logins = 0
  const cert = [leaf, middle].map(({ pem }) => pem).join('\n')
  const server = createSecureServer({ key: leaf.key, cert, allowHTTP1: true }, (request, response) => {
    if (request.headers.authorization !== undefined) logins += 1
    answerAsCouch()(request as never, response as never)
  })
  const address = `https://anna:wrong@127.0.0.1:${await listen(t, server)}/notes`
  const looked = await look(address, { ca: root.pem })
  t.match(looked.one('credentials'), { state: 'wrong', text: /^Name or password is wrong/ })
  t.equal(looked.one('http').state, 'fine')
  t.equal(logins, 1)
})

t.test('HTTP/2 that works, and HTTP/2 that does not', async (t) => {
  const cert = [leaf, middle].map(({ pem }) => pem).join('\n')
  const options = { key: leaf.key, cert, allowHTTP1: true }
  const good = createSecureServer(options, answerAsCouch() as never)
  const well = await look(`https://anna:secret@127.0.0.1:${await listen(t, good)}/notes`, { ca: root.pem })
  t.match(well.one('http'), { state: 'fine', text: 'HTTP/2.' })
  const bad = createSecureServer(options, (request, response) => {
    if (request.httpVersionMajor === 2) response.stream.close()
    else answerAsCouch()(request as never, response as never)
  })
  const ill = await look(`https://anna:secret@127.0.0.1:${await listen(t, bad)}/notes`, { ca: root.pem })
  t.match(ill.one('http'), { state: 'wrong', text: /^HTTP\/2 is offered but fails/ })
})
