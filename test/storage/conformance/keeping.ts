/** What is kept of superseded revisions at a compaction, and what is counted of them. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { decidePurge } from '../../../src/documents/purge.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { attachment, type DocSnapshot, put, readFeed, readOne, remove, write } from './edits.ts'
import { type MakeEngine, only, openNotes, type StorageCases } from './setup.ts'

/** A store whose clock is the test's: each write comes a second later. */
async function timed(t: Test, makeEngine: MakeEngine) {
  const clock = { ms: 1_700_000_000_000 }
  const opened = await openNotes(t, makeEngine, { now: () => clock.ms })
  const later = async <T>(act: Promise<T>): Promise<T> => {
    const done = await act
    clock.ms += 1000
    return done
  }
  return { ...opened, clock, later }
}

async function keptOf(store: DatabaseStore, id: string): Promise<readonly string[]> {
  const [kept] = await store.readDocs([id], (doc) => [...(doc?.retained() ?? [])].sort())
  return kept ?? []
}

/** What the revision model shows of a revision. */
async function shown(store: DatabaseStore, id: string, rev: string) {
  const [found] = await store.readDocs([id], (doc) => [
    doc?.revisions().some((row) => row.rev === rev),
    doc?.body(rev),
    doc?.attachments(rev).length,
  ])
  return found
}

const GONE = [false, null, 0]

function leaves(doc: DocSnapshot | null) {
  return doc?.revisions.filter(({ leaf }) => leaf)
}

/** A purge as `_purge` decides it. */
function purge(id: string, revs: readonly string[]) {
  return { id, decide: (doc: Parameters<typeof decidePurge>[0]) => decidePurge(doc, revs) }
}

export const keepingCases: StorageCases = {
  'the retained versions of a closed database can be read, and reading changes nothing': async (
    t,
    makeEngine,
  ) => {
    const { engine, store, clock, later } = await timed(t, makeEngine)
    const kept = () => engine.retainedVersions('notes')
    t.same(await kept(), { oldestRetained: null, compactedAt: 0 })
    for (const n of [1, 2, 3]) await later(only(store.updateDocs([put('a', `{"n":${n}}`)])))
    await store.compact({ keepSince: 0 })
    const facts = { oldestRetained: clock.ms - 2000, compactedAt: clock.ms }
    t.same(await kept(), facts, 'while it is open')
    await store.close()
    const before = await engine.copies?.fingerprint('notes')
    t.same(await kept(), facts)
    t.equal(await engine.copies?.fingerprint('notes'), before)
    const again = await engine.openDatabase('notes')
    await again.compact({})
    t.same(await kept(), { oldestRetained: null, compactedAt: clock.ms })
    await t.rejects(engine.retainedVersions('nowhere'), { code: 'no_database' })
  },
  'a recently superseded version is retained for the time machine alone': async (t, makeEngine) => {
    const { store, clock, later, reopen } = await timed(t, makeEngine)
    const file = attachment('x', randomBytes(3000))
    const first = await later(only(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })])))
    const second = await later(only(store.updateDocs([put('a', '{"n":2}', { attachments: [file] })])))
    const keepSince = clock.ms - 500
    await later(only(store.updateDocs([put('a', '{"n":3}')])))
    const blob = (await store.readDocs(['a'], (doc) => doc?.attachments(second)[0]?.blob))[0] ?? -1
    await store.compact({ keepSince })
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.same(await shown(from, 'a', first), GONE, 'superseded before')
      t.same(await shown(from, 'a', second), GONE, 'and after, both out of the model')
      t.same(await keptOf(from, 'a'), [second])
      t.ok((await from.readBlob(blob, 0, 1)) !== null, 'with its attachments')
      const { kept, old } = await from.sizes()
      t.same(
        [kept, old],
        [
          { count: 1, bytes: 7 },
          { count: 0, bytes: 0 },
        ],
      )
      t.equal((await from.garbage()).oldestRetained, clock.ms - 1000)
      await audit(t, from, 'compacted')
    }
  },

  'a retained version is removed when its time is over, with its attachments': async (t, makeEngine) => {
    const { store, clock, later } = await timed(t, makeEngine)
    const file = attachment('x', randomBytes(3000))
    await later(only(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })])))
    const blob = (await readOne(store, 'a'))?.revisions[0]?.attachments[0]?.blob ?? -1
    await later(only(store.updateDocs([put('a', '{"n":2}')])))
    await later(only(store.updateDocs([remove('a')])))
    await store.compact({ keepSince: 0 })
    t.equal((await keptOf(store, 'a')).length, 2)
    await store.compact({ keepSince: clock.ms - 1500 })
    t.equal((await keptOf(store, 'a')).length, 1)
    t.equal(await store.readBlob(blob, 0, 1), null)
    t.equal((await store.garbage()).oldestRetained, clock.ms - 1000)
    await store.compact({ keepSince: clock.ms })
    t.same(await keptOf(store, 'a'), [])
    t.equal((await store.garbage()).oldestRetained, null)
    t.equal((await store.sizes()).kept.count, 0)
  },

  'the oldest retained versions are removed beyond the limit in bytes': async (t, makeEngine) => {
    const { store, clock } = await timed(t, makeEngine)
    for (let n = 0; n < 7; n++) {
      await store.updateDocs([put('a', `{"n":${n}}`)])
      clock.ms += 60_000
    }
    const all = { keepSince: 0, keepBytes: 6 * 7 }
    await store.compact(all)
    t.same((await store.sizes()).kept, { count: 6, bytes: 42 })
    await store.compact({ ...all, keepBytes: 3 * 7 + 6 })
    t.same((await store.sizes()).kept, { count: 3, bytes: 21 })
    t.match(
      (await keptOf(store, 'a')).map((rev) => Number.parseInt(rev, 10)),
      [4, 5, 6],
    )
    t.equal((await store.garbage()).oldestRetained, clock.ms - 3 * 60_000)
    await store.compact({ ...all, keepBytes: 0 })
    t.same((await store.sizes()).kept, { count: 0, bytes: 0 })
  },

  'without a time no version is retained, and retained versions are removed': async (t, makeEngine) => {
    const { store, later } = await timed(t, makeEngine)
    for (const n of [1, 2, 3]) await later(only(store.updateDocs([put('a', `{"n":${n}}`)])))
    await store.compact({ keepSince: 0 })
    t.equal((await keptOf(store, 'a')).length, 2)
    await store.compact()
    t.same(await keptOf(store, 'a'), [])
  },

  'a revision that replaces a retained one is an ordinary revision': async (t, makeEngine) => {
    for (const isLeaf of [true, false]) {
      const { store, later } = await timed(t, makeEngine)
      const first = await later(only(store.updateDocs([put('a', '{"n":1}')])))
      const second = await later(only(store.updateDocs([put('a', '{"n":2}')])))
      await store.compact({ keepSince: 0 })
      const [pos, id] = first.split('-') as [string, string]
      const ancestry = isLeaf ? [id] : null
      const content = { body: '{"n":"again"}', attachments: [] }
      const again = { rev: first, deleted: false, ancestry, content }
      await later(
        store.updateDocs([
          write('a', { rev: second, deleted: false, sequenced: isLeaf, revisions: [again] }),
        ]),
      )
      t.equal(pos, '1')
      t.same(await shown(store, 'a', first), [true, '{"n":"again"}', 0])
      t.same(await keptOf(store, 'a'), [])
      const { kept, old, live } = await store.sizes()
      t.same([kept.count, old.count, live.count], [0, isLeaf ? 0 : 1, isLeaf ? 2 : 1])
      await audit(t, store, 'written again')
      await store.compact()
      t.equal((await readOne(store, 'a'))?.revisions.length, isLeaf ? 2 : 1)
    }
  },

  'a retained revision has no content for a write that brings none': async (t, makeEngine) => {
    const { store, later } = await timed(t, makeEngine)
    const first = await later(only(store.updateDocs([put('a', '{"n":1}')])))
    const second = await later(only(store.updateDocs([put('a', '{"n":2}')])))
    await store.compact({ keepSince: 0 })
    const ancestry = [first.slice(2)]
    const bare = { rev: first, deleted: false, ancestry }
    const [outcome] = await store.updateDocs([
      write('a', { rev: second, deleted: false, sequenced: true, revisions: [bare] }),
    ])
    t.ok(outcome !== undefined && 'error' in outcome)
    t.same(await keptOf(store, 'a'), [first])
  },

  'a purge removes the retained ancestors of its revisions, and all of a whole document': async (
    t,
    makeEngine,
  ) => {
    const { store, later, reopen } = await timed(t, makeEngine)
    await later(only(store.updateDocs([put('a', '{"n":1}'), put('b', '{"n":1}')])))
    await later(store.updateDocs([put('a', '{"n":2}'), put('b', '{"n":2}')]))
    const last = await later(only(store.updateDocs([put('a', '{"n":3}')])))
    // A branch of its own beside: what it has stays.
    const side = { rev: '2-ffff', deleted: false, ancestry: ['ffff', 'eeee'] }
    const root = { rev: '1-eeee', deleted: false, ancestry: null }
    const content = { body: '{"side":1}', attachments: [] }
    const revisions = [
      { ...root, content },
      { ...side, content },
    ]
    await later(store.updateDocs([write('a', { rev: last, deleted: false, sequenced: true, revisions })]))
    await store.compact({ keepSince: 0 })
    t.equal((await keptOf(store, 'a')).length, 3)
    await only(store.purgeDocs([purge('a', [last])]))
    t.same(await keptOf(store, 'a'), ['1-eeee'])
    t.ok(
      (await store.garbage()).needsCompaction,
      'purged data is still in freed pages, so a compaction is needed',
    )
    const leaf = (await readOne(store, 'b'))?.rev ?? ''
    await only(store.purgeDocs([purge('b', [leaf])]))
    t.equal(await readOne(store, 'b'), null)
    t.same((await store.sizes()).kept, { count: 1, bytes: 10 })
    await store.compact({ keepSince: 0 })
    t.notOk((await store.garbage()).needsCompaction)
    const { store: again } = await reopen()
    t.same(await keptOf(again, 'a'), ['1-eeee'])
    t.notOk((await again.garbage()).needsCompaction)
  },

  'ancestries beyond a lower limit are cut, and nothing else changes': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    for (let n = 0; n < 12; n++) await store.updateDocs([put('a', `{"n":${n}}`), put('b')])
    await store.updateDocs([put('c'), remove('c')])
    const before = await readFeed(store)
    t.notOk((await store.garbage()).needsCompaction)
    await store.compact()
    await store.updateSettings(() => ({ result: null, write: { revsLimit: 5 } }))
    t.ok((await store.garbage()).needsCompaction)
    await store.compact()
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.notOk((await from.garbage()).needsCompaction)
      const after = await readFeed(from)
      const cut = before.map(({ branches, ...doc }) => ({
        ...doc,
        branches: branches.map(({ ids, ...branch }) => ({ ...branch, ids: ids.slice(0, 5) })),
        revisions: leaves({ branches, ...doc }),
      }))
      t.same(after, cut)
      await audit(t, from, 'cut')
    }
    const { store: again } = await reopen()
    await again.updateSettings(() => ({ result: null, write: { revsLimit: 50 } }))
    t.notOk((await again.garbage()).needsCompaction, 'a higher limit cuts nothing')
  },

  'the garbage counters show what there is to remove, and nothing after a compaction': async (
    t,
    makeEngine,
  ) => {
    const { store, later, reopen } = await timed(t, makeEngine)
    const empty = await store.garbage()
    t.match(empty, {
      supersededBytes: 0,
      maybeUnreferencedBytes: 0,
      oldestRetained: null,
      needsCompaction: false,
      compactedAt: 0,
    })
    const file = attachment('x', randomBytes(5000))
    await later(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })]))
    t.ok((await store.garbage()).writes > empty.writes)
    await later(store.updateDocs([put('a', '{"n":2}')]))
    const { supersededBytes, maybeUnreferencedBytes } = await (await reopen()).store.garbage()
    t.ok(supersededBytes >= 7 && maybeUnreferencedBytes === 5000)
  },

  'sizes add up, and are what a recount finds': async (t, makeEngine) => {
    const { store, later } = await timed(t, makeEngine)
    const file = attachment('x', randomBytes(5000))
    for (const [n, id] of ['a', 'b', 'c', 'a', 'b', 'a'].entries()) {
      await later(store.updateDocs([put(id, `{"n":${n}}`, { attachments: [file] })]))
    }
    await later(store.updateDocs([remove('c', '{"why":"so"}')]))
    await only(
      store.updateLocals([{ id: '_local/x', decide: () => ({ result: 0, write: { rev: 1, body: '{}' } }) }]),
    )
    const { file: whole, ...parts } = await store.sizes()
    t.equal(
      Object.values(parts).reduce((sum, part) => sum + (part?.bytes ?? 0), 0),
      whole,
    )
    t.match(parts, {
      live: { count: 2, bytes: 14 },
      tombstones: { count: 1, bytes: 12 },
      old: { count: 4, bytes: 28 },
      kept: { count: 0, bytes: 0 },
      attachments: { count: 1, bytes: 5000 },
      local: { count: 1, bytes: 2 },
    })
    await store.compact({ keepSince: 0 })
    t.match(await store.sizes(), { old: { count: 0, bytes: 0 }, kept: { count: 4, bytes: 28 } })
  },
}
