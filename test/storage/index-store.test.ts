/** The index store against a sorted list: the same rows after random changes, builds and restarts. */
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import type {
  IndexEntry,
  IndexedDoc,
  IndexRow,
  IndexStore,
  IndexStores,
  PlaceRange,
} from '../../src/storage/index-store.ts'
import { idOfRow, placeAfter, placeBefore } from '../../src/storage/index-store.ts'
import { FileErrors, PageCaches } from '../../src/storage/sqlite/database-access.ts'
import { SqliteIndexStores } from '../../src/storage/sqlite/index-stores.ts'
import { temporaryFolder } from '../helpers/server.ts'

const at = (seq: number) => ({ seq, epoch: 'a', purgeSeq: 0 })

/** A key of two bytes and an end, so that no key is a prefix of another. */
function entry(key: number, value: unknown): IndexEntry {
  return {
    key: Uint8Array.of(1, key >> 8, key & 255, 0),
    keyText: String(key),
    valueText: JSON.stringify(value),
  }
}

const docOf = (id: string, ...lists: [key: number, value: unknown][][]): IndexedDoc => ({
  id,
  rows: lists.map((list) => list.map(([key, value]) => entry(key, value))),
})

function open(folder: string, indexes = 1): { stores: IndexStores; store: IndexStore } {
  const stores = new SqliteIndexStores({ folder, caches: new PageCaches(), errors: new FileErrors() })
  return { stores, store: stores.open('abc', indexes) }
}

function all(store: IndexStore, range: PlaceRange & { readonly descending?: boolean } = {}, index = 0) {
  const rows: IndexRow[] = []
  let rest = range
  for (;;) {
    const page = store.read(index, rest, 100)
    rows.push(...page.rows)
    const last = page.rows.at(-1)
    if (!page.more || last === undefined) return rows.map((row) => [idOfRow(row), row.keyText, row.valueText])
    rest = range.descending
      ? { ...rest, to: last.place }
      : { ...rest, from: Buffer.concat([last.place, Buffer.of(0)]) }
  }
}

/** The rows of a model in order, as {@link all} returns them. */
function listed(model: ReadonlyMap<string, IndexedDoc>, index = 0): string[][] {
  const rows = [...model.values()].flatMap(({ id, rows }) =>
    (rows[index] ?? []).map(({ key, keyText, valueText }) => ({
      key,
      id: Buffer.from(id),
      row: [id, keyText, valueText],
    })),
  )
  return rows.sort((a, b) => Buffer.compare(a.key, b.key) || Buffer.compare(a.id, b.id)).map(({ row }) => row)
}

function checkAll(t: Tap, store: IndexStore, model: ReadonlyMap<string, IndexedDoc>): void {
  const expected = listed(model)
  t.strictSame(all(store), expected)
  t.strictSame(all(store, { descending: true }), expected.toReversed())
  t.equal(store.count(0), expected.length)
  for (const count of [0, 1, expected.length >> 1, expected.length - 1, expected.length]) {
    const place = count < 0 ? null : store.placeAt(0, count)
    t.equal(place === null, count < 0 || count >= expected.length)
    if (place !== null) t.equal(store.countBefore(0, place), count)
  }
}

type Tap = Pick<typeof t, 'equal' | 'strictSame'>

t.test('a document replaces its rows, and leaves without any', async (t) => {
  const folder = join(await temporaryFolder(t), 'indexes')
  const { stores, store } = open(folder, 2)
  t.equal(store.position, null)
  await store.update(
    [
      docOf(
        'a',
        [
          [5, 1],
          [5, 2],
          [7, 3],
        ],
        [[1, null]],
      ),
      docOf('b', [[5, 4]], []),
    ],
    at(2),
  )
  t.strictSame(all(store), [
    ['a', '5', '1'],
    ['a', '5', '2'],
    ['b', '5', '4'],
    ['a', '7', '3'],
  ])
  t.strictSame(all(store, {}, 1), [['a', '1', 'null']])
  const five = entry(5, 0).key
  t.strictSame(all(store, { from: placeBefore(five, 'b'), to: placeAfter(five) }), [['b', '5', '4']])
  t.strictSame(all(store, { from: placeBefore(five), to: placeAfter(five, 'a') }), [
    ['a', '5', '1'],
    ['a', '5', '2'],
  ])
  await store.update([docOf('a', [[5, 9]], []), docOf('b', [], [])], at(4))
  t.strictSame(all(store), [['a', '5', '9']])
  t.same(store.position, at(4))
  stores.close()
  const again = open(folder, 2)
  t.same(again.store.position, at(4))
  t.strictSame(all(again.store), [['a', '5', '9']])
  t.same(again.stores.signatures(), ['abc'])
  t.ok(again.stores.fileBytes() > 0)
  again.stores.remove('abc')
  t.same(again.stores.signatures(), [])
  t.throws(() => store.count(0), { code: 'unavailable' })
  again.stores.close()
})

t.test('ids with NUL, and ids that begin with others', async (t) => {
  const { stores, store } = open(join(await temporaryFolder(t), 'indexes'))
  const ids = ['a', 'a\0', 'a\0\0', 'a\0b', 'ab', 'é\0', '\u{1f600}']
  await store.update(
    ids.toReversed().map((id) =>
      docOf(id, [
        [1, 0],
        [1, 1],
      ]),
    ),
    at(1),
  )
  t.strictSame(
    all(store),
    ids.flatMap((id) => [
      [id, '1', '0'],
      [id, '1', '1'],
    ]),
  )
  for (const id of ids) {
    const { key } = entry(1, 0)
    t.strictSame(
      all(store, { from: placeBefore(key, id), to: placeAfter(key, id) }).map(([own]) => own),
      [id, id],
    )
  }
  stores.close()
})

t.test('the same as a sorted list, after random changes and restarts', async (t) => {
  const folder = join(await temporaryFolder(t), 'indexes')
  let round = 0
  const change = fc.tuple(fc.nat(300), fc.array(fc.tuple(fc.nat(60), fc.nat(3)), { maxLength: 4 }))
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(change, { maxLength: 200 }), { maxLength: 12 }), async (batches) => {
      const own = join(folder, String(round++))
      let { stores, store } = open(own)
      const model = new Map<string, IndexedDoc>()
      for (const [seq, batch] of batches.entries()) {
        const docs = batch.map(([id, rows]) =>
          docOf(
            `doc${id}`,
            rows.sort(([a], [b]) => a - b),
          ),
        )
        await store.update(docs, at(seq))
        for (const doc of docs) model.set(doc.id, doc)
        if (seq % 4 === 3) {
          stores.close()
          ;({ stores, store } = open(own))
          t.same(store.position, at(seq))
        }
      }
      checkAll(t, store, model)
      stores.close()
    }),
    { numRuns: 12 },
  )
})

t.test('a build sorts what it was given, and continues after an interruption', async (t) => {
  const folder = join(await temporaryFolder(t), 'indexes')
  const model = new Map<string, IndexedDoc>()
  const docs = Array.from({ length: 3000 }, (_, n) =>
    docOf(`doc${n}`, n % 7 === 0 ? [] : [[(n * 7919) % 1000, n]]),
  )
  for (const doc of docs) model.set(doc.id, doc)
  let { stores, store } = open(folder)
  let build = store.build()
  t.equal(build.target, null)
  await build.restart(at(3000))
  await build.add(docs.slice(0, 1000), 1000)
  await build.add(docs.slice(1000, 1500), 1500)
  const cut = build.add(docs.slice(1500), 3000)
  await nextTurn()
  stores.close()
  await t.rejects(cut, { code: 'unavailable' }, 'it ends after some of the documents')
  ;({ stores, store } = open(folder))
  build = store.build()
  t.same(build.target, at(3000))
  t.equal(build.seq, 1500)
  await build.add(docs.slice(1500), 3000)
  await build.finish()
  t.same(store.position, at(3000))
  checkAll(t, store, model)
  const changed = docOf('doc1', [[999, 'new']])
  model.set('doc1', changed)
  await store.update([changed], at(3001))
  checkAll(t, store, model)
  stores.close()
})

t.test('parts cover a range, and a stretch keeps its reduction until a row changes', async (t) => {
  const { stores, store } = open(join(await temporaryFolder(t), 'indexes'))
  const docs = Array.from({ length: 2000 }, (_, n) => docOf(String(n).padStart(5, '0'), [[n, n]]))
  await store.update(docs, at(1))
  const valuesOf = (range: PlaceRange) => all(store, range).map(([, , value]) => Number(value))
  const from = placeBefore(entry(100, 0).key)
  const to = placeAfter(entry(1700, 0).key)
  const numbers = Array.from({ length: 1601 }, (_, n) => n + 100)
  const { parts, more } = store.parts(0, { from, to }, 1000)
  t.equal(more, false)
  t.strictSame(
    parts.flatMap(({ range }) => valuesOf(range)),
    numbers,
  )
  const whole = parts.filter(({ stretch }) => stretch !== null)
  t.ok(whole.length >= 2 && whole.length >= parts.length - 2, `${whole.length} of ${parts.length}`)
  const paged: number[] = []
  let rest: PlaceRange = { from, to }
  for (;;) {
    const page = store.parts(0, rest, 2)
    paged.push(...page.parts.flatMap(({ range }) => valuesOf(range)))
    const end = page.parts.at(-1)?.range.to
    if (!page.more || end === undefined) break
    rest = { from: end, to }
  }
  t.strictSame(paged, numbers)
  const [first, second] = whole as [(typeof whole)[0], (typeof whole)[0]]
  store.keepReductions(0, store.version, [
    { stretch: first.stretch as Uint8Array, reduction: '1' },
    { stretch: second.stretch as Uint8Array, reduction: '2' },
  ])
  const kept = () =>
    store
      .parts(0, {}, 1000)
      .parts.map(({ reduction }) => reduction)
      .filter((text) => text !== null)
  t.strictSame(kept(), ['1', '2'])
  const { version } = store
  const [inFirst] = valuesOf(first.range) as [number]
  await store.update([docOf(String(inFirst).padStart(5, '0'), [[inFirst, 'changed']])], at(2))
  t.strictSame(kept(), ['2'], 'the reduction of the changed stretch is gone')
  store.keepReductions(0, version, [{ stretch: first.stretch as Uint8Array, reduction: 'late' }])
  t.strictSame(kept(), ['2'], 'a reduction of earlier rows is not kept')
  await store.clear()
  t.equal(store.position, null)
  t.equal(store.count(0), 0)
  stores.close()
})

t.test('counts of many rows, in several blocks of stretches, however rows come and go', async (t) => {
  const folder = await temporaryFolder(t)
  const { stores, store } = open(folder)
  t.teardown(() => stores.close())
  const many = 50_000
  const order = shuffled(many)
  const place = (n: number) => placeBefore(entry(n, 0).key)
  let seq = 0
  const write = async (ids: readonly number[], isThere: boolean) => {
    for (let from = 0; from < ids.length; from += 5000) {
      const docs = ids.slice(from, from + 5000).map((n) => docOf(String(n), isThere ? [[n, n]] : []))
      seq += 1
      await store.update(docs, at(seq))
    }
  }
  const check = (there: ReadonlySet<number>, says: string) => {
    const sorted = [...there].sort((a, b) => a - b)
    t.equal(store.count(0), sorted.length, says)
    for (let n = 0; n < many; n += 997) {
      const before = sorted.findIndex((each) => each >= n)
      const expected = before === -1 ? sorted.length : before
      if (store.countBefore(0, place(n)) !== expected) t.fail(`${says}: rows before ${n}`)
      const found = store.placeAt(0, n)
      const row = sorted[n] === undefined ? null : entry(sorted[n] as number, 0).key
      const isRight =
        row === null ? found === null : found !== null && Buffer.from(found).subarray(0, 4).equals(row)
      if (!isRight) t.fail(`${says}: row ${n}`)
    }
  }
  await write(order, true)
  check(new Set(order), 'inserted in any order')
  const kept = order.filter((n) => n % 10 === 0 || n < 300)
  await write(
    order.filter((n) => n % 10 !== 0 && n >= 300),
    false,
  )
  check(new Set(kept), 'most removed')
  await write(kept, false)
  check(new Set(), 'all removed')
  const ascending = Array.from({ length: many }, (_, n) => n)
  await write(ascending, true)
  check(new Set(ascending), 'inserted in order')
  await write(
    ascending.filter((n) => n > 100),
    false,
  )
  check(new Set(ascending.slice(0, 101)), 'the end removed')
})

/** The numbers below `count`, in an order that is the same in each run. */
function shuffled(count: number): number[] {
  const numbers = Array.from({ length: count }, (_, n) => n)
  let state = 1
  for (let at = count - 1; at > 0; at--) {
    state = (state * 48_271) % 2_147_483_647
    const other = state % (at + 1)
    ;[numbers[at], numbers[other]] = [numbers[other] as number, numbers[at] as number]
  }
  return numbers
}
