/** History, versions, rewinds and alarms through a listening server. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'

const AT = '/_settee/databases/notes'

/** A time between what was done before and what will be done after, by the server's clock and ours. */
async function between(): Promise<string> {
  await delay(5)
  const time = new Date().toISOString()
  await delay(5)
  return time
}

// biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
type Line = any

async function rewind(server: TestServer, body: object, query = ''): Promise<Line[]> {
  const { status, text, headers } = await server.request('POST', `${AT}/rewind${query}`, { body })
  if (status !== 200) throw new Error(text)
  if (headers['content-type'] !== 'application/x-ndjson') throw new Error(String(headers['content-type']))
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}

async function bulk(server: TestServer, docs: readonly object[], more: object = {}): Promise<Line[]> {
  const { json } = await server.request('POST', '/notes/_bulk_docs', { body: { docs, ...more } })
  return json
}

async function started(t: Test, options: Parameters<typeof startTestServer>[1] = {}): Promise<TestServer> {
  const server = await startTestServer(t, options)
  await server.request('PUT', '/notes')
  return server
}

t.test('the versions of a document, and their contents', async (t) => {
  const server = await started(t)
  const data = Buffer.from('a file').toString('base64')
  const first = await server.request('PUT', '/notes/a%2Fb', {
    body: { n: 1, _attachments: { f: { content_type: 'text/plain', data } } },
  })
  const before = await between()
  const { rev } = first.json
  await server.request('PUT', '/notes/a%2Fb', { body: { n: 2, _rev: rev } })
  const { json } = await server.request('GET', `${AT}/history?id=a%2Fb`)
  t.match(json, { id: 'a/b', deleted: false, bookmark: null, known_since: null })
  t.match(json.versions, [
    { deleted: false, superseded_at: null, compacted: false, size: 7, attachments: 0 },
    { rev, deleted: false, size: 13, attachments: 1 },
  ])
  t.equal(json.versions[1].superseded_at, json.versions[0].stored_at)

  const page = await server.request('GET', `${AT}/history?id=a%2Fb&limit=1`)
  t.equal(page.json.versions.length, 1)
  const next = await server.request('GET', `${AT}/history?id=a%2Fb&limit=1&bookmark=${page.json.bookmark}`)
  t.match(next.json, { versions: [{ rev }], bookmark: null })

  const byRev = await server.request('GET', `${AT}/version?id=a%2Fb&rev=${rev}&attachments=true`)
  t.match(byRev.json, { _id: 'a/b', _rev: rev, n: 1, _attachments: { f: { data } } })
  const byTime = await server.request('GET', `${AT}/version?id=a%2Fb&at=${before}`)
  t.match(byTime.json, { _rev: rev, n: 1, _attachments: { f: { stub: true, length: 6 } } })

  for (const [path, status] of [
    ['version?id=none&at=5', 404],
    ['version?id=a%2Fb&at=5', 404],
    ['version?id=a%2Fb&rev=1-abc', 404],
    ['version?id=a%2Fb&rev=x', 400],
    ['version?id=a%2Fb&at=soon', 400],
    ['version?id=a%2Fb&at=2222-01-01', 400],
    ['version?id=a%2Fb', 400],
    [`version?id=a%2Fb&rev=${rev}&at=5`, 400],
    ['version?rev=1-a', 400],
    ['history?id=none', 404],
    ['history?limit=x', 400],
    ['history?bookmark=x', 400],
    ['history?since=x', 400],
  ] as const) {
    t.equal((await server.request('GET', `${AT}/${path}`)).status, status, path)
  }
})

t.test('recent changes and deletions, newest first', async (t) => {
  const server = await started(t)
  const made = await bulk(
    server,
    ['a', 'b', 'c'].map((_id) => ({ _id })),
  )
  const middle = await between()
  await bulk(server, [{ _id: 'b', _rev: made[1].rev, n: 2 }])
  const late = await between()
  await bulk(server, [{ _id: 'a', _rev: made[0].rev, _deleted: true }])
  const ids = (json: Line) => json.rows.map((row: Line) => [row.id, row.deleted, row.overwritten])
  const all = await server.request('GET', `${AT}/history`)
  t.strictSame(ids(all.json), [
    ['a', true, 1],
    ['b', false, 1],
  ])
  t.match(all.json.rows[0].versions, [{ rev: made[0].rev, size: 2 }])
  const deleted = await server.request('GET', `${AT}/history?deleted=true`)
  t.strictSame(ids(deleted.json), [['a', true, 1]])
  const page = await server.request('GET', `${AT}/history?limit=1`)
  t.strictSame(ids(page.json), [['a', true, 1]])
  const rest = await server.request('GET', `${AT}/history?limit=5&bookmark=${page.json.bookmark}`)
  t.strictSame(ids(rest.json), [['b', false, 1]])
  t.equal(rest.json.bookmark, null)
  const some = await server.request('GET', `${AT}/history?since=${middle}&until=${late}`)
  t.strictSame(ids(some.json), [['b', false, 1]])
})

t.test('a database goes back to a time, and to the time before that', async (t) => {
  const server = await started(t)
  const made = await bulk(
    server,
    Array.from({ length: 30 }, (_, n) => ({ _id: `d${String(n).padStart(2, '0')}`, n })),
  )
  await bulk(server, [{ _id: '_design/x', language: 'query' }])
  await bulk(server, [{ _id: 'd05', _rev: made[5].rev, _deleted: true }])
  const then = await between()
  await bulk(server, [
    { _id: 'd00', _rev: made[0].rev, n: 'changed' },
    { _id: 'd01', _rev: made[1].rev, _deleted: true },
    { _id: 'new' },
    { _id: 'd05', n: 'again' },
  ])
  const after = await between()
  const before = await server.request('GET', '/notes')

  const dry = await rewind(server, { at: then }, '?dry_run=true')
  t.match(dry.at(0), { at: then, dry_run: true, documents: 32 })
  const rows = dry.filter(({ id }) => id).map(({ id, outcome }) => [id, outcome])
  t.strictSame(rows, [
    ['d00', 'restored'],
    ['d01', 'recreated'],
    ['d05', 'deleted'],
    ['new', 'deleted'],
  ])
  t.equal((await server.request('GET', '/notes')).json.update_seq, before.json.update_seq)

  const done = await rewind(server, { at: then })
  const counts = { restored: 1, recreated: 1, deleted: 2, unchanged: 28, refused: 0, expired: 0 }
  t.match(done.at(-1), { done: true, looked_at: 32, counts })
  t.match((await server.request('GET', '/notes/d00')).json, { n: 0 })
  t.match((await server.request('GET', '/notes/d01')).json, { n: 1 })
  t.equal((await server.request('GET', '/notes/d05')).status, 404)
  t.equal((await server.request('GET', '/notes/new')).status, 404)
  const again = await rewind(server, { at: then })
  t.match(again.at(-1), { counts: { restored: 0, recreated: 0, deleted: 0, unchanged: 32 } })

  await rewind(server, { at: after, ids: ['d00', 'new', 'none'] })
  t.match((await server.request('GET', '/notes/d00')).json, { n: 'changed' })
  t.equal((await server.request('GET', '/notes/new')).status, 200)
  t.match(await rewind(server, { at: then, ids: ['new', 'none'] }), [
    { documents: 2 },
    { id: 'new', outcome: 'absent' },
    { id: 'none', outcome: 'absent', from: null },
    { progress: {} },
    { done: true },
  ])
  for (const body of [
    {},
    [],
    { at: true },
    { at: 'x' },
    { at: '2222-01-01' },
    { at: 5 },
    { at: then, ids: 'a' },
    { at: then, dry_run: 1 },
  ]) {
    t.equal((await server.request('POST', `${AT}/rewind`, { body })).status, 400, JSON.stringify(body))
  }
})

t.test('one version is restored, whenever it was shown', async (t) => {
  const server = await started(t)
  const ids = ['a1', 'a2', 'a3']
  const docs = ids.map((id, at) => ({
    _id: 'a',
    n: at + 1,
    _rev: `${at + 1}-${id}`,
    _revisions: { start: at + 1, ids: ids.slice(0, at + 1).reverse() },
  }))
  await bulk(server, docs, { new_edits: false })
  const dry = await rewind(server, { ids: ['a'], rev: '2-a2', dry_run: true })
  t.match(dry.at(1), { id: 'a', outcome: 'restored', from: '3-a3', to: '2-a2' })
  t.match((await rewind(server, { ids: ['a'], rev: '2-a2' })).at(1), { outcome: 'restored', rev: /^4-/ })
  t.match((await server.request('GET', '/notes/a')).json, { n: 2 })
  t.match((await rewind(server, { ids: ['a'], rev: '2-a2' })).at(-1), { counts: { unchanged: 1 } })
  t.match((await rewind(server, { ids: ['a'], rev: '7-bb' })).at(1), { outcome: 'expired' })
  const { json } = await server.request('GET', '/notes/a')
  await server.request('DELETE', `/notes/a?rev=${json._rev}`)
  t.match((await rewind(server, { ids: ['a'], rev: '1-a1' })).at(1), { outcome: 'recreated' })
  t.match((await server.request('GET', '/notes/a')).json, { n: 1 })
  for (const body of [
    { rev: '1-a1' },
    { rev: '1-a1', ids: ['a', 'b'] },
    { rev: '1-a1', ids: ['a'], at: 5 },
  ]) {
    t.equal((await server.request('POST', `${AT}/rewind`, { body })).status, 400)
  }
  t.equal((await server.request('POST', `${AT}/rewind`, { body: { rev: 'x', ids: ['a'] } })).status, 400)
})

t.test('later conflicts stay, unless the document is removed', async (t) => {
  const server = await started(t)
  const [a, b] = await bulk(server, [
    { _id: 'a', n: 1 },
    { _id: 'b', n: 1 },
  ])
  await bulk(server, [{ _id: 'b', _rev: b.rev, _deleted: true }])
  const then = await between()
  const [a2] = await bulk(server, [{ _id: 'a', _rev: a.rev, n: 2 }])
  const conflict = (id: string, start: number, name: string) => ({
    _id: id,
    _revisions: { start, ids: [name] },
    n: name,
  })
  await bulk(server, [conflict('a', 1, 'fff'), conflict('b', 3, 'aaa'), conflict('b', 3, 'bbb')], {
    new_edits: false,
  })
  const lines = await rewind(server, { at: then })
  t.match(lines.at(-1), { counts: { restored: 1, deleted: 1 } })
  const seen = await server.request('GET', '/notes/a?conflicts=true')
  t.match(seen.json, { n: 1, _conflicts: ['1-fff'] })
  t.equal(seen.json._rev.split('-')[0], String(Number(a2.rev.split('-')[0]) + 1))
  t.equal((await server.request('GET', '/notes/b')).status, 404)
  t.match((await rewind(server, { at: then })).at(-1), { counts: { unchanged: 2 } })
})

t.test('attachments of old bodies come back after compactions, expired ones do not', async (t) => {
  const server = await started(t)
  const data = Buffer.alloc(300_000, 'a file of its own ').toString('base64')
  const file = { content_type: 'text/plain', data }
  const rev = (await server.request('PUT', '/notes/a', { body: { n: 1, _attachments: { file } } })).json.rev
  await server.request('PUT', '/notes/b', { body: { n: 1 } })
  const then = await between()
  await server.request('PUT', '/notes/a', { body: { n: 2, _rev: rev } })
  const removed = await server.request('GET', '/notes/a')
  await server.request('DELETE', `/notes/a?rev=${removed.json._rev}`)
  const compact = async () => {
    await server.request('POST', '/notes/_compact', { body: {} })
    while ((await server.request('GET', '/notes')).json.compact_running) await delay(20)
  }
  await compact()
  t.match((await server.request('GET', `${AT}/size`)).json.parts, { kept: { count: 2 } })
  const old = await server.request('GET', `${AT}/version?id=a&at=${then}&attachments=true`)
  t.match(old.json, { n: 1, _attachments: { file: { data } } })
  t.match((await rewind(server, { at: then })).at(-1), { counts: { recreated: 1, unchanged: 1 } })
  await server.request('PUT', '/_node/_local/_config/settee/keep_days', { body: '"0"' })
  await compact()
  const now = await server.request('GET', '/notes/a?attachments=true')
  t.match(now.json, { n: 1, _attachments: { file: { data } } }, 'it is named by what it has become')
  t.match((await server.request('GET', `${AT}/size`)).json.parts, { kept: { count: 0 }, old: { count: 0 } })
  t.match((await rewind(server, { at: then })).at(-1), { counts: { expired: 1, unchanged: 1, deleted: 0 } })
  const { json } = await server.request('GET', `${AT}/history?id=a`)
  t.equal(json.versions.length, 1)
  t.ok(json.known_since > then, 'it says since when all is known')
})

t.test('refusals of a validate function are reported, and the rest goes on', async (t) => {
  const server = await started(t)
  const made = await bulk(
    server,
    ['bad', 'good'].map((_id) => ({ _id, n: _id })),
  )
  const then = await between()
  await bulk(
    server,
    made.map(({ id, rev }) => ({ _id: id, _rev: rev, n: 'x' })),
  )
  const validate = 'function (doc) { if (doc.n === "bad") throw { forbidden: "never" } }'
  await bulk(server, [{ _id: '_design/v', validate_doc_update: validate }])
  const lines = await rewind(server, { at: then, ids: ['bad', 'good'] })
  t.match(
    lines.find(({ id }) => id === 'bad'),
    { outcome: 'refused', error: 'forbidden', reason: 'never' },
  )
  t.match(lines.at(-1), { done: true, counts: { restored: 1, refused: 1 } })
})

t.test('a device that deletes most of a database causes an alarm', async (t) => {
  const folder = await temporaryFolder(t)
  const logFile = join(folder, 'settee.log')
  const dataDir = await temporaryFolder(t)
  const server = await started(t, { logLevel: 'warning', logFile, dataDir })
  await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  await server.request('PUT', '/_node/_local/_config/admins/anna', { body: '"x"' })
  const auth = 'anna:x'
  const ask = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
    server.request(method, path, { ...(body !== undefined && { body }), auth, headers })
  const token = (await ask('POST', '/_settee/tokens', { name: 'old phone', admin: true })).json.token
  const docs = Array.from({ length: 60 }, (_, n) => ({ _id: `d${n}`, n }))
  const made = (await ask('POST', '/notes/_bulk_docs', { docs })).json as Line[]
  const tombstones = (from: number, to: number) =>
    made.slice(from, to).map(({ id, rev }) => {
      const [, hash] = rev.split('-')
      return { _id: id, _deleted: true, _revisions: { start: 2, ids: [`${id}gone`, hash] } }
    })
  const remove = (from: number, to: number) =>
    server.request('POST', '/notes/_bulk_docs', {
      body: { docs: tombstones(from, to), new_edits: false },
      auth: `anna:${token}`,
      headers: { 'user-agent': 'Obsidian/1.5' },
    })
  await remove(0, 25)
  t.strictSame((await ask('GET', `${AT}/alarms`)).json, { alarms: [] }, 'not the half of them')
  await remove(25, 40)
  const { json } = await ask('GET', '/_settee/alarms')
  const [alarm] = json.alarms
  t.match(json.alarms, [
    {
      database: 'notes',
      deleted: 40,
      of: 60,
      account: 'anna',
      device: { token: 'old phone', client: 'Obsidian/1.5', address: '127.0.0.1' },
      undo: `settee rewind 'notes' --to ${alarm.since}`,
    },
  ])
  t.strictSame((await ask('GET', `${AT}/alarms`)).json, json)
  const logged = await until(() => readFile(logFile, 'utf8').catch(() => ''), 'were deleted')
  t.match(logged, `40 of 60 documents of the database notes were deleted within a minute`)
  t.match(logged, `settee rewind 'notes' --to ${alarm.since}`)
  t.notMatch(logged, token)

  await remove(40, 60)
  const [grown] = (await ask('GET', `${AT}/alarms`)).json.alarms
  t.match(grown, { id: alarm.id, deleted: 60, of: 60 })

  await ask('POST', `${AT}/rewind`, { at: alarm.since })
  t.match((await ask('GET', '/notes')).json, { doc_count: 60 })
  await server.close()

  const later = await startTestServer(t, { dataDir })
  const kept = await later.request('GET', '/_settee/alarms', { auth })
  t.match(kept.json.alarms, [{ id: alarm.id, deleted: 60 }])
  t.equal((await later.request('DELETE', `${AT}/alarms/none`, { auth })).status, 404)
  t.equal((await later.request('DELETE', `${AT}/alarms/${alarm.id}`, { auth })).status, 200)
  t.strictSame((await later.request('GET', '/_settee/alarms', { auth })).json, { alarms: [] })
  t.equal((await later.request('DELETE', `/_settee/alarms/${alarm.id}`, { auth })).status, 404)
})

/** Waits until a text holds something. */
async function until(read: () => Promise<string>, text: string): Promise<string> {
  for (;;) {
    const found = await read()
    if (found.includes(text)) return found
    await delay(20)
  }
}
