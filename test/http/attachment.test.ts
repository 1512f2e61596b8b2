/** Reading attachments on their own addresses; protocol.md 7.4, 19.6. */
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

const TEXT = 'This is a base64 encoded text'
const DIGEST = 'aEI7pOYCRBLTRQvvqYrrJQ=='

async function start(t: Test) {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const attach = (path: string, name: string, content_type: string, data: Buffer) =>
    call('PUT', path, {
      body: JSON.stringify({ _attachments: { [name]: { content_type, data: data.toString('base64') } } }),
    })
  return { call, attach }
}

t.test('an attachment and its headers', async (t) => {
  const { call, attach } = await start(t)
  const { json } = await attach('/db/doc', 'a/b c.txt', 'text/plain; charset=utf-8', Buffer.from(TEXT))
  for (const path of ['/db/doc/a/b%20c.txt', '/db/doc/a%2Fb+c.txt', '/db//doc//a/b%20c.txt/']) {
    const answer = await call('GET', path, { headers: { 'accept-encoding': 'gzip, br' } })
    t.equal(answer.status, 200, path)
    t.equal(answer.text, TEXT)
    t.match(answer.headers, {
      'content-type': 'text/plain; charset=utf-8',
      'content-length': String(TEXT.length),
      etag: `"${DIGEST}"`,
      'cache-control': 'must-revalidate',
      'accept-ranges': 'bytes',
      'content-security-policy': 'sandbox',
    })
    t.equal(answer.headers['content-encoding'], undefined)
  }
  const head = await call('HEAD', '/db/doc/a/b%20c.txt')
  t.match(head, {
    status: 200,
    text: '',
    headers: { 'content-length': String(TEXT.length), etag: `"${DIGEST}"` },
  })
  const known = await call('GET', '/db/doc/a/b%20c.txt', { headers: { 'if-none-match': `"${DIGEST}"` } })
  t.match(known, { status: 304, text: '', headers: { etag: `"${DIGEST}"` } })
  const { rev } = json as { rev: string }
  await call('PUT', '/db/doc', { body: JSON.stringify({ _rev: rev }) })
  const missing = { status: 404, json: { error: 'not_found', reason: 'Document is missing attachment' } }
  t.match(await call('GET', '/db/doc/a/b%20c.txt'), missing)
  t.match(await call('HEAD', '/db/doc/a/b%20c.txt'), { status: 404, text: '' })
  t.equal((await call('GET', `/db/doc/a/b%20c.txt?rev=${rev}`)).text, TEXT, 'of an old revision')
  t.match(await call('GET', '/db/none/a'), { status: 404, json: { error: 'not_found', reason: 'missing' } })
  t.match(await call('GET', '/db/doc/a?rev=x'), { status: 400, json: { reason: 'Invalid rev format' } })
})

t.test('large and empty ones, bytes of any kind, types of any kind', async (t) => {
  const { call, attach } = await start(t)
  const large = Buffer.alloc(
    3_000_000,
    Uint8Array.from({ length: 251 }, (_, i) => i),
  )
  await attach('/db/large', 'bin', 'application/json', large)
  const answer = await call('GET', '/db/large/bin')
  t.ok(answer.bytes.equals(large))
  t.equal(answer.headers['content-length'], '3000000')
  await attach('/db/empty', 'nothing', 'text/plain', Buffer.alloc(0))
  t.match(await call('GET', '/db/empty/nothing'), {
    status: 200,
    text: '',
    headers: { 'content-length': '0' },
  })
  for (const [i, type] of ['text/plain\nSet-Cookie: a=b', '', 'текст'].entries()) {
    await attach(`/db/type-${i}`, 'x', type, Buffer.from('x'))
    const odd = await call('GET', `/db/type-${i}/x`)
    t.strictSame(
      [odd.status, odd.headers['content-type']],
      [200, 'application/octet-stream'],
      JSON.stringify(type),
    )
  }
})

t.test('attachments of design documents', async (t) => {
  const { call, attach } = await start(t)
  await attach('/db/_design/d', 'index.html', 'text/html', Buffer.from('<p>'))
  for (const path of ['/db/_design/d/index.html', '/db/_design%2Fd/index.html']) {
    t.match(
      await call('GET', path),
      { status: 200, text: '<p>', headers: { 'content-type': 'text/html' } },
      path,
    )
  }
  t.match(await call('GET', '/db/_design/d/_view/x'), { status: 404, json: { reason: 'missing' } })
})

t.test('_local documents have none', async (t) => {
  const { call } = await start(t)
  t.match(await call('GET', '/db/_local/l/a'), { status: 400, json: { error: 'bad_request' } })
})
