/** What compaction does to a file: the suite that every engine passes says what it does to a database. */
import { randomBytes } from 'node:crypto'
import { copyFileSync, existsSync, statSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import type { CompactionProgress } from '../../../src/storage/upkeep.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { audit } from '../conformance/audit.ts'
import { attachment, put, readOne } from '../conformance/edits.ts'

async function notes(t: Test) {
  const dataDir = await temporaryFolder(t)
  let engine = sqliteEngine({ dataDir })
  await (await engine.openCatalog()).create('notes')
  t.teardown(() => engine.close())
  const file = join(dataDir, 'databases', 'notes.sqlite')
  const reopen = async () => {
    await engine.close()
    engine = sqliteEngine({ dataDir })
    await engine.openCatalog()
    return engine.openDatabase('notes')
  }
  return { store: await engine.openDatabase('notes'), file, reopen }
}

const sizeOf = (file: string) => (existsSync(file) ? statSync(file).size : 0)

/** A number or a word that SQLite says of a file, asked by a reader of its own. */
function ask(file: string, sql: string): unknown {
  const db = new Sqlite(file, { readonly: true })
  try {
    return db.prepare(sql).pluck().get()
  } finally {
    db.close()
  }
}

async function edit(store: DatabaseStore, documents: number, times: number): Promise<void> {
  for (let n = 0; n < times; n++) {
    const body = JSON.stringify({ n, text: 'a'.repeat(1000) })
    await store.updateDocs(Array.from({ length: documents }, (_, at) => put(`doc${at}`, body)))
  }
}

async function blobOf(store: DatabaseStore, id: string): Promise<number> {
  return (await readOne(store, id))?.revisions.at(-1)?.attachments[0]?.blob ?? -1
}

t.test('freed pages go back, the log is emptied, and the file is sound', async (t) => {
  const { store, file, reopen } = await notes(t)
  await edit(store, 500, 1)
  const { sizes: once } = await store.info()
  await edit(store, 500, 6)
  await store.compact()
  const { sizes } = await store.info()
  t.ok(sizes.active < 1.2 * once.active, `${sizes.active} bytes, ${once.active} after the first edits`)
  t.equal(sizes.file, sizes.active, 'nothing is free, and nothing in the log')
  t.equal(sizeOf(file), sizes.file)
  t.equal(sizeOf(`${file}-wal`), 0)
  t.equal(ask(file, 'PRAGMA freelist_count'), 0)
  t.equal(ask(file, 'PRAGMA integrity_check'), 'ok')
  await edit(store, 500, 1)
  await audit(t, await reopen(), 'written to after it')
})

t.test('it works in short steps', async (t) => {
  const { store } = await notes(t)
  await edit(store, 400, 5)
  await store.updateDocs([put('big', '{}', { attachments: [attachment('x', randomBytes(20_000_000))] })])
  await store.updateDocs([put('big')])
  let isDone = false
  const compaction = store.compact().then(() => {
    isDone = true
  })
  let turns = 0
  for (; !isDone; turns++) await turn()
  await compaction
  t.ok(turns > 30, `${turns} turns of others`)
})

t.test('a large blob goes in steps; what a stop leaves of it is found by nobody, and swept', async (t) => {
  const { store, file, reopen } = await notes(t)
  const bytes = randomBytes(60_000_000)
  await store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes)] })])
  const blob = await blobOf(store, 'a')
  await store.updateDocs([put('a', '{"n":2}')])
  const outcome = store.compact().catch((error: unknown) => error)
  const count = () => Number(ask(file, 'SELECT count(*) FROM chunk'))
  const whole = count()
  while (count() === whole) await turn()
  t.equal(await store.readBlob(blob, 0, 1), null)
  t.equal(await store.referenceBlob(blob), null)
  const again = await reopen()
  t.match(await outcome, { code: 'unavailable' })
  t.equal(await again.readBlob(blob, 0, 1), null)
  while (count() > 0) await turn()
  await again.updateDocs([put('b', '{}', { attachments: [attachment('x', bytes)] })])
  await again.compact()
  const stored = await again.readBlob(await blobOf(again, 'b'), 0, bytes.length)
  t.ok(stored !== null && Buffer.compare(stored, bytes) === 0)
  t.equal(ask(file, 'PRAGMA integrity_check'), 'ok')
})

t.test('a reader of another process keeps the log, but not the compaction', async (t) => {
  const { store, file } = await notes(t)
  await edit(store, 50, 3)
  const reader = new Sqlite(file, { readonly: true })
  reader.exec('BEGIN')
  reader.prepare('SELECT count(*) FROM doc').get()
  const began = performance.now()
  await store.compact()
  t.ok(performance.now() - began < 900, 'it waits for nobody')
  reader.exec('COMMIT')
  reader.close()
  await store.compact()
  t.equal(sizeOf(`${file}-wal`), 0)
})

// What is asked of a file that nobody has open leaves it as it is.

t.test(
  'a log that a crash has left is read and stays; an older schema stays, and keeps nothing',
  async (t) => {
    const [from, to] = [await temporaryFolder(t), await temporaryFolder(t)]
    const engine = sqliteEngine({ dataDir: from, now: () => 1_700_000_000_000 })
    t.teardown(() => engine.close())
    await (await engine.openCatalog()).create('notes')
    const store = await engine.openDatabase('notes')
    for (const n of [1, 2]) await store.updateDocs([put('a', `{"n":${n}}`)])
    await store.compact({ keepSince: 0 })
    await store.updateDocs([put('b', '{}')])
    await mkdir(join(to, 'databases'))
    const [source, path] = [from, to].map((folder) => join(folder, 'databases', 'notes.sqlite')) as [
      string,
      string,
    ]
    for (const part of ['', '-wal']) copyFileSync(source + part, path + part)
    const crashed = sqliteEngine({ dataDir: to })
    const log = () => statSync(`${path}-wal`).size
    const before = log()
    t.ok(before > 0)
    const known = { oldestRetained: 1_700_000_000_000, compactedAt: 1_700_000_000_000 }
    t.same(await crashed.retainedVersions('notes'), known)
    t.equal(log(), before)

    const file = new Sqlite(path)
    file.pragma('user_version = 4')
    file.close()
    t.equal(await crashed.retainedVersions('notes'), null)
    const after = new Sqlite(path)
    t.equal(after.pragma('user_version', { simple: true }), 4)
    after.close()
    t.notOk(existsSync(`${path}-wal`), 'nothing is left beside it')
  },
)

t.test('what a compaction has kept that was broken off is known', async (t) => {
  const engine = sqliteEngine({ dataDir: await temporaryFolder(t), now: () => 1_700_000_000_000 })
  t.teardown(() => engine.close())
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  for (const n of [1, 2]) await store.updateDocs([put('a', `{"n":${n}}`)])
  let closed: Promise<void> | undefined
  const onProgress = ({ done }: CompactionProgress) => {
    if (done > 0) closed ??= store.close()
  }
  await t.rejects(store.compact({ keepSince: 0, onProgress }), { code: 'unavailable' })
  await closed
  t.same(await engine.retainedVersions('notes'), { oldestRetained: 1_700_000_000_000, compactedAt: 0 })
})
