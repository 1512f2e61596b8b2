import t, { type Test } from 'tap'
import { ADAPTERS, type Adapter, body, type Device, device, remote } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { call, type ServedServer, serve } from './served.ts'

let databases = 0

/** A database, and two devices that share one note. */
async function shared(t: Test, server: ServedServer, adapter: Adapter) {
  databases += 1
  const database = `notes-${databases}`
  const devices = [await device(t, adapter), await device(t, adapter)] as const
  const there = remote(`${server.url}/${database}`).db
  await devices[0].put({ _id: 'note', text: 'shared' })
  const all = { server, database, devices }
  /** Both sync, and again, so that the first hears of the second. */
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
  readonly server: ServedServer
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

/** Asserts that all name the same winner and the same conflicts; @returns them. */
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
    const server = await serve(t)

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

  t.test(`deleting and making anew, ${adapter}`, async (t) => {
    const server = await serve(t)

    t.test('deleted on both, made anew on both', async (t) => {
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

    t.test('made anew on the server, by a client that knows no revision', async (t) => {
      const { devices, meet, all } = await shared(t, server, adapter)
      await devices[0].remove(await devices[0].get('note'))
      await meet()
      const { status } = await call(server, 'PUT', `/${all.database}/note`, { body: { text: 'by curl' } })
      t.equal(status, 201)
      await meet()
      for (const db of devices) t.match(body(await db.get('note')), { text: 'by curl' })
      t.match((await sameEverywhere(t, all)).note, { winner: /^3-/, leaves: { length: 1 } })
    })

    t.test('a tombstone keeps what was put into it', async (t) => {
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
