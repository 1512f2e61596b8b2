/** Live sync that is filtered in both directions: what a device keeps to itself, and what it does not want. */
import t, { type Test } from 'tap'
import { type Device, device, remote, until } from './devices.ts'
import { type ServedServer, serve } from './served.ts'

const MOBILE = {
  _id: '_design/mobile',
  filters: { sync: "function (doc) { return doc._id.indexOf('file:') === -1 }" },
}

const DOCS = [
  { _id: 'note:1', book: 'a' },
  { _id: 'note:2', book: 'b' },
  { _id: 'file:1', book: 'a' },
  { _id: 'xfile:2', book: 'b' },
  { _id: 'note:3', book: 'a' },
]

t.setTimeout(300_000)

async function serveNotes(t: Test): Promise<{ server: ServedServer; db: Device }> {
  const server = await serve(t)
  const { db } = remote(`${server.url}/notes`)
  await db.put(MOBILE)
  await db.bulkDocs(DOCS)
  return { server, db }
}

async function held(db: Device): Promise<string[]> {
  const { rows } = await db.allDocs()
  return rows.map(({ id }) => id).filter((id) => !id.startsWith('_design/'))
}

t.test('live sync, filtered in both directions', async (t) => {
  const { server, db } = await serveNotes(t)
  const [phone, desk] = [await device(t), await device(t)]
  const failures: unknown[] = []
  // Of the phone's own documents drafts stay where they are, and of the server's what is no note.
  const push = { filter: (doc: PouchDB.Doc) => !doc._id.startsWith('draft:') }
  const options = { live: true, retry: true, back_off_function: () => 20 }
  const ofPhone = phone.sync(db, { ...options, push, pull: { filter: 'mobile/sync' } })
  const ofDesk = desk.sync(remote(`${server.url}/notes`).db, options)
  for (const sync of [ofPhone, ofDesk]) {
    sync.on('error', (error: Error) => failures.push(error))
    sync.on('denied', (row: unknown) => failures.push(row))
    t.teardown(() => sync.cancel())
  }

  await until('the notes are there', async () => (await held(phone)).length === 3)
  await until('the desk has all', async () => (await held(desk)).length === DOCS.length)
  await phone.bulkDocs([{ _id: 'draft:1' }, { _id: 'note:phone', text: 'p' }, { _id: 'file:phone' }])
  await desk.bulkDocs([{ _id: 'draft:2' }, { _id: 'note:desk', text: 'd' }, { _id: 'file:desk' }])
  await until('the phone has what the desk wrote', async () => (await held(phone)).includes('note:desk'))
  await until('the desk has what the phone wrote', async () => (await held(desk)).includes('file:phone'))
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
    const ids = await held(phone)
    return ids.includes('note:also') && !ids.includes('note:1')
  })
  await until('the desk goes on', async () => (await held(desk)).includes('note:away'))

  const notes = ['note:2', 'note:3', 'note:also', 'note:away', 'note:desk', 'note:phone']
  t.same(await held(phone), ['draft:1', 'draft:2', 'draft:3', 'file:phone', ...notes])
  const all = ['draft:2', 'file:away', 'file:desk', 'file:phone', ...notes, 'xfile:2']
  t.same(await held(db), all)
  t.same(await held(desk), all)
  t.same(failures, [])
})

t.test('live sync with a selector in both directions', async (t) => {
  const { db } = await serveNotes(t)
  const phone = await device(t)
  const sync = phone.sync(db, { live: true, retry: true, selector: { book: 'a' } })
  t.teardown(() => sync.cancel())
  await until('the book is there', async () => (await held(phone)).length === 3)
  await phone.bulkDocs([
    { _id: 'mine', book: 'a' },
    { _id: 'other', book: 'b' },
  ])
  await db.bulkDocs([
    { _id: 'theirs', book: 'a' },
    { _id: 'another', book: 'b' },
  ])
  await until('theirs has come', async () => (await held(phone)).includes('theirs'))
  await until('mine has gone', async () => (await held(db)).includes('mine'))
  await phone.put({ ...(await phone.get('theirs')), edited: true })
  await until('the edit, too', async () => (await db.get('theirs')).edited === true)
  t.same(await held(phone), ['file:1', 'mine', 'note:1', 'note:3', 'other', 'theirs'])
  t.notOk((await held(db)).includes('other'))
})
