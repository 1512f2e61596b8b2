/** Owners, tenants and sizes that an older settee has stored; docs/decisions/0055. */
import { rename } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { SERVER_MIGRATIONS } from '../../../src/storage/sqlite/server-migrations.ts'
import { writeOldFile } from '../../helpers/old-files.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { startHostedServer } from '../../hosted/hosted-server.ts'

t.test('the records of an older settee', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await startHostedServer(t, {}, dataDir)
  await first.hosted.databases.create('notes', 'anna')
  await first.hosted.databases.create('halfway', null)
  await first.hosted.accounts.create({ name: 'cora', password: 'x', roles: [], quota: {} })
  await first.close()
  const path = join(dataDir, 'server.sqlite')
  await rename(path, join(dataDir, 'new'))
  writeOldFile(path, join(dataDir, 'new'), 3, SERVER_MIGRATIONS)
  const file = new Sqlite(path)
  file.exec("DELETE FROM record WHERE kind LIKE 'owner%' OR kind LIKE 'usage%'")
  const put = file.prepare('INSERT INTO record (kind, key, value) VALUES (?, ?, ?)')
  put.run('owner', 'notes', '{"account":"anna"}')
  put.run('owner', 'old', '{"account":"anna","state":"deleted"}')
  put.run('owner', 'halfway', '{"account":"zoë","state":"making"}')
  put.run('usage', 'notes', '{"bytes":123456789,"documents":7}')
  put.run('tenant', 'cora', '{"quota":{},"suspended":false,"leaving":true}')
  file.close()
  const { hosted } = await startHostedServer(t, {}, dataDir)
  const { owners } = hosted
  t.same(await owners.namesInUpdates('anna'), { own: ['notes'], former: ['old'] })
  t.same(
    await owners.databasesOf('zoë', {}, 10),
    ['halfway'],
    'the start has finished the creation of the database',
  )
  t.match(await owners.totalsOf('anna'), { databases: 1, documents: 7, bytes: 123456789 })
  t.match(await hosted.tenantUsage(10), [
    { account: 'anna', bytes: 123456789 },
    { account: 'zoë', databases: 1 },
  ])
  t.equal(await hosted.policy.refusalOf('cora'), null, 'the deletion of the account is finished')
})
