/** `settee move` from PouchDB's server, which has bare numbers as sequences and no list of `_local` documents. */
import t from 'tap'
import { startPouchdbServer } from '../../../bench/pouchdb-server.ts'
import { reachServer } from '../../../src/control/control-socket.ts'
import { startTestServer } from '../../helpers/server.ts'
import { device } from '../../protocol/devices.ts'
import { countedRemote } from '../../protocol/moved-server.ts'

// The first run installs pouchdb-server.
t.setTimeout(600_000)

t.test('devices of PouchDB go on where they were', async (t) => {
  const old = await startPouchdbServer()
  t.teardown(() => old.close())
  const here = await startTestServer(t)
  const [phone, desk] = [await device(t), await device(t)]
  const notes = Array.from({ length: 1500 }, (_, n) => ({ _id: `n${n}`, text: `note ${n} `.repeat(50) }))
  await phone.bulkDocs(notes)
  await fetch(`${old.origin}/files`, { method: 'PUT' })
  const type = { 'content-type': 'text/plain' }
  await fetch(`${old.origin}/files/f/a.txt`, { method: 'PUT', body: 'hello', headers: type })
  await phone.remove(await phone.get('n8'))
  for (const each of [phone, desk, desk, phone]) await each.sync(countedRemote(`${old.origin}/notes`).db)
  // Both edit the same note, and the desk has not seen the last edits.
  await desk.put({ ...(await desk.get('n9')), text: 'at the desk' })
  await desk.sync(countedRemote(`${old.origin}/notes`).db)
  await phone.put({ ...(await phone.get('n9')), text: 'on the phone' })
  await phone.bulkDocs(Array.from({ length: 10 }, (_, n) => ({ _id: `late${n}` })))
  await phone.sync(countedRemote(`${old.origin}/notes`).db)

  const controls = await reachServer(here.dataDir)
  const outcome = await controls?.move({
    url: old.origin,
    databases: ['notes', 'files'],
    keepsUuid: false,
    isMerged: false,
  })
  t.match(outcome?.databases, [
    { documents: 1509, deleted: 1, leaves: 1511, isComplete: true, localDocs: 4 },
    { documents: 1, isComplete: true },
  ])
  t.equal(outcome?.databases[0]?.newDigest, outcome?.databases[0]?.oldDigest)
  await old.close()

  const again = (db: typeof phone) => {
    const remote = countedRemote(`${here.url}/notes`)
    return db.sync(remote.db).then(({ pull }) => ({ ...remote.traffic, read: pull?.docs_read }))
  }
  t.match(await again(phone), { read: 0 })
  const { read, bytes, requests } = await again(desk)
  t.equal(read, 11)
  t.ok(requests < 30 && bytes < 30_000, `${requests} requests, ${bytes} bytes`)
  const winners = async (db: typeof phone) =>
    (await db.allDocs()).rows.map(({ id, value }) => `${id} ${value.rev}`).sort()
  t.same(await winners(desk), await winners(phone))
  t.equal((await here.request('GET', '/files/f/a.txt')).text, 'hello')
})

t.test('numbers of two servers are not mixed', async (t) => {
  const [first, second] = [await startPouchdbServer(), await startPouchdbServer()]
  t.teardown(() => Promise.all([first.close(), second.close()]))
  const here = await startTestServer(t)
  for (const { origin } of [first, second]) await fetch(`${origin}/notes`, { method: 'PUT' })
  const controls = await reachServer(here.dataDir)
  const move = (url: string) =>
    controls?.move({ url, databases: ['notes'], keepsUuid: false, isMerged: true })
  t.match(await move(first.origin), { databases: [{ isComplete: true }] })
  t.match(await move(first.origin), { databases: [{ isComplete: true }] })
  t.match(await move(second.origin), { failed: [{ name: 'notes', reason: /plain numbers/ }] })
})
