import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { onlyOneServer, startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { call } from './call.ts'
import {
  ADAPTERS,
  type Adapter,
  body,
  type Device,
  device,
  liveSync,
  type Remote,
  remote,
  sinces,
} from './devices.ts'
import { sameEverywhere, untilSame } from './histories.ts'

let databases = 0

/** A database, and two devices that share one note. */
async function shared(t: Test, server: TestServer, adapter: Adapter) {
  databases += 1
  const database = `notes-${databases}`
  const devices = [await device(t, adapter), await device(t, adapter)] as const
  const there = remote(`${server.url}/${database}`).db
  await devices[0].put({ _id: 'note', text: 'shared' })
  const all = { server, database, devices }
  /** Both sync twice, so that the first gets the second's edits. */
  const meet = async () => {
    for (const db of [...devices, ...devices]) await db.sync(there)
  }
  await meet()
  return { devices, meet, all }
}

async function edit(db: Device, members: object): Promise<string> {
  return (await db.put({ ...(await db.get('note')), ...members })).rev
}

interface All {
  readonly server: TestServer
  readonly database: string
  readonly devices: readonly Device[]
}

async function onServer({ server, database }: All, query = '?conflicts=true&deleted_conflicts=true') {
  return (await call(server, 'GET', `/${database}/note${query}`)).json as {
    _rev: string
    _conflicts?: string[]
    _deleted_conflicts?: string[]
  }
}

/** Asserts that all have the same winner and the same conflicts. @returns these */
async function agreedOn(t: Test, all: All) {
  const { _rev, _conflicts } = await onServer(all)
  for (const db of all.devices) {
    const doc = await db.get('note', { conflicts: true })
    t.equal(doc._rev, _rev, 'the same winner')
    t.strictSame(doc._conflicts, _conflicts, 'the same conflicts in the same order')
  }
  return { rev: _rev, conflicts: _conflicts ?? [] }
}

for (const adapter of ADAPTERS) {
  t.test(`conflicts, ${adapter}`, async (t) => {
    const server = await startTestServer(t)

    t.test('made on both devices and resolved on one', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      const [phone, desk] = devices
      const revs = [await edit(phone, { text: 'phone' }), await edit(desk, { text: 'desk' })]
      await meet()
      const { rev, conflicts } = await agreedOn(t, all)
      t.strictSame([rev, ...conflicts], [...revs].sort().reverse(), 'the greater id has won')
      t.match(await phone.get('note', { rev: conflicts[0] as string }), { text: /phone|desk/ })
      await desk.put({ ...(await desk.get('note')), text: 'phone and desk' })
      await desk.remove('note', conflicts[0] as string)
      await meet()
      t.strictSame((await agreedOn(t, all)).conflicts, [])
      t.match(await onServer(all), { text: 'phone and desk', _deleted_conflicts: { length: 1 } })
      t.equal((await sameEverywhere(t, all)).note?.leaves.length, 2)
    })

    t.test('resolved on both devices in the same way', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      await edit(devices[0], { text: 'phone' })
      await edit(devices[1], { text: 'desk' })
      await meet()
      for (const db of devices) {
        const doc = await db.get('note', { conflicts: true })
        const losers = doc._conflicts ?? []
        t.equal(losers.length, 1)
        const { _id, _rev } = doc
        await db.put({ _id, _rev, text: 'merged' })
        for (const loser of losers) await db.remove('note', loser)
      }
      await meet()
      t.strictSame((await agreedOn(t, all)).conflicts, [])
      t.match(await onServer(all), { text: 'merged', _rev: /^3-/ })
      await sameEverywhere(t, all)
    })

    t.test('resolved on both devices in different ways, and once more', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      for (const [at, db] of devices.entries()) await edit(db, { text: `device ${at}` })
      await meet()
      for (const [at, db] of devices.entries()) {
        const { _conflicts: [loser] = [] } = await db.get('note', { conflicts: true })
        await edit(db, { text: `merged on ${at}` })
        await db.remove('note', loser as string)
      }
      await meet()
      const { conflicts } = await agreedOn(t, all)
      t.equal(conflicts.length, 1, 'the two ways are a conflict themselves')
      await devices[0].remove('note', conflicts[0] as string)
      await meet()
      t.strictSame((await agreedOn(t, all)).conflicts, [])
    })

    t.test('the same id made on both devices', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      for (const [at, db] of devices.entries()) await db.put({ _id: 'today', text: `from ${at}` })
      for (const db of devices) await db.put({ _id: 'same', text: 'the very same' })
      await meet()
      const histories = await sameEverywhere(t, all)
      t.match(histories.today?.leaves, [{ rev: /^1-/ }, { rev: /^1-/ }])
      t.equal(histories.same?.leaves.length, 1, 'equal texts are one revision')
      t.equal((await onServer(all, ''))._rev[0], '1')
    })

    t.test('an edit beats a deletion; a longer history beats a shorter one', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      const [phone, desk] = devices
      await phone.remove(await phone.get('note'))
      await edit(desk, { text: 'still needed' })
      await meet()
      t.match(await agreedOn(t, all), { rev: /^2-/, conflicts: [] })
      t.match(await onServer(all), { text: 'still needed', _deleted_conflicts: { length: 1 } })
      for (const text of ['a', 'b', 'c']) await edit(phone, { text })
      await edit(desk, { text: 'z' })
      await meet()
      t.match(await agreedOn(t, all), { rev: /^5-/, conflicts: [/^3-/] })
      t.equal((await sameEverywhere(t, all)).note?.leaves.length, 3)
    })
  })

  t.test(`deleting and creating again, ${adapter}`, async (t) => {
    const server = await startTestServer(t)

    t.test('deleted on both sides, created again on both', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      for (const db of devices) await db.remove(await db.get('note'))
      await meet()
      t.equal((await sameEverywhere(t, all)).note?.leaves.length, 1, 'the same deletion is one revision')
      t.match((await call(server, 'GET', `/${all.database}/note`)).json, {
        error: 'not_found',
        reason: 'deleted',
      })
      for (const [at, db] of devices.entries()) await db.put({ _id: 'note', text: `again ${at}` })
      await meet()
      t.match(await agreedOn(t, all), { rev: /^3-/, conflicts: { length: 1 } })
      await sameEverywhere(t, all)
    })

    t.test('created again on the server, by a client without the revision', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      await devices[0].remove(await devices[0].get('note'))
      await meet()
      const { status } = await call(server, 'PUT', `/${all.database}/note`, { body: { text: 'by curl' } })
      t.equal(status, 201)
      await meet()
      for (const db of devices) t.match(body(await db.get('note')), { text: 'by curl' })
      t.match((await sameEverywhere(t, all)).note, { winner: /^3-/, leaves: { length: 1 } })
    })

    t.test('a tombstone keeps its members', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      await edit(devices[0], { _deleted: true, deletedBy: 'phone' })
      await meet()
      t.match((await sameEverywhere(t, all)).note, {
        winner: null,
        leaves: [{ deleted: true, body: { text: 'shared', deletedBy: 'phone' } }],
      })
    })
  })
}

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

t.test('checkpoints have the form that PouchDB gives them, on both sides', async (t) => {
  const server = await startTestServer(t)
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
  t.test(`replications continue after a restart of the server, ${adapter}`, async (t) => {
    const server = await startTestServer(t)
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

t.test(
  'a database is deleted and created again between two syncs: devices push everything again',
  async (t) => {
    const server = await startTestServer(t)
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
  },
)

t.test('a database is deleted and created again while devices sync live', async (t) => {
  const server = await startTestServer(t)
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

t.test(
  'the data folder is restored to an older state',
  onlyOneServer('It needs the files of a database.'),
  async (t) => {
    const server = await startTestServer(t)
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
  },
)
