/** What database threads tell of themselves, over real threads. */
import t from 'tap'
import { countOf } from '../../src/core/histogram.ts'
import type { Databases } from '../../src/threads/databases.ts'
import type { ThreadReport } from '../../src/threads/thread-stats.ts'
import { ADMIN, body } from '../documents/helpers.ts'
import { DEADLY_ENTRY, put, serve, until } from './served.ts'

async function threadsOf(databases: Databases): Promise<readonly ThreadReport[]> {
  return (await databases.stats()).threads
}

function commits(threads: readonly ThreadReport[]): number {
  return threads.reduce((sum, { stats }) => sum + (stats === null ? 0 : countOf(stats.commits.writes)), 0)
}

t.test('threads report their counters and databases', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  await databases.create('b')
  await put(databases.get('a'), 'x')
  await put(databases.get('b'), 'y')
  const before = await threadsOf(databases)
  t.strictSame(
    before.map(({ number }) => number),
    [1, 2, 3],
  )
  t.match(before, [
    // The first has the catalog.
    { isAnswering: true, databases: 0, calls: 0, stats: { openDatabases: 0 } },
    { isAnswering: true, databases: 1, calls: 0, stats: { openDatabases: 1, waitingCalls: 0 } },
    { isAnswering: true, databases: 1, calls: 0, stats: { openDatabases: 1, waitingCalls: 0 } },
  ])
  t.ok(before.every(({ busySeconds, stats }) => busySeconds > 0 && (stats?.heap.used ?? 0) > 0))
  const docs = Array.from({ length: 300 }, (_, n) => ({ _id: `d${n}` }))
  for await (const _ of databases.get('a').bulkDocs(ADMIN, body({ docs })));
  const after = await threadsOf(databases)
  const made = commits(after) - commits(before)
  t.ok(made > 0 && made < 300, 'documents shared commits')
  const updates = after[1]?.stats?.commits.updates.sum ?? 0
  t.equal(updates - (before[1]?.stats?.commits.updates.sum ?? 0), 300)
})

t.test('a busy thread is reported without waiting for its work', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const handle = databases.get('a')
  await put(handle, 'x')
  const docs = Array.from({ length: 3000 }, (_, n) => ({ _id: `d${n}`, text: 'x'.repeat(1000) }))
  const bulk = (async () => {
    for await (const _ of handle.bulkDocs(ADMIN, body({ docs })));
  })()
  const [, report] = await threadsOf(databases)
  t.match(report, { isAnswering: true, calls: 1 })
  await bulk
})

t.test('a dead thread is reported as such, and its counters stay', async (t) => {
  const { databases, faults } = await serve(t, { threadEntry: DEADLY_ENTRY })
  await databases.create('a')
  await put(databases.get('a'), 'x')
  const before = commits(await threadsOf(databases))
  t.ok(before > 0)
  await t.rejects(put(databases.get('a'), 'deadly'))
  await until(() => faults.length > 0)
  await until(
    async () =>
      (await databases
        .get('a')
        .info(ADMIN)
        .catch(() => undefined)) !== undefined,
  )
  t.ok(commits(await threadsOf(databases)) >= before)
})

t.test('closed threads are not asked', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  await databases.close()
  t.match(await threadsOf(databases), [{ isAnswering: false }])
})
