import type { Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { type Epochs, sequenceToken } from '../../../src/storage/sequence.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { audit } from './audit.ts'
import { attachment, put, readFeed, readOne, sortIds } from './edits.ts'
import { FaultHook } from './fault-hook.ts'
import {
  ALL,
  entriesOf,
  type MakeEngine,
  type OpenStore,
  onCommit,
  only,
  openNotes,
  type StorageCases,
} from './setup.ts'
import { type Attempt, REFUSAL, runWorkload, storedMarks } from './workload.ts'

/** What a fault of the disk, or of a network, may reach its caller as. */
const FAULTS: ReadonlySet<string> = new Set([
  'insufficient_storage',
  'disk_fault',
  'damaged_file',
  'internal_server_error',
  'store_unavailable',
])

/** More operations than any engine needs for what is tried here. */
const MOST_OPERATIONS = 3000

/** Calls `attempt` with 1, 2, 3 ... until it says that no operation failed. */
export async function untilUnharmed(
  t: Test,
  attempt: (failAt: number) => Promise<string | null>,
): Promise<void> {
  for (let failAt = 1; failAt <= MOST_OPERATIONS; failAt++) {
    if ((await attempt(failAt)) !== null) continue
    t.comment(`${failAt - 1} operations failed in turn`)
    return
  }
  t.fail(`an operation still failed after ${MOST_OPERATIONS} attempts`)
}

async function writeFaults(t: Test, makeEngine: MakeEngine, lasting: boolean): Promise<void> {
  await untilUnharmed(t, async (failAt) => {
    const hook = new FaultHook()
    const first = await openNotes(t, makeEngine, { onOperation: hook.onOperation })
    await only(first.store.updateDocs([put('seed')]))
    const opened = await first.reopen()
    const before = await opened.store.view()
    const told: number[] = []
    onCommit(opened.store, (updateSeq) => told.push(updateSeq))
    hook.arm(failAt, lasting)
    const attempts = await runWorkload(opened.store)
    const fired = hook.disarm()
    const when = `failed at ${fired ?? 'nothing'}`
    await checkAnswers(t, opened.store, attempts, when)
    await checkRestart(t, opened, before.epochs, when)
    t.same(
      told,
      [...new Set(told)].sort((a, b) => a - b),
      `${when}: listeners heard of growing numbers`,
    )
    const sequenced = attempts.filter(({ kind, done }) => kind === 'doc' && done).length
    const newest = told.filter((updateSeq) => updateSeq <= 1 + sequenced).at(-1)
    t.equal(newest, sequenced === 0 ? undefined : 1 + sequenced, `${when}: and of the newest`)
    await opened.engine.close()
    return fired
  })
}

async function checkAnswers(t: Test, store: DatabaseStore, attempts: Attempt[], when: string): Promise<void> {
  const done = attempts.filter((attempt) => attempt.done)
  t.same(
    await storedMarks(store),
    sortIds(done.map(({ mark }) => mark)),
    `${when}: stored is what was answered`,
  )
  const feed = await audit(t, store, when)
  const sequenced = 1 + done.filter(({ kind }) => kind === 'doc').length
  t.equal(feed.at(-1)?.seq, sequenced, `${when}: one number for each update`)
  for (const { mark, done: isDone, error } of attempts) {
    if (!isDone && !isExpected(mark, error))
      t.equal(error, 'a fault of the disk', `${when}: the error of ${mark}`)
  }
}

function isExpected(mark: string, error: unknown): boolean {
  return (mark === 'refused' && error === REFUSAL) || isStorageFault(error)
}

export function isStorageFault(error: unknown): boolean {
  return error instanceof CouchError && FAULTS.has(error.code)
}

/** The store goes on, and what it holds is there after a restart. */
async function checkRestart(t: Test, opened: OpenStore, old: Epochs, when: string): Promise<void> {
  const { store } = opened
  const rev = await only(
    store.updateDocs([put('later', '{}', { attachments: [attachment('x', Buffer.from('y'))] })]),
  )
  t.equal((await readOne(store, 'later'))?.rev, rev, `${when}: the store goes on`)
  const feed = await audit(t, store, `${when}, and a write later`)
  const { epochs, updateSeq } = await store.view()
  t.same(epochs.slice(0, old.length), old, `${when}: the old epochs stand`)
  t.equal(updateSeq, feed.at(-1)?.seq, `${when}: the last number was given to the last write`)
  t.equal(sequenceToken(epochs, 1), sequenceToken(old, 1), `${when}: the old token stands`)
  const marks = await storedMarks(store)
  const again = await opened.reopen()
  t.same(await audit(t, again.store, `${when}, and a restart later`), feed, `${when}: a restart keeps all`)
  t.same(await storedMarks(again.store), marks)
  t.same((await again.store.view()).epochs, epochs)
  await again.engine.close()
}

async function readFaults(t: Test, makeEngine: MakeEngine): Promise<void> {
  const hook = new FaultHook()
  const { store } = await openNotes(t, makeEngine, { onOperation: hook.onOperation })
  await runWorkload(store)
  const blob = await store.readDocs(['b'], (doc) => doc?.attachments(doc.rev)[0]?.blob ?? -1)
  const reads: Record<string, () => Promise<unknown>> = {
    info: () => store.info(),
    view: () => store.view(),
    progress: () => store.progress(),
    readDocs: () => readOne(store, 'a'),
    readRange: () => store.readRange({}, ALL, (doc) => doc.body(doc.rev)),
    countRange: () => store.countRange({}),
    skipRange: () => store.skipRange({}, 1),
    readChanges: () => readFeed(store),
    readForked: () => store.readForked(0, ALL, ({ id }) => id),
    countChanges: () => store.countChanges(2),
    readBlob: () => store.readBlob(blob[0] ?? -1, 0, 5),
    readLocals: () => store.readLocals(['_local/l1']),
    readLocalRange: () => store.readLocalRange({}, ALL),
    countLocals: () => store.countLocals({}),
    findPoint: () => store.findPoint('t1', 0, () => true),
  }
  for (const [name, read] of Object.entries(reads)) {
    const wanted = await read()
    await untilUnharmed(t, async (failAt) => {
      hook.arm(failAt, false)
      const outcome = await read().catch((error: unknown) => ({ error }))
      const fired = hook.disarm()
      if (fired === null) t.same(outcome, wanted, `${name}: unharmed`)
      else t.ok(isStorageFault((outcome as { error: unknown }).error), `${name}: failed at ${fired}`)
      return fired
    })
    t.same(await read(), wanted, `${name}: as before`)
  }
  await audit(t, store, 'afterwards')
}

async function catalogFaults(t: Test, makeEngine: MakeEngine): Promise<void> {
  const hook = new FaultHook()
  const { engine, reopen } = await makeEngine(t, { onOperation: hook.onOperation })
  const using = { engine, catalog: await engine.openCatalog() }
  await untilUnharmed(t, async (failAt) => {
    hook.arm(failAt, false)
    const made = await succeeds(t, using.catalog.create(`db${failAt}`))
    const fired = hook.disarm()
    const when = `making failed at ${fired ?? 'nothing'}`
    await checkPresence(t, using, `db${failAt}`, made, when)
    if (!made) await succeeds(t, using.catalog.create(`db${failAt}`))
    await checkPresence(t, using, `db${failAt}`, true, `${when}, and made again`)
    return fired
  })
  await untilUnharmed(t, async (failAt) => {
    await using.catalog.create(`gone${failAt}`)
    hook.arm(failAt, false)
    const deleted = await succeeds(t, using.catalog.delete(`gone${failAt}`))
    const fired = hook.disarm()
    const when = `deleting failed at ${fired ?? 'nothing'}`
    await checkPresence(t, using, `gone${failAt}`, !deleted, when)
    if (!deleted) await succeeds(t, using.catalog.delete(`gone${failAt}`))
    await checkPresence(t, using, `gone${failAt}`, false, `${when}, and deleted again`)
    return fired
  })
  const listed = await entriesOf(using.catalog)
  const again = await reopen()
  t.same(await entriesOf(await again.openCatalog()), listed, 'a restart lists the same')
}

async function succeeds(t: Test, promise: Promise<unknown>): Promise<boolean> {
  const [outcome] = await Promise.allSettled([promise])
  if (outcome.status === 'rejected')
    t.ok(isStorageFault(outcome.reason), `the error is one of ours: ${outcome.reason}`)
  return outcome.status === 'fulfilled'
}

async function checkPresence(
  t: Test,
  { engine, catalog }: { engine: StorageEngine; catalog: Catalog },
  name: string,
  wanted: boolean,
  when: string,
): Promise<void> {
  t.equal(
    (await entriesOf(catalog)).some((entry) => entry.name === name),
    wanted,
    `${when}: listed or not`,
  )
  const [opening] = await Promise.allSettled([engine.openDatabase(name)])
  t.equal(opening.status === 'fulfilled', wanted, `${when}: opened or not`)
  if (opening.status === 'fulfilled') await opening.value.close()
}

/** An error in the place of every operation of a workload, one after the other. */
export const faultCases: StorageCases = {
  'an error at any one operation of a write leaves what was answered, and nothing else': (t, makeEngine) =>
    writeFaults(t, makeEngine, false),
  'errors from any operation on, until the disk works again, leave what was answered alone': (
    t,
    makeEngine,
  ) => writeFaults(t, makeEngine, true),
  'an error at any operation of a read reaches its caller, and the store goes on': readFaults,
  'an error at any operation of making or deleting a database leaves it made or not': catalogFaults,
}
