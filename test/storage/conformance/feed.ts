import type { DatabaseStore, DocState } from '../../../src/storage/engine.ts'
import { readSequence, sequenceToken } from '../../../src/storage/sequence.ts'
import { type DocSnapshot, put, readFeed, remove, snapshot } from './edits.ts'
import { ALL, openNotes, type StorageCases } from './setup.ts'

/** Six documents at 2, 4, 5, 6, 7, 8: b d c(deleted) a e f. */
async function fill(store: DatabaseStore): Promise<void> {
  await store.updateDocs([put('a'), put('b'), put('c'), put('d'), remove('c'), put('a', '{"n":2}')])
  await store.updateDocs([put('e'), put('f')])
}

const rowsOf = async (store: DatabaseStore, range: Parameters<DatabaseStore['readChanges']>[0]) =>
  (await store.readChanges(range, ALL, (doc) => `${doc.seq}${doc.id}`)).rows

/** The feed of changes, its counts and its epochs. */
export const feedCases: StorageCases = {
  'the feed has each document once, at its latest place, deleted ones too': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.same(await rowsOf(store, { since: 0 }), [])
    await fill(store)
    const wanted = ['2b', '4d', '5c', '6a', '7e', '8f']
    t.same(await rowsOf(store, { since: 0 }), wanted)
    t.same(await rowsOf((await reopen()).store, { since: 0 }), wanted)
  },

  'upwards the feed begins above since': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    t.same(await rowsOf(store, { since: 1 }), ['2b', '4d', '5c', '6a', '7e', '8f'])
    t.same(await rowsOf(store, { since: 2 }), ['4d', '5c', '6a', '7e', '8f'])
    t.same(await rowsOf(store, { since: 7 }), ['8f'])
    t.same(await rowsOf(store, { since: 8 }), [])
    t.same(await rowsOf(store, { since: 1_000_000 }), [])
  },

  'descending the feed begins with the newest': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    t.same(await rowsOf(store, { since: 0, descending: true }), ['8f', '7e', '6a', '5c', '4d', '2b'])
    t.same(await rowsOf(store, { since: 5, descending: true }), ['8f', '7e', '6a'])
  },

  'before is a bound that is itself left out, in both directions': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    t.same(await rowsOf(store, { since: 0, descending: true, before: 6 }), ['5c', '4d', '2b'])
    t.same(await rowsOf(store, { since: 0, descending: true, before: 2 }), [])
    t.same(await rowsOf(store, { since: 2, before: 6 }), ['4d', '5c'])
  },

  'the view of a page has the counters of the same moment': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    const page = await store.readChanges({ since: 8 }, ALL, () => 1)
    t.hasStrict(page.view, { updateSeq: 8, docCount: 5, deletedCount: 1 })
  },

  'a page ends at its limit and says whether rows remain': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    const page = async (since: number, limit: number) => {
      const { rows, more } = await store.readChanges({ since }, { limit }, (doc) => doc.seq)
      return [rows, more]
    }
    t.same(await page(0, 2), [[2, 4], true])
    t.same(await page(4, 2), [[5, 6], true])
    t.same(await page(6, 2), [[7, 8], false], 'a full page is not a sign of more')
    t.same(await page(6, 3), [[7, 8], false])
    t.same(await page(0, 0), [[], true])
    t.same(await page(8, 0), [[], false])
  },

  'a page of the feed ends where its characters are reached': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    for (const descending of [false, true]) {
      const all = await store.readChanges({ since: 0, descending }, { limit: 100 }, bodyOf)
      for (const wanted of [1, 3, 5]) {
        const chars = all.rows.slice(0, wanted).reduce((sum, text) => sum + text.length, 0)
        const paging = { limit: 100, chars, readSet: { body: true } }
        const page = await store.readChanges({ since: 0, descending }, paging, bodyOf)
        t.ok(page.rows.length >= 1 && page.rows.length <= wanted)
        t.equal(page.more, page.rows.length < all.rows.length, 'more only where rows remain')
        t.same(page.rows, all.rows.slice(0, page.rows.length))
      }
    }
  },

  'pages read one after the other are the whole feed': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs(Array.from({ length: 300 }, (_, i) => put(`doc${(i * 7) % 211}`, `{"n":${i}}`)))
    const whole = await rowsOf(store, { since: 0 })
    t.equal(whole.length, 211)
    t.same(
      (await readFeed(store, 7)).map((doc) => `${doc.seq}${doc.id}`),
      whole,
    )
    const down: DocSnapshot[] = []
    for (let more = true; more; ) {
      const last = down.at(-1)
      const range = { since: 0, descending: true, ...(last && { before: last.seq }) }
      const page = await store.readChanges(range, { limit: 10 }, snapshot)
      down.push(...page.rows)
      more = page.more
    }
    t.same(
      down.reverse().map((doc) => `${doc.seq}${doc.id}`),
      whole,
    )
  },

  'countChanges counts the rows above a number': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.equal(await store.countChanges(0), 0)
    await fill(store)
    const counts = (of: DatabaseStore) =>
      Promise.all([0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((seq) => of.countChanges(seq)))
    t.same(await counts(store), [6, 6, 5, 5, 4, 3, 2, 1, 0, 0])
    t.same(await counts((await reopen()).store), [6, 6, 5, 5, 4, 3, 2, 1, 0, 0])
  },

  'countChanges is right in a long feed with many gaps': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    for (let round = 0; round < 5; round++) {
      await store.updateDocs(
        Array.from({ length: 700 }, (_, i) => put(`doc${(i * (round + 1)) % 900}`, `{"n":${round}}`)),
      )
    }
    const seqs = (await store.readChanges({ since: 0 }, ALL, (doc) => doc.seq)).rows
    for (let seq = 0; seq <= 3600; seq += seq % 1024 < 1020 ? 17 : 1) {
      const wanted = seqs.filter((other) => other > seq).length
      if ((await store.countChanges(seq)) !== wanted) {
        t.fail(`above ${seq}: not ${wanted}`)
        return
      }
    }
    t.pass('every count was right')
  },

  'tokens from before a reopening stay valid, and no number is given out twice in an epoch': async (
    t,
    makeEngine,
  ) => {
    let { store, reopen } = await openNotes(t, makeEngine)
    const tokens: string[] = []
    for (let opening = 0; opening < 4; opening++) {
      const before = await store.view()
      for (const id of ['a', 'b']) {
        await store.updateDocs([put(id, `{"n":${opening}}`)])
        const { epochs, updateSeq } = await store.view()
        tokens.push(sequenceToken(epochs, updateSeq))
      }
      const { epochs, updateSeq } = await store.view()
      const begun = epochs.filter(({ id }) => !before.epochs.some((known) => known.id === id))
      t.ok(
        begun.every(({ firstSeq }) => firstSeq === before.updateSeq + 1),
        'an epoch begins at the opening or not at all',
      )
      t.same(
        tokens.map((_, i) => sequenceToken(epochs, i + 1)),
        tokens,
      )
      t.same(
        tokens.map((token) => readSequence(epochs, updateSeq, token)),
        tokens.map((_, i) => ({ seq: i + 1, unknownEpoch: false })),
      )
      ;({ store, reopen } = await reopen())
      t.same((await store.view()).epochs, epochs, 'the epoch is kept')
    }
    t.equal(new Set(tokens).size, tokens.length)
  },

  'an opening without a write begins no epoch': async (t, makeEngine) => {
    const first = await openNotes(t, makeEngine)
    await first.store.updateDocs([put('a')])
    const before = await first.store.view()
    const { store, reopen } = await first.reopen()
    await readFeed(store)
    await store.updateDocs([{ id: 'a', bytes: 1, decide: () => ({ result: 0 }) }])
    await store.updateDocs([{ id: 'a', bytes: 1, decide: () => ({ needs: [1] }) }])
    t.same(await store.view(), before)
    t.same(await (await reopen()).store.view(), before)
  },
}

function bodyOf(doc: DocState): string {
  return doc.body(doc.rev) ?? ''
}
