import type { LocalDoc, LocalUpdate } from '../../../src/storage/engine.ts'
import { put, sortIds } from './edits.ts'
import { ALL, errorOf, only, openNotes, type StorageCases } from './setup.ts'

/** An update that writes the next revision; its result is the revision it found. */
export function putLocal(id: string, body = '{}'): LocalUpdate<number> {
  return {
    id,
    decide: (doc) => ({ result: doc?.rev ?? 0, write: { rev: (doc?.rev ?? 0) + 1, body } }),
  }
}

function removeLocal(id: string): LocalUpdate<number> {
  return { id, decide: (doc) => ({ result: doc?.rev ?? 0, write: null }) }
}

const IDS = ['_local/a', '_local/b', '_local/\uFFFD', '_local/\u{1F600}', '_local/a\u0000']

/** `_local` documents. */
export const localCases: StorageCases = {
  'local documents are read in the order asked, as they were written, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    await store.updateLocals([putLocal('_local/a', '{"2":1e400,"1":"\u{1F600}"}'), putLocal('_local/b')])
    await store.updateLocals([putLocal('_local/b', '{"n":2}')])
    const wanted = [
      { id: '_local/b', rev: 2, body: '{"n":2}' },
      null,
      { id: '_local/a', rev: 1, body: '{"2":1e400,"1":"\u{1F600}"}' },
    ]
    const asked = ['_local/b', '_local/none', '_local/a']
    t.strictSame(await store.readLocals(asked), wanted)
    t.strictSame(await (await reopen()).store.readLocals(asked), wanted)
  },

  'a local document that is deleted is gone, and one that never was stays so': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    await store.updateLocals([putLocal('_local/a'), putLocal('_local/b')])
    t.same(await store.updateLocals([removeLocal('_local/a'), removeLocal('_local/x')]), [
      { result: 1 },
      { result: 0 },
    ])
    t.hasStrict(await store.readLocals(['_local/a', '_local/x', '_local/b']), [null, null, { rev: 1 }])
    t.same(await (await reopen()).store.readLocals(['_local/a']), [null])
  },

  'the same local id again in one call sees what the first has written': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const ids = ['_local/a', '_local/a', '_local/b', '_local/a']
    const outcomes = await store.updateLocals(ids.map((id) => putLocal(id)))
    t.same(outcomes, [{ result: 0 }, { result: 1 }, { result: 0 }, { result: 2 }])
  },

  'local documents are in no feed, no range and no count of documents': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const before = await store.view()
    await store.updateLocals([putLocal('_local/a')])
    t.same(await store.view(), before)
    t.same((await store.readRange({}, ALL, (doc) => doc.id)).rows, ['a'])
    t.same((await store.readChanges({ since: 0 }, ALL, (doc) => doc.id)).rows, ['a'])
    t.same(await store.readDocs(['_local/a'], (doc) => doc), [null])
  },

  'a throw of a local decide rejects that update alone': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const thrown = new Error('a conflict')
    const failing: LocalUpdate<number> = {
      id: '_local/b',
      decide: () => {
        throw thrown
      },
    }
    const outcomes = await store.updateLocals([putLocal('_local/a'), failing, putLocal('_local/c')])
    t.equal(errorOf(outcomes[1]), thrown)
    t.hasStrict(await store.readLocals(['_local/a', '_local/b', '_local/c']), [{ rev: 1 }, null, { rev: 1 }])
  },

  'a local decision without a write stores nothing, and sees the view': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b')])
    const looking: LocalUpdate<[LocalDoc | null, number]> = {
      id: '_local/a',
      decide: (doc, view) => ({ result: [doc, view.updateSeq] }),
    }
    t.same(await only(store.updateLocals([looking])), [null, 2])
    t.equal(await store.countLocals({}), 0)
  },

  'local updates of calls at the same time are not lost': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await Promise.all(Array.from({ length: 30 }, () => store.updateLocals([putLocal('_local/n')])))
    t.hasStrict(await store.readLocals(['_local/n']), [{ rev: 30 }])
  },

  'local documents are listed in the order of their bytes, in both directions': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateLocals(IDS.map((id) => putLocal(id, `{"id":${JSON.stringify(id)}}`)))
    const all = await store.readLocalRange({}, ALL)
    t.same(
      all.rows.map(({ id }) => id),
      sortIds(IDS),
    )
    t.strictSame(all.rows[0], { id: '_local/a', rev: 1, body: '{"id":"_local/a"}' })
    t.same(all.more, false)
    const down = await store.readLocalRange({ descending: true }, ALL)
    t.same(
      down.rows.map(({ id }) => id),
      sortIds(IDS).toReversed(),
    )
  },

  'a range of local documents is bounded, paged and counted': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateLocals(IDS.map((id) => putLocal(id)))
    const start = { id: '_local/a', inclusive: false }
    const end = { id: '_local/\u{1F600}', inclusive: true }
    const page = await store.readLocalRange({ start, end }, { limit: 2 })
    t.same([page.rows.map(({ id }) => id), page.more], [['_local/a\u0000', '_local/b'], true])
    t.equal(await store.countLocals({ start, end }), 4)
    t.equal(await store.countLocals({ start: end, end: start, descending: true }), 4)
    t.equal(await store.countLocals({ start: end, end: start }), 0)
    t.equal(await store.countLocals({}), 5)
    const last = await store.readLocalRange({ start, descending: true }, ALL)
    t.same([last.rows, last.more], [[], false])
    const short = await store.readLocalRange({}, { limit: 9, chars: 1 })
    t.same([short.rows.length, short.more], [1, true])
    t.hasStrict(short.view, { updateSeq: 0 })
  },
}
