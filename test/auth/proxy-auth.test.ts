import { createHmac } from 'node:crypto'
import t from 'tap'
import { readProxyAuth } from '../../src/auth/credentials.ts'
import { openConfig } from '../../src/config/config.ts'

const yes = () => true
const no = () => false

t.test('whom a proxy names', async (t) => {
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  const headers = { 'x-auth-couchdb-username': 'anna', 'x-auth-couchdb-roles': 'a, b,,' }
  t.strictSame(readProxyAuth(config, headers, yes), { name: 'anna', roles: ['a', 'b'] })
  t.equal(readProxyAuth(config, headers, no), null)
  t.equal(readProxyAuth(config, {}, yes), null)
  t.equal(readProxyAuth(config, { 'x-auth-couchdb-username': ' ' }, yes), null)
  const utf8 = { 'x-auth-couchdb-username': Buffer.from('Änne').toString('latin1') }
  t.strictSame(readProxyAuth(config, utf8, yes), { name: 'Änne', roles: [] })
  await config.set('chttpd_auth', 'x_auth_username', 'Remote-User')
  t.equal(readProxyAuth(config, headers, yes), null)
  t.match(readProxyAuth(config, { 'remote-user': 'bob' }, yes), { name: 'bob' })
})

t.test('a proxy that signs', async (t) => {
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  await config.set('chttpd_auth', 'proxy_use_secret', 'true')
  const signed = (digest: string, secret: string) => ({
    'x-auth-couchdb-username': 'anna',
    'x-auth-couchdb-token': createHmac(digest, secret).update('anna').digest('hex'),
  })
  t.equal(readProxyAuth(config, signed('sha256', ''), yes), null, 'without a secret nobody can have')
  await config.set('chttpd_auth', 'secret', 's')
  for (const digest of ['sha256', 'sha1']) {
    t.match(readProxyAuth(config, signed(digest, 's'), no), { name: 'anna' }, digest)
  }
  t.equal(readProxyAuth(config, signed('sha256', 'guess'), yes), null)
  t.equal(readProxyAuth(config, { ...signed('sha256', 's'), 'x-auth-couchdb-username': 'bob' }, yes), null)
  for (const token of ['', 'x', 'é', 'f'.repeat(64)]) {
    const headers = { 'x-auth-couchdb-username': 'anna', 'x-auth-couchdb-token': token }
    t.equal(readProxyAuth(config, headers, yes), null)
  }
})
