import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises'
import type { DatabaseStore, DocUpdate } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { failing, put, readOne, sortIds, successor, write } from './edits.ts'
import { putLocal } from './locals.ts'
import { ALL, errorOf, onCommit, only, openNotes, type StorageCases } from './setup.ts'

/** An update that counts up the number in a document. */
export function counting(id: string): DocUpdate<number> {
  return {
    id,
    bytes: 10,
    readSet: { body: true, branches: true },
    decide: (doc) => {
      const { n } = JSON.parse(doc?.body(doc.rev) ?? '{"n":0}') as { n: number }
      return { result: n + 1, write: successor(doc, `{"n":${n + 1}}`) }
    },
  }
}

/** Waits until a list has grown to this length, or for a second. */
async function grown(list: readonly unknown[], length: number): Promise<void> {
  for (let waited = 0; waited < 1000 && list.length < length; waited += 5) await delay(5)
}

/** Calls at the same time, and the notice of commits. */
export const concurrencyCases: StorageCases = {
  'decide sees every write of the calls before it': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const calls = Array.from({ length: 60 }, () => only(store.updateDocs([counting('n')])))
    const results = await Promise.all(calls)
    t.same(
      results.sort((a, b) => a - b),
      Array.from({ length: 60 }, (_, i) => i + 1),
    )
    t.equal((await readOne(store, 'n'))?.branches[0]?.pos, 60)
    await audit(t, store, 'afterwards')
  },

  'an update that throws harms no call that shares its commit': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const thrown = new Error('alone')
    const calls = Array.from({ length: 20 }, (_, i) => [put(`${i}a`), failing(`${i}b`, thrown), put(`${i}c`)])
    // Watched from the start: it may fail before the others are through.
    const settings = t.rejects(
      store.updateSettings(() => {
        throw thrown
      }),
      thrown,
    )
    const outcomes = await Promise.all(calls.map((updates) => store.updateDocs(updates)))
    await settings
    t.ok(outcomes.every(([, middle]) => errorOf(middle) === thrown))
    t.equal((await audit(t, store, 'afterwards')).length, 40)
  },

  'closing waits for the writes under way': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const writing = Array.from({ length: 20 }, (_, i) => only(store.updateDocs([put(`a${i}`), put(`b${i}`)])))
    const locals = store.updateLocals([putLocal('_local/l')])
    const closing = store.close()
    t.equal((await Promise.all(writing)).length, 20)
    t.same(await locals, [{ result: 0 }])
    await closing
    const again = (await reopen()).store
    t.equal((await audit(t, again, 'after a restart')).length, 40)
    t.hasStrict(await again.readLocals(['_local/l']), [{ rev: 1 }])
  },

  'a write that was answered is read by whoever asks next': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const writeAndRead = async (i: number) => {
      const rev = await only(store.updateDocs([put(`doc${i}`)]))
      return (await readOne(store, `doc${i}`))?.rev === rev
    }
    t.ok((await Promise.all(Array.from({ length: 40 }, (_, i) => writeAndRead(i)))).every(Boolean))
  },

  'a page and its view show the same moment while writes go on': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const writing = Promise.all(
      Array.from({ length: 50 }, (_, i) => store.updateDocs([put(`a${i}`), put(`b${i}`)])),
    )
    for (let round = 0; round < 20; round++) {
      const range = await store.readRange({}, ALL, (_doc, view) => view.docCount)
      t.same(new Set([range.view.docCount, ...range.rows]), new Set([range.rows.length]))
      const feed = await store.readChanges({ since: 0 }, ALL, (doc) => doc.seq)
      t.equal(feed.view.updateSeq, feed.rows.at(-1) ?? 0)
      t.equal(feed.view.docCount, feed.rows.length)
      const info = await store.info()
      t.equal(info.docCount, info.updateSeq)
    }
    await writing
    await audit(t, store, 'afterwards')
  },

  'the order of commits is the order of numbers: a reader that continues from the last row misses none':
    async (t, makeEngine) => {
      const { store } = await openNotes(t, makeEngine)
      const seen: string[] = []
      let since = 0
      let writing = true
      const follow = async () => {
        for (let last = false; !last; ) {
          // An engine may read without ever leaving its turn: then the writes would never have theirs.
          await turn()
          last = !writing
          const page = await store.readChanges({ since }, { limit: 10 }, (doc) => {
            since = doc.seq
            return doc.id
          })
          seen.push(...page.rows)
          if (page.more) last = false
        }
      }
      const following = follow()
      const ids = Array.from({ length: 300 }, (_, i) => `doc${i}`)
      await Promise.all(ids.map((id) => store.updateDocs([put(id)])))
      writing = false
      await following
      t.same(sortIds(seen), sortIds(ids))
    },

  'updates of one call take their numbers in the order given': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const ids = Array.from({ length: 400 }, (_, i) => `doc${(i * 37) % 400}`)
    await Promise.all([store.updateDocs(ids.map((id) => put(id))), store.updateDocs([put('x'), put('y')])])
    const feed = (await store.readChanges({ since: 0 }, ALL, (doc) => doc.id)).rows
    t.same(
      feed.filter((id) => id.startsWith('doc')),
      ids,
    )
  },

  'a listener is called when the commit can be read': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const told: { updateSeq: number; read: Promise<string[]> }[] = []
    const readIds = async (from: DatabaseStore) =>
      (await from.readChanges({ since: 0 }, ALL, (doc) => `${doc.seq}${doc.id}`)).rows
    onCommit(store, (updateSeq) => told.push({ updateSeq, read: readIds(store) }))
    await store.updateDocs([put('a'), put('b')])
    await grown(told, 1)
    t.equal(told.at(-1)?.updateSeq, 2)
    t.same(await told.at(-1)?.read, ['1a', '2b'])
    await store.updateDocs([put('c')])
    await grown(told, 2)
    t.equal(told.at(-1)?.updateSeq, 3)
  },

  'every listener is called, with numbers that grow up to the newest': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const first: number[] = []
    const second: number[] = []
    onCommit(store, (updateSeq) => first.push(updateSeq))
    onCommit(store, (updateSeq) => second.push(updateSeq))
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        Array.from({ length: 10 }, (_, i) => store.updateDocs([put(`${round}-${i}`), put('same')])),
      )
    }
    await grown(second, 5)
    t.equal(first.at(-1), 100)
    t.same(
      first,
      [...new Set(first)].sort((a, b) => a - b),
    )
    t.same(second, first)
  },

  'a listener is not called for a write that took no sequence number': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const told: number[] = []
    await delay(10)
    onCommit(store, (updateSeq) => told.push(updateSeq))
    const rev = (await readOne(store, 'a'))?.rev ?? ''
    const revisions = [{ rev, deleted: false, ancestry: [rev.slice(2), 'older'] }]
    await store.updateDocs([write('a', { rev, deleted: false, sequenced: false, revisions })])
    await store.updateDocs([
      failing('b', new Error('no')),
      { id: 'b', bytes: 1, decide: () => ({ result: '' }) },
    ])
    await store.updateDocs([{ id: 'b', bytes: 1, decide: () => ({ needs: [1] }) }])
    await store.updateLocals([putLocal('_local/a')])
    await store.updateSettings(() => ({ result: 0, write: { revsLimit: 5 } }))
    await delay(20)
    t.same(told, [])
  },
}
