/** Filters as PouchDB asks for them: `changes()` of a remote database, and filtered replication, live too. */
import t, { type Test } from 'tap'
import { type Device, device, rejectsWith, remote, until } from './devices.ts'
import { call, type ServedServer, serve } from './served.ts'

/** What Inkdrop has its users write for mobile devices, clients.md 1.3. */
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

async function serveNotes(t: Test): Promise<{ server: ServedServer; db: Device }> {
  const server = await serve(t)
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
