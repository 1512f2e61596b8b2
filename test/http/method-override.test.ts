/** `X-HTTP-Method-Override`; protocol.md 1.1, 19.8. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { type Ask, connect } from './client.ts'

t.test('a POST acts as the method that it names', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const override = (method: string, path: string, ask: Ask = {}) =>
    call('POST', path, { ...ask, headers: { ...ask.headers, 'X-HTTP-Method-Override': method } })
  const put = await override('PUT', '/db/doc', { body: '{"a":1}' })
  t.match(put, { status: 201, json: { ok: true, id: 'doc', rev: /^1-/ } })
  const { rev } = put.json as { rev: string }
  t.match(await override('GET', '/db/doc'), { status: 200, json: { a: 1 } })
  t.match(await override('GET', '/db/doc', { body: 'ignored' }), { status: 200, json: { a: 1 } })
  t.match(await override('HEAD', '/db/doc'), { status: 200, json: { a: 1 } }, 'it is a POST to the client')
  t.match(await override('COPY', '/db/doc', { headers: { destination: 'copy' } }), {
    status: 201,
    json: { id: 'copy' },
  })
  t.match(await override('POST', '/db', { json: { _id: 'posted' } }), { status: 201, json: { id: 'posted' } })
  t.match(await override('DELETE', `/db/doc?rev=${rev}`), { status: 200, json: { id: 'doc', rev: /^2-/ } })
  t.equal((await call('GET', '/db/doc')).status, 404)
  for (const method of ['TRACE', 'CONNECT']) {
    t.match(await override(method, '/db/doc'), { status: 405, json: { error: 'method_not_allowed' } }, method)
  }
  t.equal((await override('PUT', '/other')).status, 201)
  t.equal((await override('DELETE', '/other')).status, 200)
})

t.test('what is no method of the list, or does not come with a POST, counts for nothing', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/db/doc', { body: '{}' })
  for (const method of ['put', 'PATCH', 'PROPFIND', '', 'PUT, GET']) {
    const headers = { 'X-HTTP-Method-Override': method }
    const answer = await call('POST', '/db/doc', { body: '{}', headers })
    t.match(answer, { status: 400, json: { reason: 'Referer header required.' } }, method)
  }
  for (const method of ['GET', 'HEAD', 'PUT']) {
    const headers = { 'X-HTTP-Method-Override': 'DELETE' }
    const path = method === 'PUT' ? '/db/new' : '/db/doc'
    const answer = await call(method, path, { headers, ...(method === 'PUT' && { body: '{}' }) })
    t.equal(answer.status, method === 'PUT' ? 201 : 200, method)
  }
})
