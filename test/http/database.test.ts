/** Databases as a whole; protocol.md 2.1, 3.5, 4.4 to 4.6, 4.8. */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

t.test('making, looking at and removing one', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  const made = await call('PUT', '/db')
  t.match(made, { status: 201, text: '{"ok":true}\n', headers: { location: `${server.url}/db` } })
  t.match(await call('PUT', '/db/'), { status: 412, json: { error: 'file_exists' } })
  const info = await call('GET', '/db/')
  t.match(info, {
    status: 200,
    json: { db_name: 'db', doc_count: 0, doc_del_count: 0, compact_running: false },
  })
  t.match(info.json, {
    update_seq: /^0-[0-9A-Za-z_-]+$/,
    instance_start_time: /^\d+$/,
    props: {},
    cluster: {},
  })
  t.match(await call('HEAD', '/db'), { status: 200, text: '' })
  t.match(await call('HEAD', '/none'), { status: 404, text: '' })
  const committed = await call('POST', '/db/_ensure_full_commit', { json: {} })
  const { instance_start_time } = info.json as { instance_start_time: string }
  t.strictSame([committed.status, committed.json], [201, { ok: true, instance_start_time }])
  t.equal((await call('POST', '/db/_ensure_full_commit', { json: undefined })).status, 415)
  t.match(await call('DELETE', '/db?rev=1-x'), {
    status: 400,
    json: { error: 'bad_request', reason: /^You tried to DELETE a database with a \?=rev parameter\./ },
  })
  t.match(await call('DELETE', '/db/'), { status: 200, text: '{"ok":true}\n' })
  const gone = { status: 404, json: { error: 'not_found', reason: 'Database does not exist.' } }
  t.match(await call('GET', '/db'), gone)
  t.match(await call('DELETE', '/db'), gone)
})

t.test('names', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  for (const path of ['/a%2Fb', '/a-_$()%2B9', '/a+', '/_global_changes', '/_replicator', '/a%2F_users']) {
    const legal = path !== '/a+'
    const made = await call('PUT', path)
    t.equal(made.status, legal ? 201 : 400, path)
    if (legal) t.equal((await call('GET', new URL(String(made.headers.location)).pathname)).status, 200)
  }
  t.match((await call('GET', '/a%2Fb')).json, { db_name: 'a/b' })
  for (const path of ['/A', '/1a', '/_other', '/a.b', '/..%2f..%2fetc', '/%20', '/a%00b', '/%C3%A9']) {
    t.match(await call('PUT', path), { status: 400, json: { error: 'illegal_database_name' } }, path)
    t.match(await call('GET', path), { status: 404, json: { reason: 'Database does not exist.' } }, path)
  }
  t.match(await call('PUT', `/a${'b'.repeat(300)}`), {
    status: 400,
    json: { error: 'database_name_too_long' },
  })
  t.match((await call('PUT', '/Bad')).json, {
    reason:
      "Name: 'Bad'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, " +
      'and / are allowed. Must begin with a letter.',
  })
  for (const path of ['/%zz', '/db/%', '/%ff', '/%ED%A0%80', '/db?x=%zz']) {
    t.match(await call('PUT', path), {
      status: 400,
      json: { error: 'bad_request', reason: 'invalid_url_encoding' },
    })
  }
  for (const [query, reason] of [
    ['q=0', 'The `q` value should be a positive integer.'],
    ['n=x', 'The `n` value should be a positive integer.'],
    ['partitioned=true', /^Invalid `partitioned` parameter/],
  ]) {
    t.match(await call('PUT', `/fresh?${query}`), { status: 400, json: { error: 'bad_request', reason } })
  }
  t.equal((await call('PUT', '/fresh?q=8&n=1&partitioned=false')).status, 201)
})

t.test('_security', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const adminOnly = { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } }
  t.strictSame((await call('GET', '/db/_security')).json, adminOnly)
  const stated = { admins: { names: ['anna'], other: 1 }, more: [1, { x: null }] }
  const put = (body: string) => call('PUT', '/db/_security', { body })
  t.match(await put(JSON.stringify(stated)), { status: 200, text: '{"ok":true}\n' })
  t.strictSame((await call('GET', '/db/_security')).json, stated)
  const names = 'names must be a JSON list of strings'
  const roles = 'roles must be a JSON list of strings'
  const lists = 'admins or members must be a JSON list of strings'
  const cases: [body: string, reason: string][] = [
    ['{"admins":{"names":"anna"}}', names],
    ['{"admins":{"names":[1]}}', names],
    ['{"members":{"names":{}}}', names],
    ['{"members":{"roles":"x"}}', roles],
    ['{"readers":{"roles":[null]}}', roles],
    ['{"admins":["anna"]}', lists],
    ['{"members":null}', lists],
    ['[]', 'Request body must be a JSON object'],
    ['"x"', 'Request body must be a JSON object'],
    ['{', 'invalid UTF-8 JSON'],
    [`{"x":${'['.repeat(600)}${']'.repeat(600)}}`, 'JSON is nested deeper than 512 levels'],
  ]
  for (const [body, reason] of cases) {
    const answer = await put(body)
    t.strictSame([answer.status, answer.json], [400, { error: 'bad_request', reason }], body.slice(0, 50))
  }
  t.strictSame((await call('GET', '/db/_security')).json, stated, 'nothing of these was stored')
  t.match(await put(`{"x":"${'y'.repeat(2 ** 20)}"}`), { status: 413, json: { error: 'too_large' } })
})

t.test('_revs_limit', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  t.equal((await call('GET', '/db/_revs_limit')).text, '1000\n')
  t.match(await call('PUT', '/db/_revs_limit', { body: '5' }), { status: 200, text: '{"ok":true}\n' })
  for (const body of ['0', '-1', '1.5', '"5"', 'x', '{}']) {
    t.match(
      await call('PUT', '/db/_revs_limit', { body }),
      { status: 400, json: { error: 'bad_request' } },
      body,
    )
  }
  t.equal((await call('GET', '/db/_revs_limit')).text, '5\n')
})

t.test('POST makes documents', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const made = await call('POST', '/db', { json: { x: 1 } })
  const { id, rev } = made.json as { id: string; rev: string }
  t.match(made, { status: 201, headers: { location: `${server.url}/db/${id}` } })
  t.equal(made.headers.etag, undefined)
  t.match(id, /^[0-9a-f]{32}$/)
  const updated = await call('POST', '/db/', { json: { _id: id, _rev: rev, x: 2 } })
  t.match(updated, { status: 201, json: { ok: true, id, rev: /^2-/ } })
  t.match(await call('POST', '/db', { json: { _id: id } }), { status: 409, json: { error: 'conflict' } })
  const design = await call('POST', '/db', { json: { _id: '_design/a b/c' } })
  t.equal(design.headers.location, `${server.url}/db/_design/a%20b%2Fc`)
  const batch = await call('POST', '/db?batch=ok', { json: { _id: 'b' } })
  t.strictSame([batch.status, batch.json], [202, { ok: true, id: 'b' }])
  t.equal((await call('GET', '/db/b')).status, 200)
  t.match(await call('POST', '/db', { body: '{}' }), { status: 415, json: { error: 'bad_content_type' } })
  t.equal(
    (
      await call('POST', '/db', {
        body: '{}',
        headers: { 'content-type': 'Application/JSON; charset=utf-8' },
      })
    ).status,
    201,
  )
  t.match(await call('POST', '/db', { json: { _id: 1 } }), {
    status: 400,
    json: { error: 'illegal_docid', reason: 'Document id must be a string' },
  })
  t.match(await call('POST', '/db', { json: [] }), {
    status: 400,
    json: { reason: 'Document must be a JSON object' },
  })
})
