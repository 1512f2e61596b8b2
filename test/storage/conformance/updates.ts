import type { CouchError } from '../../../src/core/errors.ts'
import type { Decision, DocUpdate } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { attachment, failing, put, readOne, successor } from './edits.ts'
import { errorOf, only, openNotes, resultOf, type StorageCases } from './setup.ts'

/** Updates: what `decide` sees, what it may answer, and that each stands alone. */
export const updateCases: StorageCases = {
  'the same id again in one call sees what the first has written': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const outcomes = await store.updateDocs([
      put('a', '{"n":1}'),
      put('b'),
      put('a', '{"n":2}'),
      put('a', '{"n":3}'),
    ])
    const revs = outcomes.map((outcome) => resultOf(outcome))
    const found = await readOne(store, 'a')
    t.equal(found?.rev, revs[3])
    t.same(
      found?.revisions.map(({ rev }) => rev),
      [revs[0], revs[2], revs[3]],
    )
    t.same(
      found?.branches.map(({ ids }) => ids.length),
      [3],
    )
    await audit(t, store, 'afterwards')
  },

  'decide sees the counters as the updates before it left them': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const counting = (id: string, deleted: boolean): DocUpdate<number[]> => ({
      id,
      bytes: 1,
      decide: (doc, { updateSeq, docCount, deletedCount }) => ({
        result: [updateSeq, docCount, deletedCount],
        write: successor(doc, '{}', { deleted }),
      }),
    })
    const updates = [counting('a', false), counting('b', true), counting('a', true), counting('c', false)]
    const outcomes = await store.updateDocs(updates)
    t.same(
      outcomes.map((outcome) => resultOf(outcome)),
      [
        [0, 0, 0],
        [1, 1, 0],
        [2, 1, 1],
        [3, 0, 2],
      ],
    )
  },

  'needs write nothing, and the next call of decide sees fresh state': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{"n":1}')])
    const verdicts = new Map<string, boolean>()
    const asking: DocUpdate<string, string> = {
      id: 'a',
      bytes: 1,
      decide(doc): Decision<string, string> {
        const rev = doc?.rev ?? ''
        if (!verdicts.has(rev)) return { needs: [rev] }
        const change = successor(doc, '{"asked":true}')
        return { result: change.rev, write: change }
      },
    }
    const first = await readOne(store, 'a')
    const before = await store.view()
    t.same(await store.updateDocs([asking]), [{ needs: [first?.rev] }])
    t.same([await readOne(store, 'a'), await store.view()], [first, before])
    verdicts.set(first?.rev ?? '', true)
    const overtaking = await only(store.updateDocs([put('a', '{"n":2}')]))
    t.same(
      await store.updateDocs([asking]),
      [{ needs: [overtaking] }],
      'the decision sees the newest state, not that of the first round',
    )
    verdicts.set(overtaking, true)
    const rev = resultOf((await store.updateDocs([asking]))[0])
    t.equal((await readOne(store, 'a'))?.rev, rev)
  },

  'of several updates in a call each has its own kind of outcome': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const thrown = new Error('forbidden by a test')
    const needing: DocUpdate<string, number> = { id: 'n', bytes: 1, decide: () => ({ needs: [1, 2] }) }
    const outcomes = await store.updateDocs<string, number>([
      put('a'),
      needing,
      failing('b', thrown),
      put('c'),
    ])
    t.same(outcomes[1], { needs: [1, 2] })
    t.equal(errorOf(outcomes[2]), thrown, 'the very thing that was thrown')
    t.same(
      (await audit(t, store, 'afterwards')).map(({ id }) => id),
      ['a', 'c'],
    )
  },

  'a throw of decide rejects that update alone, in a call of any size': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const thrown = new Error('every seventh')
    const id = (index: number) => `doc-${String(index).padStart(4, '0')}`
    const updates = Array.from({ length: 600 }, (_, i) => (i % 7 === 0 ? failing(id(i), thrown) : put(id(i))))
    const outcomes = await store.updateDocs(updates)
    const bad = outcomes.flatMap((outcome, i) => (errorOf(outcome) === thrown ? [i] : []))
    t.same(
      bad,
      Array.from({ length: 86 }, (_, i) => i * 7),
    )
    const wanted = updates.map((update) => update.id).filter((_, i) => i % 7 !== 0)
    t.same(
      (await audit(t, store, 'at once')).map((doc) => doc.id),
      wanted,
    )
    t.same(
      (await audit(t, (await reopen()).store, 'after a restart')).map((doc) => doc.id),
      wanted,
    )
  },

  'a write that fails half way leaves no trace, and the others of its call are written': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const { content, ...facts } = attachment('x', Buffer.from('y'))
    const unknown = { ...facts, content: { blob: 999 } }
    await store.updateDocs([put('b', '{"n":0}')])
    const outcomes = await store.updateDocs([
      put('a'),
      put('b', '{"n":1}', { attachments: [unknown] }),
      put('b', '{"n":2}'),
      put('c', '{}', { attachments: [unknown] }),
      put('d', '{}', { attachments: [{ ...facts, content }] }),
    ])
    const failed = outcomes.map((outcome) => (errorOf(outcome) as CouchError | undefined)?.code)
    t.same(failed, [undefined, 'no_attachment', undefined, 'no_attachment', undefined])
    const feed = await audit(t, store, 'at once')
    t.same(
      feed.map(({ id, seq }) => [id, seq]),
      [
        ['a', 2],
        ['b', 3],
        ['d', 4],
      ],
    )
    t.same(
      feed[1]?.revisions.map(({ body }) => body),
      ['{"n":0}', '{"n":2}'],
    )
    t.same(await audit(t, (await reopen()).store, 'after a restart'), feed)
  },

  'an update that throws leaves the document as the update before it did': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const outcomes = await store.updateDocs([
      put('a', '{"n":1}'),
      failing('a', new Error('no')),
      put('a', '{"n":2}'),
    ])
    t.equal((await readOne(store, 'a'))?.rev, resultOf(outcomes[2]))
    t.equal((await store.view()).updateSeq, 2)
  },

  'updates that bring many bytes are all written': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const body = JSON.stringify({ text: 'x'.repeat(700_000) })
    await store.updateDocs([
      put('a', body),
      put('b', body),
      put('c', '{}', { bytes: 5_000_000 }),
      put('d', body),
    ])
    t.same(
      (await audit(t, store, 'afterwards')).map(({ id }) => id),
      ['a', 'b', 'c', 'd'],
    )
  },
}
