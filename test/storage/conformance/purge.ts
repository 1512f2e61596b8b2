import type { Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { DatabaseStore, DocUpdate, PurgeUpdate } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { attachment, put, readFeed, readOne, remove } from './edits.ts'
import { FaultHook } from './fault-hook.ts'
import { isStorageFault } from './faults.ts'
import {
  ALL,
  errorOf,
  type MakeEngine,
  onCommit,
  only,
  openNotes,
  resultOf,
  type StorageCases,
} from './setup.ts'

/** Forgets a document whole; its result says whether there was one. */
export function forget(id: string, options: { readonly design?: true } = {}): PurgeUpdate<boolean> {
  return {
    id,
    decide: (doc) => {
      if (doc === null) return { result: false }
      const purged = doc.revisions().flatMap(({ rev, leaf }) => (leaf ? rev : []))
      const removed = doc.revisions().map(({ rev }) => rev)
      return { result: true, write: { purged, removed, rest: null, ...options } }
    },
  }
}

/** Forgets one leaf, and what else is named, of a document that keeps `winner`. */
function forgetLeaf(
  id: string,
  leaf: string,
  winner: { readonly rev: string; readonly deleted?: boolean },
  options: { readonly removed?: readonly string[]; readonly sequenced?: boolean } = {},
): PurgeUpdate<null> {
  const { removed = [leaf], sequenced = true } = options
  const rest = { rev: winner.rev, deleted: winner.deleted ?? false, sequenced, revisions: [] }
  return { id, decide: () => ({ result: null, write: { purged: [leaf], removed, rest } }) }
}

/** A document with the leaves 2-b and 2-a over 1-r; 2-b wins, and 1-r is superseded. */
function forked(id: string): DocUpdate<null> {
  const content = (text: string, files: readonly string[] = []) => ({
    body: JSON.stringify({ text }),
    attachments: files.map((name) => attachment(name, Buffer.from(`${name} of ${text}`))),
  })
  const revisions = [
    { rev: '1-r', deleted: false, ancestry: null, content: content('root', ['old']) },
    { rev: '2-a', deleted: false, ancestry: ['a', 'r'], content: content('a', ['x']) },
    { rev: '2-b', deleted: false, ancestry: ['b', 'r'], content: content('b') },
  ]
  return {
    id,
    bytes: 100,
    decide: () => ({ result: null, write: { rev: '2-b', deleted: false, sequenced: true, revisions } }),
  }
}

const purgeAudit = (t: Test, store: DatabaseStore, when: string) => audit(t, store, when, { purged: true })

export const purgeCases: StorageCases = {
  'a document that is forgotten whole is nowhere, and takes no sequence number': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), put('c'), put('c', '{"n":2}')])
    const before = await store.view()
    t.equal(await only(store.purgeDocs([forget('b')])), true)
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.equal(await readOne(from, 'b'), null)
      const feed = await purgeAudit(t, from, 'purged')
      t.same(
        feed.map(({ id, seq }) => [id, seq]),
        [
          ['a', 1],
          ['c', 4],
        ],
      )
      const { updateSeq, docCount } = await from.view()
      t.same([updateSeq, docCount], [before.updateSeq, 2])
      t.equal((await from.info()).purgeSeq, 1)
    }
  },

  'the newest row may be the one that is forgotten': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b')])
    await only(store.purgeDocs([forget('b')]))
    t.equal((await store.view()).updateSeq, 2)
    t.equal(await store.countChanges(1), 0)
    t.same((await store.readChanges({ since: 1 }, ALL, ({ id }) => id)).rows, [])
    await only(store.updateDocs([put('d')]))
    t.same(
      (await readFeed(store)).map(({ seq }) => seq),
      [1, 3],
      'no number is given twice',
    )
  },

  'of a partly purged document stays what was decided, at a new place of the feed': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    await store.updateDocs<null>([forked('a')])
    await store.updateDocs([put('z')])
    await only(store.purgeDocs([forgetLeaf('a', '2-b', { rev: '2-a' })]))
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      const doc = await readOne(from, 'a')
      t.match(doc, { rev: '2-a', deleted: false, seq: 3 })
      t.same(
        doc?.branches.map(({ rev, ids }) => [rev, ids]),
        [['2-a', ['a', 'r']]],
      )
      t.same(
        doc?.revisions.map(({ rev, leaf }) => [rev, leaf]),
        [
          ['1-r', false],
          ['2-a', true],
        ],
      )
      await audit(t, from, 'purged')
    }
  },

  'superseded revisions go with their attachments where it is so decided': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs<null>([forked('a')])
    await only(store.purgeDocs([forgetLeaf('a', '2-b', { rev: '2-a' }, { removed: ['2-b', '1-r'] })]))
    const doc = await readOne(store, 'a')
    t.same(
      doc?.revisions.map(({ rev, attachments }) => [rev, attachments.length]),
      [['2-a', 1]],
    )
    const [gone] = await store.readDocs(['a'], (state) => state?.attachments('1-r'))
    t.same(gone, [])
    await audit(t, store, 'purged')
  },

  'a purge that takes no number leaves the document at its place': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs<null>([forked('a')])
    await store.updateDocs([put('z')])
    await only(store.purgeDocs([forgetLeaf('a', '2-a', { rev: '2-b' }, { sequenced: false })]))
    t.match(await readOne(store, 'a'), { rev: '2-b', seq: 1 })
    await audit(t, store, 'purged')
  },

  'a tombstone is forgotten like any other, and a document may become one': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), remove('a'), put('b'), remove('b')])
    await only(store.purgeDocs([forget('a')]))
    t.match(await store.view(), { docCount: 0, deletedCount: 1 })
    await store.updateDocs<null>([forked('c')])
    await only(store.purgeDocs([forgetLeaf('c', '2-b', { rev: '2-a', deleted: true })]))
    t.match(await store.view(), { docCount: 0, deletedCount: 2 })
    t.equal((await store.info()).purgeSeq, 2)
    t.same(await store.progress(), { ...(await store.view()), purgeSeq: 2 })
  },

  'a decision that writes nothing changes nothing; a throw reaches its caller alone': async (
    t,
    makeEngine,
  ) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b')])
    const thrown = new CouchError('forbidden')
    const throws: PurgeUpdate<boolean> = {
      id: 'a',
      decide: () => {
        throw thrown
      },
    }
    const idle: PurgeUpdate<boolean> = { id: 'a', decide: (doc) => ({ result: doc !== null }) }
    const outcomes = await store.purgeDocs([forget('none'), throws, idle, forget('b')])
    t.equal(resultOf(outcomes[0]), false)
    t.equal(errorOf(outcomes[1]), thrown)
    t.same([resultOf(outcomes[2]), resultOf(outcomes[3])], [true, true])
    t.same(
      (await purgeAudit(t, store, 'afterwards')).map(({ id }) => id),
      ['a'],
    )
    t.equal((await store.info()).purgeSeq, 1)
    t.same(await store.purgeDocs([]), [])
  },

  'purges of one call see those before them': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const outcomes = await store.purgeDocs([forget('a'), forget('a')])
    t.same(outcomes.map(resultOf), [true, false])
  },

  'a purged document can be created again as if it had never existed': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const files = [attachment('x', Buffer.from('x'))]
    await store.updateDocs([put('a', '{}', { attachments: files }), put('a', '{"n":2}')])
    await only(store.purgeDocs([forget('a')]))
    const rev = await only(store.updateDocs([put('a', '{"n":3}', { attachments: files })]))
    t.match(rev, /^1-/)
    const doc = await readOne((await reopen()).store, 'a')
    t.match(doc, { rev, seq: 3, revisions: { length: 1 } })
    t.equal(doc?.revisions[0]?.attachments.length, 1)
  },

  'the purges are listed oldest first, as many as are to be remembered': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.same(await store.readPurges(), [])
    const ids = ['a', 'b', 'c', 'd']
    await store.updateDocs(ids.map((id) => put(id)))
    const revs = await Promise.all(ids.map(async (id) => (await readOne(store, id))?.rev ?? ''))
    await store.purgeDocs(ids.map((id) => forget(id)))
    const all = ids.map((id, at) => ({ seq: at + 1, id, revs: [revs[at]] }))
    t.same(await store.readPurges(), all)
    await store.updateSettings(() => ({ result: 0, write: { purgedInfosLimit: 2 } }))
    t.same(await store.readPurges(), all.slice(2))
    await store.updateDocs([put('e')])
    await only(store.purgeDocs([forget('e')]))
    await store.updateSettings(() => ({ result: 0, write: { purgedInfosLimit: 100 } }))
    const again = (await reopen()).store
    t.match(await again.readPurges(), [
      { seq: 4, id: 'd' },
      { seq: 5, id: 'e' },
    ])
    t.equal((await again.readPurges()).length, 2, 'purges beyond the limit do not come back')
    t.equal((await again.info()).purgeSeq, 5)
  },

  'designVersion grows with each purge that says it is of a design document': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('_design/a'), put('b')])
    const { designVersion } = await store.view()
    await only(store.purgeDocs([forget('b')]))
    t.equal((await store.view()).designVersion, designVersion)
    await only(store.purgeDocs([forget('_design/a', { design: true })]))
    t.equal((await store.view()).designVersion, designVersion + 1)
  },

  'listeners hear of what took a sequence number, and of nothing else': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('b')])
    await store.updateDocs<null>([forked('a')])
    const told: number[] = []
    onCommit(store, (updateSeq) => told.push(updateSeq))
    await only(store.purgeDocs([forget('b')]))
    await only(store.purgeDocs([forgetLeaf('a', '2-b', { rev: '2-a' })]))
    await only(store.purgeDocs([forget('a')]))
    t.same(told, [3])
  },

  'an error at any operation of a purge leaves what was answered, and nothing else': async (
    t,
    makeEngine,
  ) => {
    for (const lasting of [false, true]) await faults(t, makeEngine, lasting)
  },
}

/** Purges while an operation fails, of documents of their own at each attempt; all in one store. */
async function faults(t: Test, makeEngine: MakeEngine, lasting: boolean): Promise<void> {
  const hook = new FaultHook()
  const opened = await openNotes(t, makeEngine, { onOperation: hook.onOperation })
  const { store } = opened
  let purged = 0
  const left: string[] = []
  for (let fired: string | null = '', failAt = 1; fired !== null; failAt++) {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => `${name}${failAt}`) as [string, string, string]
    await store.updateDocs([put(a), put(b), put(b, '{"n":2}')])
    await store.updateDocs<null>([forked(c)])
    hook.arm(failAt, lasting)
    const purges = [forget(a), forget(b), forgetLeaf(c, '2-b', { rev: '2-a' })]
    const outcomes = await store
      .purgeDocs<unknown>(purges)
      .catch((error: unknown) => purges.map(() => ({ error })))
    fired = hook.disarm()
    const when = `failed at ${fired ?? 'nothing'}`
    const done = outcomes.map((outcome) => 'result' in outcome)
    for (const error of outcomes.map(errorOf).filter((each) => each !== undefined)) {
      t.ok(isStorageFault(error), when)
    }
    purged += done.filter(Boolean).length
    t.equal((await readOne(store, a)) === null, done[0], when)
    t.equal((await readOne(store, b)) === null, done[1], when)
    t.equal((await readOne(store, c))?.branches.length, done[2] ? 1 : 2, when)
    t.same([(await store.info()).purgeSeq, (await store.readPurges()).length], [purged, purged], when)
    left.push(...[done[0] ? [] : a, done[1] ? [] : b, c].flat())
    if (failAt % 10 === 0) await purgeAudit(t, store, when)
  }
  const { store: again } = await opened.reopen()
  const feed = await purgeAudit(t, again, 'after a restart')
  t.same(new Set(feed.map(({ id }) => id)), new Set(left))
  t.equal((await again.readPurges()).length, purged)
}
