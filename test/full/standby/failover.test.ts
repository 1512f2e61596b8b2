/**
 * The primary is killed while devices of every kind sync and a client writes. The promoted standby has everything that the
 * primary had acknowledged longer ago than the lag, and the devices lose nothing of their own. `STANDBY_ROUNDS=50` repeats
 * this 50 times.
 */
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { App, type Habit } from '../../faults/restoring.ts'
import { startChildServer } from '../../helpers/child-server.ts'
import { startTestServer } from '../../helpers/server.ts'
import { switchableAddress } from '../../helpers/switchable-address.ts'
import { call } from '../../protocol/call.ts'
import type { Device } from '../../protocol/devices.ts'
import { sameEverywhere, untilSame } from '../../protocol/histories.ts'

const ROUNDS = Number(process.env.STANDBY_ROUNDS ?? 2)
const HABITS: readonly Habit[] = ['live', 'live', 'live without retry', 'once and again', 'stopped meanwhile']

t.setTimeout(180_000 * ROUNDS)

for (let round = 1; round <= ROUNDS; round++) {
  t.test(`the primary is killed, round ${round}`, async (t) => {
    const primary = await startChildServer(t)
    const standby = await startTestServer(t)
    const controls = await reachServer(standby.dataDir)
    if (controls === null) throw new Error('the standby does not listen')
    const address = await switchableAddress(t, primary.url)
    await call(primary, 'PUT', '/notes')
    await call(primary, 'PUT', '/written')
    await controls.follow({ url: primary.url, again: false })

    const apps = await Promise.all(HABITS.map((habit) => App.start(t, habit, address)))
    const devices = apps.map(({ db }) => db)
    for (const [at, db] of devices.entries()) await write(db, `before-${at}`, 20)
    const everything = { server: primary, database: 'notes', devices }
    await untilSame(t, everything, (now) => Object.keys(now).length === devices.length * 20)
    await apps[4]?.stop()
    while (((await controls.readStandby({})).lagSeconds ?? 99) > 5) await delay(50)

    let isOver = false
    const journal: { id: string; at: number }[] = []
    const writers = devices.slice(0, 4).map(async (db, at) => {
      for (let n = 0; !isOver; n++) {
        await db.put({ _id: `meanwhile-${at}-${n}` })
        await delay(20)
      }
    })
    const client = (async () => {
      for (let n = 0; !isOver; n++) {
        const id = `doc-${n}`
        const answer = await call(primary, 'PUT', `/written/${id}`, { body: { n } }).catch(() => null)
        if (answer?.status === 201) journal.push({ id, at: performance.now() })
        await delay(5)
      }
    })()
    // At a random moment, when some of the writes are older than the lag.
    const writing = performance.now()
    const more = 2000 + Math.random() * 3000
    let lagSeconds: number | null = null
    let knownAt = writing
    while (knownAt - writing < (lagSeconds ?? 60) * 1000 + more) {
      await delay(20)
      lagSeconds = (await controls.readStandby({})).lagSeconds
      knownAt = performance.now()
    }
    await primary.kill()
    address.leadTo(null)
    const began = performance.now()
    await controls.promote({})
    const took = performance.now() - began
    t.ok(took < 1000, `the promotion takes ${Math.round(took)} ms`)
    address.leadTo(standby.url)
    t.ok(lagSeconds !== null && lagSeconds < 30, `the standby was ${lagSeconds} s behind`)
    // The report rounds to 0.1 s.
    const certain = journal.filter(({ at }) => at < knownAt - ((lagSeconds ?? 0) + 0.1) * 1000)
    t.ok(certain.length > 10)
    const stored = await call(standby, 'POST', '/written/_all_docs', {
      body: { keys: certain.map(({ id }) => id) },
    })
    const rows = (stored.json as { rows: { error?: string }[] }).rows
    t.same(
      rows.filter(({ error }) => error !== undefined),
      [],
      `all ${certain.length} of ${journal.length} acknowledged writes that must be there are`,
    )
    await delay(500)
    isOver = true
    await Promise.all([...writers, client])
    apps[4]?.start()
    await call(standby, 'PUT', '/notes/after', { body: {} })
    const own = await idsOf(devices)
    const all = { server: standby, database: 'notes', devices }
    await untilSame(t, all, (now) => [...own, 'after'].every((id) => now[id] !== undefined))
    const histories = await sameEverywhere(t, all)
    t.same(
      own.filter((id) => histories[id] === undefined),
      [],
      `the devices lose none of their ${own.length} documents`,
    )
    for (const app of apps) await app.stop()
  })
}

function write(db: Device, name: string, count: number) {
  return db.bulkDocs(Array.from({ length: count }, (_, n) => ({ _id: `${name}-${n}`, of: name, n })))
}

async function idsOf(devices: readonly Device[]): Promise<string[]> {
  const lists = await Promise.all(devices.map(async (db) => (await db.allDocs()).rows.map(({ id }) => id)))
  return [...new Set(lists.flat())].filter((id) => id !== 'after')
}
