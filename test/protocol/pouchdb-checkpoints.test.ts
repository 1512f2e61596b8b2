import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../helpers/server.ts'
import { ADAPTERS, type Device, device, liveSync, type Remote, remote, sinces, until } from './devices.ts'
import { sameEverywhere, untilSame } from './histories.ts'
import { call, serve } from './served.ts'

interface Checkpoint {
  readonly _id: string
  readonly _rev: string
  readonly session_id: string
  readonly last_seq: string | number
  readonly history: readonly { readonly session_id: string; readonly last_seq: string | number }[]
}

/** Every checkpoint on the server, by id. */
async function checkpoints(server: { readonly url: string }): Promise<Checkpoint[]> {
  const { json } = await call(server, 'GET', '/notes/_local_docs?include_docs=true')
  return (json as { rows: { doc: Checkpoint }[] }).rows.map(({ doc }) => doc)
}

async function write(db: Device, name: string, count: number): Promise<void> {
  await db.bulkDocs(Array.from({ length: count }, (_, n) => ({ _id: `${name}-${n}`, n })))
}

t.test('checkpoints have the shape that PouchDB gives them, on both sides', async (t) => {
  const server = await serve(t)
  const phone = await device(t)
  const there = remote(`${server.url}/notes`)
  await write(phone, 'a', 3)
  const { last_seq } = await phone.replicate.to(there.db)
  const [first] = await checkpoints(server)
  t.match(first, {
    _id: /^_local\/[A-Za-z0-9._]{22}==$/,
    _rev: '0-1',
    session_id: /^[-0-9a-f]{36}$/,
    last_seq,
    version: 1,
    replicator: 'pouchdb',
    history: [{ last_seq, session_id: first?.session_id }],
  })
  const id = first?._id as string
  t.match(await phone.get(id), { session_id: first?.session_id, last_seq }, 'the same on the device')
  t.match(await there.db.get(id), { _id: id, _rev: '0-1', last_seq })

  await write(phone, 'b', 1)
  await phone.replicate.to(there.db)
  const [second] = await checkpoints(server)
  t.match(second, { _id: id, _rev: '0-2', history: { length: 2 } })
  t.not(second?.session_id, first?.session_id)

  const { update_seq } = (await call(server, 'GET', '/notes')).json as { update_seq: string }
  await phone.replicate.from(there.db)
  const pulled = (await checkpoints(server)).find(({ _id }) => _id !== id)
  t.equal(pulled?.last_seq, update_seq, 'a pull notes the sequence token that the server gave')
  t.strictSame(((await call(server, 'GET', '/notes')).json as { update_seq: string }).update_seq, update_seq)
})

for (const adapter of ADAPTERS) {
  t.test(`replications go on where they were after a restart of the server, ${adapter}`, async (t) => {
    const server = await serve(t)
    const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
    await write(phone, 'a', 40)
    await phone.sync(remote(`${server.url}/notes`).db)
    await desk.sync(remote(`${server.url}/notes`).db)
    for (const round of [1, 2, 3]) {
      await server.stop()
      await server.start()
      await phone.put({ _id: `round-${round}` })
      await call(server, 'PUT', `/notes/curl-${round}`, { body: {} })
      const there = remote(`${server.url}/notes`)
      t.match(await phone.sync(there.db), {
        push: { docs_read: 1, docs_written: 1 },
        pull: { docs_read: 1 },
      })
      t.match(await desk.replicate.from(there.db), { docs_read: 2, docs_written: 2 })
      t.notOk(sinces(there).includes('0'), `no feed from the beginning: ${sinces(there)}`)
    }
    await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
  })
}

t.test('a database is deleted and made again between two syncs: devices push everything again', async (t) => {
  const server = await serve(t)
  const [phone, desk] = [await device(t), await device(t)]
  const there = remote(`${server.url}/notes`)
  await write(phone, 'a', 30)
  for (const db of [phone, desk, phone]) await db.sync(there.db)
  const before = (await call(server, 'GET', '/notes')).json as { instance_start_time: string }
  t.equal((await call(server, 'DELETE', '/notes')).status, 200)
  t.equal((await call(server, 'PUT', '/notes')).status, 201)
  t.match(await checkpoints(server), [], 'no checkpoint of the old one')
  await call(server, 'PUT', '/notes/new', { body: { text: 'of the new one' } })
  await write(desk, 'meanwhile', 1)
  t.match(await phone.sync(there.db), { push: { docs_written: 30 }, pull: { docs_written: 1 } })
  t.match(await desk.sync(there.db), { push: { docs_written: 1 }, pull: { docs_written: 1 } })
  await phone.sync(there.db)
  const histories = await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
  t.equal(Object.keys(histories).length, 32)
  const { instance_start_time } = (await call(server, 'GET', '/notes')).json as typeof before
  t.ok(Number(instance_start_time) >= Number(before.instance_start_time))
})

t.test('a database is deleted and made again while devices sync live', async (t) => {
  const server = await serve(t)
  const devices = [await device(t), await device(t)] as const
  const remotes = devices.map(() => remote(`${server.url}/notes`))
  await write(devices[0], 'a', 30)
  for (const [at, db] of devices.entries()) liveSync(t, db, (remotes[at] as Remote).db)
  const all = { server, database: 'notes', devices }
  await untilSame(t, all, (now) => Object.keys(now).length === 30)
  await call(server, 'DELETE', '/notes')
  for (const [at, db] of devices.entries()) {
    await db.put({ _id: `while-away-${at}` })
    const { seen } = remotes[at] as Remote
    await until('it has heard of it', () =>
      seen.some(({ method, status }) => method === 'POST' && status === 404),
    )
  }
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/new', { body: {} })
  const histories = await untilSame(t, all, (now) => Object.keys(now).length === 33)
  t.ok('new' in histories && 'a-0' in histories)
})

t.test('the data folder is put back to an older state', async (t) => {
  const server = await serve(t)
  const devices = [await device(t), await device(t)] as const
  const there = remote(`${server.url}/notes`)
  const meet = async () => {
    for (const db of [...devices, devices[0]]) await db.sync(there.db)
  }
  await write(devices[0], 'a', 5)
  await meet()
  await server.stop()
  const copy = join(await temporaryFolder(t), 'copy')
  await cp(server.dataDir, copy, { recursive: true })
  await server.start()
  await write(devices[1], 'after-the-copy', 30)
  await meet()
  await server.stop()
  await rm(server.dataDir, { recursive: true })
  await cp(copy, server.dataDir, { recursive: true })
  await server.start()
  for (let n = 0; n < 3; n++) await call(server, 'PUT', `/notes/after-the-return-${n}`, { body: {} })
  await meet()
  const histories = await sameEverywhere(t, { server, database: 'notes', devices })
  t.equal(Object.keys(histories).length, 38, 'devices have given back what they had')
})
