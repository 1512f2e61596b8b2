import { createHash } from 'node:crypto'
import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { MIGRATIONS, migrate } from '../../../src/storage/sqlite/schema.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { audit } from '../conformance/audit.ts'
import { attachment, put, readOne } from '../conformance/edits.ts'
import { only } from '../conformance/setup.ts'

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
