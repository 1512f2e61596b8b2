/** Compaction as PouchDB and LiveSync ask for it (clients.md 1.1, 1.2), and syncing before and after it. */
import t from 'tap'
import { device, rejectsWith, remote } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { call, serve } from './served.ts'

t.test('db.compact() waits until it is done; then old revisions are gone', async (t) => {
  const server = await serve(t)
  const { db, seen } = remote(`${server.url}/notes`)
  const revs = [(await db.put({ _id: 'note', text: 'first' })).rev]
  for (const text of ['second', 'third']) {
    revs.push((await db.put({ _id: 'note', _rev: revs.at(-1) as string, text })).rev)
  }
  t.match(await db.get('note', { rev: revs[0] as string }), { text: 'first' })
  await db.compact({ interval: 5 })
  const compact = seen.find(({ path }) => path.endsWith('/_compact'))
  t.match(compact, { method: 'POST', status: 202 })
  t.equal(seen.at(-1)?.method, 'GET')
  for (const rev of revs.slice(0, -1)) {
    await rejectsWith(t, db.get('note', { rev }), { status: 404, reason: 'missing' })
  }
  t.match(await db.get('note', { revs_info: true }), {
    text: 'third',
    _revs_info: [{ status: 'available' }, { status: 'missing' }, { status: 'missing' }],
  })
})

t.test('devices go on syncing with a database that was compacted', async (t) => {
  const server = await serve(t)
  const devices = [await device(t), await device(t)] as const
  const there = remote(`${server.url}/notes`).db
  const [phone, desk] = devices
  for (const id of ['a', 'b', 'c']) {
    let { rev } = await phone.put({ _id: id, n: 0 })
    for (const n of [1, 2]) rev = (await phone.put({ _id: id, _rev: rev, n })).rev
  }
  await phone.sync(there)
  await desk.sync(there)
  for (const [at, db] of devices.entries()) await db.put({ ...(await db.get('a')), at })
  await phone.remove(await phone.get('b'))
  await phone.sync(there)
  await there.compact({ interval: 5 })
  for (const db of [desk, phone, desk]) await db.sync(there)
  const late = await device(t)
  await late.sync(there)
  const all = { server, database: 'notes', devices: [...devices, late] }
  t.match(await sameEverywhere(t, all), { a: { leaves: { length: 2 } }, b: { winner: null } })
})

t.test('as a client cleans up that deletes, pushes, compacts and polls every second', async (t) => {
  const server = await serve(t)
  // What is kept for the time machine would still be there.
  await call(server, 'PUT', '/_node/_local/_config/settee/keep_days', { body: '"0"' })
  const there = remote(`${server.url}/notes`).db
  const chunks = Array.from({ length: 300 }, (_, n) => ({
    _id: `h:${n}`,
    type: 'leaf',
    data: 'x'.repeat(3000),
  }))
  const rows = (await there.bulkDocs(chunks)) as { id: string; rev: string }[]
  const sizeOf = async () =>
    ((await call(server, 'GET', '/notes')).json as { sizes: { file: number } }).sizes.file
  const before = await sizeOf()
  await there.bulkDocs(rows.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true })))
  t.equal((await call(server, 'POST', '/notes/_compact', { body: {} })).status, 202)
  const began = Date.now()
  const isRunning = async () =>
    ((await call(server, 'GET', '/notes')).json as { compact_running: boolean }).compact_running
  while (await isRunning());
  t.ok(Date.now() - began < 60_000)
  const after = await sizeOf()
  t.ok(after < before / 3, `${before} bytes became ${after}`)
})
