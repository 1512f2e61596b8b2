/** Filters with PouchDB: `changes()` of a remote database, and one-shot and live filtered replication. */

import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { call } from './call.ts'
import { type Device, device, liveSync, rejectsWith, remote } from './devices.ts'

/** The filter that Inkdrop's users write for mobile devices, clients.md 1.3. */
const MOBILE = {
  _id: '_design/mobile',
  filters: {
    sync: "function (doc) { return doc._id.indexOf('file:') === -1 }",
    book: '(doc, req) => doc.book === req.query.book',
  },
  views: { pinned: { map: '(doc) => { if (doc.pinned) emit(doc._id) }' } },
}

const DOCS = [
  { _id: 'note:1', book: 'a', pinned: true },
  { _id: 'note:2', book: 'b' },
  { _id: 'file:1', book: 'a' },
  { _id: 'xfile:2', book: 'b', pinned: true },
  { _id: 'note:3', book: 'a' },
]

async function serveNotes(t: Test): Promise<{ server: TestServer; db: Device }> {
  const server = await startTestServer(t)
  const { db } = remote(`${server.url}/notes`)
  await db.put(MOBILE)
  await db.bulkDocs(DOCS)
  return { server, db }
}

async function idsOf(db: Device, options: PouchDB.Options): Promise<string[]> {
  const { results } = await db.changes(options)
  return results.map(({ id }) => id)
}

async function held(db: Device): Promise<string[]> {
  const { rows } = await db.allDocs()
  return rows.map(({ id }) => id)
}

t.test('changes of a remote database', async (t) => {
  const { db } = await serveNotes(t)
  await db.remove(await db.get('note:3'))
  await db.remove(await db.get('file:1'))
  t.same(await idsOf(db, { filter: 'mobile/sync' }), ['_design/mobile', 'note:1', 'note:2', 'note:3'])
  t.same(await idsOf(db, { filter: 'mobile/sync', limit: 2 }), ['_design/mobile', 'note:1'])
  t.same(await idsOf(db, { filter: 'mobile/sync', batch_size: 1 }), [
    '_design/mobile',
    'note:1',
    'note:2',
    'note:3',
  ])
  t.same(await idsOf(db, { filter: '_view', view: 'mobile/pinned' }), ['note:1', 'xfile:2'])
  t.same(await idsOf(db, { view: 'mobile/pinned' }), ['note:1', 'xfile:2'])
  t.same(await idsOf(db, { selector: { book: 'a' } }), ['note:1'])
  t.same(await idsOf(db, { selector: { book: { $ne: 'a' } } }), ['note:2', 'xfile:2'])
  t.same(await idsOf(db, { doc_ids: ['note:2', 'file:1', 'none'] }), ['note:2', 'file:1'])
  t.same(await idsOf(db, { filter: 'mobile/book', query_params: { book: 'b' } }), ['note:2', 'xfile:2'])
  await rejectsWith(t, db.changes({ filter: 'mobile/none' }), { status: 404 })
})

t.test('changes with documents, and live ones', async (t) => {
  const { db } = await serveNotes(t)
  const { results } = await db.changes({ filter: 'mobile/sync', include_docs: true, since: 1 })
  t.match(results[0]?.doc, { _id: 'note:1', book: 'a' })
  const seen: string[] = []
  const live = db.changes({ live: true, since: 'now', filter: 'mobile/sync' })
  live.on('change', ({ id }: PouchDB.Change) => seen.push(id))
  t.teardown(() => live.cancel())
  await db.put({ _id: 'file:9' })
  await until('the first has come', async () => {
    await db.put({ ...(await db.get('note:1')), touched: true })
    return seen.length > 0
  })
  await db.remove(await db.get('note:2'))
  await until('the tombstone has come', () => seen.includes('note:2'))
  t.notOk(seen.includes('file:9'))
})

t.test('live filtered replication with edits', async (t) => {
  const { server, db } = await serveNotes(t)
  const phone = await device(t)
  const pull = phone.replicate.from(db, { live: true, retry: true, filter: 'mobile/sync' })
  const push = phone.replicate.to(db, { live: true, retry: true })
  pull.on('error', (error: Error) => t.fail(error.message))
  t.teardown(() => {
    pull.cancel()
    push.cancel()
  })
  await until('the notes are there', async () => (await held(phone)).includes('note:3'))
  t.same(await held(phone), ['_design/mobile', 'note:1', 'note:2', 'note:3'])
  await call(server, 'POST', '/notes/_bulk_docs', {
    body: { docs: [{ _id: 'file:7' }, { _id: 'note:7', text: 'one' }, { _id: 'xfile:8' }] },
  })
  await until('a new note arrives', async () => (await held(phone)).includes('note:7'))
  await phone.put({ ...(await phone.get('note:7')), text: 'two' })
  await until('an edit goes back', async () => (await db.get('note:7')).text === 'two')
  await db.remove(await db.get('note:1'))
  await db.remove(await db.get('file:7'))
  await until('a deletion arrives', async () => !(await held(phone)).includes('note:1'))
  t.same(await held(phone), ['_design/mobile', 'note:2', 'note:3', 'note:7'])
})

t.test('replication with a selector, listed documents, and parameters', async (t) => {
  const { db } = await serveNotes(t)
  const cases: [options: PouchDB.Options, ids: string[]][] = [
    [{ selector: { book: 'b' } }, ['note:2', 'xfile:2']],
    [{ doc_ids: ['note:1', 'file:1'] }, ['file:1', 'note:1']],
    [{ filter: 'mobile/book', query_params: { book: 'a' } }, ['file:1', 'note:1', 'note:3']],
    [{ filter: '_view', view: 'mobile/pinned' }, ['note:1', 'xfile:2']],
  ]
  for (const [options, ids] of cases) {
    const phone = await device(t)
    const { ok } = await phone.replicate.from(db, options)
    t.ok(ok)
    t.same(await held(phone), ids, JSON.stringify(options))
  }
})

t.setTimeout(900_000)

async function heldNotes(db: Device): Promise<string[]> {
  const { rows } = await db.allDocs()
  return rows.map(({ id }) => id).filter((id) => !id.startsWith('_design/'))
}

t.test('live sync, filtered in both directions', async (t) => {
  const { server, db } = await serveNotes(t)
  const [phone, desk] = [await device(t), await device(t)]
  const failures: unknown[] = []
  // The phone does not push its drafts, and pulls only notes.
  const push = { filter: (doc: PouchDB.Doc) => !doc._id.startsWith('draft:') }
  const options = { live: true, retry: true, back_off_function: () => 20 }
  const ofPhone = phone.sync(db, { ...options, push, pull: { filter: 'mobile/sync' } })
  const ofDesk = desk.sync(remote(`${server.url}/notes`).db, options)
  for (const sync of [ofPhone, ofDesk]) {
    sync.on('error', (error: Error) => failures.push(error))
    sync.on('denied', (row: unknown) => failures.push(row))
    t.teardown(() => sync.cancel())
  }

  await until('the notes are there', async () => (await heldNotes(phone)).length === 3)
  await until('the desk has all', async () => (await heldNotes(desk)).length === DOCS.length)
  await phone.bulkDocs([{ _id: 'draft:1' }, { _id: 'note:phone', text: 'p' }, { _id: 'file:phone' }])
  await desk.bulkDocs([{ _id: 'draft:2' }, { _id: 'note:desk', text: 'd' }, { _id: 'file:desk' }])
  await until('the phone has what the desk wrote', async () => (await heldNotes(phone)).includes('note:desk'))
  await until('the desk has what the phone wrote', async () => (await heldNotes(desk)).includes('file:phone'))
  await until('and edited', async () => {
    await phone.put({ ...(await phone.get('note:desk')), text: 'by phone' })
    return (await desk.get('note:desk')).text === 'by phone'
  })

  await server.stop()
  await phone.bulkDocs([{ _id: 'draft:3' }, { _id: 'note:away' }])
  await desk.bulkDocs([{ _id: 'note:also' }, { _id: 'file:away' }])
  await desk.remove(await desk.get('note:1'))
  await desk.remove(await desk.get('file:1'))
  await server.start()
  await until('the phone goes on', async () => {
    const ids = await heldNotes(phone)
    return ids.includes('note:also') && !ids.includes('note:1')
  })
  await until('the desk goes on', async () => (await heldNotes(desk)).includes('note:away'))

  const notes = ['note:2', 'note:3', 'note:also', 'note:away', 'note:desk', 'note:phone']
  t.same(await heldNotes(phone), ['draft:1', 'draft:2', 'draft:3', 'file:phone', ...notes])
  const all = ['draft:2', 'file:away', 'file:desk', 'file:phone', ...notes, 'xfile:2']
  t.same(await heldNotes(db), all)
  t.same(await heldNotes(desk), all)
  t.same(failures, [])
})

t.test('live sync with a selector in both directions', async (t) => {
  const { db } = await serveNotes(t)
  const phone = await device(t)
  const sync = phone.sync(db, { live: true, retry: true, selector: { book: 'a' } })
  t.teardown(() => sync.cancel())
  await until('the book is there', async () => (await heldNotes(phone)).length === 3)
  await phone.bulkDocs([
    { _id: 'mine', book: 'a' },
    { _id: 'other', book: 'b' },
  ])
  await db.bulkDocs([
    { _id: 'theirs', book: 'a' },
    { _id: 'another', book: 'b' },
  ])
  await until('theirs has come', async () => (await heldNotes(phone)).includes('theirs'))
  await until('mine has gone', async () => (await heldNotes(db)).includes('mine'))
  await phone.put({ ...(await phone.get('theirs')), edited: true })
  await until('the edit, too', async () => (await db.get('theirs')).edited === true)
  t.same(await heldNotes(phone), ['file:1', 'mine', 'note:1', 'note:3', 'other', 'theirs'])
  t.notOk((await heldNotes(db)).includes('other'))
})

const RULES = `function (newDoc, oldDoc, userCtx) {
  if (newDoc.secret) throw { forbidden: 'no secrets, ' + newDoc._id }
  if (newDoc.members) throw { unauthorized: 'log in first' }
  if (newDoc._deleted && oldDoc && oldDoc.kept) throw { forbidden: 'kept' }
}`

async function ruled(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const made = await call(server, 'PUT', '/notes/_design/rules', { body: { validate_doc_update: RULES } })
  t.equal(made.status, 201)
  return server
}

interface Denied {
  readonly id: string
  readonly error: string
  readonly reason: unknown
}

async function pushed(db: Device, server: TestServer, options: PouchDB.Options = {}) {
  const denied: Denied[] = []
  const push = db.replicate.to(remote(`${server.url}/notes`).db, options)
  push.on('denied', (row: Denied) => denied.push(row))
  return { result: await push, denied }
}

async function idsThere(server: TestServer): Promise<string[]> {
  const { json } = await call(server, 'GET', '/notes/_all_docs?startkey=%22a%22')
  return (json as PouchDB.AllDocs).rows.map(({ id }) => id)
}

t.test('a push in batches: refused documents are denied, the others arrive', async (t) => {
  const server = await ruled(t)
  const phone = await device(t)
  const docs = Array.from({ length: 30 }, (_, n) => ({
    _id: `note-${String(n).padStart(2, '0')}`,
    ...(n % 10 === 3 && { secret: true }),
    ...(n % 10 === 7 && { members: true }),
  }))
  await phone.bulkDocs(docs)
  const { result, denied } = await pushed(phone, server, { batch_size: 8 })
  t.match(result, { ok: true, docs_read: 30, docs_written: 24, doc_write_failures: 6 })
  t.same(
    denied.map(({ id, error }) => [id, error]),
    [3, 7, 13, 17, 23, 27].map((n) => [docs[n]?._id, n % 10 === 3 ? 'forbidden' : 'unauthorized']),
  )
  t.equal(denied[0]?.reason, 'no secrets, note-03')
  t.equal((await idsThere(server)).length, 24)
  const again = await pushed(phone, server)
  t.match(again.result, { docs_read: 0, docs_written: 0 }, 'the checkpoint is behind the refused ones')
})

t.test('live: a refused document stays on its device, and everything after it is sent', async (t) => {
  const server = await ruled(t)
  const [phone, desk] = [await device(t), await device(t)]
  const onPhone = liveSync(t, phone, remote(`${server.url}/notes`).db)
  const onDesk = liveSync(t, desk, remote(`${server.url}/notes`).db)
  await phone.put({ _id: 'a', text: 'first' })
  await phone.put({ _id: 'b', secret: true })
  await phone.put({ _id: 'c', kept: true })
  await until('the notes are on the desk', async () =>
    (await desk.allDocs({ keys: ['a', 'c'] })).rows.every((row) => row.value),
  )
  await desk.remove(await desk.get('c'))
  await desk.put({ ...(await desk.get('a')), text: 'second' })
  await until('the edit is on the phone', async () => (await phone.get('a')).text === 'second')
  await until('both were told', async () => onPhone.denied.length === 1 && onDesk.denied.length === 1)
  t.match(onDesk.denied, [{ doc: { id: 'c', error: 'forbidden', reason: 'kept' } }])
  t.same(await idsThere(server), ['a', 'c'])
  t.match(await phone.get('c'), { kept: true }, 'the deletion went nowhere')
  t.same([...onPhone.errors, ...onDesk.errors], [])
})

t.test('edits directly on the server', async (t) => {
  const server = await ruled(t)
  const { db } = remote(`${server.url}/notes`)
  await t.rejects(db.put({ _id: 'x', secret: true }), {
    status: 403,
    name: 'forbidden',
    reason: 'no secrets, x',
  })
  await t.rejects(db.put({ _id: 'x', members: true }), {
    status: 401,
    name: 'unauthorized',
    reason: 'log in first',
  })
  t.match(await db.bulkDocs([{ _id: 'x' }, { _id: 'y', secret: true }]), [
    { ok: true, id: 'x' },
    { id: 'y', name: 'forbidden', message: 'no secrets, y' },
  ])
})

t.test('a design document that is written on a device validates from then on', async (t) => {
  const server = await startTestServer(t)
  const phone = await device(t)
  await phone.bulkDocs([
    { _id: 'a', secret: true },
    { _id: '_design/rules', validate_doc_update: RULES },
  ])
  t.match(
    (await pushed(phone, server)).result,
    { docs_written: 2, doc_write_failures: 0 },
    'written before it',
  )
  await phone.put({ _id: 'b', secret: true })
  const { denied } = await pushed(phone, server)
  t.equal(denied.length, 1)
  const broken = { ...(await phone.get('_design/rules')), views: { v: { map: 'function (' } } }
  await phone.put(broken)
  await phone.put({ _id: 'c' })
  await t.rejects(
    pushed(phone, server),
    'a design document that is no good stops the replication, as in CouchDB',
  )
})

async function withRules(t: Test, rules: string): Promise<TestServer> {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/_design/rules', { body: { validate_doc_update: rules } })
  return server
}

t.test('statuses and bodies of refusals', async (t) => {
  const server = await withRules(t, 'function (doc) { if (doc.thrown !== undefined) throw doc.thrown }')
  const cases: [thrown: unknown, status: number, error: string, reason: unknown][] = [
    [{ forbidden: 'no' }, 403, 'forbidden', 'no'],
    [{ forbidden: { a: 1 } }, 403, 'forbidden', { a: 1 }],
    [{ unauthorized: 'who?' }, 401, 'unauthorized', 'who?'],
    ['text', 500, 'unknown_error', 'text'],
  ]
  for (const [thrown, status, error, reason] of cases) {
    const refused = { status, json: { error, reason } }
    const body = { thrown }
    t.match(await call(server, 'PUT', '/notes/x', { body }), refused)
    t.match(await call(server, 'POST', '/notes', { body }), refused)
    t.match(await call(server, 'PUT', '/notes/x?new_edits=false&rev=1-a', { body }), refused)
    const docs = [{ _id: 'x', ...body }]
    const row = { id: 'x', error, reason }
    t.match(await call(server, 'POST', '/notes/_bulk_docs', { body: { docs } }), { status: 201, json: [row] })
    const replicated = {
      new_edits: false,
      docs: [
        { ...docs[0], _rev: '1-a' },
        { _id: `y-${status}`, _rev: '1-a' },
      ],
    }
    const { json } = await call(server, 'POST', '/notes/_bulk_docs', { body: replicated })
    t.same(json, [{ ...row, rev: '1-a' }])
  }
  t.equal((await call(server, 'GET', '/notes/x')).status, 404)
  t.equal((await call(server, 'PUT', '/notes/x', { body: {} })).status, 201)
})

t.test('invalid design documents', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const put = (body: unknown) => call(server, 'PUT', '/notes/_design/x', { body })
  t.match(await put({ views: [] }), {
    status: 400,
    json: { error: 'invalid_design_doc', reason: '`views` field must have object type' },
  })
  t.match(await put({ views: { a: { map: 'function (doc) {' } } }), {
    status: 400,
    json: { error: 'compilation_error', reason: /^Compilation of the map function in the 'a' view failed: / },
  })
  t.match(await put({ views: { a: { map: 'function (doc) { emit(1) }', reduce: '_count' } } }), {
    status: 201,
  })
})

t.test('a broken function fails the writes, and can be repaired', async (t) => {
  const server = await withRules(t, 'function (doc) { while (doc.endless) {} }')
  await call(server, 'PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: '"1000"' })
  t.match(await call(server, 'PUT', '/notes/x', { body: { endless: true } }), {
    status: 500,
    json: { error: 'timeout' },
  })
  const hoarder = 'function (doc) { var all = []; while (true) all.push(new Array(10000).fill(doc)) }'
  const { json } = await call(server, 'GET', '/notes/_design/rules')
  const replace = async (rules: string, _rev: string) => {
    const body = { _rev, validate_doc_update: rules }
    return ((await call(server, 'PUT', '/notes/_design/rules', { body })).json as { rev: string }).rev
  }
  await call(server, 'PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: '"60000"' })
  let rev = await replace(hoarder, (json as { _rev: string })._rev)
  t.match(await call(server, 'PUT', '/notes/x', { body: {} }), {
    status: 500,
    json: { error: 'out_of_memory' },
  })
  rev = await replace('function (', rev)
  t.match(await call(server, 'PUT', '/notes/x', { body: {} }), { json: { error: 'compilation_error' } })
  await replace('function () {}', rev)
  t.equal((await call(server, 'PUT', '/notes/x', { body: {} })).status, 201)
})

t.test(
  'while a function is at work for seconds, other saves are not held up',
  { timeout: 60_000 },
  async (t) => {
    const slow = `function (doc) { if (doc.slow) for (var end = Date.now() + 4000; Date.now() < end; ) {} }`
    const server = await withRules(t, slow)
    await call(server, 'PUT', '/others')
    await call(server, 'PUT', '/others/_design/rules', { body: { validate_doc_update: 'function (doc) {}' } })
    let isDone = false
    const waiting = call(server, 'PUT', '/notes/slow', { body: { slow: true } }).then((answer) => {
      isDone = true
      return answer
    })
    const times: number[] = []
    for (let n = 0; n < 200 && !isDone; n++) {
      const begun = performance.now()
      const database = n % 2 === 0 ? 'others' : 'notes'
      t.equal((await call(server, 'PUT', `/${database}/quick-${n}`, { body: { n } })).status, 201)
      times.push(performance.now() - begun)
    }
    // If saves waited for the slow function, there would be at most three; a quiet machine makes hundreds.
    t.ok(times.length > 6, `${times.length} are saved before the slow one`)
    times.sort((a, b) => a - b)
    const [median, high] = [0.5, 0.99].map((part) => times[Math.floor(times.length * part)]?.toFixed(1))
    t.comment(`a save takes ${median} ms, the 99th of 100 ${high} ms`)
    t.equal((await waiting).status, 201)
  },
)
