/** PouchDB against a database with validate functions: what is refused is told, everything else goes through. */
import t, { type Test } from 'tap'
import { type Device, device, liveSync, remote, until } from './devices.ts'
import { call, type ServedServer, serve } from './served.ts'

const RULES = `function (newDoc, oldDoc, userCtx) {
  if (newDoc.secret) throw { forbidden: 'no secrets, ' + newDoc._id }
  if (newDoc.members) throw { unauthorized: 'log in first' }
  if (newDoc._deleted && oldDoc && oldDoc.kept) throw { forbidden: 'kept' }
}`

async function ruled(t: Test): Promise<ServedServer> {
  const server = await serve(t)
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

async function pushed(db: Device, server: ServedServer, options: PouchDB.Options = {}) {
  const denied: Denied[] = []
  const push = db.replicate.to(remote(`${server.url}/notes`).db, options)
  push.on('denied', (row: Denied) => denied.push(row))
  return { result: await push, denied }
}

async function idsThere(server: ServedServer): Promise<string[]> {
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

t.test('live: what is refused stays on its device, and everything after it goes through', async (t) => {
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

t.test('edits straight against the server', async (t) => {
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
  const server = await serve(t)
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
