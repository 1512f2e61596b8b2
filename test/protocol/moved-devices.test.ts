/** A PouchDB device whose server has moved here goes on from its checkpoints. */
import t from 'tap'
import { device } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { countedRemote, moveByHand } from './moved-server.ts'
import { call, serve } from './served.ts'

const NOTES = 400
/** The most that the first sync after the move may take of a full one. */
const SHARE = 0.02

t.test('after a move from another settee, devices do not resync', async (t) => {
  const old = await serve(t)
  const server = await serve(t)
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs(
    Array.from({ length: NOTES }, (_, n) => ({ _id: `note-${n}`, text: 'word '.repeat(300) })),
  )
  const before = countedRemote(`${old.url}/notes`)
  await phone.sync(before.db)
  // Its pull has ended before its push.
  await phone.sync(before.db)
  const full = countedRemote(`${old.url}/notes`)
  await desk.sync(full.db)
  await desk.put({ _id: 'new', text: 'from the desk' })
  await desk.sync(full.db)
  const checkpoints = [...before.traffic.checkpoints, ...full.traffic.checkpoints]
  await moveByHand(t, { url: old.url, name: 'notes', checkpoints }, server)
  await old.stop()
  await phone.put({ _id: 'offline', text: 'from the phone' })

  const after = countedRemote(`${server.url}/notes`)
  const { pull, push } = await phone.sync(after.db)
  t.match(
    [pull, push],
    [
      { docs_read: 1, errors: [] },
      { docs_read: 1, errors: [] },
    ],
  )
  t.ok(
    after.traffic.bytes < SHARE * full.traffic.bytes,
    `${after.traffic.bytes} of ${full.traffic.bytes} bytes`,
  )
  t.match(await desk.sync(countedRemote(`${server.url}/notes`).db), { pull: { docs_read: 1 } })
  await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
  t.match((await call(server, 'GET', '/notes')).json, { doc_count: NOTES + 2 })

  t.test('an empty device gets everything', async (t) => {
    const tablet = await device(t)
    t.match(await tablet.replicate.from(countedRemote(`${server.url}/notes`).db), { docs_written: NOTES + 2 })
  })
})
