/** Compactions in the background of database threads. */
import { readdirSync, statSync } from 'node:fs'
import t, { type Test } from 'tap'
import { CouchError, packError } from '../../../src/core/errors.ts'
import type { CompactionProgress, CompactOptions } from '../../../src/storage/upkeep.ts'
import { Compactions } from '../../../src/threads/compactions.ts'
import type { DatabaseHandle, Databases } from '../../../src/threads/databases.ts'
import { ADMIN, body, text } from '../../documents/helpers.ts'
import { idsOf, openFiles, put, serve, until } from '../../threads/served.ts'

const isLinux = process.platform === 'linux'

/** Documents with several superseded bodies each, written in a few calls. */
async function fill(handle: DatabaseHandle, documents: number, rounds = 5): Promise<void> {
  const revs: string[] = []
  for (let round = 0; round < rounds; round++) {
    const docs = Array.from({ length: documents }, (_, n) => ({
      _id: `doc${n}`,
      text: `${round} ${'a'.repeat(1000)}`,
      ...(round > 0 && { _rev: revs[n] }),
    }))
    const rows = JSON.parse(await text(handle.bulkDocs(ADMIN, body({ docs }))))
    for (const [n, { rev }] of rows.entries()) revs[n] = rev
  }
}

async function isRunning(handle: DatabaseHandle): Promise<boolean> {
  return (await handle.info(ADMIN)).compact_running
}

async function opened(t: Test, name: string, documents: number, maxOpen = 100) {
  const served = await serve(t, { maxOpen })
  await served.databases.create(name)
  const handle = await served.databases.get(name)
  await fill(handle, documents)
  return { ...served, handle }
}

const tasksOf = (databases: Databases) => databases.tasks().map(({ database }) => database)

t.test('the call returns at once, and the task is listed while it runs', async (t) => {
  const { databases, handle, faults } = await opened(t, 'notes', 1000)
  const before = await handle.info(ADMIN)
  const startedAt = Math.floor(Date.now() / 1000)
  await handle.compact(ADMIN)
  t.equal(await isRunning(handle), true)
  t.same(tasksOf(databases), ['notes'])
  const [task] = databases.tasks()
  t.match(task, { database: 'notes', incarnation: handle.incarnation, done: Number, total: 100 })
  t.ok((task?.startedAt ?? 0) >= startedAt && (task?.updatedAt ?? 0) >= (task?.startedAt ?? 0))
  await handle.compact(ADMIN)
  t.equal(databases.tasks().length, 1, 'a second call joins')
  await until(async () => !(await isRunning(handle)))
  await until(() => databases.tasks().length === 0)
  const after = await handle.info(ADMIN)
  t.ok(after.sizes.file < before.sizes.file / 2, `${before.sizes.file} became ${after.sizes.file}`)
  t.equal(after.sizes.external, before.sizes.external)
  t.equal((await idsOf(handle)).length, 1000)
  t.same(faults, [])
})

t.test('reads and writes work during a compaction', async (t) => {
  const { handle, faults } = await opened(t, 'notes', 800)
  await handle.compact(ADMIN)
  let writes = 0
  while (await isRunning(handle)) await put(handle, `during${writes++}`)
  t.ok(writes > 3, `${writes} writes`)
  t.equal((await idsOf(handle)).length, 800 + writes)
  t.same(faults, [])
})

t.test('a database is not closed in favor of others during its compaction', { skip: !isLinux }, async (t) => {
  const { databases, dataDir, handle, faults } = await opened(t, 'notes', 800, 1)
  const others = Array.from({ length: 8 }, (_, n) => `other${n}`)
  for (const name of others) await databases.create(name)
  const touchOthers = () => Promise.all(others.map(async (name) => (await databases.get(name)).info(ADMIN)))
  await handle.compact(ADMIN)
  t.same(tasksOf(databases), ['notes'])
  while (databases.tasks().length > 0) {
    t.ok(openFiles(dataDir).includes('notes'))
    await touchOthers()
  }
  await until(async () => {
    await touchOthers()
    return !openFiles(dataDir).includes('notes')
  })
  t.same(faults, [], 'closing the database afterwards has no fault')
})

t.test('deleting a database ends its compaction', async (t) => {
  const { databases, handle, faults } = await opened(t, 'notes', 1000)
  await handle.compact(ADMIN)
  t.same(tasksOf(databases), ['notes'])
  await databases.delete('notes')
  t.same(databases.tasks(), [])
  await databases.create('notes')
  const next = await databases.get('notes')
  await put(next, 'x')
  t.equal(await isRunning(next), false)
  await next.compact(ADMIN)
  await until(async () => !(await isRunning(next)) && databases.tasks().length === 0)
  t.same(await idsOf(next), ['x'])
  t.same(faults, [])
})

t.test('stopping ends a compaction promptly, and the next start has all documents', async (t) => {
  const { databases, dataDir, handle, faults } = await opened(t, 'notes', 1000)
  await handle.compact(ADMIN)
  t.same(tasksOf(databases), ['notes'])
  const began = performance.now()
  await databases.close()
  const took = performance.now() - began
  t.ok(took < 2000, `${Math.round(took)} ms`)
  t.same(faults, [])
  if (isLinux) t.same(openFiles(dataDir), [])
  const again = (await serve(t, { dataDir })).databases
  const notes = await again.get('notes')
  t.equal((await idsOf(notes)).length, 1000)
  await notes.compact(ADMIN)
  await until(async () => !(await isRunning(notes)))
  const log = readdirSync(`${dataDir}/databases`).find((file) => file === 'notes.sqlite-wal')
  t.equal(log === undefined ? 0 : statSync(`${dataDir}/databases/${log}`).size, 0, 'the log is empty')
})

t.test('each database has a compaction of its own', async (t) => {
  const { databases, handle } = await opened(t, 'a', 500)
  await databases.create('b')
  await fill(await databases.get('b'), 500)
  const names = new Set<string>()
  for (const one of [handle, await databases.get('b')]) {
    await one.compact(ADMIN)
    for (const name of tasksOf(databases)) names.add(name)
  }
  t.same([...names].sort(), ['a', 'b'])
  await until(() => databases.tasks().length === 0)
})

/** Compactions of a fake store. The test ends them. */
function fakes() {
  const replies: unknown[] = []
  let end: (error?: unknown) => void = () => undefined
  let onProgress: (progress: CompactionProgress) => void = () => undefined
  let calls = 0
  const store = {
    compact: (options: CompactOptions = {}) => {
      calls += 1
      onProgress = options.onProgress ?? onProgress
      return new Promise<void>((resolve, reject) => {
        end = (error) => (error === undefined ? resolve() : reject(error))
      })
    },
  }
  const compactions = new Compactions({
    keepOpen: (_name, _inc, work) => work(store),
    sendEvent: (reply) => replies.push(reply),
    retention: () => ({}),
  })
  return {
    replies,
    start: () => compactions.start('a', 7),
    begin: () => compactions.begin('a', 7),
    progress: (done: number) => onProgress({ done, total: 100 }),
    end: async (error?: unknown) => {
      end(error)
      await new Promise((resolve) => setImmediate(resolve))
    },
    calls: () => calls,
  }
}

t.test(
  'progress is reported at once and then a few times a second, and the end is always reported',
  async (t) => {
    const { replies, start, progress, end, calls } = fakes()
    start()
    start()
    t.equal(calls(), 1)
    for (let done = 0; done < 100; done++) progress(done)
    await end()
    const of = { type: 'compaction', incarnation: 7 }
    t.same(replies, [
      { ...of, progress: { done: 0, total: 100 } },
      { ...of, progress: null },
    ])
    start()
    t.equal(calls(), 2, 'it can start again')
    await end()
  },
)

t.test('a compaction has begun when the store reports that, and one that fails before says so', async (t) => {
  const { begin, progress, end, calls } = fakes()
  let hasBegun = false
  const begun = begin().then(() => {
    hasBegun = true
  })
  await new Promise((resolve) => setImmediate(resolve))
  t.notOk(hasBegun)
  progress(0)
  await begun
  await begin()
  t.equal(calls(), 1, 'one that has begun is not started again')
  await end(new CouchError('unavailable'))
  const failing = begin()
  await end(new CouchError('unavailable'))
  await t.rejects(failing, { code: 'unavailable' })
})

t.test('a fault is reported with the end, but deletion and shutdown are not faults', async (t) => {
  for (const [error, isFault] of [
    [new CouchError('internal_server_error', undefined, { cause: new Error('the disk') }), true],
    [new CouchError('insufficient_storage'), true],
    [new TypeError('of ours'), true],
    [new CouchError('no_database'), false],
    [new CouchError('unavailable'), false],
  ] as const) {
    const { replies, start, end } = fakes()
    start()
    await end(error)
    const wanted = { type: 'compaction', incarnation: 7, progress: null }
    t.same(replies, [isFault ? { ...wanted, fault: packError(error) } : wanted], String(error))
  }
})
