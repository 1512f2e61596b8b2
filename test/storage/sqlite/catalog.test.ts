/** What server.sqlite tells of databases after ends that were no proper ones, and of older files. */
import { cpSync, linkSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { copyFile, cp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { checkDatabaseName } from '../../../src/core/ids.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import { SERVER_MIGRATIONS } from '../../../src/storage/sqlite/server-migrations.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { copiesOf } from '../../../src/storage/storage-engine.ts'
import { writeOldFile } from '../../helpers/old-files.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put, readOne } from '../conformance/edits.ts'
import { entriesOf } from '../conformance/setup.ts'

async function open(t: Test, dataDir: string) {
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  return { engine, catalog: await engine.openCatalog() }
}

async function rowsOf(catalog: Catalog): Promise<string[]> {
  await catalog.whenListed()
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
  t.same(
    await rowsOf((await open(t, dataDir)).catalog),
    made,
    'after an orderly end, a start changes nothing',
  )
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

t.test('a database is right before the folder is looked through, and the list after it', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  const names = Array.from({ length: 300 }, (_, n) => `a${n}`)
  for (const name of names) await catalog.create(name)
  await engine.close()
  const file = (name: string) => join(dataDir, 'databases', `${name}.sqlite`)
  await rm(file('a1'))
  for (const name of ['b', 'c', 'd']) await copyFile(file('a0'), file(name))
  const again = await open(t, dataDir)
  t.equal(await again.catalog.find('a1'), null)
  t.hasStrict(await again.catalog.find('b'), { name: 'b', incarnation: 301 })
  // As many go as come, so that the numbers of rows and files do not show it.
  await again.catalog.delete('a0')
  await again.catalog.delete('c')
  await again.catalog.create('e')
  await t.rejects(again.catalog.create('d'), { code: 'file_exists' })
  t.equal(await again.catalog.count(), 301)
  t.same(await again.catalog.names({ from: 'b' }, 9), ['b', 'd', 'e'])
  t.equal((await again.catalog.names({ prefix: 'a' }, 1000)).length, 298)
  const rows = (await again.catalog.readUpdates({ since: 300 }, 100)).rows
  t.same(rows.map(({ name, type }) => `${name} ${type}`).sort(), [
    'a0 deleted',
    'a1 deleted',
    'b created',
    'c created',
    'c deleted',
    'd created',
    'e created',
  ])
})

t.test('a database with the longest name is made, written to, and deleted', async (t) => {
  const { engine, catalog } = await open(t, await temporaryFolder(t))
  let name = 'a'
  while (!isTooLong(`${name}a`)) name += 'a'
  await catalog.create(name)
  const store = await engine.openDatabase(name)
  await store.updateDocs([put('x')])
  await store.close()
  await catalog.delete(name)
  t.equal(await catalog.find(name), null)
})

function isTooLong(name: string): boolean {
  try {
    checkDatabaseName(name)
    return false
  } catch {
    return true
  }
}

t.test('a damaged last known sequence counts as none', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const value of ['{', 'null', '[]', '{"epoch":1}']) {
    const name = `db${value.length}`
    const { incarnation } = await catalog.create(name)
    await catalog.writeRecords([{ kind: 'mark', key: name, value }])
    t.strictSame(await catalog.find(name), { name, incarnation }, value)
    await (await engine.openDatabase(name)).close()
  }
})

t.test('a new database does not read the log that a deleted one of its name left behind', async (t) => {
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

t.test('the file of a deleted database is kept on request, and can be opened again', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const name of ['a', 'b']) await catalog.create(name)
  const store = await engine.openDatabase('a')
  await store.updateDocs([put('old')])
  await store.close()
  await catalog.delete('a', { isKept: true })
  await catalog.delete('b')
  t.same(readdirSync(join(dataDir, 'databases')), [])
  const kept = readdirSync(join(dataDir, 'replaced'))
  t.match(kept, [/^a\..*Z\.sqlite$/])
  t.same(kept.length, 1)
  await copyFile(join(dataDir, 'replaced', kept[0] as string), join(dataDir, 'databases', 'c.sqlite'))
  await engine.close()
  const again = await open(t, dataDir)
  const copied = await again.engine.openDatabase('c')
  t.equal((await copied.info()).docCount, 1)
  await copied.close()
  t.same(readdirSync(join(dataDir, 'replaced')), kept, 'a start keeps the replaced file')
})

t.test('a server.sqlite of before there were updates', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await open(t, dataDir)
  for (const name of ['b', 'a']) await catalog.create(name)
  const { serverUuid } = catalog
  const before = await entriesOf(catalog)
  await engine.close()
  const path = join(dataDir, 'server.sqlite')
  await rename(path, join(dataDir, 'new'))
  writeOldFile(path, join(dataDir, 'new'), 1, SERVER_MIGRATIONS)
  const file = new Sqlite(path)
  file.exec("DELETE FROM server WHERE key LIKE 'update%'; PRAGMA user_version = 0")
  file.close()
  const again = await open(t, dataDir)
  t.equal(again.catalog.serverUuid, serverUuid)
  t.same(await entriesOf(again.catalog), before)
  t.same(await rowsOf(again.catalog), ['1 b created', '2 a created'])
  const { epochs } = await again.catalog.readUpdates({ since: 0 }, 0)
  await again.engine.close()
  const third = await open(t, dataDir)
  t.same((await third.catalog.readUpdates({ since: 0 }, 0)).epochs, epochs, 'tokens given out are kept')
})

// One settee a data folder; those of before the lock had a file of its own held `server.sqlite` itself.

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
  t.same(
    reader.prepare('SELECT name FROM database').all(),
    [],
    'a reader sees one snapshot as long as it is open',
  )
  reader.exec('COMMIT')
  t.same(reader.prepare('SELECT name FROM database').all(), [{ name: 'notes' }])
  await first.close()
  await second.openCatalog()
})

// What a crash leaves of a replacement, and a database that is damaged.

/** A folder with a database that nobody closed: what was written last is in its log alone. */
async function leftOpen(t: Test): Promise<{ readonly dataDir: string; readonly file: string }> {
  const first = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir: first })
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateDocs([put('a')])
  const dataDir = await temporaryFolder(t)
  cpSync(join(first, 'databases'), join(dataDir, 'databases'), { recursive: true })
  await engine.close()
  const file = join(dataDir, 'databases', 'notes.sqlite')
  rmSync(`${file}-shm`, { force: true })
  t.ok(statSync(`${file}-wal`).size > 0)
  return { dataDir, file }
}

/** A copy with one document `b`. */
async function copyWithB(t: Test): Promise<string> {
  const dataDir = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir })
  await (await engine.openCatalog()).create('notes')
  await (await engine.openDatabase('notes')).updateDocs([put('b')])
  await engine.close()
  return join(dataDir, 'databases', 'notes.sqlite')
}

const KEPT = 'notes.2026-11-22T01-30-00Z.sqlite'

for (const isLogGone of [false, true]) {
  t.test(
    `a crash before the new file has the name, ${isLogGone ? 'after' : 'before'} the log went`,
    async (t) => {
      const { dataDir, file } = await leftOpen(t)
      const kept = join(dataDir, 'replaced', KEPT)
      mkdirSync(join(dataDir, 'replaced'))
      linkSync(file, kept)
      linkSync(`${file}-wal`, `${kept}-wal`)
      if (isLogGone) rmSync(`${file}-wal`)
      writeFileSync(`${file}.0123.unfinished`, 'half')
      const engine = sqliteEngine({ dataDir })
      const catalog = await engine.openCatalog()
      const store = await engine.openDatabase('notes')
      t.ok(await readOne(store, 'a'), 'the old one is whole')
      await catalog.whenListed()
      await engine.close()
      t.same(readdirSync(join(dataDir, 'replaced')), [], 'the old file was not replaced')
      t.same(readdirSync(join(dataDir, 'databases')), ['notes.sqlite'])
    },
  )
}

t.test('what was kept stays over starts', async (t) => {
  const { dataDir } = await leftOpen(t)
  const copy = await copyWithB(t)
  for (const round of [1, 2]) {
    const engine = sqliteEngine({ dataDir })
    const catalog = await engine.openCatalog()
    // Until then, a draft is taken for what a crash has left.
    await catalog.whenListed()
    const { draft } = await copiesOf(engine).prepare('notes', copy)
    await catalog.replace('notes', draft)
    await engine.close()
    t.equal(readdirSync(join(dataDir, 'replaced')).length, round)
  }
})

t.test('a damaged database is replaced, and kept as it is', async (t) => {
  const { dataDir, file } = await leftOpen(t)
  const engine = sqliteEngine({ dataDir })
  const catalog = await engine.openCatalog()
  writeFileSync(file, 'x'.repeat(50_000))
  writeFileSync(`${file}-wal`, 'y'.repeat(50_000))
  const { draft } = await copiesOf(engine).prepare('notes', await copyWithB(t))
  const { kept } = await catalog.replace('notes', draft)
  t.equal(statSync(kept as string).size, 50_000)
  const store = await engine.openDatabase('notes')
  t.ok(await readOne(store, 'b'))
  t.equal(await readOne(store, 'a'), null, 'no log of the old one is read as its own')
  await engine.close()
})
