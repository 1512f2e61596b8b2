/**
 * A database is restored while devices sync with it: all data of all devices comes back. `RESTORE_ROUNDS=50` repeats
 * this 50 times.
 */

import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { App, copyNotes, type Habit, restoreNotes, untilAllHave } from '../../faults/restoring.ts'
import { startTestServer } from '../../helpers/server.ts'
import { call } from '../../protocol/call.ts'
import type { Device } from '../../protocol/devices.ts'
import { sameEverywhere, untilSame } from '../../protocol/histories.ts'

const ROUNDS = Number(process.env.RESTORE_ROUNDS ?? 1)
const HABITS: readonly Habit[] = ['live', 'live', 'live without retry', 'once and again', 'stopped meanwhile']

function write(db: Device, name: string, count: number) {
  return db.bulkDocs(Array.from({ length: count }, (_, n) => ({ _id: `${name}-${n}`, of: name, n })))
}

t.setTimeout(120_000 * ROUNDS)

for (let round = 1; round <= ROUNDS; round++) {
  t.test(`devices of every kind at once, round ${round}`, async (t) => {
    const server = await startTestServer(t)
    const apps = await Promise.all(HABITS.map((habit) => App.start(t, habit, server)))
    const devices = apps.map(({ db }) => db)
    const all = { server, database: 'notes', devices }
    for (const [at, db] of devices.entries()) {
      await write(db, `before-${at}`, 20)
      await db.put({ _id: `changed-${at}`, text: 'first' })
      await db.put({ _id: `deleted-${at}` })
    }
    await untilSame(t, all, (now) => Object.keys(now).length === devices.length * 22)
    const copy = await copyNotes(t, server)

    // The restore loses new notes, changes, deletions, an attachment and a conflict.
    for (const [at, db] of devices.entries()) {
      await write(db, `lost-${at}`, 20)
      await db.put({ ...(await db.get(`changed-${at}`)), text: 'second' })
      await db.remove(await db.get(`deleted-${at}`))
      const picture = { content_type: 'image/png', data: Buffer.from(`picture ${at}`) }
      await db.put({ _id: `picture-${at}`, _attachments: { 'a.png': picture } })
    }
    const [first, second] = devices as [Device, Device]
    for (const [db, digit] of [
      [first, '1'],
      [second, '2'],
    ] as const) {
      const [id, parent] = [digit.repeat(32), 'a'.repeat(32)]
      const doc = {
        _id: 'changed-0',
        _rev: `2-${id}`,
        _revisions: { start: 2, ids: [id, parent] },
        text: digit,
      }
      await db.bulkDocs([doc], { new_edits: false })
    }
    await untilSame(t, all, (now) => Object.keys(now).length === devices.length * 43)
    await untilAllHave(server, devices, ['picture-0', 'lost-4-19'])
    await apps[4]?.stop()

    // Some devices continue to write during the restore.
    let isOver = false
    const writers = [0, 2, 3].map(async (at) => {
      for (let n = 0; !isOver; n++) {
        await devices[at]?.put({ _id: `meanwhile-${at}-${n}` })
        await delay(5)
      }
    })
    await delay(100)
    const { restored } = await restoreNotes(server, copy)
    t.match(restored, [{ database: 'notes', kept: String }])
    await delay(100)
    isOver = true
    await Promise.all(writers)

    apps[4]?.start()
    await call(server, 'PUT', '/notes/after', { body: { text: 'what wakes who is idle' } })
    await untilAllHave(server, devices, ['after'])
    const histories = await untilSame(
      t,
      all,
      (now) => Object.keys(now).filter((id) => /^lost/.test(id)).length === devices.length * 20,
    )
    for (const at of devices.keys()) {
      t.ok(histories[`meanwhile-${at}-0`] !== undefined || ![0, 2, 3].includes(at))
      t.equal(histories[`deleted-${at}`]?.winner, null, 'a deletion that was lost')
      t.ok(histories[`picture-${at}`]?.leaves[0]?.attachments['a.png'])
      t.match(
        histories[`changed-${at}`]?.leaves.find(({ body }) => (body as { text: string }).text === 'second'),
        {},
      )
    }
    t.equal(histories['changed-0']?.leaves.length, 3, 'the conflict')
    await sameEverywhere(t, all)
    const statuses = apps.flatMap(({ errors }) => errors.map(({ status }) => status))
    t.comment(
      `errors that apps were told of: ${apps.map(({ habit, errors }) => `${habit}: ${errors.length}`)}`,
    )
    t.notOk(statuses.includes(409))
  })
}
