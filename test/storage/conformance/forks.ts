import { leafRev } from '../../../src/revisions/branch.ts'
import type { DatabaseStore, DocWrite } from '../../../src/storage/engine.ts'
import { put, write } from './edits.ts'
import { ALL, openNotes, type StorageCases } from './setup.ts'

const leaf = (rev: string, id: string) => ({
  rev,
  deleted: false,
  ancestry: [id],
  content: { body: '{}', attachments: [] },
})

/** A document with the leaves 1-a and 1-b. */
const FORK: DocWrite = {
  rev: '1-b',
  deleted: false,
  sequenced: true,
  revisions: [leaf('1-a', 'a'), leaf('1-b', 'b')],
}

/** The ids of all pages, after each other, and how many documents were searched. */
async function search(store: DatabaseStore, limit: number): Promise<[ids: string[], searched: number]> {
  const ids: string[] = []
  let searched = 0
  for (let next: number | null = 0; next !== null; ) {
    const page: Awaited<ReturnType<typeof store.readForked<string | null>>> = await store.readForked(
      next,
      { limit },
      (doc) => (doc.branches.length > 1 ? `${doc.id} ${doc.branches.map(leafRev).sort()}` : null),
    )
    ids.push(...page.rows.filter((id) => id !== null))
    searched += page.searched
    next = page.next
  }
  return [ids, searched]
}

/** The search for documents with several leaves. */
export const forkCases: StorageCases = {
  'documents with several leaves are found, each once, whatever the limit': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.same(await search(store, 5), [[], 0])
    await store.updateDocs([
      put('z'),
      write('y', FORK),
      put('m'),
      write('b', FORK),
      write('a', FORK),
      put('c'),
    ])
    const wanted = [['y 1-a,1-b', 'b 1-a,1-b', 'a 1-a,1-b'], 6]
    for (const limit of [1, 2, 3, 10]) t.same(await search(store, limit), wanted, `limit ${limit}`)
    t.same(await search((await reopen()).store, 2), wanted)
  },

  'a write does not change the order, and a settled fork is not found': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([write('a', FORK), write('b', FORK), put('c')])
    const first = await store.readForked(0, { limit: 1 }, ({ id }) => id)
    t.same(first.rows, ['a'])
    await store.updateDocs([put('a', '{"n":2}')])
    const next = first.next ?? -1
    t.same((await store.readForked(next, ALL, ({ id }) => id)).rows, ['b'])
    const tombstone = { rev: '1-a', deleted: false, ancestry: null }
    await store.updateDocs([write('b', { ...FORK, revisions: [tombstone] })])
    t.same((await store.readForked(next, ALL, ({ id }) => id)).rows, [])
  },

  'a page ends where its characters are reached, but not before its first row': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('x'), write('a', FORK), write('b', FORK)])
    const page = await store.readForked(0, { limit: 10, chars: 1, readSet: { body: true } }, (doc) => {
      doc.body(doc.rev)
      return doc.id
    })
    t.same([page.rows, page.searched], [['a'], 2])
    t.same((await store.readForked(page.next ?? -1, ALL, ({ id }) => id)).rows, ['b'])
  },

  'the search crosses stretches without a fork, and purged documents': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const many = Array.from({ length: 4500 }, (_, n) => put(`d${n}`))
    await store.updateDocs([...many.slice(0, 4400), write('last', FORK), ...many.slice(4400)])
    await store.purgeDocs(
      ['d7', 'd8'].map((id) => ({
        id,
        decide: (doc) => {
          const rev = doc?.rev ?? ''
          return { result: null, write: { purged: [rev], removed: [rev], rest: null } }
        },
      })),
    )
    t.same(await search(store, 10), [['last 1-a,1-b'], 4499])
  },
}
