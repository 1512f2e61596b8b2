/** Forms of addresses, and what stands at none of them; protocol.md 1.5, 2.1, 2.2, 17, 19.8. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

t.test('slashes and spaces', async (t) => {
  const call = connect(t, await startTestServer(t))
  for (const name of ['db', 'a%2Fb', 'plus%2Bdb']) t.equal((await call('PUT', `/${name}`)).status, 201, name)
  for (const id of ['doc', 'x%2Fy', 'a%20b', 'a%2Bb']) {
    t.equal((await call('PUT', `/db/${id}`, { body: JSON.stringify({ id }) })).status, 201, id)
  }
  await call('PUT', '/db/_design/d', { body: '{"d":1}' })
  await call('PUT', '/db/_local/l', { body: '{"l":1}' })
  await call('PUT', '/db/_design/a%2Fb', { body: '{"d":2}' })
  const same: [one: string, expected: object][] = [
    ['/db/', { db_name: 'db' }],
    ['//db//', { db_name: 'db' }],
    ['/a%2Fb', { db_name: 'a/b' }],
    ['/a%2fb/', { db_name: 'a/b' }],
    ['/plus%2Bdb', { db_name: 'plus+db' }],
    ['/db/doc/', { id: 'doc' }],
    ['/db//doc', { id: 'doc' }],
    ['/db/x%2Fy', { _id: 'x/y' }],
    ['/db/a+b', { _id: 'a b' }],
    ['/db/a%20b', { _id: 'a b' }],
    ['/db/a%2Bb', { _id: 'a+b' }],
    ['/db/%64oc', { _id: 'doc' }],
    ['/db/_design/d', { _id: '_design/d' }],
    ['/db/_design%2Fd', { _id: '_design/d' }],
    ['/db/_design/d/', { _id: '_design/d' }],
    ['/db/_design/a%2Fb', { _id: '_design/a/b' }],
    ['/db/_local/l', { _id: '_local/l' }],
    ['/db/_local%2Fl', { _id: '_local/l' }],
    ['/db/_all_docs/', { total_rows: 6 }],
    ['/_all_dbs/', ['_users', 'a/b', 'db', 'plus+db']],
  ]
  for (const [path, expected] of same) t.match(await call('GET', path), { status: 200, json: expected }, path)
  t.match(await call('GET', '/a/b'), { status: 404, json: { reason: 'Database does not exist.' } })
  t.equal((await call('GET', '/plus+db')).status, 404, 'a space, which no name holds')
  const put = await call('PUT', '/a%2Fb/x%2Fy', { body: '{}' })
  t.match(put.headers.location, /\/a%2Fb\/x%2Fy$/)
})

t.test('what stands nowhere', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/db/_design/d', { body: '{}' })
  const missing = [
    '/_all_dbs/x',
    '/_up/x',
    '/_uuids/x/y',
    '/_db_updates/x',
    '/_node/_local/x',
    '/_node/_local/x/y',
  ]
  const inside = [
    '/_node/_local/_config/a/b/c',
    '/db/_nothing',
    '/db/_design/d/_nothing',
    '/db/_design/d/_x/y',
  ]
  const deeper = ['/db/_all_docs/x', '/db/_changes/x', '/db/none/att', '/db/_design/none/att']
  for (const path of [...missing, ...inside, ...deeper]) {
    for (const method of ['GET', 'HEAD']) t.equal((await call(method, path)).status, 404, `${method} ${path}`)
    const { json } = await call('GET', path)
    t.match(json, { error: 'not_found', reason: /^missing$|^Document is missing attachment$/ }, path)
  }
  for (const path of ['/_nothing', '/_nothing/x', '/Upper', '/n%C3%A9', '/_stats', '/_log']) {
    t.match(await call('GET', path), { status: 404, json: { reason: 'Database does not exist.' } }, path)
  }
  t.match(await call('GET', '/_node'), { status: 400, json: { reason: 'Incomplete path to _node request' } })
  for (const path of ['/db/%zz', '/%', '/db?x=%zz', '/db/%ff']) {
    const { status, json } = await call('GET', path)
    t.strictSame([status, json], [400, { error: 'bad_request', reason: 'invalid_url_encoding' }], path)
  }
})

t.test('an address that is longer than it may be', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  t.equal((await call('GET', `/db?x=${'y'.repeat(20_000)}`)).status, 200, 'there is no limit by default')
  await call('PUT', '/_node/_local/_config/chttpd/max_uri_length', { body: '"1024"' })
  t.equal((await call('GET', `/db?x=${'y'.repeat(1018)}`)).status, 200)
  for (const path of [`/db?x=${'y'.repeat(1019)}`, `/db/${'y'.repeat(1021)}`, `/${'%20'.repeat(342)}`]) {
    const { status, json } = await call('GET', path)
    t.strictSame([status, json], [414, { error: 'too_long', reason: 'the request uri is too long' }])
  }
})

t.test('parameters of a content type', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const types = ['application/json;charset=utf-8', 'application/json ; charset="UTF-8"', 'Application/JSON']
  for (const type of types) {
    const headers = { 'content-type': type }
    t.equal((await call('POST', '/db', { body: '{}', headers })).status, 201, type)
    t.equal((await call('POST', '/db/_all_docs', { body: '{}', headers })).status, 200, type)
  }
  for (const type of ['application/jsonp', 'text/json', 'application/json+x']) {
    const { status } = await call('POST', '/db', { body: '{}', headers: { 'content-type': type } })
    t.equal(status, 415, type)
  }
})
