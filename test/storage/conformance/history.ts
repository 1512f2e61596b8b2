import type { DocWrite } from '../../../src/storage/engine.ts'
import type { StoredVersion, VersionedStore } from '../../../src/storage/history-store.ts'
import { attachment, put, remove, write } from './edits.ts'
import { ALL, only, openNotes, type StorageCases } from './setup.ts'

const START = 1_700_000_000_000

/** A clock that the test sets. */
class Clock {
  at = START
  readonly now = (): number => this.at
}

async function versionsOf(store: VersionedStore, id: string): Promise<readonly StoredVersion[]> {
  const [versions] = await store.history.readDocs([id], (doc) => doc?.versions().map((each) => ({ ...each })))
  return versions ?? []
}

/** A revision as a write has it. @param ancestry null: it is superseded @param body null: its content stays */
function leaf(rev: string, ancestry: readonly string[] | null, body: string | null) {
  return { rev, deleted: false, ancestry, ...(body !== null && { content: { body, attachments: [] } }) }
}

/** @returns a function that writes revisions of the document `a`, and names its winner */
function makerOf(store: VersionedStore) {
  return (rev: string, revisions: readonly ReturnType<typeof leaf>[]) =>
    store.updateDocs([write('a', { rev, deleted: false, sequenced: true, revisions })])
}

export const historyCases: StorageCases = {
  'a version is stored at the time of its write, and superseded when what follows it is stored': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store } = await openNotes(t, makeEngine, { now: clock.now })
    const file = attachment('f', Buffer.from('12345'))
    const first = await only(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })]))
    clock.at += 1000
    const second = await only(store.updateDocs([put('a', '{"n":22}')]))
    clock.at += 1000
    const third = await only(store.updateDocs([remove('a')]))
    const shown = (await versionsOf(store, 'a')).map(({ place: _, isRetained: __, ...each }) => each)
    t.same(shown, [
      {
        rev: third,
        deleted: true,
        storedAt: START + 2000,
        supersededAt: null,
        grownAt: null,
        size: 2,
        attachments: 0,
      },
      {
        rev: second,
        deleted: false,
        storedAt: START + 1000,
        supersededAt: START + 2000,
        grownAt: null,
        size: 8,
        attachments: 0,
      },
      {
        rev: first,
        deleted: false,
        storedAt: START,
        supersededAt: START + 1000,
        grownAt: null,
        size: 12,
        attachments: 1,
      },
    ])
    t.same(await store.history.horizon(), { whole: 0, timed: 0, begun: START })
  },

  'versions are read newest first, in pages and from a time on': async (t, makeEngine) => {
    const clock = new Clock()
    const { store } = await openNotes(t, makeEngine, { now: clock.now })
    const revs: string[] = []
    for (let n = 0; n < 7; n++) {
      revs.unshift(await only(store.updateDocs([put('a', `{"n":${n}}`)])))
      clock.at += 1000
    }
    const all = await versionsOf(store, 'a')
    t.same(
      all.map(({ rev }) => rev),
      revs,
    )
    const [page] = await store.history.readDocs(['a'], (doc) =>
      doc?.versions({ before: all[2]?.place ?? 0, limit: 2 }).map(({ rev }) => rev),
    )
    t.same(page, revs.slice(3, 5))
    const [since] = await store.history.readDocs(['a'], (doc) =>
      doc?.versions({ leavesAfter: START + 5000 }).map(({ rev }) => rev),
    )
    t.same(since, revs.slice(0, 2), 'the leaf, and the one that was superseded a second later')
  },

  'body and attachments of every stored version are read, with their contents': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const file = attachment('f', Buffer.from('12345'))
    const old = await only(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })]))
    await store.updateDocs([put('a', '{"n":2}')])
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      const [read] = await from.history.readDocs(['a'], (doc) => {
        const [stored] = doc?.attachments(old) ?? []
        return [doc?.body(old), stored?.name, stored?.blob] as const
      })
      t.same(read?.slice(0, 2), ['{"n":1}', 'f'])
      t.same(await from.readBlob(read?.[2] ?? -1, 0, 5), Buffer.from('12345'))
    }
  },

  'all documents are read by id and by their place in the feed, deleted ones too': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('b'), put('c'), put('a'), put('é'), put('d')])
    await store.updateDocs([remove('c'), put('b', '{"n":2}')])
    const { history } = store
    const ids: string[] = []
    for (let more = true; more; ) {
      const last = ids.at(-1)
      const range = last === undefined ? {} : { start: { id: last, inclusive: false } }
      const page = await history.readRange(range, { limit: 2 }, (doc) => doc.id)
      ids.push(...page.rows)
      more = page.more
    }
    t.same(ids, ['a', 'b', 'c', 'd', 'é'])
    const some = await history.readRange(
      { start: { id: 'b', inclusive: true }, end: { id: 'd', inclusive: false } },
      ALL,
      (doc) => [doc.id, doc.deleted],
    )
    t.same(some.rows, [
      ['b', false],
      ['c', true],
    ])
    const newest = await history.readNewest(Number.MAX_SAFE_INTEGER, { limit: 3 }, (doc) => [doc.id, doc.seq])
    t.same(newest.rows, [
      ['b', 7],
      ['c', 6],
      ['d', 5],
    ])
    t.equal(newest.more, true)
    const rest = await history.readNewest(5, ALL, (doc) => doc.id)
    t.same(rest.rows, ['é', 'a'])
    t.equal(rest.more, false)
    t.same(await history.readDocs(['none', 'a'], (doc, id) => [id, doc !== null]), [
      ['none', false],
      ['a', true],
    ])
  },

  'after a compaction a version is still there, or the horizon says that it may be missing': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store, reopen } = await openNotes(t, makeEngine, { now: clock.now })
    const first = await only(store.updateDocs([put('a', '{"n":1}')]))
    clock.at += 1000
    await store.updateDocs([put('a', '{"n":2}')])
    clock.at += 1000
    await store.compact()
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      const isThere = (await versionsOf(from, 'a')).some(({ rev }) => rev === first)
      const { whole } = await from.history.horizon()
      t.ok(isThere || whole >= START + 1000)
      t.ok(whole < START + 2000, 'revisions that were not superseded then are known')
    }
  },

  'the history shows what a compaction retains, with body and attachments, until another drops it': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store, reopen } = await openNotes(t, makeEngine, { now: clock.now })
    const file = attachment('f', Buffer.from('12345'))
    const first = await only(store.updateDocs([put('a', '{"n":1}', { attachments: [file] })]))
    clock.at += 1000
    const second = await only(store.updateDocs([put('a', '{"n":2}')]))
    clock.at += 1000
    await store.updateDocs([put('a', '{"n":3}')])
    await store.compact({ keepSince: START })
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.same((await from.history.horizon()).whole, 0)
      const kept = (await versionsOf(from, 'a')).filter((version) => version.isRetained)
      t.same(
        kept.map(({ rev, storedAt, supersededAt }) => [rev, storedAt, supersededAt]),
        [
          [second, START + 1000, START + 2000],
          [first, START, START + 1000],
        ],
      )
      const [read] = await from.history.readDocs(['a'], (doc) => [
        doc?.body(first),
        doc?.attachments(first).map(({ name }) => name),
        doc?.revisions().length,
      ])
      t.same(read, ['{"n":1}', ['f'], 3])
    }
    const { store: again } = await reopen()
    await again.compact({ keepSince: START + 1000 })
    t.same((await again.history.horizon()).whole, START + 1000)
    t.same(
      (await versionsOf(again, 'a')).flatMap(({ rev, isRetained: kept }) => (kept ? rev : [])),
      [second],
    )
  },

  'a retained version that is written again keeps its time, or becomes a leaf again': async (
    t,
    makeEngine,
  ) => {
    for (const isLeaf of [false, true]) {
      const clock = new Clock()
      const { store } = await openNotes(t, makeEngine, { now: clock.now })
      const first = await only(store.updateDocs([put('a', '{"n":1}')]))
      clock.at += 1000
      const rev = await only(store.updateDocs([put('a', '{"n":2}')]))
      await store.compact({ keepSince: 0 })
      clock.at += 1000
      const content = { body: '{"n":1}', attachments: [] }
      const again = { rev: first, deleted: false, ancestry: isLeaf ? [first.slice(2)] : null, content }
      await only(store.updateDocs([write('a', { rev, deleted: false, sequenced: true, revisions: [again] })]))
      const { storedAt, supersededAt, isRetained } = (await versionsOf(store, 'a')).find(
        (version) => version.rev === first,
      ) as StoredVersion
      t.same(
        { storedAt, supersededAt, isRetained },
        isLeaf
          ? { storedAt: START + 2000, supersededAt: null, isRetained: false }
          : { storedAt: START, supersededAt: START + 1000, isRetained: false },
      )
      t.equal((await store.history.horizon()).whole, isLeaf ? START + 1000 : 0)
    }
  },

  'a version that comes once more as a leaf is one from then on, and before that not all is known': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store } = await openNotes(t, makeEngine, { now: clock.now })
    const made = makerOf(store)
    await made('1-a', [leaf('1-a', ['a'], '{}')])
    clock.at += 1000
    await made('2-b', [leaf('1-a', null, null), leaf('2-b', ['b'], '{}')])
    clock.at += 1000
    await made('2-b', [leaf('1-a', ['a'], '{}')])
    const again = (await versionsOf(store, 'a')).find(({ rev }) => rev === '1-a')
    t.same([again?.storedAt, again?.supersededAt], [START + 2000, null])
    t.equal((await store.history.horizon()).whole, START + 1000)
  },
  'when the ancestry of a leaf grows, the time is noted, also once it is a leaf no more': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store, reopen } = await openNotes(t, makeEngine, { now: clock.now })
    const made = makerOf(store)
    await made('2-b', [leaf('2-b', ['b'], '{}')])
    clock.at += 1000
    await made('2-b', [leaf('2-b', ['b', 'a'], null)])
    t.equal((await versionsOf(store, 'a'))[0]?.grownAt, START + 1000)
    clock.at += 1000
    await made('3-c', [leaf('2-b', null, null), leaf('3-c', ['c', 'b', 'a'], '{}')])
    const { store: again } = await reopen()
    t.same(
      (await versionsOf(again, 'a')).map(({ rev, grownAt }) => [rev, grownAt]),
      [
        ['3-c', null],
        ['2-b', START + 1000],
      ],
    )
  },

  'a purge of one leaf beside others says that what the document was until then is not known whole': async (
    t,
    makeEngine,
  ) => {
    const clock = new Clock()
    const { store, reopen } = await openNotes(t, makeEngine, { now: clock.now })
    const made = (rev: string, ancestry: readonly string[]) => ({
      rev,
      deleted: false,
      ancestry,
      content: { body: '{}', attachments: [] },
    })
    await store.updateDocs([put('b'), write('a', written('1-x', [made('1-x', ['x'])]))])
    clock.at += 1000
    const superseded = { rev: '1-x', deleted: false, ancestry: null }
    await store.updateDocs([write('a', written('2-y', [superseded, made('2-y', ['y', 'x'])]))])
    clock.at += 1000
    await store.updateDocs([write('a', written('2-z', [made('2-z', ['z', 'x'])]))])
    clock.at += 1000
    const whole = {
      id: 'b',
      decide: () => ({ result: 0, write: { purged: ['1'], removed: [], rest: null } }),
    }
    await only(store.purgeDocs([whole]))
    t.equal((await store.history.horizon()).whole, 0, 'what is forgotten whole was never there')
    const rest = { rev: '2-y', deleted: false, sequenced: true, revisions: [] }
    const one = { id: 'a', decide: () => ({ result: 0, write: { purged: ['2-z'], removed: ['2-z'], rest } }) }
    await only(store.purgeDocs([one]))
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const { history } = await open()
      t.equal((await history.horizon()).whole, START + 3000)
    }
  },

  'of the versions only those that were stored by a time': async (t, makeEngine) => {
    const clock = new Clock()
    const { store } = await openNotes(t, makeEngine, { now: clock.now })
    const revs: string[] = []
    for (let n = 0; n < 4; n++) {
      revs.unshift(await only(store.updateDocs([put('a', `{"n":${n}}`)])))
      clock.at += 1000
    }
    const [found] = await store.history.readDocs(['a'], (doc) =>
      doc?.versions({ leavesAfter: START + 1000, storedBy: START + 2000 }).map(({ rev }) => rev),
    )
    t.same(found, revs.slice(1, 3))
  },
}

function written(rev: string, revisions: DocWrite['revisions']): DocWrite {
  return { rev, deleted: false, sequenced: true, revisions }
}
