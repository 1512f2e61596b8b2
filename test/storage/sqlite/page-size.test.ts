/** A database starts with small pages, and gets large ones before it grows. */
import { copyFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { copiesOf } from '../../../src/storage/storage-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put } from '../conformance/edits.ts'

const KB = 1024
/** A body of so many kB. */
const bodyOf = (kilobytes: number) => JSON.stringify({ text: 'a'.repeat(kilobytes * KB) })

async function notes(t: Test, onOperation: (operation: string) => void = () => undefined) {
  const dataDir = await temporaryFolder(t)
  const engines = [sqliteEngine({ dataDir, onOperation })]
  await (await engines[0]?.openCatalog())?.create('notes')
  const end = async () => {
    for (const engine of engines.splice(0)) await engine.close()
  }
  t.teardown(end)
  const open = () => {
    const [engine] = engines as [ReturnType<typeof sqliteEngine>]
    return engine.openDatabase('notes')
  }
  const restart = async () => {
    await end()
    const engine = sqliteEngine({ dataDir, onOperation })
    engines.push(engine)
    await engine.openCatalog()
    // A backup may come before the first request.
    const snapshot = await copiesOf(engine).openSnapshot('notes')
    await snapshot.facts()
    snapshot.close()
    return engine.openDatabase('notes')
  }
  const file = join(dataDir, 'databases', 'notes.sqlite')
  const pageSize = () => {
    const db = new Sqlite(file, { readonly: true })
    const size = db.pragma('page_size', { simple: true })
    const problems = db.pragma('integrity_check', { simple: true })
    const vacuum = db.pragma('auto_vacuum', { simple: true })
    db.close()
    t.same([problems, vacuum], ['ok', 2])
    return size
  }
  return { open, end, restart, file, pageSize }
}

t.test('a closed empty database takes at most 64 kB, also with some notes', async (t) => {
  const { open, end, restart, file, pageSize } = await notes(t)
  await open()
  await end()
  t.ok(statSync(file).size <= 64 * KB, `${statSync(file).size} bytes`)
  const store = await restart()
  await store.updateDocs(['a', 'b', 'c'].map((id) => put(id, bodyOf(1))))
  await end()
  t.ok(statSync(file).size <= 64 * KB, `${statSync(file).size} bytes`)
  t.notOk(statSync(`${file}-wal`, { throwIfNoEntry: false }))
  t.equal(pageSize(), 2048)
})

t.test('a file gets large pages before it exceeds 256 kB, with the writes before and after', async (t) => {
  const { open, restart, pageSize } = await notes(t)
  const store = await open()
  for (let n = 0; n < 12; n += 1) await store.updateDocs([put(`doc${n}`, bodyOf(10))])
  t.equal(pageSize(), 2048)
  await store.updateDocs([put('long', bodyOf(200))])
  t.equal(pageSize(), 8192)
  await store.updateDocs([put('after', bodyOf(1))])
  t.match(await store.info(), { docCount: 14, updateSeq: 14 })
  const { sizes } = await store.info()
  t.equal(sizes.active % 8192, 0)
  t.match(await (await restart()).info(), { docCount: 14, updateSeq: 14 })
})

t.test('while another program reads the file, it keeps its pages, and gets large ones later', async (t) => {
  const { open, file, pageSize } = await notes(t)
  const store = await open()
  await store.updateDocs([put('a', bodyOf(100))])
  const reader = new Sqlite(file, { readonly: true })
  t.teardown(() => reader.close())
  reader.prepare('SELECT count(*) FROM doc').get()
  await store.updateDocs([put('b', bodyOf(200))])
  t.equal(pageSize(), 2048)
  reader.close()
  await store.updateDocs([put('c', bodyOf(10))])
  t.equal(pageSize(), 2048, 'the page size is not changed with each write')
  await store.updateDocs([put('d', bodyOf(500))])
  t.equal(pageSize(), 8192)
  t.match(await store.info(), { docCount: 4 })
})

t.test('whatever fails in a rewrite, no write is lost or refused for it', async (t) => {
  for (const failing of [
    'checkpoint(TRUNCATE)',
    'journal_mode = TRUNCATE',
    'page_size',
    'VACUUM',
    'mode = WAL',
  ]) {
    let isArmed = false
    const { open, restart } = await notes(t, (operation) => {
      if (!isArmed || !operation.includes(failing)) return
      isArmed = false
      throw new Sqlite.SqliteError('the disk has failed', 'SQLITE_IOERR')
    })
    const store = await open()
    await store.updateDocs([put('a', bodyOf(100))])
    isArmed = true
    const [outcome] = await store.updateDocs([put('b', bodyOf(200))])
    t.ok(outcome && 'result' in outcome, failing)
    t.notOk(isArmed, failing)
    await store.updateDocs([put('c', bodyOf(600))])
    t.match(await store.info(), { docCount: 3 }, failing)
    t.match(await (await restart()).info(), { docCount: 3 }, failing)
  }
})

t.test('a rewrite that a crash has interrupted is rolled back at the next start', async (t) => {
  const { open, end, restart, file, pageSize } = await notes(t)
  await (await open()).updateDocs([put('a', bodyOf(100))])
  await end()
  const crashing = new Sqlite(file)
  crashing.pragma('journal_mode = DELETE')
  crashing.pragma('cache_size = 1')
  crashing.exec(
    "BEGIN; UPDATE revision SET body = 'half'; DELETE FROM doc; CREATE TABLE big AS SELECT randomblob(500000)",
  )
  const left = [file, `${file}-journal`].map((path) => {
    copyFileSync(path, `${path}.left`)
    return path
  })
  crashing.close()
  for (const path of left) copyFileSync(`${path}.left`, path)
  t.ok(statSync(`${file}-journal`).size > 0)
  const store = await restart()
  t.match(await store.info(), { docCount: 1 })
  await store.updateDocs([put('b', bodyOf(300))])
  t.equal(pageSize(), 8192)
})
