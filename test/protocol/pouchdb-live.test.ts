import { once } from 'node:events'
import t from 'tap'
import { ADAPTERS, type Device, device, liveSync, type Remote, remote, until } from './devices.ts'
import { type Histories, untilSame } from './histories.ts'
import { call, serve } from './served.ts'

/** Where the live pulls that wait for news begin. */
function longpolls({ seen }: Remote): (string | null)[] {
  return seen.filter(({ query }) => query.get('feed') === 'longpoll').map(({ query }) => query.get('since'))
}

async function textOf(db: Device, id: string): Promise<unknown> {
  return db.get(id).then(
    ({ text }) => text,
    (error: { reason?: string }) => error.reason,
  )
}

function winnersOf(histories: Histories, id: string) {
  const found = histories[id]
  return found?.leaves.find(({ rev }) => rev === found.winner)?.body
}

for (const adapter of ADAPTERS) {
  t.test(`live sync of two devices, ${adapter}`, async (t) => {
    const server = await serve(t)
    const devices = [await device(t, adapter), await device(t, adapter)] as const
    const [phone, desk] = devices
    await phone.bulkDocs([{ _id: 'before', text: 'written before the sync began' }])
    const syncs = devices.map((db) => liveSync(t, db, remote(`${server.url}/notes`).db))
    const all = { server, database: 'notes', devices }

    t.test('edits travel both ways', async (t) => {
      await until('the first note is there', async () => (await textOf(desk, 'before')) !== 'missing')
      for (const [from, to, text] of [
        [phone, desk, 'one'],
        [desk, phone, 'two'],
        [phone, desk, 'three'],
      ] as const) {
        await from.put({ ...(await from.get('before')), text })
        await until(`"${text}" has arrived`, async () => (await textOf(to, 'before')) === text)
      }
      await untilSame(t, all)
    })

    t.test('so do deletions, and notes made anew under a deleted id', async (t) => {
      await desk.remove(await desk.get('before'))
      await until('it is gone', async () => (await textOf(phone, 'before')) === 'deleted')
      await phone.put({ _id: 'before', text: 'again' })
      await until('it is back', async () => (await textOf(desk, 'before')) === 'again')
      const { before } = await untilSame(t, all)
      t.equal(before?.leaves.length, 1)
    })

    t.test('and what others write to the server', async () => {
      await call(server, 'PUT', '/notes/by-curl', { body: { text: 'hello' } })
      for (const db of devices) {
        await until('it has arrived', async () => (await textOf(db, 'by-curl')) === 'hello')
      }
    })

    t.test('edits in quick succession on both', async (t) => {
      const edits = 30
      const writeAll = async (db: Device, id: string) => {
        for (let n = 1; n <= edits; n++) {
          const { _rev } = await db.get(id).catch(() => ({ _rev: undefined }))
          await db.put({ _id: id, text: n, ...(_rev !== undefined && { _rev }) })
        }
      }
      await Promise.all([writeAll(phone, 'fast-phone'), writeAll(desk, 'fast-desk')])
      const histories = await untilSame(t, all, (now) =>
        ['fast-phone', 'fast-desk'].every(
          (id) => (winnersOf(now, id) as { text?: number } | undefined)?.text === edits,
        ),
      )
      for (const id of ['fast-phone', 'fast-desk']) {
        t.match(histories[id]?.leaves, [{ ancestry: { length: edits } }], 'no conflict, no revision skipped')
      }
    })

    t.test('the server goes away and comes back', async (t) => {
      await server.stop()
      await phone.put({ _id: 'meanwhile-phone', text: 'p' })
      await desk.put({ _id: 'meanwhile-desk', text: 'd' })
      await desk.put({ ...(await desk.get('by-curl')), text: 'edited while away' })
      await server.start()
      await untilSame(t, all, (now) => 'meanwhile-phone' in now && 'meanwhile-desk' in now)
      t.equal(await textOf(phone, 'by-curl'), 'edited while away')
    })

    t.strictSame(
      syncs.flatMap(({ errors, denied }) => [...errors, ...denied]),
      [],
    )
  })
}

t.test('an idle live sync stays idle', async (t) => {
  const server = await serve(t)
  const phone = await device(t)
  const there = remote(`${server.url}/notes`)
  await phone.put({ _id: 'a', text: '1' })
  liveSync(t, phone, there.db)
  const tip = async () => ((await call(server, 'GET', '/notes')).json as { update_seq?: string }).update_seq
  const waitsAtTip = async () => longpolls(there).at(-1) === (await tip())
  await until('the note is there', async () => (await tip())?.startsWith('1-') ?? false)
  await until('its checkpoints are written', async () => (await checkpoints()).length === 2)
  await until('it waits', waitsAtTip)
  const before = longpolls(there).length
  for (let n = 0; n < 5; n++) {
    const { json } = await call(server, 'GET', '/notes/_local/unseen')
    await call(server, 'PUT', '/notes/_local/unseen', { body: { n, _rev: (json as { _rev?: string })._rev } })
  }
  const changed = phone.changes({ live: true, since: 'now' })
  t.teardown(() => changed.cancel())
  const arrived = once(changed, 'change')
  await call(server, 'PUT', '/notes/b', { body: {} })
  await arrived
  await until('it waits again', waitsAtTip)
  t.equal(longpolls(there).length, before + 1, 'only a note has woken it, no local document')

  async function checkpoints() {
    const { json } = await call(server, 'GET', '/notes/_local_docs')
    return (json as { rows?: unknown[] }).rows ?? []
  }
})
