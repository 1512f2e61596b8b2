/** One settee a data folder; those of before the lock had a file of its own held `server.sqlite` itself. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const IN_USE = /is in use by another settee/

/** Takes a folder as settee 0.1 did. @throws SqliteError when it is held */
function takeAsBefore(dataDir: string): Sqlite.Database {
  const file = new Sqlite(join(dataDir, 'server.sqlite'), { timeout: 0 })
  try {
    file.pragma('locking_mode = EXCLUSIVE')
    file.pragma('journal_mode = WAL')
    file.exec('BEGIN IMMEDIATE; COMMIT')
    return file
  } catch (error) {
    file.close()
    throw error
  }
}

async function engineOn(t: Test, dataDir: string) {
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  return engine
}

t.test('an older settee is kept out', async (t) => {
  const dataDir = await temporaryFolder(t)
  const engine = await engineOn(t, dataDir)
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  t.throws(() => takeAsBefore(dataDir), { code: 'SQLITE_BUSY' })
  await catalog.create('more')
  await engine.close()
  takeAsBefore(dataDir).close()
})

t.test('an older settee keeps this one out', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await engineOn(t, dataDir)
  await first.openCatalog()
  await first.close()
  const older = takeAsBefore(dataDir)
  t.teardown(() => older.close())
  const second = await engineOn(t, dataDir)
  await t.rejects(second.openCatalog(), IN_USE)
  older.close()
  await second.openCatalog()
})

t.test('of two of this kind one gets the folder, and others may read its files meanwhile', async (t) => {
  const dataDir = await temporaryFolder(t)
  const first = await engineOn(t, dataDir)
  const catalog = await first.openCatalog()
  const second = await engineOn(t, dataDir)
  await t.rejects(second.openCatalog(), IN_USE)
  const reader = new Sqlite(join(dataDir, 'server.sqlite'), { readonly: true })
  t.teardown(() => reader.close())
  reader.exec('BEGIN')
  t.same(reader.prepare('SELECT name FROM database').all(), [])
  await catalog.create('notes')
  t.same(reader.prepare('SELECT name FROM database').all(), [], 'and see one moment as long as they like')
  reader.exec('COMMIT')
  t.same(reader.prepare('SELECT name FROM database').all(), [{ name: 'notes' }])
  await first.close()
  await second.openCatalog()
})
