/** What a crash leaves of a replacement, and a database that is damaged. */
import { cpSync, linkSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put, readOne } from '../conformance/edits.ts'

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
      await engine.openCatalog()
      const store = await engine.openDatabase('notes')
      t.ok(await readOne(store, 'a'), 'the old one is whole')
      await engine.close()
      t.same(readdirSync(join(dataDir, 'replaced')), [], 'and was not replaced')
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
    const { draft } = await engine.prepare('notes', copy)
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
  const { draft } = await engine.prepare('notes', await copyWithB(t))
  const { kept } = await catalog.replace('notes', draft)
  t.equal(statSync(kept as string).size, 50_000)
  const store = await engine.openDatabase('notes')
  t.ok(await readOne(store, 'b'))
  t.equal(await readOne(store, 'a'), null, 'no log of the old one is read as its own')
  await engine.close()
})
