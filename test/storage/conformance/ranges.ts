import type { DatabaseStore, DocState, IdRange } from '../../../src/storage/engine.ts'
import { attachment, put, remove, sortIds } from './edits.ts'
import { ALL, openNotes, type StorageCases } from './setup.ts'

/** In UTF-16 the astral one stands before U+FFFD, in UTF-8 after it. */
const IDS = [
  '_design/x',
  'Z',
  'a',
  'a\u0000',
  'a\u0000b',
  'aa',
  'b',
  'é',
  '\uFFFD',
  '\u{1F600}',
  '\u{1F600}a',
]

/** The ids of a range after its first documents. */
const idsAfter = async (store: DatabaseStore, range: IdRange, skip: number) => {
  const rest = await store.skipRange(range, skip)
  return rest === null ? [] : idsOf(store, rest)
}

const idsOf = async (store: DatabaseStore, range: IdRange) =>
  (await store.readRange(range, ALL, (doc) => doc.id)).rows

function* rangesOver(ids: readonly string[]): Generator<IdRange> {
  const bounds = [undefined, ...ids.flatMap((id) => [true, false].map((inclusive) => ({ id, inclusive })))]
  for (const descending of [false, true]) {
    for (const start of bounds) {
      for (const end of bounds) yield { ...(start && { start }), ...(end && { end }), descending }
    }
  }
}

/** A second way to the answer: positions in the sorted ids. */
function within(sorted: readonly string[], { start, end, descending }: IdRange): string[] {
  const order = descending === true ? sorted.toReversed() : [...sorted]
  const side = descending === true ? -1 : 1
  const compare = (a: string, b: string) => side * Buffer.compare(Buffer.from(a), Buffer.from(b))
  const passed = start && ((id: string) => compare(id, start.id) >= (start.inclusive ? 0 : 1))
  const reached = end && ((id: string) => compare(id, end.id) >= (end.inclusive ? 1 : 0))
  const first = passed === undefined ? 0 : order.findIndex(passed)
  const last = reached === undefined ? -1 : order.findIndex(reached)
  return first === -1 ? [] : order.slice(first, last === -1 ? order.length : last)
}

/** Ranges of ids over live documents. */
export const rangeCases: StorageCases = {
  'ids stand in the order of their bytes in UTF-8': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.same(await idsOf(store, {}), [])
    await store.updateDocs(
      sortIds(IDS)
        .reverse()
        .map((id) => put(id)),
    )
    const sorted = sortIds(IDS)
    t.same(await idsOf(store, {}), sorted)
    t.same(await idsOf(store, { descending: true }), sorted.toReversed())
    t.same(await idsOf((await reopen()).store, {}), sorted)
  },

  'ids that differ only after a zero byte are different documents': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{"n":1}'), put('a\u0000', '{"n":2}'), put('a\u0000b', '{"n":3}')])
    const read = await store.readDocs(['a', 'a\u0000', 'a\u0000b', 'a\u0000c'], (doc) => [
      doc?.id,
      doc?.body(doc.rev),
    ])
    t.same(read, [
      ['a', '{"n":1}'],
      ['a\u0000', '{"n":2}'],
      ['a\u0000b', '{"n":3}'],
      [undefined, undefined],
    ])
  },

  'a range lists no document whose winner is deleted': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), put('c'), remove('b'), remove('d')])
    t.same(await idsOf(store, {}), ['a', 'c'])
    t.equal(await store.countRange({}), 2)
    await store.updateDocs([put('d')])
    t.same(await idsOf(store, {}), ['a', 'c', 'd'])
  },

  'a range contains what its bounds say, in both directions': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const present = IDS.filter((_, i) => i % 3 !== 2)
    await store.updateDocs(present.map((id) => put(id)))
    const sorted = sortIds(present)
    let tried = 0
    for (const range of rangesOver([...IDS, '', '\u{10FFFF}'])) {
      const wanted = within(sorted, range)
      const read = await idsOf(store, range)
      const count = await store.countRange(range)
      const rest = await idsAfter(store, range, 2)
      tried += 1
      if (
        count === wanted.length &&
        JSON.stringify(read) === JSON.stringify(wanted) &&
        JSON.stringify(rest) === JSON.stringify(wanted.slice(2))
      )
        continue
      const right = { range, read: wanted, count: wanted.length, rest: wanted.slice(2) }
      t.same({ range, read, count, rest }, right)
    }
    t.ok(tried > 1000, `${tried} ranges agree with a filter over the sorted ids`)
  },

  'a page of a range ends at its limit and says whether rows remain': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a'), put('b'), put('c'), put('d'), remove('d')])
    const page = async (range: IdRange, limit: number) => {
      const { rows, more } = await store.readRange(range, { limit }, (doc) => doc.id)
      return [rows.join(''), more]
    }
    t.same(await page({}, 2), ['ab', true])
    t.same(await page({}, 3), ['abc', false], 'a deleted document is no row that remains')
    t.same(await page({ end: { id: 'b', inclusive: true } }, 2), ['ab', false])
    t.same(await page({}, 0), ['', true])
    t.same(await page({ start: { id: 'x', inclusive: true } }, 0), ['', false])
    t.same(await page({ descending: true }, 2), ['cb', true])
  },

  'a page ends with the row whose body reaches the characters, or before it after some time': async (
    t,
    makeEngine,
  ) => {
    const { store } = await openNotes(t, makeEngine)
    const body = '{"text":"€€€"}'
    await store.updateDocs([put('a', body), put('b', body), put('c', body), put('d', body)])
    const readSet = { body: true }
    for (const [chars, most] of [
      [0, 1],
      [1, 1],
      [body.length, 1],
      [body.length + 1, 2],
      [3 * body.length, 3],
      [9 * body.length, 4],
    ] as const) {
      const page = await store.readRange({}, { limit: 9, chars, readSet }, (doc) => doc.body(doc.rev))
      t.ok(page.rows.length >= 1 && page.rows.length <= most, `${chars}`)
      t.equal(page.more, page.rows.length < 4)
      const read = await store.readDocs(['a', 'x', 'b'], (doc) => doc?.body(doc.rev), readSet, chars)
      t.ok(read.length >= 1 && read.length <= most + 1, `${chars}`)
      t.equal(read[0], body)
    }
  },

  'a page without a bound for the characters has as many rows as its limit allows': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs(Array.from({ length: 150 }, (_, n) => put(`d${n}`)))
    const slow = (doc: DocState) => {
      const until = performance.now() + 0.1
      while (performance.now() < until);
      return doc.body(doc.rev)
    }
    const page = await store.readRange({}, { limit: 140, readSet: { body: true } }, slow)
    t.same([page.rows.length, page.more], [140, true])
  },

  'pages read one after the other are the whole range': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs(IDS.map((id) => put(id)))
    for (const descending of [false, true]) {
      const read: string[] = []
      for (let more = true; more; ) {
        const last = read.at(-1)
        const start = last === undefined ? {} : { start: { id: last, inclusive: false } }
        const page = await store.readRange({ ...start, descending }, { limit: 2 }, (doc) => doc.id)
        read.push(...page.rows)
        more = page.more
      }
      t.same(read, descending ? sortIds(IDS).toReversed() : sortIds(IDS))
    }
  },

  'a large range is counted right, and writes go on meanwhile': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const id = (i: number) => `doc-${String(i).padStart(5, '0')}`
    await store.updateDocs(Array.from({ length: 5000 }, (_, i) => (i % 5 === 0 ? remove(id(i)) : put(id(i)))))
    t.equal(await store.countRange({}), 4000)
    t.equal(await store.countRange({ descending: true }), 4000)
    const start = { id: id(1000), inclusive: true }
    const end = { id: id(4001), inclusive: false }
    t.equal(await store.countRange({ start, end }), 2400)
    t.equal(await store.countRange({ start: end, end: start, descending: true }), 2400)
    t.equal(await store.countRange({ start: end, end: start }), 0)
    for (const range of [{ end }, { start: end, descending: true }]) {
      const read = await idsOf(store, range)
      for (const skip of [0, 1, 799, 801, 2000, read.length])
        t.same((await idsAfter(store, range, skip))[0], read[skip], `after ${skip} documents`)
    }
    const [count] = await Promise.all([store.countRange({ end }), store.updateDocs([put('zzz')])])
    t.equal(count, 3200)
  },

  'the documents of a range are measured, with all of their leaves': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const zipped = { ...attachment('z', Buffer.from('12345')), encoding: 'gzip' as const, length: 100 }
    const plain = attachment('p', Buffer.from('123'))
    await store.updateDocs([
      put('a:', '{"é":1}'),
      put('a:1', '{}', { attachments: [zipped, plain] }),
      put('a:2'),
      remove('a:2', '{"_deleted":1}'),
      put('a;', '{"not":"inside"}'),
    ])
    const start = { id: 'a:', inclusive: true }
    const end = { id: 'a;', inclusive: false }
    const bodies = Buffer.byteLength('{"é":1}{}{"_deleted":1}')
    const measured = { docCount: 2, deletedCount: 1, active: bodies + 8, external: bodies + 103 }
    t.strictSame(await store.measureRange({ start, end }), measured)
    t.strictSame(await store.measureRange({ start: end, end: start, descending: true }), measured)
    t.strictSame(await store.measureRange({ start: { id: 'x', inclusive: true } }), {
      docCount: 0,
      deletedCount: 0,
      active: 0,
      external: 0,
    })
  },

  'a large range is measured right': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const id = (i: number) => `doc-${String(i).padStart(5, '0')}`
    await store.updateDocs(Array.from({ length: 1000 }, (_, i) => (i % 5 === 0 ? remove(id(i)) : put(id(i)))))
    t.strictSame(await store.measureRange({}), {
      docCount: 800,
      deletedCount: 200,
      active: 2000,
      external: 2000,
    })
  },
}
