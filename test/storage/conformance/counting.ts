/** What the sizes of a database count: everything that is stored, so that a limit of bytes bounds it. */
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { attachment, put, write } from './edits.ts'
import { only, openNotes, type StorageCases } from './setup.ts'

const KB = 1000

/** By how many bytes the database grows, as a quota counts it. */
async function growth(store: DatabaseStore, act: () => Promise<unknown>): Promise<number> {
  const before = (await store.info()).sizes.active
  await act()
  return (await store.info()).sizes.active - before
}

const times = <T>(count: number, make: (at: number) => T) =>
  Array.from({ length: count }, (_, at) => make(at))

const hash = (n: number) => n.toString(16).padStart(32, '0')

/** A new document with a revision that came with a history. */
function replicated(id: string, generations: number, idOf = hash) {
  const ancestry = times(generations, (at) => idOf(generations - at))
  const rev = `${generations}-${ancestry[0]}`
  const revision = { rev, deleted: false, ancestry, content: { body: '{}', attachments: [] } }
  return write(id, { rev, deleted: false, sequenced: true, revisions: [revision] })
}

function local(id: string, body: string | null) {
  return {
    id: `_local/${id}`,
    decide: () => ({ result: 0, write: body === null ? null : { rev: 1, body } }),
  }
}

export const countingCases: StorageCases = {
  '`_local` documents count until they are deleted': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const body = JSON.stringify({ text: 'x'.repeat(20 * KB) })
    const set = (body: string | null) => store.updateLocals(times(50, (at) => local(`l${at}`, body)))
    const grown = await growth(store, () => set(body))
    t.ok(grown >= 1000 * KB && grown < 1500 * KB, `${grown} bytes`)
    const rewritten = await growth(store, () => set(body))
    t.ok(rewritten < 200 * KB, `${rewritten} bytes for the same again`)
    const gone = await growth(store, () => set(null))
    t.ok(gone <= -1000 * KB, `${gone} bytes when they are gone`)
  },

  'many small `_local` documents count with their ids': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const grown = await growth(store, () =>
      store.updateLocals(times(500, (at) => local(`${at}`.padStart(1000, 'x'), '{}'))),
    )
    t.ok(grown >= 500 * KB, `${grown} bytes`)
  },

  'histories count, whatever their ids are': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const grown = await growth(store, () => store.updateDocs(times(50, (at) => replicated(`h${at}`, 1000))))
    t.ok(grown >= 50 * 16 * KB, `${grown} bytes`)
    const longer = await growth(store, () =>
      store.updateDocs(times(5, (at) => replicated(`l${at}`, 500, (n) => `${n}`.padStart(500, 'r')))),
    )
    t.ok(longer >= 5 * 250 * KB, `${longer} bytes of long ids`)
  },

  'long ids count in every revision': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const save = (n: number) =>
      store.updateDocs(times(200, (at) => put(`${at}`.padStart(2000, 'i'), JSON.stringify({ n }))))
    const grown = await growth(store, () => save(1))
    t.ok(grown >= 400 * KB, `${grown} bytes`)
  },

  'purges count': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const ids = times(200, (at) => `${at}`.padStart(1000, 'p'))
    const grown = await growth(store, async () => {
      await store.updateDocs(ids.map((id) => put(id)))
      await store.purgeDocs(
        ids.map((id) => ({
          id,
          readSet: { branches: true, revisions: true },
          decide: (doc) => {
            const removed = [...(doc?.revisions() ?? [])].map(({ rev }) => rev)
            return { result: 0, write: { purged: removed, removed, rest: null } }
          },
        })),
      )
      await store.compact()
    })
    t.equal((await store.readPurges()).length, 200)
    t.ok(grown >= 200 * KB, `${grown} bytes`)
  },

  'the security object counts': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const security = { members: { names: times(6000, (at) => `member-${at}`), roles: [] } }
    const set = () => store.updateSettings(() => ({ result: 0, write: { security } }))
    const grown = await growth(store, set)
    t.ok(grown >= 60 * KB, `${grown} bytes`)
    const again = await growth(store, set)
    t.ok(again < 10 * KB, `${again} bytes for the same again`)
  },

  'superseded bodies count until a compaction, and retained ones do not': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const body = (n: number) => JSON.stringify({ n, text: 'x'.repeat(50 * KB) })
    const written = await growth(store, async () => {
      for (const n of times(20, (at) => at)) await only(store.updateDocs([put('a', body(n))]))
    })
    t.ok(written >= 1000 * KB, `${written} bytes`)
    const compacted = await growth(store, () => store.compact({ keepSince: 0 }))
    t.equal((await store.sizes()).kept.count, 19)
    t.ok(compacted <= -900 * KB, `${compacted} bytes after the compaction`)
  },

  'what a retained revision takes beside its body counts': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const ids = times(200, (at) => `${at}`.padStart(1000, 'k'))
    const grown = await growth(store, async () => {
      for (const n of [1, 2, 3, 4]) await store.updateDocs(ids.map((id) => put(id, JSON.stringify({ n }))))
      await store.compact({ keepSince: 0 })
    })
    t.equal((await store.sizes()).kept.count, 600)
    t.ok(grown >= 200 * KB + 600 * 50, `${grown} bytes`)
  },

  'the parts add up to the whole, whatever was written': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const file = attachment('x', Buffer.from('some bytes'))
    await store.updateDocs([put('a'), put('b', '{}', { attachments: [file] }), replicated('h', 700)])
    await store.updateDocs([put('a', '{"n":2}'), put('b', '{"n":2}'), put('a', '{"n":3}', { deleted: true })])
    await store.updateLocals([local('one', '{"a":1}'), local('two', '{"b":"ü"}')])
    await store.updateLocals([local('one', null), local('two', '{}'), local('nul\u0000', '{}')])
    await store.updateSettings(() => ({
      result: 0,
      write: { security: { members: { names: ['anna'], roles: [] } }, revsLimit: 5, purgedInfosLimit: 1 },
    }))
    const whole = async (of: DatabaseStore) => (await of.info()).sizes.file
    const parts = async (of: DatabaseStore) => (await of.sizes()).file
    t.equal(await parts(store), await whole(store))
    await store.compact({ keepSince: 0 })
    t.equal(await parts(store), await whole(store), 'after a compaction')
    for (const id of ['b', 'h']) {
      await store.purgeDocs([
        {
          id,
          readSet: { branches: true, revisions: true, retained: true },
          decide: (doc) => {
            const removed = [...(doc?.revisions() ?? [])].map(({ rev }) => rev)
            const all = [...removed, ...(doc?.retained() ?? [])]
            return { result: 0, write: { purged: removed, removed: all, rest: null } }
          },
        },
      ])
    }
    t.equal(await parts(store), await whole(store), 'after purges')
    await store.compact()
    t.equal(await parts(store), await whole(store), 'after another compaction')
    const again = (await reopen()).store
    t.equal(await parts(again), await whole(again), 'opened again')
  },
}
