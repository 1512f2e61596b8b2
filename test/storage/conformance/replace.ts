import type { StoreView } from '../../../src/storage/engine.ts'
import { readSequence, sequenceToken } from '../../../src/storage/sequence.ts'
import { copiesOf } from '../../../src/storage/storage-engine.ts'
import { put, readOne } from './edits.ts'
import {
  entriesOf,
  type OpenStore,
  only,
  openNotes,
  openWithCopies,
  rejectsWith,
  type StorageCases,
} from './setup.ts'

const CHECKPOINT = JSON.stringify({
  session_id: 's',
  last_seq: 3,
  history: [{ session_id: 's', last_seq: 3 }],
})

function local(id: string, body: string, checked = false) {
  return { id: `_local/${id}`, decide: () => ({ result: 'done', write: { rev: 1, body }, checked }) }
}

/** What a decision is told of an id. */
function asked(id: string) {
  return {
    id: `_local/${id}`,
    decide: (_doc: unknown, { wasRestored }: { wasRestored: boolean }, wasChecked: boolean) => ({
      result: { wasRestored, wasChecked },
    }),
  }
}

/** Puts a copy in the place of `notes`, whose store is closed first. */
async function putBack({ engine, catalog, store }: OpenStore, copy: string) {
  const { draft } = await copiesOf(engine).prepare('notes', copy)
  await store.close()
  const replaced = await catalog.replace('notes', draft)
  return { replaced, store: await engine.openDatabase('notes') }
}

/** Databases that take the place of others. */
export const replaceCases: StorageCases = {
  'what was there at the time of the copy is there again, and nothing that came later': async (
    t,
    makeEngine,
  ) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateDocs([put('a'), put('b')])
    await open.store.updateLocals([local('settings', '{"x":1}')])
    await open.store.updateSettings(() => ({ result: 0, write: { security: { x: 1 }, revsLimit: 7 } }))
    const before = await readOne(open.store, 'a')
    const copy = await open.snapshot()
    await open.store.updateDocs([put('c'), put('a')])
    const { store, replaced } = await putBack(open, copy)
    t.equal(replaced.name, 'notes')
    t.hasStrict(await store.view(), {
      updateSeq: 2,
      docCount: 2,
      revsLimit: 7,
      security: { x: 1 },
      wasRestored: true,
    })
    t.same(await readOne(store, 'a'), before)
    t.equal(await readOne(store, 'c'), null)
    t.hasStrict(await store.readLocals(['_local/settings']), [{ body: '{"x":1}' }])
  },

  'tokens of what a database does not have prove that it went back, until it is treated as restored': async (
    t,
    makeEngine,
  ) => {
    const { engine, catalog, store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b')])
    const { epochs, updateSeq } = await store.view()
    // As the database would have given it out later.
    const [held, lost] = [sequenceToken(epochs, updateSeq), sequenceToken(epochs, updateSeq + 1)]
    t.same(readSequence(epochs, updateSeq, held), { seq: 2, unknownEpoch: false })
    t.equal(readSequence(epochs, updateSeq, lost).isLost, true)
    await store.close()
    await catalog.replace('notes', null)
    const again = await engine.openDatabase('notes')
    for (const id of ['c', 'd']) {
      const view = await again.view()
      t.same(readSequence(view.epochs, view.updateSeq, lost), { seq: 2, unknownEpoch: false })
      t.same(readSequence(view.epochs, view.updateSeq, held), { seq: 2, unknownEpoch: false })
      await again.updateDocs([put(id)])
    }
  },

  'partitions and shards stay after a restart and in copies': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    t.hasStrict(open.store, { partitioned: false, shards: 1 })
    await open.store.close()
    await open.catalog.delete('notes')
    await open.catalog.create('notes', { partitioned: true, shards: 4 })
    const store = await open.engine.openDatabase('notes')
    t.hasStrict(store, { partitioned: true, shards: 4 })
    await store.updateDocs([put('a:1')])
    const restored = await putBack({ ...open, store }, await open.snapshot())
    t.hasStrict(restored.store, { partitioned: true, shards: 4 })
    t.hasStrict((await open.reopen()).store, { partitioned: true, shards: 4 })
  },

  'a copy is prepared, and its place taken, without a change of the copy': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateDocs([put('a')])
    const copy = await open.snapshot()
    t.hasStrict(await open.copies.prepare('notes', copy), { updateSeq: 1, docCount: 1 })
    const { store } = await putBack(open, copy)
    await store.updateDocs([put('b')])
    const again = await putBack({ ...open, store }, copy)
    t.hasStrict(await again.store.view(), { updateSeq: 1, docCount: 1 })
  },

  'tokens of lost updates are the end of what is there, also when the numbers are given again': async (
    t,
    makeEngine,
  ) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateDocs([put('a'), put('b')])
    const copy = await open.snapshot()
    const tokenAt = async (store: OpenStore['store'], seq: number) =>
      sequenceToken((await store.view()).epochs, seq)
    const known = await tokenAt(open.store, 2)
    await open.store.updateDocs([put('c'), put('d')])
    const lost = await tokenAt(open.store, 4)
    const { store } = await putBack(open, copy)
    const read = async (token: string) => {
      const { epochs, updateSeq } = await store.view()
      return readSequence(epochs, updateSeq, token).seq
    }
    t.same([await read(known), await read(lost)], [2, 2])
    await store.updateDocs([put('e'), put('f'), put('g')])
    t.same(
      [await read(known), await read(lost)],
      [2, 2],
      'a client that was ahead gets what was written since',
    )
    t.not(await tokenAt(store, 4), lost)
  },

  'a restored database counts as created later, even twice within a second': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    const made = [(await open.store.info()).createdAt]
    const copy = await open.snapshot()
    let { store } = open
    const incarnations: number[] = (await entriesOf(open.catalog)).map(({ incarnation }) => incarnation)
    for (let n = 0; n < 3; n++) {
      const next = await putBack({ ...open, store }, copy)
      store = next.store
      made.push((await store.info()).createdAt)
      incarnations.push(next.replaced.incarnation)
    }
    t.equal(new Set(made).size, 4, 'each at another time')
    t.equal(new Set(incarnations).size, 4, 'each database has its own incarnation')
    t.hasStrict(await entriesOf(open.catalog), [{ incarnation: incarnations.at(-1) }])
    t.hasStrict((await open.catalog.readUpdates({ since: 0 }, 10)).rows, [
      { name: 'notes', type: 'created', seq: 4 },
    ])
  },

  'checkpoints of replications are gone; which ids were checked is remembered until the next restore': async (
    t,
    makeEngine,
  ) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateLocals([local('check', CHECKPOINT), local('other', '{"session_id":"s"}')])
    t.same(await only(open.store.updateLocals([asked('x')])), { wasRestored: false, wasChecked: false })
    const copy = await open.snapshot()
    const { store } = await putBack(open, copy)
    t.hasStrict(await store.readLocals(['_local/check', '_local/other']), [null, { rev: 1 }])
    const about = async (from: OpenStore['store'], id: string) =>
      (await only(from.updateLocals([asked(id)]))) as object
    t.same(await about(store, 'x'), { wasRestored: true, wasChecked: false })
    await store.updateLocals([{ id: '_local/x', decide: () => ({ result: 0, checked: true }) }])
    await store.updateLocals([local('y', CHECKPOINT, true)])
    const later = await open.reopen()
    for (const id of ['x', 'y']) t.same(await about(later.store, id), { wasRestored: true, wasChecked: true })
    t.same(await about(later.store, 'z'), { wasRestored: true, wasChecked: false })
    t.same(await later.store.readLocals(['_local/x']), [null])
    const again = await putBack(later, await later.snapshot())
    t.same(await about(again.store, 'x'), { wasRestored: true, wasChecked: false })
    t.same(await again.store.readLocals(['_local/y']), [null])
  },

  'a copy makes a new database, too': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    const { engine, copies, catalog, store, snapshot, reopenEngine } = open
    await store.updateDocs([put('a')])
    const { draft } = await copies.prepare('other', await snapshot())
    t.hasStrict(await catalog.replace('other', draft), { name: 'other', kept: null })
    const other = await engine.openDatabase('other')
    t.hasStrict(await other.info(), { name: 'other', docCount: 1 })
    t.not((await other.info()).createdAt, (await store.info()).createdAt)
    const again = await reopenEngine()
    t.equal((await entriesOf(await again.openCatalog())).length, 2)
    const copied = await again.openDatabase('other')
    t.hasStrict(await copied.view(), { docCount: 1, wasRestored: true })
    const original = await again.openDatabase('notes')
    await Promise.all([copied, original].map((each) => each.updateDocs([put('b'), put('c')])))
    const views = await Promise.all([copied.view(), original.view()])
    for (const [mine, other] of [views, views.toReversed()] as [StoreView, StoreView][]) {
      const token = sequenceToken(other.epochs, other.updateSeq)
      t.equal(readSequence(mine.epochs, mine.updateSeq, token).isLost, undefined, 'both are served')
    }
  },

  'a database is marked as restored in place': async (t, makeEngine) => {
    const open = await openNotes(t, makeEngine)
    await open.store.updateDocs([put('a')])
    await open.store.updateLocals([local('check', CHECKPOINT)])
    const { createdAt } = await open.store.info()
    await open.store.close()
    t.hasStrict(await open.catalog.replace('notes', null), { name: 'notes', kept: null })
    const store = await open.engine.openDatabase('notes')
    t.hasStrict(await store.view(), { docCount: 1, updateSeq: 1, wasRestored: true })
    t.ok((await store.info()).createdAt > createdAt)
    t.same(await store.readLocals(['_local/check']), [null])
    await rejectsWith(t, open.catalog.replace('other', null), 'no_database')
  },

  'a database behind its last known sequence was rolled back, and is marked as restored': async (
    t,
    makeEngine,
  ) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateDocs([put('a')])
    const copy = await open.snapshot()
    await open.store.updateDocs([put('b')])
    const { updateSeq, epochs } = await open.store.view()
    const mark = { epoch: epochs.at(-1)?.id as string, updateSeq }
    await open.catalog.noteUpdated(
      ['notes'],
      [
        { name: 'notes', ...mark },
        { name: 'none', ...mark },
      ],
    )
    t.same(
      (await entriesOf(open.catalog)).map((entry) => entry.lastKnown),
      [mark],
    )
    const again = await open.reopenEngine()
    const catalog = await again.openCatalog()
    t.same(
      (await entriesOf(catalog)).map((entry) => entry.lastKnown),
      [mark],
      'the mark is kept after a restart',
    )
    const same = await again.openDatabase('notes', { lastKnown: mark })
    t.equal(same.wasRolledBack, false)
    await same.updateDocs([put('c')])
    await same.close()
    const further = await again.openDatabase('notes', { lastKnown: mark })
    t.same([further.wasRolledBack, (await further.view()).wasRestored], [false, false])
    await further.close()

    const { draft } = await copiesOf(again).prepare('notes', copy)
    await catalog.replace('notes', draft)
    t.same(
      (await entriesOf(catalog)).map((entry) => entry.lastKnown),
      [undefined],
      'the mark was of the other one',
    )
    const back = await again.openDatabase('notes', { lastKnown: mark })
    t.same([back.wasRolledBack, (await back.view()).wasRestored], [true, true])
    const { createdAt } = await back.info()
    await back.close()
    const { epochs: newest } = await (await again.openDatabase('notes')).view()
    const now = await again.openDatabase('notes', {
      lastKnown: { epoch: newest.at(-1)?.id as string, updateSeq: 1 },
    })
    t.same([now.wasRolledBack, (await now.info()).createdAt], [false, createdAt])
  },

  'the replaced database can itself be restored': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    await open.store.updateDocs([put('a')])
    const copy = await open.snapshot()
    await open.store.updateDocs([put('b')])
    const { replaced, store } = await putBack(open, copy)
    t.equal(await readOne(store, 'b'), null)
    const undone = await putBack({ ...open, store }, replaced.kept as string)
    t.ok(await readOne(undone.store, 'b'))
  },

  'what was prepared and is not wanted goes; what is no copy is refused': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    const { engine, copies, catalog, snapshot, store } = open
    const { draft } = await copies.prepare('notes', await snapshot())
    await catalog.discard('notes', draft)
    await store.close()
    await t.rejects(catalog.replace('notes', draft))
    await engine.openDatabase('notes')
    await rejectsWith(t, copies.prepare('notes', '/absent/notes.sqlite'), 'bad_request')
  },
}
