/** As test/protocol/moved-devices.test.ts, from pouchdb-server, whose sequences are bare numbers. */

import t from 'tap'
import { startPouchdbServer } from '../../../bench/pouchdb-server.ts'
import { startTestServer } from '../../helpers/server.ts'
import { devicesGoOn } from '../../protocol/moved-server.ts'

// The first run installs pouchdb-server.
t.setTimeout(600_000)

t.test('after a move from pouchdb-server, devices do not resync', async (t) => {
  const old = await startPouchdbServer()
  t.teardown(() => old.close())
  await devicesGoOn(t, old.origin, await startTestServer(t), 500)
})
