/** Web pages as attackers: who may change something, and by which names an open server is asked. */
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'
import { speak } from './raw.ts'

const ADMIN = 's:s'
const CHANGES: readonly (readonly [method: string, path: string])[] = [
  ['PUT', '/other'],
  ['DELETE', '/other'],
  ['POST', '/db'],
  ['PUT', '/db/doc'],
  ['COPY', '/db/doc'],
  ['POST', '/db/_bulk_docs'],
  ['POST', '/db/_find'],
  ['PUT', '/_node/_local/_config/admins/mallory'],
  ['POST', '/nowhere'],
  ['PATCH', '/db'],
  ['PROPFIND', '/'],
]

async function start(t: Test, settings: Record<string, string> = {}) {
  const server = await startMemoryServer(t, settings)
  const call = connect(t, server)
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  await call('PUT', '/db', { auth: ADMIN })
  const put = async (headers: Record<string, string>) => {
    const { status, json } = await call('PUT', `/db/d${at++}`, { body: '{}', headers, auth: ADMIN })
    return status === 403 ? (json as { reason: string }).reason : status
  }
  let at = 0
  return { ...server, call, put, host: new URL(server.url).host }
}

t.test('a page of elsewhere changes nothing, with whatever credentials', async (t) => {
  const { call, databases } = await start(t)
  for (const origin of ['https://evil.example', 'null']) {
    for (const [method, path] of CHANGES) {
      const { status, json } = await call(method, path, { headers: { origin }, auth: ADMIN })
      t.strictSame([status, (json as { error: string }).error], [403, 'forbidden'], `${method} ${path}`)
    }
    for (const method of ['GET', 'HEAD', 'OPTIONS']) {
      const { status } = await call(method, '/db', { headers: { origin }, auth: ADMIN })
      t.not(status, 403, method)
    }
  }
  t.strictSame(databases.names(), ['db'])
  t.match(await call('PUT', '/x', { headers: { origin: 'https://evil.example' }, auth: ADMIN }), {
    json: { reason: /^Pages of https:\/\/evil\.example may not change anything here/ },
  })
  const long = await call('PUT', '/x', { headers: { origin: `https://${'x'.repeat(20_000)}` }, auth: ADMIN })
  t.ok(long.text.length < 500)
})

t.test('who is no page, of the same host, or in the list, may', async (t) => {
  const { put, host, config } = await start(t)
  t.equal(await put({}), 201)
  t.equal(await put({ origin: '' }), 201, 'LiveSync sends an empty one from outside of its page')
  t.equal(await put({ referer: 'https://evil.example/' }), 201, 'a Referer is not looked at')
  t.equal(await put({ origin: `http://${host}` }), 201, 'its own page')
  for (const origin of ['app://obsidian.md', 'capacitor://localhost', 'http://localhost']) {
    t.equal(await put({ origin }), 201, origin)
  }
  await config.set('cors', 'origins', 'https://a.example')
  t.equal(await put({ origin: 'https://a.example' }), 201)
  t.match(await put({ origin: 'app://obsidian.md' }), 'may not change anything')
  await config.set('chttpd', 'enable_cors', 'false')
  t.equal(await put({ origin: 'https://a.example' }), 201, 'the list holds where CORS is off, too')
  await config.set('cors', 'origins', '*')
  for (const origin of ['null', 'https://evil.example']) t.equal(await put({ origin }), 201, origin)
})

t.test('which host and port are its own', async (t) => {
  const { put, host } = await start(t, { 'settee/trusted_proxies': 'loopback' })
  const name = 'notes.example.org'
  const own: [origin: string, headers: Record<string, string>][] = [
    [`http://${name}`, { host: name }],
    [`http://${name}`, { host: `${name}:80` }],
    [`http://${name}`, { host: name.toUpperCase() }],
    [`http://${name}:5984`, { host: `${name}:5984` }],
    [`https://${name}`, { host: name }],
    [`https://${name}`, { host: `${name}:443` }],
    [`https://${name}:8443`, { host: `${name}:8443` }],
    [`https://${name}`, { 'x-forwarded-host': name, 'x-forwarded-proto': 'https' }],
    ['http://[::1]:5984', { host: '[::1]:5984' }],
  ]
  for (const [origin, headers] of own) t.equal(await put({ origin, ...headers }), 201, `${origin} ${host}`)
  const foreign: [origin: string, headers: Record<string, string>][] = [
    [`http://${name}:8080`, { host: name }],
    [`http://${name}`, { host: `${name}:5984` }],
    [`http://${name}`, { host: name, 'x-forwarded-proto': 'https' }],
    [`http://x.${name}`, { host: name }],
    [`http://${name}.`, { host: name }],
    [`http://${name}@evil.example`, { host: name }],
    [`ftp://${name}`, { host: name }],
    ['null', { host: 'null' }],
    ['http://a b', { host: 'a b' }],
    [`http://${name}, http://evil.example`, { host: name }],
  ]
  for (const [origin, headers] of foreign)
    t.match(await put({ origin, ...headers }), 'may not change', origin)
})

t.test('an open server on this machine answers to names of this machine only', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  const status = async (host: string, more: Record<string, string> = {}) =>
    (await call('GET', '/_all_dbs', { headers: { host, ...more } })).status
  const here = ['localhost', 'localhost:5984', 'LOCALHOST', 'notes.localhost:1', '127.0.0.1', '127.1.2.3:80']
  for (const host of [...here, '[::1]', '[::1]:5984', 'localhost.']) t.equal(await status(host), 200, host)
  const elsewhere = ['evil.example', 'evil.example:5984', 'localhost.evil.example', '127.0.0.1.evil.example']
  for (const host of [
    ...elsewhere,
    '10.0.0.1',
    '0.0.0.0',
    '1270.0.0.1',
    'xlocalhost',
    '[::2]',
    '::1',
    'a@localhost',
  ]) {
    t.equal(await status(host), 403, host)
  }
  t.equal(await status('evil.example', { 'x-forwarded-host': 'localhost' }), 403, 'nothing else is believed')
  const { json } = await call('PUT', '/db', { headers: { host: 'evil.example' } })
  t.match(json, {
    error: 'forbidden',
    reason: /^While there is no admin, .* not to evil\.example\. Create one/,
  })
  t.match(await speak(server.url, 'GET /_up HTTP/1.0\r\n\r\n'), /^HTTP\/1.1 200 /, 'no name, no page')
  const made = await call('PUT', '/_config/admins/anna', { body: '"a long password"' })
  t.equal(made.status, 200)
  t.equal(await status('evil.example'), 401, 'behind an admin there is no such rule')
})
