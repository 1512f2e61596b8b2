/** Replications between two servers, one of them behind nginx with deploy/nginx.conf and gzip. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { startNginx } from '../../helpers/nginx.ts'
import { startTestServer } from '../../helpers/server.ts'

const auth = 'anna:secret'
const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
const VERIFY = '/_node/_local/_config/replicator/verify_ssl_certificates'

t.test('through nginx, both ways', async (t) => {
  const [behind, home] = [await startTestServer(t, { env }), await startTestServer(t, { env })]
  const nginx = await startNginx(t, {
    upstream: behind.url,
    edit: (text) => `gzip on; gzip_types application/json; gzip_proxied any; gzip_min_length 1;\n${text}`,
  })
  const address = `${nginx.url.replace('://', `://${auth}@`)}/notes`
  const replicate = (body: object) => home.request('POST', '/_replicate', { auth, body })
  await behind.request('PUT', '/notes', { auth })
  const docs = Array.from({ length: 800 }, (_, n) => ({ _id: `n${n}`, text: 'note '.repeat(100) }))
  await behind.request('POST', '/notes/_bulk_docs', { auth, body: { docs } })
  await behind.request('PUT', '/notes/pic/pic', {
    auth,
    body: randomBytes(3_000_000),
    headers: { 'content-type': 'image/png' },
  })
  t.match(
    await replicate({ source: address, target: 'notes', create_target: true, retries_per_request: 0 }),
    { status: 500, json: { reason: /SELF_SIGNED/ } },
    'the certificate is checked',
  )
  await home.request('PUT', VERIFY, { auth, body: '"false"' })
  const pulled = await replicate({ source: address, target: 'notes', create_target: true })
  t.match(pulled.json.history[0], { docs_written: 801, doc_write_failures: 0 })
  const { json: pic } = await behind.request('GET', '/notes/pic', { auth })
  t.strictSame((await home.request('GET', '/notes/pic', { auth })).json, pic)

  for (const [source, target] of [
    [address, 'notes'],
    ['notes', address],
  ]) {
    t.equal((await replicate({ source, target, continuous: true })).status, 202)
  }
  await home.request('PUT', '/notes/mine', { auth, body: {} })
  await behind.request('PUT', '/notes/theirs', { auth, body: {} })
  for (const [server, id] of [
    [behind, 'mine'],
    [home, 'theirs'],
  ] as const) {
    while ((await server.request('GET', `/notes/${id}`, { auth })).status !== 200) {
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
})
