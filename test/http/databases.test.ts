/** The server and its databases as a whole; protocol.md 2.1, 3.5, 4.4 to 4.6, 4.8, 4.9, 15. */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { sharedTestServer, startTestServer } from '../helpers/server.ts'
import { startHostedServer } from '../hosted/hosted-server.ts'
import { connect } from './client.ts'

/** Calls about the server; protocol.md 4.4, 15. */
t.test('the server', async (t) => {
  const startShared = sharedTestServer(t)
  t.test('the welcome', async (t) => {
    const call = connect(t, await startShared())
    const { status, json, headers } = await call('GET', '/')
    t.equal(status, 200)
    t.match(json, {
      couchdb: 'Welcome',
      version: '3.5.0',
      uuid: /^[0-9a-f]{32}$/,
      features: ['partitioned'],
      vendor: { name: 'settee', version: /^\d+\.\d+\.\d+/ },
    })
    t.match(headers.server, /^CouchDB\/3\.5\.0 \(settee\/\d+\.\d+\.\d+\S*\)$/)
    t.same((await call('GET', '/')).json, json)
    const head = await call('HEAD', '/')
    t.equal(head.status, 200)
    t.equal(head.text, '')
    t.equal(head.headers['content-length'], headers['content-length'])
  })

  t.test('_up', async (t) => {
    const call = connect(t, await startShared())
    t.strictSame((await call('GET', '/_up')).json, { status: 'ok', seeds: {} })
  })

  t.test('_uuids', async (t) => {
    const call = connect(t, await startShared())
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
    const call = connect(t, await startShared())
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
    t.match(await call('GET', '/_all_dbs/x'), {
      status: 404,
      json: { error: 'not_found', reason: 'missing' },
    })
  })

  t.test('_dbs_info', async (t) => {
    const call = connect(t, await startShared())
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
})

/** Databases as a whole; protocol.md 2.1, 3.5, 4.4 to 4.6, 4.8. */
t.test('databases', async (t) => {
  const startShared = sharedTestServer(t)
  t.test('creating, reading and deleting a database', async (t) => {
    const server = await startShared()
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
    const server = await startShared()
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
      ['partitioned=yes', 'Invalid `partitioned` parameter'],
      ['partitioned=', 'Invalid `partitioned` parameter'],
    ]) {
      t.match(await call('PUT', `/fresh?${query}`), { status: 400, json: { error: 'bad_request', reason } })
    }
    t.equal((await call('PUT', '/fresh?q=8&n=1&partitioned=false')).status, 201)
  })

  t.test('_security', async (t) => {
    const call = connect(t, await startShared())
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
})

t.test('_db_updates', async (t) => {
  interface Row {
    db_name: string
    type: string
    seq: string
  }

  function rowsOf(json: unknown): string[] {
    return (json as { results: Row[] }).results.map((row) => `${row.db_name} ${row.type}`)
  }

  /** Reads a feed as it comes. */
  async function follow(t: Test, url: string) {
    const { statusCode, headers, body } = await request(url)
    const chunks: string[] = []
    let wake = () => {}
    const done = (async () => {
      for await (const chunk of body) {
        chunks.push(String(chunk))
        wake()
      }
    })().catch(() => undefined)
    t.teardown(async () => {
      body.destroy()
      await done
    })
    const text = () => chunks.join('')
    const until = async (expected: RegExp) => {
      while (!expected.test(text())) await new Promise<void>((resolve) => (wake = resolve))
    }
    return { status: statusCode, headers, until, done, text }
  }

  t.test('databases that are created, written to and deleted', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    await call('PUT', '/a')
    await call('PUT', '/_replicator')
    const first = await call('GET', '/_db_updates')
    t.match(first.headers, { 'content-type': 'application/json', etag: /^"[\w-]+"$/ })
    t.strictSame(
      rowsOf(first.json),
      ['_users created', 'a created', '_replicator created'],
      'system databases too',
    )
    const { last_seq } = first.json as { last_seq: string }
    const etag = String(first.headers.etag)
    t.equal((await call('GET', '/_db_updates', { headers: { 'if-none-match': etag } })).status, 304)

    await call('PUT', '/a/_local/l', { body: '{}' })
    await call('PUT', '/a/doc', { body: '{}' })
    const waited = await call('GET', `/_db_updates?feed=longpoll&since=${last_seq}`)
    t.strictSame(rowsOf(waited.json), ['a updated'])
    await call('DELETE', '/a')
    const whole = ['_users created', 'a created', '_replicator created', 'a updated', 'a deleted']
    t.strictSame(rowsOf((await call('GET', '/_db_updates')).json), whole)
    const head = await call('HEAD', '/_db_updates')
    t.strictSame([head.status, head.text], [200, ''])
    t.strictSame(rowsOf((await call('GET', '/_db_updates?descending=true&limit=1')).json), ['a deleted'])
  })

  t.test('updates survive a restart, with the last writes before it', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    await call('PUT', '/a')
    await call('PUT', '/a/doc', { body: '{}' })
    await server.close()
    const again = await startTestServer(t, { dataDir: server.dataDir })
    t.strictSame(rowsOf((await connect(t, again)('GET', '/_db_updates')).json), [
      '_users created',
      'a created',
      'a updated',
    ])
  })

  t.test('a continuous feed and an event stream', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    const lines = await follow(t, `${server.url}/_db_updates?feed=continuous&since=now&heartbeat=50`)
    const events = await follow(t, `${server.url}/_db_updates?feed=eventsource&since=now`)
    t.match(lines.headers, { 'x-accel-buffering': 'no', 'cache-control': 'must-revalidate, no-transform' })
    t.match(events.headers, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
    })
    await lines.until(/^\n/)
    await call('PUT', '/a')
    await lines.until(/\{"db_name":"a","type":"created","seq":"2-[\w-]+"\}\n/)
    await events.until(/data: \{"db_name":"a","type":"created","seq":"(2-[\w-]+)"\}\nid: "\1"\n\n/)
    await call('POST', '/a/_bulk_docs', { json: { docs: [{}, {}] } })
    await lines.until(/\{"db_name":"a","type":"updated","seq":"3-[\w-]+"\}\n/)
    await server.close()
    await lines.done
    t.match(lines.text(), /\{"last_seq":"3-[\w-]+"\}\n$/, 'the end of the server is an end in order')
  })

  t.test('a feed ends when its reader is no longer an admin', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    const feed = await follow(t, `${server.url}/_db_updates?feed=continuous&since=now&heartbeat=60000`)
    await call('PUT', '/_node/_local/_config/admins/s', { body: '"s"' })
    await feed.done
    t.match(feed.text(), /^\{"last_seq":"1-[\w-]+"\}\n$/)
    t.match(await call('GET', '/_db_updates'), {
      status: 401,
      json: { error: 'unauthorized', reason: 'You are not a server admin.' },
    })
    t.equal((await call('GET', '/_db_updates', { auth: 's:s' })).status, 200)
  })
})

/** `GET /_settee/databases/{db}/size`, and `sizes` of the database information. */
t.test('sizes', async (t) => {
  const startShared = sharedTestServer(t)
  interface Size {
    readonly database: string
    readonly file: number
    readonly parts: Readonly<Record<string, { readonly count?: number; readonly bytes: number }>>
    readonly views: { readonly bytes: number }
  }

  const PARTS = ['live', 'tombstones', 'attachments', 'local', 'old', 'kept', 'indexes', 'free', 'log']

  t.test('the parts of a size', async (t) => {
    const server = await startShared()
    const call = connect(t, server)
    const size = async () => (await call('GET', '/_settee/databases/db/size')).json as unknown as Size
    await call('PUT', '/db')
    const first = (await call('PUT', '/db/a', { json: { n: 1 } })).json as { rev: string }
    await call('PUT', '/db/a', { json: { n: 22, _rev: first.rev } })
    const gone = (await call('PUT', '/db/b', { json: {} })).json as { rev: string }
    await call('DELETE', `/db/b?rev=${gone.rev}`)
    await call('PUT', '/db/c/x', { body: 'content', headers: { 'content-type': 'text/plain' } })
    await call('PUT', '/db/_local/x', { json: {} })
    const answer = await size()
    t.same(Object.keys(answer.parts).sort(), [...PARTS].sort())
    t.match(answer, {
      database: 'db',
      parts: {
        live: { count: 2, bytes: 10 },
        old: { count: 2, bytes: 9 },
        kept: { count: 0, bytes: 0 },
        tombstones: { count: 1, bytes: 2 },
        attachments: { count: 1, bytes: 7 },
        local: { count: 1, bytes: 2 },
      },
      views: { bytes: 0 },
    })
    const sum = Object.values(answer.parts).reduce((total, { bytes }) => total + bytes, 0)
    t.equal(sum, answer.file)
    const file = join(server.dataDir, 'databases', 'db.sqlite')
    t.equal(answer.file, statSync(file).size + statSync(`${file}-wal`).size)
    t.match((await call('GET', '/db')).json, { sizes: { file: answer.file } })

    await call('PUT', '/db/_design/d', {
      json: { views: { v: { map: 'function (doc) { emit(doc.n, "x") }' } } },
    })
    await call('GET', '/db/_design/d/_view/v')
    t.ok((await size()).views.bytes > 0)
    t.match(await call('GET', '/_settee/databases/none/size'), { status: 404, json: { reason: /not exist/ } })
    t.equal((await call('HEAD', '/_settee/databases/db/size')).status, 200)
  })

  t.test('an owner sees the size without being in the security object', async (t) => {
    const call = connect(t, await startHostedServer(t))
    const ANNA = { auth: 'anna:anna' }
    t.equal((await call('PUT', '/notes', ANNA)).status, 201)
    const nobody = { admins: { names: ['root'] }, members: { names: ['root'] } }
    t.equal((await call('PUT', '/notes/_security', { auth: 'root:root', json: nobody })).status, 200)
    t.equal((await call('GET', '/notes', ANNA)).status, 403)
    t.equal((await call('GET', '/_settee/databases/notes/size', ANNA)).status, 200)
    t.equal((await call('GET', '/_settee/databases/notes/size', { auth: 'bert:bert' })).status, 404)
    t.equal((await call('GET', '/_settee/databases/notes/size')).status, 401)
  })
})
