/** Compaction and purging, on request and automatic; protocol.md 1.5, 4.6, 4.7, 15, 19.7, 19.8. */

import { createHash, randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import PouchDB from 'pouchdb'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { type Ask, type Call, connect } from '../../http/client.ts'
import { startMemoryServer } from '../../http/memory-server.ts'

t.test('on request', async (t) => {
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  type Json = any

  async function started(t: Test) {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/db')
    return call
  }

  async function put(call: Call, id: string, doc: object = {}): Promise<string> {
    return ((await call('PUT', `/db/${id}`, { json: doc })).json as Json).rev
  }

  /** Like PouchDB. */
  async function compacted(call: Call): Promise<void> {
    t.strictSame((await call('POST', '/db/_compact', { json: {} })).json, { ok: true })
    while (((await call('GET', '/db')).json as Json).compact_running) await delay(5)
  }

  t.test('_compact answers at once, and removes old bodies', async (t) => {
    const call = await started(t)
    const first = await put(call, 'x', { n: 1 })
    const second = await put(call, 'x', { n: 2, _rev: first })
    t.equal((await call('GET', `/db/x?rev=${first}`)).status, 200)
    const headers = { 'content-type': 'application/json' }
    const answer = await call('POST', '/db/_compact', { headers })
    t.equal(answer.status, 202, 'an empty body is fine')
    t.equal(answer.text, '{"ok":true}\n')
    await compacted(call)
    t.strictSame((await call('GET', `/db/x?rev=${first}`)).json, { error: 'not_found', reason: 'missing' })
    t.match((await call('GET', '/db/x?revs_info=true')).json, {
      n: 2,
      _revs_info: [
        { rev: second, status: 'available' },
        { rev: first, status: 'missing' },
      ],
    })
    const asked = encodeURIComponent(JSON.stringify([first, second]))
    const rows = (await call('GET', `/db/x?open_revs=${asked}`, { headers: { accept: 'application/json' } }))
      .json
    t.match(new Set((rows as Json[]).map((row) => row.missing ?? row.ok._rev)), new Set([first, second]))
    t.ok((rows as Json[]).some((row) => row.missing === first))
  })

  t.test('_compact of a design document, and _view_cleanup', async (t) => {
    const call = await started(t)
    await put(call, '_design/notes', { views: {} })
    const rev = await put(call, '_design/gone', {})
    await call('DELETE', `/db/_design/gone?rev=${rev}`)
    t.match(await call('POST', '/db/_compact/notes', { json: {} }), { status: 202, text: '{"ok":true}\n' })
    t.match(await call('POST', '/db/_compact/none', { json: {} }), {
      status: 404,
      json: { reason: 'missing' },
    })
    t.match(await call('POST', '/db/_compact/gone', { json: {} }), {
      status: 404,
      json: { reason: 'deleted' },
    })
    t.match(await call('POST', '/db/_view_cleanup'), { status: 202, text: '{"ok":true}\n' })
    t.match(await call('POST', '/db/_view_cleanup', { body: 'anything' }), { status: 202 })
  })

  t.test('calls that require JSON', async (t) => {
    const call = await started(t)
    for (const path of ['/db/_compact', '/db/_compact/x', '/db/_purge']) {
      for (const ask of [
        {},
        { body: '{}' },
        { body: '{}', headers: { 'content-type': 'text/plain' } },
      ] as Ask[]) {
        t.match(await call('POST', path, ask), {
          status: 415,
          json: { error: 'bad_content_type', reason: 'Content-Type must be application/json' },
        })
      }
    }
  })

  t.test('_purge', async (t) => {
    const call = await started(t)
    const good = [await put(call, 'doc1'), await put(call, 'doc2'), await put(call, 'doc3')]
    const bad = `3-${'b'.repeat(32)}`
    const json = { doc1: [good[0]], doc2: [bad], doc3: [good[2]] }
    const answer = await call('POST', '/db/_purge', { json })
    t.equal(answer.status, 201)
    t.equal(
      answer.text,
      `{"purge_seq":null,"purged":{"doc1":["${good[0]}"],"doc2":[],"doc3":["${good[2]}"]}}\n`,
    )
    t.match((await call('GET', '/db/doc1')).json, { error: 'not_found', reason: 'missing' })
    t.match((await call('GET', '/db')).json, {
      doc_count: 1,
      doc_del_count: 0,
      purge_seq: /^2-/,
      update_seq: /^3-/,
    })
    const changes = (await call('GET', '/db/_changes')).json as Json
    t.match(changes.results, [{ id: 'doc2' }])
    t.equal(changes.pending, 0)
    t.strictSame((await call('POST', '/db/_revs_diff', { json: { doc1: [good[0]] } })).json, {
      doc1: { missing: [good[0]] },
    })
    t.strictSame((await call('GET', '/db/_purged_infos')).json, {
      purged_infos: [
        { id: 'doc1', revs: [good[0]] },
        { id: 'doc3', revs: [good[2]] },
      ],
    })
  })

  t.test('refusals of _purge', async (t) => {
    const call = await started(t)
    const rev = await put(call, 'x')
    const cases: [body: string, reason: string][] = [
      ['', 'invalid UTF-8 JSON'],
      ['[]', 'Request body must be a JSON object'],
      ['{"x":"1-a"}', 'Invalid list of revisions'],
      ['{"x":["nonsense"]}', 'Invalid rev format'],
      [
        JSON.stringify(Object.fromEntries(Array.from({ length: 101 }, (_, n) => [n, [rev]]))),
        'Exceeded maximum number of documents.',
      ],
      [JSON.stringify({ x: Array(1001).fill(rev) }), 'Exceeded maximum number of revisions.'],
    ]
    const headers = { 'content-type': 'application/json', 'content-length': '0' }
    for (const [body, reason] of cases) {
      const ask = { body, headers: { ...headers, 'content-length': String(body.length) } }
      const answer = await call('POST', '/db/_purge', ask)
      t.strictSame([answer.status, answer.json], [400, { error: 'bad_request', reason }])
    }
    await call('PUT', '/_config/purge/max_document_id_number', { body: '"1"' })
    t.match(await call('POST', '/db/_purge', { json: { x: [], y: [] } }), { status: 400 })
    await call('PUT', '/_config/purge/max_document_id_number', { body: '"200"' })
    const many = Object.fromEntries(Array.from({ length: 150 }, (_, n) => [`d${n}`, [rev]]))
    t.match(await call('POST', '/db/_purge', { json: many }), { status: 201 })
    t.equal((await call('GET', '/db/x')).status, 200)
    t.match(await call('POST', '/none/_purge', { json: {} }), {
      status: 404,
      json: { reason: 'Database does not exist.' },
    })
  })

  t.test('_purged_infos_limit', async (t) => {
    const call = await started(t)
    t.equal((await call('GET', '/db/_purged_infos_limit')).text, '1000\n')
    t.match(await call('PUT', '/db/_purged_infos_limit', { body: '5' }), { status: 200, json: { ok: true } })
    t.equal((await call('GET', '/db/_purged_infos_limit')).text, '5\n')
    for (const body of ['0', '-1', '1.5', '"5"', 'null', '{}']) {
      const answer = await call('PUT', '/db/_purged_infos_limit', { body })
      t.strictSame(
        [answer.status, answer.json],
        [400, { error: 'bad_request', reason: '`purged_infos_limit` must be positive integer' }],
        body,
      )
    }
    t.match(await call('PUT', '/db/_purged_infos_limit', { body: '{' }), { status: 400 })
    t.match(await call('GET', '/none/_purged_infos_limit'), { status: 404 })
  })

  t.test('_active_tasks shows compactions under way', async (t) => {
    const call = await started(t)
    t.equal((await call('GET', '/_active_tasks')).text, '[]\n')
    const revs: (string | undefined)[] = []
    for (let round = 0; round < 5; round++) {
      const docs = Array.from({ length: 1000 }, (_, n) => ({
        _id: `d${n}`,
        _rev: revs[n],
        text: 'a'.repeat(1000),
        round,
      }))
      const rows = (await call('POST', '/db/_bulk_docs', { json: { docs } })).json as { rev: string }[]
      for (const [n, { rev }] of rows.entries()) revs[n] = rev
    }
    const since = Math.floor(Date.now() / 1000)
    await call('POST', '/db/_compact', { json: {} })
    const [task, ...others] = (await call('GET', '/_active_tasks')).json as Json[]
    t.match(task, {
      node: 'nonode@nohost',
      pid: /^<0\.\d+\.0>$/,
      process_status: 'running',
      type: 'database_compaction',
      database: 'db',
      changes_done: Number,
      total_changes: 100,
      progress: Number,
    })
    t.ok(Number.isSafeInteger(task.progress) && task.progress <= 100)
    t.ok(task.started_on >= since && task.updated_on >= task.started_on && task.updated_on < since + 600)
    t.same(others, [])
    await compacted(call)
    while ((await call('GET', '/_active_tasks')).text !== '[]\n') await delay(5)
  })

  t.test('a failed compaction is logged, and the server continues', async (t) => {
    const logFile = join(await temporaryFolder(t), 'settee.log')
    const server = await startTestServer(t, { logLevel: 'info', logFile })
    const call = connect(t, server)
    await call('PUT', '/db')
    const rev = await put(call, 'x')
    const damage = new Sqlite(join(server.dataDir, 'databases', 'db.sqlite'))
    damage.exec('DROP TABLE blob')
    damage.close()
    t.equal((await call('POST', '/db/_compact', { json: {} })).status, 202)
    while (!(await readFile(logFile, 'utf8')).includes('a compaction failed')) await delay(5)
    const lines = (await readFile(logFile, 'utf8')).trim().split('\n')
    const logged = lines.map((line) => JSON.parse(line)).filter(({ msg }) => /compaction/.test(msg))
    t.match(logged, [{ level: 'error', database: 'db' }])
    t.equal((await call('GET', '/_active_tasks')).text, '[]\n')
    t.match((await call('GET', '/db')).json, { compact_running: false })
    t.match((await call('GET', '/db/x')).json, { _rev: rev })
  })

  t.test("_membership has the node's own name", async (t) => {
    const call = await started(t)
    const { name } = (await call('GET', '/_node/_local')).json as Json
    t.strictSame((await call('GET', '/_membership')).json, { all_nodes: [name], cluster_nodes: [name] })
  })

  t.test('other methods are refused with the list of allowed ones', async (t) => {
    const call = await started(t)
    const cases: [path: string, allow: string, methods: string[]][] = [
      ['/db/_compact', 'POST', ['GET', 'PUT', 'DELETE', 'COPY']],
      ['/db/_compact/x', 'POST', ['GET', 'PUT', 'DELETE']],
      ['/db/_view_cleanup', 'POST', ['GET', 'PUT', 'DELETE']],
      ['/db/_purge', 'POST', ['GET', 'PUT', 'DELETE']],
      ['/db/_purged_infos', 'GET', ['POST', 'PUT', 'DELETE']],
      ['/db/_purged_infos_limit', 'GET,PUT', ['POST', 'DELETE']],
      ['/_active_tasks', 'GET,HEAD', ['POST', 'PUT', 'DELETE']],
      ['/_membership', 'GET', ['POST', 'PUT', 'DELETE']],
    ]
    for (const [path, allow, methods] of cases) {
      for (const method of methods) {
        const { status, headers, json } = await call(method, path)
        const wanted = { error: 'method_not_allowed', reason: `Only ${allow} allowed` }
        t.strictSame([status, headers.allow, json], [405, allow, wanted], `${method} ${path}`)
      }
    }
  })

  // Those of `_compact/{ddoc}` and `_view_cleanup` are in test/surface/security.rows.ts: the engine in memory has no views.
  t.test('rights', async (t) => {
    const call = connect(t, await startMemoryServer(t))
    await call('PUT', '/db')
    const security = { admins: { names: ['d'] }, members: { names: ['m'] } }
    await call('PUT', '/db/_security', { json: security })
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    const json = { json: {} }
    const matrix: [line: string, ask: Ask, a: number, o: number, m: number, d: number, s: number][] = [
      ['POST /db/_compact', json, 401, 403, 401, 202, 202],
      ['POST /db/_compact', {}, 401, 403, 401, 415, 415],
      ['GET /db/_compact', {}, 401, 403, 401, 405, 405],
      ['POST /db/_purge', json, 401, 401, 401, 401, 201],
      ['GET /db/_purge', {}, 401, 401, 401, 401, 405],
      ['GET /db/_purged_infos', {}, 401, 403, 200, 200, 200],
      ['GET /db/_purged_infos_limit', {}, 401, 401, 401, 401, 200],
      ['PUT /db/_purged_infos_limit', { body: '5' }, 401, 401, 401, 401, 200],
      ['GET /_active_tasks', {}, 401, 401, 401, 401, 200],
      ['HEAD /_active_tasks', {}, 401, 401, 401, 401, 200],
      ['GET /_membership', {}, 401, 401, 401, 401, 200],
      ['POST /none/_compact', json, 401, 404, 404, 404, 404],
      ['POST /none/_purge', json, 401, 401, 401, 401, 404],
    ]
    for (const [line, ask, ...wanted] of matrix) {
      const [method = '', path = ''] = line.split(' ')
      const seen: number[] = []
      for (const auth of [undefined, 'o:o', 'm:m', 'd:d', 's:s']) {
        seen.push((await call(method, path, auth === undefined ? ask : { ...ask, auth })).status)
      }
      t.strictSame(seen, wanted, line)
    }
    const reasons: [line: string, auth: string | undefined, reason: string][] = [
      ['POST /db/_compact', undefined, 'You are not authorized to access this db.'],
      ['POST /db/_compact', 'o:o', 'You are not allowed to access this db.'],
      ['POST /db/_compact', 'm:m', 'You are not a server or db admin.'],
      ['POST /db/_purge', 'd:d', 'You are not a server admin.'],
      ['GET /_active_tasks', 'd:d', 'You are not a server admin.'],
    ]
    for (const [line, auth, reason] of reasons) {
      const [method = '', path = ''] = line.split(' ')
      t.match(
        (await call(method, path, auth === undefined ? json : { ...json, auth })).json,
        { reason },
        line,
      )
    }
  })
})

/** Automatic compactions of a listening server. */
t.test('automatic', async (t) => {
  t.setTimeout(240_000)

  interface Size {
    readonly file: number
    readonly parts: Readonly<Record<string, { readonly count: number; readonly bytes: number }>>
  }

  /** A server whose compactions do not wait for quiet, and a database. */
  async function started(t: Test, settings: Record<string, string | number>) {
    const server = await startTestServer(t)
    const call = connect(t, server)
    for (const [key, value] of Object.entries({ compaction_quiet: 0, ...settings })) {
      const { status } = await call('PUT', `/_node/_local/_config/settee/${key}`, { json: String(value) })
      t.equal(status, 200, key)
    }
    t.equal((await call('PUT', '/notes')).status, 201)
    const size = async () => (await call('GET', '/_settee/databases/notes/size')).json as unknown as Size
    const until = async (holds: (size: Size) => boolean) => {
      for (let now = await size(); !holds(now); now = await size()) await delay(50)
      return size()
    }
    return { ...server, call, size, until }
  }

  /** A unique note of a few kilobytes that cannot be compressed. */
  const text = (n: number) => randomBytes(2000).toString('hex') + n

  t.test('a note that PouchDB overwrites 500 times leaves a small file', async (t) => {
    const { url, until } = await started(t, { keep_days: 0 })
    const db = new PouchDB(`${url}/notes`)
    let { rev } = await db.put({ _id: 'note', text: text(0) })
    for (let n = 1; n <= 500; n++) rev = (await db.put({ _id: 'note', _rev: rev, text: text(n) })).rev
    // All writes together take 2 MB. The log has its own limit, because it is overwritten repeatedly.
    const { parts } = await until(({ file, parts }) => file - (parts.log?.bytes ?? 0) < 600_000)
    t.match(parts, { live: { count: 1 }, kept: { count: 0 } })
    t.match(await db.get('note'), { _rev: rev })
  })

  t.test('40 notes edited all day are kept only for the time machine', async (t) => {
    const { url, call, until, size } = await started(t, { keep_days: 1 })
    const db = new PouchDB(`${url}/notes`)
    const revs = new Map<string, string>()
    for (let n = 0; n < 30; n++) {
      const docs = Array.from({ length: 40 }, (_, at) => {
        const _rev = revs.get(`note${at}`)
        return { _id: `note${at}`, ...(_rev && { _rev }), text: text(n) }
      })
      for (const row of (await db.bulkDocs(docs)) as { id: string; rev: string }[]) revs.set(row.id, row.rev)
    }
    // A compaction between two writes leaves so little to the next that none is due: 20 % of the file (docs/operating.md).
    const { parts } = await until(
      ({ file, parts: { kept, old, log } }) =>
        (kept?.count ?? 0) > 0 && (old?.bytes ?? 0) <= 0.2 * (file - (log?.bytes ?? 0)),
    )
    t.equal((parts.old?.count ?? 0) + (parts.kept?.count ?? 0), 29 * 40, 'nothing is lost')
    const first = (await size()).parts.live?.bytes ?? 0
    t.equal((await call('PUT', '/_node/_local/_config/settee/keep_days', { json: '0' })).status, 200)
    // All writes together take 4.8 MB. Pages and the log are released after the last body is removed.
    const { parts: last } = await until(
      ({ file, parts }) => parts.kept?.count === 0 && parts.old?.count === 0 && file < first + 700_000,
    )
    t.equal(last.live?.count, 40)
  })

  t.test('purged data is removed from the file automatically', async (t) => {
    const { call, until } = await started(t, {})
    const rev = ((await call('PUT', '/notes/a', { json: { text: text(1) } })).json as { rev: string }).rev
    await call('PUT', '/notes/a', { json: { text: text(2), _rev: rev } })
    const current = ((await call('GET', '/notes/a')).json as { _rev: string })._rev
    await call('POST', '/notes/_purge', { json: { a: [current] } })
    const { parts } = await until(({ parts }) => parts.free?.count === 0 && parts.log?.bytes === 0)
    t.match(parts, { live: { count: 0 }, old: { count: 0 }, kept: { count: 0 } })
  })

  t.test('if it is not automatic, nothing happens before a request', async (t) => {
    const { call, size, until } = await started(t, { compaction: 'manual', keep_days: 0 })
    let rev: string | undefined
    for (let n = 0; n < 200; n++) {
      const json = { text: text(n), ...(rev !== undefined && { _rev: rev }) }
      rev = ((await call('PUT', '/notes/a', { json })).json as { rev: string }).rev
    }
    // Longer than the interval of checks.
    await delay(2500)
    t.equal((await size()).parts.old?.count, 199)
    await call('POST', '/notes/_compact', { json: {} })
    await until(({ parts }) => parts.old?.count === 0 && parts.free?.count === 0)
  })

  t.test('a download goes on while its content is superseded and compacted', async (t) => {
    const { url, call, until } = await started(t, { keep_days: 0 })
    const content = randomBytes(20_000_000)
    const headers = { 'content-type': 'application/octet-stream' }
    const { rev } = (await call('PUT', '/notes/a/x', { body: content, headers })).json as { rev: string }
    const answer = await fetch(`${url}/notes/a/x`)
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
    const hash = createHash('md5')
    hash.update((await reader.read()).value as Uint8Array)
    await call('DELETE', `/notes/a/x?rev=${rev}`)
    await until(({ parts }) => parts.old?.count === 0)
    for (let next = await reader.read(); !next.done; next = await reader.read()) hash.update(next.value)
    t.equal(hash.digest('hex'), createHash('md5').update(content).digest('hex'))
    await call('POST', '/notes/_compact', { json: {} })
    await until(({ parts, file }) => parts.attachments?.count === 0 && file < 1_000_000)
  })

  t.test('no bodies of _users are kept', async (t) => {
    const { call } = await started(t, { compaction: 'manual' })
    const id = '/_users/org.couchdb.user:anna'
    const anna = { name: 'anna', type: 'user', roles: [], password: 'x' }
    await call('PUT', '/_node/_local/_config/chttpd_auth/iterations', { json: '10' })
    const { rev } = (await call('PUT', id, { json: anna })).json as { rev: string }
    await call('DELETE', `${id}?rev=${rev}`)
    const parts = async () =>
      ((await call('GET', '/_settee/databases/_users/size')).json as unknown as Size).parts
    const before = (await parts()).old?.count ?? 0
    t.ok(before > 0)
    await call('POST', '/_users/_compact', { json: {} })
    for (let now = await parts(); now.old?.count !== 0; now = await parts()) await delay(20)
    t.equal((await parts()).kept?.count, 0)
  })
})
