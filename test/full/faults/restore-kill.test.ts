/**
 * kill -9 while a database is replaced: the old or the new one exists, complete. `RESTORE_KILLS=200` for more kills.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put } from '../../storage/conformance/edits.ts'
import { entriesOf } from '../../storage/conformance/setup.ts'

const KILLS = Number(process.env.RESTORE_KILLS ?? 8)
const LOOP = fileURLToPath(new URL('../../faults/replace-loop.ts', import.meta.url))

t.setTimeout(60_000 + KILLS * 10_000)

/** A file with this many documents. */
async function copyWith(folder: string, count: number): Promise<string> {
  const engine = sqliteEngine({ dataDir: join(folder, `of-${count}`) })
  await mkdir(join(folder, `of-${count}`))
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateDocs(
    Array.from({ length: count }, (_, n) => put(`doc-${n}`, JSON.stringify({ of: count }))),
  )
  await engine.close()
  return join(folder, `of-${count}`, 'databases', 'notes.sqlite')
}

t.test(`${KILLS} times`, async (t) => {
  const dataDir = await temporaryFolder(t)
  const folder = await temporaryFolder(t)
  const copies = [await copyWith(folder, 100), await copyWith(folder, 130)]
  const seen = new Set<number>()
  for (let kill = 0; kill < KILLS; kill++) {
    const child = spawn('env', ['-u', 'NODE_OPTIONS', process.execPath, LOOP, dataDir, ...copies], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = once(child, 'exit')
    let ready = 0
    const lines = createInterface({ input: child.stdout })
    lines.on('line', () => {
      ready += 1
    })
    await once(lines, 'line')
    // At first, there may be no database to replace.
    while (ready < 2) await delay(1)
    await delay(Math.random() * 25)
    child.kill('SIGKILL')
    await ended
    const engine = sqliteEngine({ dataDir })
    const names = (await entriesOf(await engine.openCatalog())).map(({ name }) => name)
    t.same(names, ['notes'])
    const store = await engine.openDatabase('notes')
    const { docCount, updateSeq } = await store.info()
    t.ok(docCount === updateSeq && (docCount === 100 || docCount === 130), `${docCount} documents`)
    seen.add(docCount)
    await engine.close()
    const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'), { readonly: true })
    t.equal(file.pragma('integrity_check', { simple: true }), 'ok')
    file.close()
    const files = await readdir(join(dataDir, 'databases'))
    t.same(
      files.filter((name) => name.includes('unfinished')),
      [],
    )
  }
  t.comment(`found: ${[...seen]}`)
})
