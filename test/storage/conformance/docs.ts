import type { DocUpdate } from '../../../src/storage/engine.ts'
import type { ReadSet } from '../../../src/storage/read-set.ts'
import { audit } from './audit.ts'
import { put, readOne, remove, snapshot, write } from './edits.ts'
import { ALL, errorOf, only, openNotes, type StorageCases } from './setup.ts'

/** Documents: reading by id, and what a write leaves. */
export const docCases: StorageCases = {
  'documents are read in the order asked, null for one that never was': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), remove('c')])
    const asked = ['c', 'nowhere', 'a', 'b', 'a']
    const read = await store.readDocs(asked, (doc, id) => [id, doc?.id ?? null, doc?.deleted ?? null])
    t.same(read, [
      ['c', 'c', true],
      ['nowhere', null, null],
      ['a', 'a', false],
      ['b', 'b', false],
      ['a', 'a', false],
    ])
    t.same(await store.readDocs([], () => 1), [])
  },

  'a document is the same whatever was said that would be touched': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{"n":1}'), put('a', '{"n":2}')])
    const plain = await readOne(store, 'a')
    const revs = plain?.revisions.map(({ rev }) => rev) ?? []
    const paths = [{ pos: 9, ids: ['none'] }]
    const all: ReadSet[] = [
      {},
      { body: true },
      { branches: true },
      { body: true, branches: true },
      { body: true, ancestry: 'winner' },
      { bodies: true, branches: true, ancestry: 'leaves' },
      { branches: true, ancestryOf: revs, ancestryFrom: 2 },
      { revs: [...revs, '9-none'], attachments: revs, nearest: paths },
      { revisions: true, retained: true },
    ]
    for (const readSet of all) {
      t.same(await store.readDocs(['a'], (doc) => doc && snapshot(doc), readSet), [plain])
      t.same((await store.readRange({}, { limit: 9, readSet }, snapshot)).rows, [plain])
      t.same((await store.readChanges({ since: 0 }, { limit: 9, readSet }, snapshot)).rows, [plain])
    }
  },

  'a callback is told the place of its document, of which it may declare more': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{"n":1}'), put('b', '{"n":2}')])
    const ids = ['b', 'a', 'none', 'b', 'a\u0000']
    const of = (place: number) => (place === 0 ? { body: true } : { revs: ['1-other'] })
    const read = await store.readDocs(
      ids,
      (doc, id, _view, place) => [place, id, doc?.body(doc.rev) ?? null],
      { branches: true, of },
    )
    t.same(read, [
      [0, 'b', '{"n":2}'],
      [1, 'a', '{"n":1}'],
      [2, 'none', null],
      [3, 'b', '{"n":2}'],
      [4, 'a\u0000', null],
    ])
  },

  'the view handed over with documents is the one the store tells': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), remove('c')])
    const view = await store.view()
    t.hasStrict(view, { updateSeq: 3, docCount: 2, deletedCount: 1 })
    t.same(await store.readDocs(['a', 'x'], (_doc, _id, seen) => ({ ...seen })), [view, view])
    const range = await store.readRange({}, { limit: 1 }, (_doc, seen) => ({ ...seen }))
    t.same([range.view, ...range.rows], [view, view])
    const changes = await store.readChanges({ since: 0 }, { limit: 1 }, (_doc, seen) => ({ ...seen }))
    t.same([changes.view, ...changes.rows], [view, view])
  },

  'a throw of read rejects that read alone': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const thrown = new Error('not this one')
    const read = () => {
      throw thrown
    }
    await t.rejects(store.readDocs(['a'], read), thrown)
    await t.rejects(store.readRange({}, { limit: 1 }, read), thrown)
    await t.rejects(store.readChanges({ since: 0 }, { limit: 1 }, read), thrown)
    await only(store.updateDocs([put('b')]))
    await audit(t, store, 'afterwards')
  },

  'a closed store refuses to read and to write': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.close()
    const refused = await Promise.allSettled([
      store.readDocs(['a'], () => 1),
      store.readChanges({ since: 0 }, ALL, () => 1),
    ])
    t.same(
      refused.map(({ status }) => status),
      ['rejected', 'rejected'],
    )
    const written = await store.updateDocs([put('a')]).then((outcomes) => errorOf(outcomes[0]), String)
    t.ok(written, 'each update either rejects or has an error')
  },

  'a document that was written is read back as it was written, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const body = '{"2":1e400,"1":9007199254740993,"é\u0000":"\u{1F600}","z":-0,"a":1.0}'
    const ancestry = ['f'.repeat(32), 'not-hex', '0'.repeat(32)]
    const revisions = [
      { rev: `7-${ancestry[0]}`, deleted: false, ancestry, content: { body, attachments: [] } },
    ]
    await only(
      store.updateDocs([write('a', { rev: `7-${ancestry[0]}`, deleted: false, sequenced: true, revisions })]),
    )
    const wanted = {
      id: 'a',
      seq: 1,
      rev: `7-${ancestry[0]}`,
      deleted: false,
      branches: [
        { rev: `7-${ancestry[0]}`, pos: 7, leaf: ancestry[0] as string, ids: ancestry, deleted: false },
      ],
      revisions: [{ rev: `7-${ancestry[0]}`, deleted: false, leaf: true, body, attachments: [] }],
    }
    t.strictSame(await readOne(store, 'a'), wanted)
    t.strictSame(await readOne((await reopen()).store, 'a'), wanted)
  },

  'sequence numbers count the updates, one for each that is sequenced': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), put('a', '{"n":2}')])
    await store.updateDocs([remove('b')])
    t.equal((await store.view()).updateSeq, 4)
    t.equal((await readOne(store, 'a'))?.seq, 3)
    t.equal((await readOne(store, 'b'))?.seq, 4)
  },

  'an update that is not sequenced keeps its place in the feed': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b')])
    const grown = await readOne(store, 'a')
    const [leaf] = grown?.branches ?? []
    if (leaf === undefined) {
      t.fail('a document has a branch')
      return
    }
    const rev = `1-${leaf.leaf}`
    const ancestry = [leaf.leaf, 'older']
    const revisions = [{ rev, deleted: false, ancestry }]
    await only(store.updateDocs([write('a', { rev, deleted: false, sequenced: false, revisions })]))
    t.strictSame(await readOne(store, 'a'), { ...grown, branches: [{ ...leaf, ids: ancestry }] })
    t.equal((await store.view()).updateSeq, 2)
  },

  'a decision without a write stores nothing': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const before = [await readOne(store, 'a'), await store.view()]
    const looking = (id: string): DocUpdate<string> => ({
      id,
      bytes: 0,
      decide: (doc) => ({ result: doc?.id ?? 'none' }),
    })
    t.same(await store.updateDocs([looking('a'), looking('b')]), [{ result: 'a' }, { result: 'none' }])
    t.same([await readOne(store, 'a'), await store.view()], before)
    t.equal(await readOne(store, 'b'), null)
  },

  'no updates at all make no outcomes': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    t.same(await store.updateDocs([]), [])
    t.equal((await store.view()).updateSeq, 0)
  },

  'deleted documents and live ones are counted as winners come and go': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const counts = async () => {
      const { docCount, deletedCount } = await store.view()
      return [docCount, deletedCount]
    }
    await store.updateDocs([put('a'), put('b'), remove('c')])
    t.same(await counts(), [2, 1])
    await store.updateDocs([remove('a'), put('c')])
    t.same(await counts(), [2, 1])
    await store.updateDocs([remove('b'), remove('c'), remove('a', '{"again":1}')])
    t.same(await counts(), [0, 3])
    await audit(t, store, 'at the end')
  },
}
