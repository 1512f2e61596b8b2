import t from 'tap'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { put, readOne } from '../../storage/conformance/edits.ts'
import { only, resultOf } from '../../storage/conformance/setup.ts'
import { openCuttable } from '../../storage/postgres/cuttable-database.ts'

const server = await startPostgres(t)

function ids(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `doc-${at}`)
}

for (const [form, operation, count] of [
  ['of one document', 'write_doc', 1],
  ['of a group', 'write_group', 3],
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
    t.equal((await store.view()).updateSeq, count, 'and is stored once')
    t.same(told, [count])
  })
}

t.test('a write that was lost before it was stored is made again, on what is there then', async (t) => {
  const { store, network, before } = await openCuttable(t, server)
  const first = await only(store.updateDocs([put('a')]))
  before.set('write_doc', () => {
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
  await lose('write_locals', async () => (await stored()) === 2)
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
  await lose('write_group', async () => (await stored()) === 4)
  t.match(await purge, [{ result: /^1-/ }])
  t.equal((await store.readPurges()).length, 1)
})
