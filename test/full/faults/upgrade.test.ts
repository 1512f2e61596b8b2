/** Data folders of every earlier schema, served by this version; and its errors for newer ones. */
import { copyFile, mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { SERVER_MIGRATIONS } from '../../../src/storage/sqlite/server-migrations.ts'
import { NEWEST, schemaOfFile, writeOldFile } from '../../helpers/old-files.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { everythingIn, fill, ID } from '../../helpers/whole-database.ts'

const OLDER = Array.from({ length: NEWEST - 1 }, (_, n) => n + 1)
function databaseFile(dataDir: string, name: string): string {
  return join(dataDir, 'databases', `${name}.sqlite`)
}

t.test('databases of every earlier schema keep their content and accept writes', async (t) => {
  const first = await startTestServer(t)
  await fill(first, 'notes')
  const held = await everythingIn(first, 'notes')
  t.equal(held[`/doc1?rev=1-${ID(1)}`]?.slice(0, 3), '200', 'a superseded body among it')
  await first.close()
  const dataDir = await temporaryFolder(t)
  await mkdir(join(dataDir, 'databases'))
  for (const schema of OLDER) {
    writeOldFile(databaseFile(dataDir, `v${schema}`), databaseFile(first.dataDir, 'notes'), schema)
  }
  const server = await startTestServer(t, { dataDir })
  // Concurrently, as after a start when all devices reconnect.
  const all = await Promise.all(OLDER.map((schema) => everythingIn(server, `v${schema}`)))
  for (const [at, told] of all.entries()) t.same(told, held, `schema ${OLDER[at]}`)
  const writtenOn: Record<string, string>[] = []
  for (const schema of OLDER) {
    const db = `v${schema}`
    const { json } = await server.request('GET', `/${db}/attached`)
    t.equal((await server.request('PUT', `/${db}/attached`, { body: { ...json, more: 1 } })).status, 201)
    t.equal((await server.request('DELETE', `/${db}/doc3?rev=2-${ID(9)}`)).status, 200)
    t.equal((await server.request('PUT', `/${db}/new`, { body: { a: 1 } })).status, 201)
    t.equal((await server.request('POST', `/${db}/_compact`, { body: {} })).status, 202)
    writtenOn.push(await everythingIn(server, db))
  }
  await server.close()
  const again = await startTestServer(t, { dataDir })
  for (const [at, schema] of OLDER.entries()) {
    const told = await everythingIn(again, `v${schema}`)
    // A compaction may have removed old bodies before or after the server was stopped.
    for (const path of Object.keys(told).filter((path) => /revs_info|rev=1/.test(path))) {
      delete told[path]
      delete writtenOn[at]?.[path]
    }
    t.same(told, writtenOn[at], `schema ${schema}, written to and opened again`)
    t.equal(schemaOfFile(join(dataDir, 'before-upgrade', `databases-${schema}`, `v${schema}.sqlite`)), schema)
  }
})

t.test('server.sqlite of every earlier schema', async (t) => {
  const first = await startTestServer(t)
  for (const db of ['a', 'b']) await first.request('PUT', `/${db}`)
  const { uuid } = (await first.request('GET', '/')).json
  await first.close()
  for (const schema of SERVER_MIGRATIONS.keys()) {
    if (schema === 0) continue
    const dataDir = await temporaryFolder(t)
    await mkdir(join(dataDir, 'databases'))
    for (const file of await readdir(join(first.dataDir, 'databases'))) {
      await copyFile(join(first.dataDir, 'databases', file), join(dataDir, 'databases', file))
    }
    const from = join(first.dataDir, 'server.sqlite')
    const path = join(dataDir, 'server.sqlite')
    writeOldFile(path, from, schema, SERVER_MIGRATIONS)
    // These rows are new in the second schema.
    if (schema === 1) change(path, "DELETE FROM server WHERE key LIKE 'update%'")
    const server = await startTestServer(t, { dataDir })
    t.equal((await server.request('GET', '/')).json.uuid, uuid, `schema ${schema}`)
    t.same((await server.request('GET', '/_all_dbs')).json, ['_users', 'a', 'b'])
    await server.close()
    t.equal(schemaOfFile(join(dataDir, 'before-upgrade', `server-${schema}`, 'server.sqlite')), schema)
  }
})

t.test('files of a newer settee are not changed, and reported in one line', async (t) => {
  const server = await startTestServer(t)
  for (const db of ['newer', 'notes']) await server.request('PUT', `/${db}`)
  await server.close()
  const { dataDir } = server
  change(databaseFile(dataDir, 'newer'), `PRAGMA user_version = ${NEWEST + 1}`)
  const again = await startTestServer(t, { dataDir })
  const refusal = await again.request('GET', '/newer')
  t.equal(refusal.status, 500)
  t.match(
    refusal.json.reason,
    /^The database newer was written by a newer settee: its schema is \d+, .*docs\/upgrade\.md/,
  )
  t.equal((await again.request('GET', '/notes')).status, 200, 'others go on')
  await again.close()
  await rm(databaseFile(dataDir, 'newer'))
  change(join(dataDir, 'server.sqlite'), `PRAGMA user_version = ${SERVER_MIGRATIONS.length + 1}`)
  await t.rejects(startTestServer(t, { dataDir }), {
    name: 'StartError',
    message:
      /^\S*server\.sqlite was written by a newer settee: its schema is \d, and this one knows \d\. Start/,
  })
})

function change(path: string, sql: string): void {
  const file = new Sqlite(path)
  file.exec(sql)
  file.close()
}
