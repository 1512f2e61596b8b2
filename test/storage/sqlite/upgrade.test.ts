/** Files of older settees: they are copied as they were, and then hold what they held, whatever happens in between. */
import { createHash } from 'node:crypto'
import { mkdirSync, statSync } from 'node:fs'
import { copyFile, mkdir, readFile, rm, stat, utimes } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { CouchError } from '../../../src/core/errors.ts'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { MIGRATIONS, migrate } from '../../../src/storage/sqlite/schema.ts'
import { type SqliteEngineOptions, sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { keepCopy } from '../../../src/storage/sqlite/upgrade.ts'
import { NEWEST, schemaOfFile, writeOldFile } from '../../helpers/old-files.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { audit } from '../conformance/audit.ts'
import { attachment, put, readFeed, readOne, remove } from '../conformance/edits.ts'
import { only } from '../conformance/setup.ts'

const DOCS = 40

/** A data folder whose database `notes` is of an older schema, and what that holds. */
async function oldFolder(t: Test, schema: number) {
  const made = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir: made, now: () => 1000 })
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  const ids = Array.from({ length: DOCS }, (_, n) => `doc${n}`)
  const attached = { attachments: [attachment('x', Buffer.alloc(300_000, 'x'))] }
  await store.updateDocs(ids.map((id) => put(id, `{"first":"${id}"}`)))
  await store.updateDocs(ids.map((id, n) => (n % 5 === 0 ? remove(id) : put(id, '{"second":1}', attached))))
  const feed = await readFeed(store)
  await engine.close()
  const dataDir = await temporaryFolder(t)
  await mkdir(join(dataDir, 'databases'))
  const path = fileIn(dataDir)
  writeOldFile(path, fileIn(made), schema)
  return { dataDir, path, feed, bytes: await readFile(path) }
}

function fileIn(dataDir: string): string {
  return join(dataDir, 'databases', 'notes.sqlite')
}

function copyIn(dataDir: string, schema: number): string {
  return join(dataDir, 'before-upgrade', `databases-${schema}`, 'notes.sqlite')
}

async function openNotes(t: Test, dataDir: string, options: Partial<SqliteEngineOptions> = {}) {
  const engine = sqliteEngine({ dataDir, ...options })
  t.teardown(() => engine.close())
  return { engine, store: await engine.openDatabase('notes') }
}

t.test('rows of an older settee get their checksums with the first compaction', async (t) => {
  const { dataDir, path, feed } = await oldFolder(t, 9)
  const { engine, store } = await openNotes(t, dataDir)
  t.equal((await store.garbage()).needsCompaction, true)
  await store.compact({ keepSince: 0 })
  t.equal((await store.garbage()).needsCompaction, false)
  const leaves = (docs: typeof feed) =>
    docs.map((doc) => ({ ...doc, revisions: doc.revisions.filter(({ leaf }) => leaf) }))
  t.same(leaves(await readFeed(store)), leaves(feed))
  await engine.close()
  const file = new Sqlite(path, { readonly: true })
  for (const table of ['doc', 'revision', 'attachment', 'blob', 'chunk', 'local']) {
    const missing = file.prepare(`SELECT count(*) FROM ${table} WHERE checksum IS NULL`).pluck().get()
    t.equal(missing, 0, table)
  }
  file.close()
})

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

t.test('a file is copied as it was before it is changed', async (t) => {
  const { dataDir, path, feed, bytes } = await oldFolder(t, NEWEST - 1)
  const { engine, store } = await openNotes(t, dataDir)
  t.same(await readFeed(store), feed, 'it holds what it held')
  await audit(t, store, 'after the upgrade')
  t.ok(bytes.equals(await readFile(copyIn(dataDir, NEWEST - 1))), 'byte for byte')
  await only(store.updateDocs([put('doc1', '{"third":1}')]))
  await engine.close()
  t.equal(schemaOfFile(path), NEWEST)
  await rm(copyIn(dataDir, NEWEST - 1))
  await openNotes(t, dataDir)
  t.notOk(await exists(copyIn(dataDir, NEWEST - 1)), 'there is nothing to upgrade any more')
})

t.test('the way back: the copy is put in its place, and the upgrade is made again', async (t) => {
  const { dataDir, path, feed } = await oldFolder(t, 3)
  const first = await openNotes(t, dataDir)
  await only(first.store.updateDocs([put('doc1', '{"lost":1}')]))
  await first.engine.close()
  await copyFile(copyIn(dataDir, 3), path)
  const { store } = await openNotes(t, dataDir)
  t.same(await readFeed(store), feed)
})

t.test('what others hold open is copied with its log', async (t) => {
  const { dataDir, path, feed } = await oldFolder(t, 4)
  const other = new Sqlite(path)
  t.teardown(() => other.close())
  other.exec('BEGIN')
  other.prepare('SELECT count(*) FROM doc').get()
  const { store } = await openNotes(t, dataDir)
  t.same(await readFeed(store), feed)
  const copy = new Sqlite(copyIn(dataDir, 4), { readonly: true })
  t.equal(copy.pragma('user_version', { simple: true }), 4)
  t.equal(copy.pragma('integrity_check', { simple: true }), 'ok')
  t.same(copy.prepare('SELECT count(*) AS rows FROM doc').get(), { rows: DOCS })
  copy.close()
})

t.test('copies can be done without', async (t) => {
  const { dataDir, feed } = await oldFolder(t, 4)
  const { store } = await openNotes(t, dataDir, { keepsUpgradeCopies: () => false })
  t.same(await readFeed(store), feed)
  t.notOk(await exists(join(dataDir, 'before-upgrade')))
})

t.test('a fault at any moment leaves one schema or the other, and nothing is lost', async (t) => {
  const { dataDir, path, feed } = await oldFolder(t, 1)
  const original = join(dataDir, 'original')
  await copyFile(path, original)
  let hasFailed = true
  for (let failing = 0; hasFailed; failing++) {
    await Promise.all(['', '-wal', '-shm'].map((end) => rm(path + end, { force: true })))
    await copyFile(original, path)
    let operations = 0
    hasFailed = false
    const onOperation = () => {
      operations += 1
      if (operations !== failing + 1) return
      hasFailed = true
      throw Object.assign(new Sqlite.SqliteError('disk I/O error', 'SQLITE_IOERR'))
    }
    const faulty = sqliteEngine({ dataDir, onOperation })
    await faulty.openDatabase('notes').catch(() => undefined)
    await faulty.close()
    const schema = schemaOfFile(path)
    if (schema !== 1 && schema !== NEWEST) t.fail(`schema ${schema} after a fault at ${failing}`)
    const { engine, store } = await openNotes(t, dataDir)
    t.same(await readFeed(store), feed, `after a fault at operation ${failing}`)
    await engine.close()
    if (failing > 200) t.fail('there is no end of it')
  }
})

t.test('an upgrade that fails again and again copies once', async (t) => {
  const { dataDir, path } = await oldFolder(t, 4)
  const onOperation = (operation: string) => {
    if (operation.includes('CREATE TABLE superseded')) throw new Error('in the way')
  }
  const fails = () => openNotes(t, dataDir, { onOperation })
  await t.rejects(fails, { code: 'internal_server_error' })
  const { ino } = await stat(copyIn(dataDir, 4))
  await t.rejects(fails, { code: 'internal_server_error' })
  t.equal((await stat(copyIn(dataDir, 4))).ino, ino)
  const later = new Date(Date.now() + 60_000)
  await utimes(path, later, later)
  await t.rejects(fails, { code: 'internal_server_error' })
  t.not((await stat(copyIn(dataDir, 4))).ino, ino, 'a file that has changed since is copied anew')
})

t.test('a file whose schema holds more than settee makes is not opened', async (t) => {
  for (const schema of [4, NEWEST]) {
    const { dataDir, path } = await oldFolder(t, schema)
    const file = new Sqlite(path)
    file.unsafeMode()
    file.exec('CREATE TRIGGER evil AFTER INSERT ON local BEGIN DELETE FROM doc; END')
    file.pragma('writable_schema = ON')
    // A name that no statement can give.
    file.exec(
      "UPDATE sqlite_schema SET name = 'sqlite_stat1', sql = replace(sql, 'evil', 'sqlite_stat1') WHERE name = 'evil'",
    )
    file.close()
    await t.rejects(openNotes(t, dataDir), {
      code: 'internal_server_error',
      message: /tables, views or triggers/,
    })
  }
})

t.test('the tables of Litestream and of SQLite itself are none of settee’s business', async (t) => {
  const { dataDir, path, feed } = await oldFolder(t, 4)
  const file = new Sqlite(path)
  file.exec('CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)')
  file.exec('CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER); ANALYZE')
  file.close()
  const { store } = await openNotes(t, dataDir)
  t.same(await readFeed(store), feed)
})

t.test('an upgrade ends with its thread', async (t) => {
  const { dataDir, path } = await oldFolder(t, 4)
  await t.rejects(openNotes(t, dataDir, { ending: AbortSignal.abort() }), { code: 'unavailable' })
  t.equal(schemaOfFile(path), 4)
})

t.test('an upgrade without free space for its copy changes nothing', async (t) => {
  const { dataDir, path } = await oldFolder(t, 4)
  const target = copyIn(dataDir, 4)
  const refused = keepCopy(path, target, {
    label: 'The database notes',
    freeBytes: async () => 1_000_000,
    refuseIfEnding: () => undefined,
    throughSqlite: async () => {
      t.fail('it is not copied')
    },
  })
  // Where the file system shares blocks a copy takes no room.
  const error = await refused.catch((thrown: CouchError) => thrown)
  if (error === undefined) return
  t.equal(error.code, 'insufficient_storage')
  t.match(
    error.message,
    /^The database notes needs an upgrade, .* MB are needed, 1 MB are free\. Free some space/,
  )
  t.notOk(await exists(target))
  t.notOk(await exists(`${target}.unfinished`))
  t.ok(await exists(dirname(target)))
})

t.test('a file of a newer settee says so', async (t) => {
  const { dataDir, path } = await oldFolder(t, 4)
  const file = new Sqlite(path)
  file.pragma(`user_version = ${NEWEST + 1}`)
  file.close()
  await t.rejects(openNotes(t, dataDir), {
    code: 'internal_server_error',
    message: new RegExp(
      `^The database notes was written by a newer settee: its schema is ${NEWEST + 1}, and this one knows ${MIGRATIONS.length}\\.`,
    ),
  })
})

const BYTES = Buffer.from('from the first version')
const REV = '1-00112233445566778899aabbccddeeff'

/** A database as version 1 wrote it: one document with one attachment. */
function writeVersion1(path: string): void {
  const connection = new Connection(path)
  migrate(connection, path, MIGRATIONS.slice(0, 1))
  connection.close()
  const file = new Sqlite(path)
  const put = file.prepare('INSERT INTO meta (key, value) VALUES (?, ?)')
  const epochs = JSON.stringify([{ id: 'aaaaaaaaaaaa', firstSeq: 0 }])
  const size = 2 + BYTES.length
  const meta = { created_at: 1, epochs, update_seq: 1, doc_count: 1, external_bytes: size }
  for (const [key, value] of Object.entries(meta)) put.run(key, value)
  file.prepare("INSERT INTO doc VALUES (1, 'a', 1, ?, 0)").run(REV)
  const ancestry = Buffer.from(`01${REV.slice(2)}`, 'hex')
  file.prepare("INSERT INTO revision VALUES (1, 1, ?, 1, 0, ?, 1, ?, '{}')").run(REV, ancestry, size)
  file.prepare("INSERT INTO attachment VALUES (1, 'x', 1, 'text/plain', 1)").run()
  const hash = (name: string) => createHash(name).update(BYTES).digest()
  file
    .prepare("INSERT INTO blob VALUES (1, ?, ?, ?, 'stored')")
    .run(hash('sha256'), hash('md5'), BYTES.length)
  file.prepare('INSERT INTO chunk VALUES (1, 0, ?)').run(BYTES)
  for (const level of [1, 2, 3, 4]) file.prepare('INSERT INTO feed_count VALUES (?, 0, 1)').run(level)
  file.close()
}

t.test('a file of version 1 is brought to the newest, with what it holds', async (t) => {
  const dataDir = await temporaryFolder(t)
  mkdirSync(join(dataDir, 'databases'))
  const path = join(dataDir, 'databases', 'notes.sqlite')
  writeVersion1(path)
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  await engine.openCatalog()
  const store = await engine.openDatabase('notes')
  const { content, ...facts } = attachment('x', BYTES)
  const doc = await readOne(store, 'a')
  t.same(doc?.revisions[0]?.attachments, [{ ...facts, blob: 1 }])
  t.same(Buffer.from((await store.readBlob(1, 0, 100)) ?? []), BYTES)
  t.hasStrict(await store.view(), { revsLimit: 1000, purgedInfosLimit: 1000, designVersion: 0 })
  await only(store.updateDocs([put('b', '{}', { attachments: [{ ...facts, content }] })]))
  t.same((await readOne(store, 'b'))?.revisions[0]?.attachments, [{ ...facts, blob: 1 }])
  await only(store.updateDocs([put('a', '{"again":1}')]))
  await audit(t, store, 'afterwards')
  await engine.close()
  const file = new Sqlite(path, { readonly: true })
  t.same(
    file.prepare('SELECT id, leaves FROM doc ORDER BY id').raw().all(),
    [
      ['a', 1],
      ['b', 1],
    ],
    'counted',
  )
  t.equal(file.pragma('user_version', { simple: true }), MIGRATIONS.length)
  file.close()
})

t.test('the first version is as it was when the first files were made', async (t) => {
  const hash = createHash('sha256').update(String(MIGRATIONS[0])).digest('hex')
  t.equal(hash.slice(0, 16), '20c410004f361f93')
})

t.test('a file of a newer settee is refused', async (t) => {
  const path = join(await temporaryFolder(t), 'newer.sqlite')
  const connection = new Connection(path)
  t.teardown(() => connection.close())
  migrate(connection, path, [...MIGRATIONS, 'CREATE TABLE later (n INTEGER);'])
  t.throws(() => migrate(connection, path), /was written by a newer settee/)
})

t.test(
  'a file that is made is for its own account alone, whatever the umask, and so is its log',
  async (t) => {
    const path = join(t.testdir(), 'x.sqlite')
    const connection = new Connection(path)
    connection.exec('CREATE TABLE a (b)')
    for (const file of [path, `${path}-wal`]) t.equal(statSync(file).mode & 0o777, 0o600, file)
    connection.close()
  },
)
