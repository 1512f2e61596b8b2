import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { LocalUpdate, Outcome } from '../../../src/storage/engine.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import type { RememberedPoint } from '../../../src/storage/token-position.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { put, readOne } from '../../storage/conformance/edits.ts'
import { errorOf, only, rejectsWith, resultOf } from '../../storage/conformance/setup.ts'
import { errorMessage, openCuttable } from '../../storage/postgres/cuttable-database.ts'

const server = await startPostgres(t)

function ids(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `doc-${at}`)
}

for (const [form, operation, count] of [
  ['of one document', 'store_doc', 1],
  ['of a group', 'commit_group', 3],
] as const) {
  t.test(`a write ${form} whose answer is lost is found to be stored`, async (t) => {
    const { store, stored, lose } = await openCuttable(t, server)
    const told: number[] = []
    store.onEvent((event) => {
      if (event.type === 'committed') told.push(event.updateSeq)
    })
    const writing = store.updateDocs(ids(count).map((id) => put(id)))
    await lose(operation, async () => (await stored()) === 1)
    const revs = (await writing).map((outcome) => resultOf(outcome))
    t.equal((await readOne(store, 'doc-0'))?.rev, revs[0])
    t.equal((await store.view()).updateSeq, count, 'each write is stored once')
    t.same(told, [count])
  })
}

t.test('a write that is stored is acknowledged, although the answer is a PANIC of the server', async (t) => {
  const { store, network, stored, lose } = await openCuttable(t, server)
  const writing = store.updateDocs([put('a')])
  await lose(
    'store_doc',
    async () => (await stored()) === 1,
    () => network.endWith(errorMessage('PANIC', '58030')),
  )
  const rev = await only(writing)
  // New connections may be refused for a moment.
  await until(() =>
    readOne(store, 'a').then(
      (doc) => doc?.rev === rev,
      () => false,
    ),
  )
  t.equal(await stored(), 1)
})

t.test('a write that was lost before it was stored is made again, on what is there then', async (t) => {
  const { store, network, before } = await openCuttable(t, server)
  const first = await only(store.updateDocs([put('a')]))
  before.set('store_doc', () => {
    network.cut()
    setImmediate(() => network.mend())
  })
  const rev = await only(store.updateDocs([put('a', '{"n":2}')]))
  t.not(rev, first)
  t.equal((await readOne(store, 'a'))?.rev, rev)
  t.equal((await store.view()).updateSeq, 2)
})

t.test('local documents, settings and purges whose answers are lost are found to be stored', async (t) => {
  const { store, stored, lose } = await openCuttable(t, server)
  await store.updateDocs([put('a')])
  const body = '{"session_id":"s"}'
  const local = store.updateLocals([
    { id: '_local/a', decide: (doc) => ({ result: doc, write: { rev: 1, body } }) },
  ])
  await lose('store_locals', async () => (await stored()) === 2)
  t.same(await local, [{ result: null }], 'decided once')
  const settings = store.updateSettings(({ revsLimit }) => ({ result: revsLimit, write: { revsLimit: 7 } }))
  await lose('commit', async () => (await stored()) === 3)
  t.equal(await settings, 1000)
  const purge = store.purgeDocs([
    {
      id: 'a',
      decide: (doc) => ({
        result: doc?.rev,
        ...(doc && { write: { purged: [doc.rev], removed: [doc.rev], rest: null } }),
      }),
    },
  ])
  await lose('commit_group', async () => (await stored()) === 4)
  t.match(await purge, [{ result: /^1-/ }])
  t.equal((await store.readPurges()).length, 1)
})

const LOCAL: LocalUpdate<null> = {
  id: '_local/late',
  decide: () => ({ result: null, write: { rev: 1, body: '{}' } }),
}

const POINT = { family: 'other', parts: [['file', 1]], total: 1, seq: 0 } satisfies RememberedPoint

/** Waits for updates. @throws the error of the first */
async function done(updates: Promise<readonly Outcome<unknown>[]>): Promise<void> {
  const error = errorOf((await updates)[0])
  if (error !== undefined) throw error
}

/** A write that was lost before it was stored, in each form that is sent as one statement. */
for (const [form, statement, write] of [
  ['of one document', 'store_doc', (store) => done(store.updateDocs([put('late')]))],
  ['of a group', 'commit_group', (store) => done(store.updateDocs([put('late'), put('b')]))],
  ['of a local document', 'store_locals', (store) => done(store.updateLocals([LOCAL]))],
  ['of a point of another server', 'write_points', (store) => store.rememberPoints([POINT])],
] satisfies [string, string, (store: VersionedStore) => Promise<unknown>][]) {
  for (const isFirst of [true, false]) {
    const when = isFirst ? 'the first of its opener' : 'a later one'
    t.test(`a write ${form}, ${when}, that was found not to be stored stays so`, async (t) => {
      const { store, network, before, stored } = await openCuttable(t, server)
      if (!isFirst) await write(store)
      const writes = await stored()
      const request = network.hold(statement)
      // Nothing is tried again after the inquiry, so the late write meets what it was decided on.
      const fail = () => {
        throw new CouchError('store_unavailable')
      }
      before.set('read_written', () => before.set('commit', () => before.set('*', fail)))
      await rejectsWith(t, write(store), 'store_unavailable')
      await request.isHeld
      await request.release()
      t.equal(await stored(), writes)
      await write(store)
      t.equal(await stored(), writes + 1, 'a repeated write is stored')
    })
  }
}

t.test('a commit that arrives after its connection broke is waited for', async (t) => {
  const { store, network, stored } = await openCuttable(t, server)
  const request = network.hold('COMMIT')
  const settings = store.updateSettings(({ revsLimit }) => ({ result: revsLimit, write: { revsLimit: 7 } }))
  await request.isHeld
  const isReleased = request.release()
  t.equal(await settings, 1000)
  await isReleased
  t.equal(await stored(), 1)
})
