/** A PouchDB device whose server has moved here goes on from its checkpoints. */

import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { device } from './devices.ts'
import { countedRemote, devicesGoOn } from './moved-server.ts'

const NOTES = 400

t.test('after a move from another settee, devices do not resync', async (t) => {
  const [old, server] = [await startTestServer(t), await startTestServer(t)]
  await devicesGoOn(t, old.url, server, NOTES)

  t.test('an empty device gets everything', async (t) => {
    const tablet = await device(t)
    const { db } = countedRemote(`${server.url}/notes`)
    t.match(await tablet.replicate.from(db), { docs_written: NOTES + 2 })
  })
})
