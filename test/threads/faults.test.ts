/** Faults of a disk and of threads, and how the HTTP thread reports them. */
import t, { type Test } from 'tap'
import { databasesFact, threadsFact } from '../../src/metrics/health.ts'
import { ADMIN } from '../documents/helpers.ts'
import { DEADLY_ENTRY, idsOf, put, serve, until } from './served.ts'

const FAILING_ENTRY = new URL('./failing-thread.mjs', import.meta.url)

async function serveFailing(t: Test) {
  const faults: [database: string, code: unknown][] = []
  const served = await serve(t, {
    threadEntry: FAILING_ENTRY,
    onDatabaseFault: (database, fault) => faults.push([database, (fault as { code?: unknown }).code]),
  })
  for (const name of ['a', 'b']) await served.databases.create(name)
  const [a, b] = [await served.databases.get('a'), await served.databases.get('b')]
  return { ...served, faults, a, b }
}

t.test('a failed read closes the database, and the next call reopens it', async (t) => {
  const { a, b, databases, faults } = await serveFailing(t)
  await put(a, 'x')
  await put(b, 'x')
  for (let n = 0; n < 3; n += 1) {
    await t.rejects(a.open(ADMIN, 'unreadable', {}), { code: 'disk_fault' })
    t.same(await idsOf(a), ['x'])
  }
  t.same(faults, [['a', 'disk_fault']], 'the fault is reported once')
  const { databases: faulty } = databases.faults()
  t.match(faulty, [{ database: 'a', code: 'disk_fault', since: Number, last: Number }])
  t.match(threadsFact([], databases.faults().threads), { ok: true, deaths: 0 })
  t.match(databasesFact(faulty, ['a', 'b']), {
    ok: false,
    count: 2,
    faulty: [
      { database: 'a', reason: /disk failed/, since: Number },
      { database: 'b', since: null },
    ],
  })
  await put(b, 'y')
  t.equal(databases.faults().databases.length, 1, 'writes to another database do not clear the fault')
  await put(a, 'y')
  await until(() => databases.faults().databases.length === 0)
  t.same(await idsOf(a), ['x', 'y'])
})

t.test('a failed commit writes nothing, and other calls are answered', async (t) => {
  const { a, databases } = await serveFailing(t)
  await put(a, 'x')
  const writes = [put(a, 'y'), put(a, 'unwritable'), put(a, 'z')]
  const [y, unwritable, z] = await Promise.allSettled(writes)
  t.match(unwritable, { status: 'rejected', reason: { code: 'disk_fault' } })
  const stored = await idsOf(a)
  for (const [id, outcome] of [['y', y] as const, ['z', z] as const]) {
    if (outcome?.status === 'fulfilled') t.ok(stored.includes(id), `${id} was acknowledged`)
    else t.match(outcome, { reason: { code: 'unavailable' } })
  }
  t.notOk(stored.includes('unwritable'))
  await put(a, 'after')
  await databases.delete('a')
  t.same(databases.faults().databases, [])
})

t.test('dead threads are counted', async (t) => {
  const { databases } = await serve(t, { threadEntry: DEADLY_ENTRY })
  await databases.create('a')
  const a = await databases.get('a')
  for (let n = 1; n <= 2; n += 1) {
    await put(a, `x${n}`)
    await t.rejects(a.open(ADMIN, 'deadly', {}), { code: 'unavailable' })
    await until(() => databases.faults().threads.count === n)
  }
  const answering = { isAnswering: true }
  const fact = (later: number, threads = [answering]) =>
    threadsFact(threads, databases.faults().threads, Date.now() / 1000 + later)
  t.match(fact(0), { name: 'threads', ok: false, deaths: 2, reason: /thread died/ })
  t.strictSame(Object.keys(fact(3600)), ['name', 'ok', 'threads', 'silent', 'deaths', 'last_death'])
  t.match(fact(3600), { ok: true, deaths: 2, threads: 1, silent: 0 })
  t.match(fact(0, [answering, { isAnswering: false }]), {
    ok: false,
    threads: 2,
    silent: 1,
    reason: /^1 of 2 threads do not answer\. A thread died/,
  })
})
