/** Calls about the server; protocol.md 4.4, 15. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

t.test('the welcome', async (t) => {
  const call = connect(t, await startTestServer(t))
  const { status, json, headers } = await call('GET', '/')
  t.equal(status, 200)
  t.match(json, {
    couchdb: 'Welcome',
    version: '3.5.0',
    uuid: /^[0-9a-f]{32}$/,
    features: [],
    vendor: { name: 'settee', version: /^\d+\.\d+\.\d+/ },
  })
  t.match(headers.server, /^settee\/\d+\.\d+\.\d+\S* CouchDB\/3\.5\.0$/)
  t.same((await call('GET', '/')).json, json)
  const head = await call('HEAD', '/')
  t.equal(head.status, 200)
  t.equal(head.text, '')
  t.equal(head.headers['content-length'], headers['content-length'])
})

t.test('_up', async (t) => {
  const call = connect(t, await startTestServer(t))
  t.strictSame((await call('GET', '/_up')).json, { status: 'ok', seeds: {} })
})

t.test('_uuids', async (t) => {
  const call = connect(t, await startTestServer(t))
  const one = await call('GET', '/_uuids')
  t.match(one.json, { uuids: [/^[0-9a-f]{32}$/] })
  t.match(one.headers, {
    'cache-control': 'no-cache',
    pragma: 'no-cache',
    expires: 'Mon, 01 Jan 1990 00:00:00 GMT',
    etag: /^"[0-9a-f]+"$/,
  })
  const many = (await call('GET', '/_uuids?count=1000')).json as { uuids: string[] }
  t.equal(new Set(many.uuids).size, 1000)
  t.strictSame((await call('GET', '/_uuids?count=0')).json, { uuids: [] })
  for (const [count, reason] of [
    ['1001', 'count parameter too large'],
    ['-1', 'count must be a positive integer'],
    ['x', 'count must be a positive integer'],
    ['', 'count must be a positive integer'],
  ]) {
    const answer = await call('GET', `/_uuids?count=${count}`)
    t.strictSame([answer.status, answer.json], [400, { error: 'bad_request', reason }])
  }
})

t.test('_all_dbs and its range', async (t) => {
  const call = connect(t, await startTestServer(t))
  t.equal((await call('GET', '/_all_dbs')).text, '["_users"]\n')
  for (const name of ['b', 'a', 'd', 'a%2Fb', 'c']) await call('PUT', `/${name}`)
  const cases: [query: string, names: string[]][] = [
    ['', ['_users', 'a', 'a/b', 'b', 'c', 'd']],
    ['descending=true', ['d', 'c', 'b', 'a/b', 'a', '_users']],
    ['limit=2', ['_users', 'a']],
    ['skip=4', ['c', 'd']],
    ['skip=9', []],
    ['limit=0', []],
    ['startkey="b"', ['b', 'c', 'd']],
    ['start_key="b"&end_key="c"', ['b', 'c']],
    ['start_key="b"&end_key="c"&inclusive_end=false', ['b']],
    ['endkey="a"', ['_users', 'a']],
    ['descending=true&startkey="b"&endkey="a"', ['b', 'a/b', 'a']],
    ['startkey="a"&endkey="a\uffff"', ['a', 'a/b']],
  ]
  for (const [query, names] of cases) {
    t.strictSame((await call('GET', `/_all_dbs?${encodeURI(query)}`)).json, names, query)
  }
  const { headers } = await call('GET', '/_all_dbs')
  const etag = String(headers.etag)
  t.equal((await call('GET', '/_all_dbs', { headers: { 'if-none-match': etag } })).status, 304)
  await call('PUT', '/e')
  t.equal((await call('GET', '/_all_dbs', { headers: { 'if-none-match': etag } })).status, 200)
  for (const query of ['limit=x', 'skip=-1', 'descending=yes', 'startkey=1']) {
    t.match(
      await call('GET', `/_all_dbs?${query}`),
      { status: 400, json: { error: 'query_parse_error' } },
      query,
    )
  }
  t.match(await call('GET', '/_all_dbs?startkey=b'), { status: 400, json: { error: 'bad_request' } })
  t.match(await call('GET', '/_all_dbs/x'), { status: 404, json: { error: 'not_found', reason: 'missing' } })
})

t.test('_dbs_info', async (t) => {
  const call = connect(t, await startTestServer(t))
  t.match((await call('GET', '/_dbs_info')).json, [{ key: '_users', info: { doc_count: 1 } }])
  for (const name of ['a', 'b']) await call('PUT', `/${name}`)
  await call('PUT', '/b/doc', { body: '{}' })
  const all = await call('GET', '/_dbs_info')
  t.match(all.json, [
    { key: '_users', info: { db_name: '_users' } },
    { key: 'a', info: { db_name: 'a', doc_count: 0 } },
    { key: 'b', info: { db_name: 'b', doc_count: 1 } },
  ])
  t.match((await call('GET', '/_dbs_info?limit=1&descending=true')).json, [{ key: 'b' }])
  t.match((await call('POST', '/_dbs_info', { json: { keys: ['b', 'x', 'b'] } })).json, [
    { key: 'b', info: { db_name: 'b' } },
    { key: 'x', error: 'not_found' },
    { key: 'b', info: { db_name: 'b' } },
  ])
  for (const [body, reason] of [
    [[], 'Request body must be a JSON object'],
    [{}, '`keys` member must exist.'],
    [{ keys: 'a' }, '`keys` member must be an array.'],
    [{ keys: Array.from({ length: 101 }, () => 'a') }, 'too_many_keys'],
  ]) {
    const answer = await call('POST', '/_dbs_info', { json: body })
    t.strictSame([answer.status, answer.json], [400, { error: 'bad_request', reason }])
  }
  t.equal((await call('POST', '/_dbs_info', { body: '{"keys":[]}' })).status, 415)
})
