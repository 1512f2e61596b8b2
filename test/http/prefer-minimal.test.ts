/** `Prefer: return=minimal`; protocol.md 1.1. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

const MINIMAL = { prefer: 'return=minimal' }
/** What Node adds for the connection, and CouchDB's list. */
const ALLOWED = new Set([
  'date',
  'connection',
  'keep-alive',
  'cache-control',
  'content-length',
  'content-range',
  'content-type',
  'etag',
  'server',
  'transfer-encoding',
  'vary',
  // Without it the body could not be read.
  'content-encoding',
  // For the proxy between.
  'x-accel-buffering',
])

t.test('answers of every kind carry the listed headers alone', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/db/doc', { body: JSON.stringify({ text: 'x'.repeat(3000) }) })
  await call('PUT', '/db/doc2/att', { body: 'hello', headers: { 'content-type': 'text/plain' } })
  const cases: [method: string, path: string, status: number, kept: string][] = [
    ['GET', '/db/doc', 200, 'etag'],
    ['HEAD', '/db/doc', 200, 'content-length'],
    ['PUT', '/db/new', 201, 'etag'],
    ['GET', '/db/_all_docs', 200, 'content-type'],
    ['GET', '/db/_changes', 200, 'etag'],
    ['GET', '/db/_changes?feed=longpoll', 200, 'x-accel-buffering'],
    ['GET', '/db/none', 404, 'content-type'],
    ['PATCH', '/db', 405, 'content-type'],
    ['GET', '/db?%zz', 400, 'cache-control'],
    ['GET', '/db/doc2/att', 200, 'etag'],
  ]
  for (const [method, path, status, kept] of cases) {
    for (const encoding of ['identity', 'gzip']) {
      const ask = {
        headers: { ...MINIMAL, 'accept-encoding': encoding },
        ...(method === 'PUT' && { body: '{}' }),
      }
      const target = method === 'PUT' ? path + encoding : path
      const answer = await call(method, target, ask)
      t.equal(answer.status, status, `${method} ${path}`)
      t.ok(answer.headers[kept], `${method} ${path} keeps ${kept}`)
      const strange = Object.keys(answer.headers).filter((name) => !ALLOWED.has(name))
      t.strictSame(strange, [], `${method} ${path} ${encoding}`)
    }
  }
})

t.test('a refused upload whose rest is still under way', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/_node/_local/_config/chttpd/max_http_request_size', { body: '"10"' })
  const answer = await call('PUT', '/db/doc', { body: Buffer.alloc(1_000_000), headers: MINIMAL })
  t.equal(answer.status, 413)
  t.equal(answer.headers['x-couch-request-id'], undefined)
})

t.test('the list is configured, and other preferences mean nothing', async (t) => {
  const call = connect(t, await startTestServer(t))
  const named = async (prefer: string) =>
    'x-couch-request-id' in (await call('GET', '/', { headers: { prefer } })).headers
  for (const prefer of ['return=minimal', 'Return=Minimal', 'wait=10, return=minimal', 'return="minimal"']) {
    t.notOk(await named(prefer), prefer)
  }
  for (const prefer of ['return=representation', 'minimal', 'return=minimalist'])
    t.ok(await named(prefer), prefer)
  const list = '"X-Couch-Request-ID , Content-Type"'
  await call('PUT', '/_node/_local/_config/chttpd/prefer_minimal', { body: list })
  t.ok(await named('return=minimal'))
  t.notOk('server' in (await call('GET', '/', { headers: MINIMAL })).headers)
})
