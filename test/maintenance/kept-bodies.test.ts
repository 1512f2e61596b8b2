/** Bodies kept in databases that nobody opens go when their days are over; nothing else is opened for that. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_RULES, DEFAULT_SETTINGS } from '../../src/core/types.ts'
import { startKeptBodyCleanup, sweepKeptBodies } from '../../src/time-machine/kept-bodies.ts'
import { ADMIN } from '../documents/helpers.ts'
import { openFiles, put, serve, until } from '../threads/served.ts'

const NAMES = ['empty', 'old', 'older', 'plain']

/** Settings in which bodies are kept for so many ms. */
function keeping(keepMs: number, isAutomatic = true) {
  const compaction = { ...DEFAULT_RULES.compaction, keepMs, isAutomatic }
  return { ...DEFAULT_SETTINGS, rules: { ...DEFAULT_RULES, compaction } }
}

function keptRows(dataDir: string, name: string): number {
  const file = new Sqlite(join(dataDir, 'databases', `${name}.sqlite`), { fileMustExist: true })
  const kept = file.prepare('SELECT count(*) FROM superseded WHERE kept').pluck().get() as number
  file.close()
  return kept
}

t.test('a pass', async (t) => {
  const first = await serve(t, { settings: keeping(86_400_000) })
  const { dataDir } = first
  for (const name of NAMES) await first.databases.create(name)
  await put(first.databases.get('plain'), 'a', {})
  for (const name of ['old', 'older']) {
    const database = first.databases.get(name)
    let rev = await put(database, 'a', { n: 0 })
    for (const n of [1, 2, 3]) rev = await put(database, 'a', { _rev: rev, n })
    await database.compact(ADMIN)
    await until(async () => (await database.size(ADMIN)).kept.count === 3)
  }
  await first.databases.close()
  const ending = new AbortController().signal

  const second = await serve(t, { dataDir, settings: keeping(86_400_000) })
  const sweep = () => sweepKeptBodies({ databases: second.databases, ending, restMs: 0 })
  t.equal(await sweep(), 0, 'none is over its time')
  second.databases.setSettings(keeping(0, false))
  t.equal(await sweep(), 0, 'nothing is compacted unasked')
  t.same(openFiles(dataDir), [], 'and none was opened for that')
  second.databases.setSettings(keeping(0))
  t.equal(await sweep(), 2)
  t.same(openFiles(dataDir), ['old', 'older'], 'only those in which something was to go')
  t.equal(await sweep(), 0)
  await t.rejects(second.databases.isOverdue('nowhere'), { code: 'no_database' })
  await second.databases.close()
  for (const name of ['old', 'older']) t.equal(keptRows(dataDir, name), 0, name)
})

t.test('a pass ends with the server, also while it waits', async (t) => {
  const { databases } = await serve(t)
  const ending = new AbortController()
  const sweeping = sweepKeptBodies({ databases, ending: ending.signal, restMs: 3_600_000 })
  ending.abort()
  t.equal(await sweeping, 0)
  const told: unknown[] = []
  const tell = (what: unknown) => told.push(what)
  await startKeptBodyCleanup(databases, { info: tell, warn: tell })()
  t.same(told, [])
})

t.test('one that cannot be looked at keeps no other from its turn', async (t) => {
  const compacted: string[] = []
  const databases = {
    names: () => ['broken', 'gone', 'old'],
    isOverdue: async (name: string) => {
      if (name === 'broken') throw new CouchError('damaged_file')
      return true
    },
    get: (name: string) => {
      let tell: (event: { type: 'compacted' | 'gone' }) => void = () => undefined
      return {
        watch: (listener: typeof tell) => {
          tell = listener
          return () => undefined
        },
        compact: async () => {
          compacted.push(name)
          tell({ type: name === 'gone' ? 'gone' : 'compacted' })
        },
      }
    },
  }
  const ending = new AbortController().signal
  t.equal(await sweepKeptBodies({ databases: databases as never, ending, restMs: 0 }), 2)
  t.same(compacted, ['gone', 'old'])
})
