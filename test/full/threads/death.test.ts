/** When a database thread dies of a fault, only its calls under way fail. */
import t, { type Test } from 'tap'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../../src/core/types.ts'
import type { DatabaseHandle } from '../../../src/threads/databases.ts'
import { ADMIN, text } from '../../documents/helpers.ts'
import { DEADLY_ENTRY, eventsOf, idsOf, put, serve, until } from '../../threads/served.ts'

const serveDeadly = (t: Test) => serve(t, { threadEntry: DEADLY_ENTRY })

/** Kills the thread that owns a database. */
async function kill(t: Test, handle: DatabaseHandle): Promise<void> {
  await t.rejects(handle.open(ADMIN, 'deadly', {}), { code: 'unavailable' })
}

t.test('pending calls fail, the next call works, and answered writes are kept', async (t) => {
  const { databases, faults } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  for (let n = 0; n < 20; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(60_000) })
  const reader = a.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reader.next()
  const pending = [
    a.open(ADMIN, 'mute', {}),
    put(a, 'pending'),
    a.info(ADMIN),
    text(a.allDocs(ADMIN, 'all', {}, null)),
  ]
  const settled = Promise.allSettled(pending)
  await kill(t, a)
  for (const result of await settled) t.match(result, { reason: { code: 'unavailable' } })
  const rest = async () => {
    while (!(await reader.next()).done);
  }
  await t.rejects(rest(), { code: 'unavailable' })
  t.equal((await idsOf(a)).length, 20)
  await put(a, 'after')
  t.match(faults, [{ message: 'a fault of the thread' }])
})

t.test('watchers get the end event, and can watch again', async (t) => {
  const { databases } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  const events = eventsOf(a)
  await put(a, 'x')
  await kill(t, a)
  await until(() => events.length === 2)
  t.same(events, [{ type: 'committed', updateSeq: 1 }, { type: 'closed' }])
  await put(a, 'y')
  await until(() => events.length === 3)
  t.match(events[2], { type: 'committed', updateSeq: 2 })
})

t.test('the security object is fetched again', async (t) => {
  const { databases } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  await a.setSecurity(ADMIN, { members: {} })
  t.same(await a.securityCopy(), { members: {} })
  await kill(t, a)
  t.same(await a.securityCopy(), { members: {} })
})

t.test('the data folder stays locked, and databases are created and deleted as before', async (t) => {
  const { databases, dataDir, faults } = await serveDeadly(t)
  await databases.create('a')
  await kill(t, await databases.get('a'))
  await databases.create('b')
  t.same(await Array.fromAsync(databases.allNames()), ['a', 'b'])
  await t.rejects(serve(t, { dataDir }), { message: /in use by another settee/ })
  await put(await databases.get('b'), 'x')
  await databases.delete('a')
  t.same(await Array.fromAsync(databases.allNames()), ['b'])
  t.equal(faults.length, 1)
})

t.test('the data folder stays locked when its own thread dies', async (t) => {
  const { databases, dataDir, faults } = await serveDeadly(t)
  await databases.create('_users')
  await databases.create('a')
  await put(await databases.get('a'), 'x')
  const ofA = eventsOf(await databases.get('a'))
  await kill(t, await databases.get('_users'))
  await databases.create('b')
  t.same(await Array.fromAsync(databases.allNames()), ['_users', 'a', 'b'])
  await t.rejects(serve(t, { dataDir }), { message: /in use by another settee/ })
  await put(await databases.get('a'), 'y')
  t.notMatch(ofA, [{ type: 'closed' }], 'users’ databases notice nothing')
  t.equal(faults.length, 1)
})

t.test('threads may die repeatedly', async (t) => {
  const { databases, faults } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  for (let n = 0; n < 4; n += 1) {
    await put(a, `x${n}`)
    await kill(t, a)
  }
  t.equal((await idsOf(a)).length, 4)
  t.equal(faults.length, 4)
})

t.test('databases of other threads are not affected', async (t) => {
  const { databases } = await serve(t, { threadEntry: DEADLY_ENTRY, threads: 2 })
  for (const name of ['a', 'd']) await databases.create(name)
  const [a, b] = [await databases.get('a'), await databases.get('d')]
  await put(a, 'x')
  await put(b, 'x')
  const ofB = eventsOf(b)
  await kill(t, a)
  await put(b, 'y')
  t.notMatch(ofB, [{ type: 'closed' }])
  t.same(await idsOf(b), ['x', 'y'])
})

t.test('a thread that replaces a dead one has the current limits', async (t) => {
  const { databases } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  databases.setSettings({ limits: { ...DEFAULT_LIMITS, maxDocumentSize: 50 }, rules: DEFAULT_RULES })
  await kill(t, a)
  await t.rejects(put(a, 'x', { text: 'a'.repeat(100) }), { code: 'document_too_large' })
})

t.test('a deletion during which the thread dies can be tried again', async (t) => {
  const { databases } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  await put(a, 'x')
  const killed = t.rejects(a.open(ADMIN, 'deadly', {}), { code: 'unavailable' })
  await t.rejects(databases.delete('a'), { code: 'unavailable' })
  await killed
  t.same(await Array.fromAsync(databases.allNames()), ['a'])
  t.same(await idsOf(await databases.get('a')), ['x'])
  await databases.delete('a')
  t.same(await Array.fromAsync(databases.allNames()), [])
  await t.resolves(databases.create('a'))
})

t.test('a server whose thread has died closes cleanly', async (t) => {
  const { databases, dataDir } = await serveDeadly(t)
  await databases.create('a')
  const a = await databases.get('a')
  await put(a, 'x')
  const killed = t.rejects(a.open(ADMIN, 'deadly', {}), { code: 'unavailable' })
  await databases.close()
  await killed
  const next = await serve(t, { dataDir })
  t.same(await idsOf(await next.databases.get('a')), ['x'])
})
