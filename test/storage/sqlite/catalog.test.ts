/** What server.sqlite tells of databases after ends that were no proper ones, and of older files. */
import { copyFile, cp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { Catalog } from '../../../src/storage/catalog.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put } from '../conformance/edits.ts'

async function open(t: Test, dataDir: string) {
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  return { engine, catalog: await engine.openCatalog() }
}

async function rowsOf(catalog: Catalog): Promise<string[]> {
  const { rows } = await catalog.readUpdates({ since: 0 }, 100)
  return rows.map(({ seq, name, type }) => `${seq} ${name} ${type}`)
}

t.test('what was open when the server ended in the middle counts as written to', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const name of ['closed', 'open', 'idle']) await catalog.create(name)
  const closed = await engine.openDatabase('closed')
  await closed.updateDocs([put('x')])
  await closed.close()
  await (await engine.openDatabase('open')).updateDocs([put('x')])
  const crashed = await temporaryFolder(t)
  await cp(dataDir, crashed, { recursive: true })
  const made = ['1 closed created', '2 open created', '3 idle created']
  t.same(await rowsOf((await open(t, crashed)).catalog), [...made, '4 open updated'])
  await engine.close()
  t.same(await rowsOf((await open(t, dataDir)).catalog), made, 'and after a proper end nothing does')
})

t.test('files that came and went while the server was stopped', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const name of ['a', 'b']) await catalog.create(name)
  await engine.close()
  const file = (name: string) => join(dataDir, 'databases', `${name}.sqlite`)
  await copyFile(file('a'), file('c'))
  await rm(file('b'))
  t.same(await rowsOf((await open(t, dataDir)).catalog), [
    '1 a created',
    '2 b created',
    '3 b deleted',
    '4 c created',
  ])
})

t.test('a log that was left of a deleted database is none of a new one of its name', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  await catalog.create('a')
  const store = await engine.openDatabase('a')
  await store.updateDocs([put('old')])
  const log = join(dataDir, 'databases', 'a.sqlite-wal')
  await copyFile(log, `${log}.kept`)
  await store.close()
  await catalog.delete('a')
  await rename(`${log}.kept`, log)
  await catalog.create('a')
  const again = await engine.openDatabase('a')
  t.equal((await again.info()).docCount, 0)
  await again.close()
})

t.test('a server.sqlite of before there were updates', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const name of ['b', 'a']) await catalog.create(name)
  const { serverUuid } = catalog
  const before = await catalog.list()
  await engine.close()
  const file = new Sqlite(join(dataDir, 'server.sqlite'))
  file.exec(
    "DROP TABLE record; DROP TABLE database_update; DELETE FROM server WHERE key LIKE 'update%'; PRAGMA user_version = 0",
  )
  file.close()
  const again = await open(t, dataDir)
  t.equal(again.catalog.serverUuid, serverUuid)
  t.same(await again.catalog.list(), before)
  t.same(await rowsOf(again.catalog), ['1 b created', '2 a created'])
  const { epochs } = await again.catalog.readUpdates({ since: 0 }, 0)
  await again.engine.close()
  const third = await open(t, dataDir)
  t.same((await third.catalog.readUpdates({ since: 0 }, 0)).epochs, epochs, 'tokens given out are kept')
})
