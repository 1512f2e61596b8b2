/** What is asked of a file that nobody has open leaves it as it is. */
import { copyFileSync, existsSync, statSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import type { CompactionProgress } from '../../../src/storage/upkeep.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put } from '../conformance/edits.ts'

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
