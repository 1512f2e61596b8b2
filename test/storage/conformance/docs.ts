import type { Test } from 'tap'
import type { Decision, DocUpdate } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { failing, put, readOne, remove, snapshot, successor, write } from './edits.ts'
import { ALL, errorOf, type MakeEngine, only, openNotes, resultOf } from './setup.ts'

/** Documents: reading by id, and updates one by one. */
export function docTests(t: Test, makeEngine: MakeEngine): void {
  readTests(t, makeEngine)
  updateTests(t, makeEngine)
  decisionTests(t, makeEngine)
  atomicityTests(t, makeEngine)
}

function readTests(t: Test, makeEngine: MakeEngine): void {
  t.test('documents are read in the order asked, null for one that never was', async (t) => {
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
  })

  t.test('a document is the same whatever was said that would be touched', async (t) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{"n":1}'), put('a', '{"n":2}')])
    const plain = await readOne(store, 'a')
    for (const touches of [{}, { body: true }, { branches: true }, { body: true, branches: true }]) {
      t.same(await store.readDocs(['a'], (doc) => doc && snapshot(doc), touches), [plain])
      t.same((await store.readRange({}, { limit: 9, touches }, snapshot)).rows, [plain])
      t.same((await store.readChanges({ since: 0 }, { limit: 9, touches }, snapshot)).rows, [plain])
    }
  })

  t.test('the view handed over with documents is the one the store tells', async (t) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), remove('c')])
    const view = await store.view()
    t.hasStrict(view, { updateSeq: 3, docCount: 2, deletedCount: 1 })
    t.same(await store.readDocs(['a', 'x'], (_doc, _id, seen) => ({ ...seen })), [view, view])
    const range = await store.readRange({}, { limit: 1 }, (_doc, seen) => ({ ...seen }))
    t.same([range.view, ...range.rows], [view, view])
    const changes = await store.readChanges({ since: 0 }, { limit: 1 }, (_doc, seen) => ({ ...seen }))
    t.same([changes.view, ...changes.rows], [view, view])
  })

  t.test('a throw of read rejects that read alone', async (t) => {
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
  })

  t.test('a closed store refuses to read and to write', async (t) => {
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
    t.ok(written, 'by a rejection or an error of each update')
  })
}

function updateTests(t: Test, makeEngine: MakeEngine): void {
  t.test('a document that was written is read back as it was written, also after a restart', async (t) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const body = '{"2":1e400,"1":9007199254740993,"é\\u0000":"\u{1F600}","z":-0,"a":1.0}'
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
  })

  t.test('sequence numbers count the updates, one for each that is sequenced', async (t) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), put('a', '{"n":2}')])
    await store.updateDocs([remove('b')])
    t.equal((await store.view()).updateSeq, 4)
    t.equal((await readOne(store, 'a'))?.seq, 3)
    t.equal((await readOne(store, 'b'))?.seq, 4)
  })

  t.test('an update that is not sequenced keeps its place in the feed', async (t) => {
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
  })

  t.test('a decision without a write stores nothing', async (t) => {
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
  })

  t.test('no updates at all make no outcomes', async (t) => {
    const { store } = await openNotes(t, makeEngine)
    t.same(await store.updateDocs([]), [])
    t.equal((await store.view()).updateSeq, 0)
  })

  t.test('deleted documents and live ones are counted as winners come and go', async (t) => {
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
  })
}

function decisionTests(t: Test, makeEngine: MakeEngine): void {
  t.test('the same id again in one call sees what the first has written', async (t) => {
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
  })

  t.test('decide sees the counters as the updates before it left them', async (t) => {
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
  })

  t.test('needs write nothing, and the next call of decide sees fresh state', async (t) => {
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
    t.same(await store.updateDocs([asking]), [{ needs: [overtaking] }], 'not the state of the first round')
    verdicts.set(overtaking, true)
    const rev = resultOf((await store.updateDocs([asking]))[0])
    t.equal((await readOne(store, 'a'))?.rev, rev)
  })

  t.test('of several updates in a call each has its own kind of outcome', async (t) => {
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
  })
}

function atomicityTests(t: Test, makeEngine: MakeEngine): void {
  t.test('a throw of decide rejects that update alone, in a call of any size', async (t) => {
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
  })

  t.test('an update that throws leaves the document as the update before it did', async (t) => {
    const { store } = await openNotes(t, makeEngine)
    const outcomes = await store.updateDocs([
      put('a', '{"n":1}'),
      failing('a', new Error('no')),
      put('a', '{"n":2}'),
    ])
    t.equal((await readOne(store, 'a'))?.rev, resultOf(outcomes[2]))
    t.equal((await store.view()).updateSeq, 2)
  })

  t.test('updates that bring many bytes are all written', async (t) => {
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
  })
}
