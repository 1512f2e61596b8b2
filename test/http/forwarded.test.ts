/** Whose word about a client is taken: `settee/trusted_proxies`. */
import { connect as connectSocket } from 'node:net'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect as connectTo } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

const TRUSTED = { 'settee/trusted_proxies': 'loopback' }

t.test('Location names the server as its client does, where a trusted proxy says how', async (t) => {
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
  for (const [headers, base] of cases) t.equal(await located(headers), `${base}/d#`, JSON.stringify(headers))
  t.equal((await trust('192.0.2.0/24, ::1')).status, 200)
  t.equal(await located({ 'x-forwarded-host': 'mysite.com' }), `http://${host}/d#`, 'live, both ways')
  for (const wrong of ['localhost', '10.0.0.0/33', '0.0.0.0/0', '1.2.3', '*', '10.0.0.1,,']) {
    t.equal((await trust(wrong)).status, 400, wrong)
  }
})

/** A server that tells what it takes the client's address for. */
async function addresses(t: Test, settings: Record<string, string>) {
  const server = await startMemoryServer(t, settings, (app) => {
    app.get('/-address', { config: { access: 'public' } }, async (request) => ({ address: request.address }))
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
    t.equal(await untrusting(forged), '127.0.0.1', 'forged')
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

t.test('the cookie is Secure only where a trusted proxy says that the connection is', async (t) => {
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

t.test('a lockout is of the client, not of the proxy', async (t) => {
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

t.test('a header as long as may be is read quickly enough to hold up nobody', async (t) => {
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
