import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_RULES, DEFAULT_SETTINGS } from '../../src/core/types.ts'
import { Claims, claimsOfOne } from '../../src/threads/claims.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { startKeptBodyCleanup, sweepKeptBodies } from '../../src/time-machine/kept-bodies.ts'
import { Rewinds } from '../../src/time-machine/rewinds.ts'
import { ADMIN } from '../documents/helpers.ts'
import { sharedRecords } from '../storage/memory/records.ts'
import { openFiles, put, serve, until } from '../threads/served.ts'

const ORDER = { at: 1, dryRun: false }

/** A database whose rewind answers with these lines. */
function over(lines: readonly string[], claims = claimsOfOne()): Rewinds {
  const rewind = async function* () {
    for (const line of lines) yield Buffer.from(`${line}\n`)
  }
  return new Rewinds({ get: () => ({ incarnation: 7, rewind }) } as unknown as Databases, claims)
}

t.test('a rewind is a task until its last line, and no other begins in the meantime', async (t) => {
  const rewinds = over([
    '{"documents":10}',
    '{"id":"a"}\n{"progress":{"looked_at":4,"counts":{}}}',
    '{"done":true,"looked_at":10,"counts":{}}',
  ])
  const lines = rewinds.run(ADMIN, 'notes', ORDER)
  await lines.next()
  t.match(rewinds.tasks(), [{ database: 'notes', incarnation: 7, done: 0, total: 10 }])
  await lines.next()
  t.match(rewinds.tasks(), [{ done: 4, total: 10 }])
  await t.rejects(rewinds.run(ADMIN, 'notes', ORDER).next(), { code: 'conflict' })
  await rewinds.run(ADMIN, 'notes', { at: 1, dryRun: true }).next()
  await lines.next()
  t.strictSame(rewinds.tasks(), [], 'the rewind has ended once its last line is read')
  const next = rewinds.run(ADMIN, 'notes', ORDER)
  await next.next()
  await lines.next()
  t.equal(rewinds.tasks().length, 1, 'the end of the previous rewind does not end the next one')
  await next.return(undefined)
  t.strictSame(rewinds.tasks(), [], 'a reader that stops ends the rewind')
})

t.test('two nodes do not run rewinds of one database at once', async (t) => {
  const claims = sharedRecords(2).map(
    (records) => new Claims({ records, onFault: (fault) => t.fail(String(fault)) }),
  )
  const lines = ['{"documents":10}', '{"done":true,"looked_at":10,"counts":{}}']
  const [first, second] = claims.map((each) => over(lines, each)) as [Rewinds, Rewinds]
  const running = first.run(ADMIN, 'notes', ORDER)
  await running.next()
  await t.rejects(second.run(ADMIN, 'notes', ORDER).next(), { code: 'conflict' })
  await running.next()
  const next = second.run(ADMIN, 'notes', ORDER)
  t.equal(
    (await next.next()).done,
    false,
    'the next rewind may begin on any node after the last line was read',
  )
  await next.return(undefined)
  await Promise.all(claims.map((each) => each.close()))
})

const NAMES = ['empty', 'old', 'older', 'plain']

/** Settings that retain bodies for this time, in ms. */
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

t.test('one pass', async (t) => {
  const first = await serve(t, { settings: keeping(86_400_000) })
  const { dataDir } = first
  for (const name of NAMES) await first.databases.create(name)
  await put(await first.databases.get('plain'), 'a', {})
  for (const name of ['old', 'older']) {
    const database = await first.databases.get(name)
    let rev = await put(database, 'a', { n: 0 })
    for (const n of [1, 2, 3]) rev = await put(database, 'a', { _rev: rev, n })
    await database.compact(ADMIN)
    await until(async () => (await database.size(ADMIN)).kept.count === 3)
  }
  await first.databases.close()
  const ending = new AbortController().signal

  const second = await serve(t, { dataDir, settings: keeping(86_400_000) })
  const sweep = () => sweepKeptBodies({ databases: second.databases, ending, pauseMs: 0 })
  t.equal(await sweep(), 0, 'none is over its time')
  second.databases.setSettings(keeping(0, false))
  t.equal(await sweep(), 0, 'nothing is compacted unasked')
  t.same(openFiles(dataDir), [], 'no database was opened for the check')
  second.databases.setSettings(keeping(0))
  t.equal(await sweep(), 2)
  t.same(openFiles(dataDir), ['old', 'older'], 'only databases with expired bodies are compacted')
  t.equal(await sweep(), 0)
  await t.rejects(second.databases.isOverdue('nowhere'), { code: 'no_database' })
  await second.databases.close()
  for (const name of ['old', 'older']) t.equal(keptRows(dataDir, name), 0, name)
})

t.test('a pass ends with the server, also while it waits', async (t) => {
  const { databases } = await serve(t)
  const ending = new AbortController()
  const sweeping = sweepKeptBodies({ databases, ending: ending.signal, pauseMs: 3_600_000 })
  ending.abort()
  t.equal(await sweeping, 0)
  const told: unknown[] = []
  const tell = (what: unknown) => told.push(what)
  await startKeptBodyCleanup(databases, claimsOfOne().duty('upkeep'), { info: tell, warn: tell })()
  t.same(told, [])
})

t.test('a database that cannot be checked does not stop the pass', async (t) => {
  const compacted: string[] = []
  const databases = {
    allNames: async function* () {
      yield* ['broken', 'gone', 'old']
    },
    isOverdue: async (name: string) => {
      if (name === 'broken') throw new CouchError('damaged_file')
      return true
    },
    get: (name: string) => {
      let tell: (event: { type: 'compacted' | 'closed' }) => void = () => undefined
      return {
        watch: (listener: typeof tell) => {
          tell = listener
          return () => undefined
        },
        compact: async () => {
          compacted.push(name)
          tell({ type: name === 'gone' ? 'closed' : 'compacted' })
        },
      }
    },
  }
  const ending = new AbortController().signal
  t.equal(await sweepKeptBodies({ databases: databases as never, ending, pauseMs: 0 }), 2)
  t.same(compacted, ['gone', 'old'])
})
