/**
 * What the index stores of every engine must pass (src/storage/index-store.ts): the same rows as a sorted list after random
 * changes, builds, restarts and errors, and with two openers at once. A test file of an engine is one call of
 * {@link runIndexTests}.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type {
  IndexBuild,
  IndexEntry,
  IndexedDoc,
  IndexRow,
  IndexStore,
  IndexStores,
  KeyRange,
} from '../../src/storage/index-store.ts'
import { idOfRow, keyAfter, keyBefore, MAX_COUNTED_KEYS } from '../../src/storage/index-store.ts'
import { FaultHook } from './conformance/fault-hook.ts'

/** The index stores of one database. */
export interface IndexDatabase {
  /** Opens them; a second time while they are open only with {@link IndexEngine.sharedOpeners}. */
  open(): Promise<IndexStores>
}

export interface IndexEngine {
  /** Whether several openers may use the stores of a database at the same time. */
  readonly sharedOpeners: boolean
  /** How many rows are many for its counts. */
  readonly many: number
  /** Makes an empty database, which is removed with the test. @param onOperation is called before each operation */
  create(t: Pick<Test, 'teardown'>, onOperation?: (operation: string) => void): Promise<IndexDatabase>
}

const at = (seq: number, seen = seq) => ({ seq, seen, epoch: 'a', purgeSeq: 0 })

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

async function open(
  database: IndexDatabase,
  indexes = 1,
): Promise<{ stores: IndexStores; store: IndexStore }> {
  const stores = await database.open()
  return { stores, store: stores.open('abc', indexes) }
}

/** Replaces the rows of documents in one step that nobody disturbs. @returns the new version */
async function update(store: IndexStore, docs: readonly IndexedDoc[], seq: number): Promise<number> {
  const { version } = await store.status()
  const next = await store.update(docs, { from: version, position: at(seq), more: false })
  if (next === null) throw new Error('another opener has changed the store')
  return next
}

const positionOf = async (store: IndexStore) => (await store.status()).position

const countOf = async (store: IndexStore) => (await store.counts(0, [])).total

async function all(
  store: IndexStore,
  range: KeyRange & { readonly descending?: boolean } = {},
  index = 0,
): Promise<string[][]> {
  const rows: IndexRow[] = []
  let rest = range
  for (;;) {
    const page = await store.read(index, rest, 100)
    rows.push(...page.rows)
    const last = page.rows.at(-1)
    if (!page.more || last === undefined) return rows.map((row) => [idOfRow(row), row.keyText, row.valueText])
    rest = range.descending
      ? { ...rest, to: last.rowKey }
      : { ...rest, from: Buffer.concat([last.rowKey, Buffer.of(0)]) }
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

async function checkAll(t: Tap, store: IndexStore, model: ReadonlyMap<string, IndexedDoc>): Promise<void> {
  const expected = listed(model)
  t.strictSame(await all(store), expected)
  t.strictSame(await all(store, { descending: true }), expected.toReversed())
  t.strictSame(
    await allValues(store),
    expected.map(([, , value]) => value),
  )
  t.equal(await countOf(store), expected.length)
  for (const count of [0, 1, expected.length >> 1, expected.length - 1, expected.length]) {
    const rowKey = count < 0 ? null : (await store.rowKeyAt(0, count)).rowKey
    t.equal(rowKey === null, count < 0 || count >= expected.length)
    if (rowKey !== null) t.strictSame((await store.counts(0, [rowKey])).before, [count])
  }
}

async function allValues(store: IndexStore): Promise<string[]> {
  const values: string[] = []
  for (let from: Uint8Array | null | undefined; from !== null; ) {
    const page = await store.readValues(0, { from })
    values.push(...page.values)
    from = page.next
  }
  return values
}

type Tap = Pick<typeof t, 'equal' | 'strictSame'>

type IndexCases = Readonly<Record<string, (t: Test, engine: IndexEngine) => Promise<void>>>

const CASES: IndexCases = {
  'a document replaces its rows, and leaves without any': async (t, engine) => {
    const database = await engine.create(t)
    const { stores, store } = await open(database, 2)
    t.equal(await positionOf(store), null)
    const lists: [number, unknown][][] = [
      [
        [5, 1],
        [5, 2],
        [7, 3],
      ],
      [[1, null]],
    ]
    await update(store, [docOf('a', ...lists), docOf('b', [[5, 4]], [])], 2)
    t.strictSame(await all(store), [
      ['a', '5', '1'],
      ['a', '5', '2'],
      ['b', '5', '4'],
      ['a', '7', '3'],
    ])
    t.strictSame(await all(store, {}, 1), [['a', '1', 'null']])
    const five = entry(5, 0).key
    t.strictSame(await all(store, { from: keyBefore(five, 'b'), to: keyAfter(five) }), [['b', '5', '4']])
    t.strictSame(await all(store, { from: keyBefore(five), to: keyAfter(five, 'a') }), [
      ['a', '5', '1'],
      ['a', '5', '2'],
    ])
    await update(store, [docOf('a', [[5, 9]], []), docOf('b', [], [])], 4)
    t.strictSame(await all(store), [['a', '5', '9']])
    t.same(await positionOf(store), at(4))
    stores.close()
    await t.rejects(store.counts(0, []), { code: 'unavailable' })
    const again = await open(database, 2)
    t.same(await positionOf(again.store), at(4))
    t.strictSame(await all(again.store), [['a', '5', '9']])
    t.same(await again.stores.signatures(), ['abc'])
    t.ok((await again.stores.fileBytes()) > 0)
    t.match(await again.store.sizes(), { file: Number, active: Number })
    await again.store.compact()
    await again.stores.remove('abc')
    t.same(await again.stores.signatures(), [])
    await t.rejects(again.store.counts(0, []), { code: 'unavailable' })
    t.equal(await positionOf(again.stores.open('abc', 2)), null)
    again.stores.close()
  },

  'ids with NUL, and ids that begin with others': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    const ids = ['a', 'a\0', 'a\0\0', 'a\0b', 'ab', 'é\0', '\u{1f600}']
    const rows: [number, unknown][] = [
      [1, 0],
      [1, 1],
    ]
    const docs = ids.toReversed().map((id) => docOf(id, rows))
    await update(store, docs, 1)
    const expected = ids.flatMap((id) => [
      [id, '1', '0'],
      [id, '1', '1'],
    ])
    t.strictSame(await all(store), expected)
    for (const id of ids) {
      const { key } = entry(1, 0)
      const own = await all(store, { from: keyBefore(key, id), to: keyAfter(key, id) })
      t.strictSame(
        own.map(([each]) => each),
        [id, id],
      )
    }
    stores.close()
  },

  'keys and values with any text': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    const texts = [
      '"\\u0000"',
      '"\u{1f600}"',
      '"\u0001"',
      JSON.stringify('x'.repeat(100_000)),
      '1e400',
      '"\\ud800"',
    ]
    const docs = texts.map((text, n) => ({
      id: `d${n}`,
      rows: [[{ key: Uint8Array.of(1, 0, n, 0), keyText: text, valueText: text }]],
    }))
    await update(store, docs, 1)
    t.strictSame(
      await all(store),
      texts.map((text, n) => [`d${n}`, text, text]),
    )
    stores.close()
  },

  'keys of many kilobytes, which differ only in their ends': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    const long = (n: number): IndexEntry => {
      const key = Buffer.alloc(1000 + n * 100, 7)
      return { key: Buffer.concat([key, Uint8Array.of(n % 5, 0)]), keyText: String(n), valueText: String(n) }
    }
    const model = new Map<string, IndexedDoc>()
    const put = async (ids: readonly number[], seq: number, change = 0) => {
      const docs = ids.map((n) => ({ id: `d${n % 90}`, rows: [[long((n + change) % 600)]] }))
      await update(store, docs, seq)
      for (const doc of docs) model.set(doc.id, doc)
    }
    await put(
      Array.from({ length: 90 }, (_, n) => n * 7),
      1,
    )
    await checkAll(t, store, model)
    await put([3, 30, 60], 2, 5)
    await checkAll(t, store, model)
    const { key } = long(595)
    const rows = await all(store, { from: keyBefore(key), to: keyAfter(key) })
    t.strictSame(
      rows,
      listed(model).filter(([, text]) => text === '595'),
    )
    stores.close()
  },

  'a document with more rows than one step of an engine stores': async (t, engine) => {
    const hook = new FaultHook()
    const { stores, store } = await open(await engine.create(t, hook.onOperation))
    const many = (from: number, to: number, value: string) =>
      docOf(
        'many',
        Array.from({ length: to - from }, (_, n) => [Math.floor((from + n) / 2), value]),
      )
    await update(store, [many(0, 5000, 'a'), docOf('z', [[7, 'z']])], 1)
    const model = new Map([many(0, 5000, 'a'), docOf('z', [[7, 'z']])].map((doc) => [doc.id, doc]))
    await checkAll(t, store, model)
    // An error may leave some of its old rows and some of the new ones; the next update finds all of them.
    for (let failAt = 1; ; failAt++) {
      hook.arm(failAt, false)
      const changed = many(failAt % 2 === 0 ? 0 : 2000, failAt % 2 === 0 ? 5000 : 9000, `b${failAt}`)
      await update(store, [changed], failAt + 1).catch(() => undefined)
      if (hook.disarm() === null || failAt === 6) break
      const wanted = many(1000, 6000, `c${failAt}`)
      await update(store, [wanted], failAt + 1)
      model.set('many', wanted)
      await checkAll(t, store, model)
    }
    await update(store, [docOf('many', [])], 100)
    t.strictSame(await all(store), [['z', '7', '"z"']])
    t.equal(await countOf(store), 1)
    stores.close()
  },

  'the same as a sorted list, after random changes and restarts': async (t, engine) => {
    const change = fc.tuple(fc.nat(300), fc.array(fc.tuple(fc.nat(60), fc.nat(3)), { maxLength: 4 }))
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(change, { maxLength: 200 }), { maxLength: 12 }), async (batches) => {
        const database = await engine.create(t)
        let { stores, store } = await open(database)
        const model = new Map<string, IndexedDoc>()
        for (const [seq, batch] of batches.entries()) {
          const docs = batch.map(([id, rows]) =>
            docOf(
              `doc${id}`,
              rows.sort(([a], [b]) => a - b),
            ),
          )
          await update(store, docs, seq)
          for (const doc of docs) model.set(doc.id, doc)
          if (seq % 4 === 3) {
            stores.close()
            ;({ stores, store } = await open(database))
            t.same(await positionOf(store), at(seq))
          }
        }
        await checkAll(t, store, model)
        stores.close()
      }),
      { numRuns: 12 },
    )
  },

  'a build sorts what it was given, and continues after an interruption': async (t, engine) => {
    const database = await engine.create(t)
    const model = new Map<string, IndexedDoc>()
    const docs = Array.from({ length: 3000 }, (_, n) =>
      docOf(`doc${n}`, n % 7 === 0 ? [] : [[(n * 7919) % 1000, n]]),
    )
    for (const doc of docs) model.set(doc.id, doc)
    let { stores, store } = await open(database)
    let build = await store.build()
    if (build === null) return stores.close()
    t.equal(build.target, null)
    await build.restart(at(3000))
    await build.add(docs.slice(0, 1000), 1000, 3000)
    await build.add(docs.slice(1000, 1500), 1500, 3007)
    const cut = build.add(docs.slice(1500), 3000, 3005)
    await nextTurn()
    stores.close()
    await t.rejects(cut, { code: 'unavailable' }, 'it ends after some of the documents')
    ;({ stores, store } = await open(database))
    build = (await store.build()) as IndexBuild
    t.same(build.target, at(3000, 3007))
    t.equal(build.seq, 1500)
    await build.add(docs.slice(1500), 3000, 3005)
    await build.finish()
    t.same(await positionOf(store), at(3000, 3007))
    await checkAll(t, store, model)
    const changed = docOf('doc1', [[999, 'new']])
    model.set('doc1', changed)
    await update(store, [changed], 3001)
    await checkAll(t, store, model)
    stores.close()
  },

  'buckets cover a range, and one keeps its reduction until a row changes': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    const docs = Array.from({ length: 2000 }, (_, n) => docOf(String(n).padStart(5, '0'), [[n, n]]))
    await update(store, docs, 1)
    const valuesOf = async (range: KeyRange) => (await all(store, range)).map(([, , value]) => Number(value))
    const from = keyBefore(entry(100, 0).key)
    const to = keyAfter(entry(1700, 0).key)
    const numbers = Array.from({ length: 1601 }, (_, n) => n + 100)
    const { ranges, more } = await store.reducedRanges(0, { from, to }, 1000)
    t.equal(more, false)
    const read: number[] = []
    for (const { range } of ranges) read.push(...(await valuesOf(range)))
    t.strictSame(read, numbers)
    const whole = ranges.filter(({ bucket }) => bucket !== null)
    t.ok(whole.length >= 2 && whole.length >= ranges.length - 2, `${whole.length} of ${ranges.length}`)
    const paged: number[] = []
    let rest: KeyRange = { from, to }
    for (;;) {
      const page = await store.reducedRanges(0, rest, 2)
      for (const { range } of page.ranges) paged.push(...(await valuesOf(range)))
      const end = page.ranges.at(-1)?.range.to
      if (!page.more || end === undefined) break
      rest = { from: end, to }
    }
    t.strictSame(paged, numbers)
    const [first, second] = whole as [(typeof whole)[0], (typeof whole)[0]]
    const { version } = await store.status()
    await store.keepReductions(0, version, [
      { bucket: first.bucket as Uint8Array, reduction: '1' },
      { bucket: second.bucket as Uint8Array, reduction: '"\\u0000"' },
    ])
    const kept = async () =>
      (await store.reducedRanges(0, {}, 1000)).ranges
        .map(({ reduction }) => reduction)
        .filter((text) => text !== null)
    t.strictSame(await kept(), ['1', '"\\u0000"'])
    t.equal((await store.status()).version, version, 'the rows are the same as before')
    const [inFirst] = (await valuesOf(first.range)) as [number]
    await update(store, [docOf(String(inFirst).padStart(5, '0'), [[inFirst, 'changed']])], 2)
    t.strictSame(await kept(), ['"\\u0000"'], 'the reduction of the changed bucket is gone')
    const late = { bucket: first.bucket as Uint8Array, reduction: 'late' }
    await store.keepReductions(0, version, [late])
    t.strictSame(await kept(), ['"\\u0000"'], 'a reduction of earlier rows is not kept')
    t.equal(await store.clear(version), false)
    t.equal(await store.clear((await store.status()).version), true)
    t.equal(await positionOf(store), null)
    t.equal(await countOf(store), 0)
    t.strictSame(await all(store), [])
    await update(store, docs.slice(0, 3), 3)
    t.strictSame(await valuesOf({}), [0, 1, 2])
    stores.close()
  },

  'a step that goes on from an older version changes nothing': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    const { version: empty } = await store.status()
    const version = await update(store, [docOf('a', [[1, 1]])], 5)
    t.not(version, empty)
    t.equal(await store.update([docOf('a', [[2, 2]])], { from: empty, position: at(9), more: false }), null)
    t.strictSame(await all(store), [['a', '1', '1']])
    t.same(await store.status(), { position: at(5), version, isUpdatedElsewhere: false })
    t.same(await store.counts(0, []), { total: 1, before: [], position: at(5), version })
    t.equal((await store.read(0, {}, 1)).version, version)
    t.equal((await store.readValues(0, {})).version, version)
    t.equal((await store.rowKeyAt(0, 0)).version, version)
    t.equal((await store.reducedRanges(0, {}, 1)).version, version)
    const step = { from: version, position: at(6), more: true }
    const next = (await store.update([docOf('a', [[3, 3]])], step)) as number
    t.equal((await store.status()).isUpdatedElsewhere, false, 'the update is its own')
    const last = await store.update([], { from: next, position: at(7, 9), more: false })
    t.same(await store.status(), { position: at(7, 9), version: last, isUpdatedElsewhere: false })
    stores.close()
  },

  'an opener sees what another one has written, and leaves a long update to it': async (t, engine) => {
    if (!engine.sharedOpeners) return
    const database = await engine.create(t)
    const [a, b] = [await open(database), await open(database)]
    const { version } = await b.store.status()
    const next = (await a.store.update([docOf('x', [[1, 1]])], {
      from: version,
      position: at(1),
      more: true,
    })) as number
    t.same(await b.store.status(), { position: at(1), version: next, isUpdatedElsewhere: true })
    t.strictSame(await all(b.store), [['x', '1', '1']])
    t.equal(await b.store.update([docOf('x', [])], { from: version, position: at(1), more: false }), null)
    t.equal((await a.store.status()).isUpdatedElsewhere, false)
    await a.store.update([], { from: next, position: at(2), more: false })
    t.equal((await b.store.status()).isUpdatedElsewhere, false)
    await b.stores.remove('abc')
    t.equal(await positionOf(a.store), null, 'removed by another opener, it is empty')
    await update(a.store, [docOf('y', [[1, 1]])], 3)
    t.strictSame(await all(a.store), [['y', '1', '1']])
    for (const { stores } of [a, b]) stores.close()
  },

  'two openers at once: each goes on from where the other is': async (t, engine) => {
    if (!engine.sharedOpeners) return
    const database = await engine.create(t)
    const model = new Map<string, IndexedDoc>()
    const history = Array.from({ length: 120 }, (_, seq) =>
      Array.from({ length: 40 }, (_, n) => {
        const key = (seq * 7919 + n * 104_729) % 500
        return docOf(`doc${(seq * 31 + n * 17) % 400}`, key % 5 === 0 ? [] : [[key, `${seq} ${n}`]])
      }),
    )
    for (const docs of history) for (const doc of docs) model.set(doc.id, doc)
    const opened = [await open(database), await open(database), await open(database)]
    let overtaken = 0
    const run = async ({ store }: { readonly store: IndexStore }) => {
      for (;;) {
        const { version, position } = await store.status()
        const seq = (position?.seq ?? -1) + 1
        if (seq === history.length) return
        const docs = history[seq] as readonly IndexedDoc[]
        if ((await store.update(docs, { from: version, position: at(seq), more: false })) === null)
          overtaken += 1
      }
    }
    await Promise.all(opened.map(run))
    t.ok(overtaken > 0, `${overtaken} steps came too late`)
    for (const { store } of opened) await checkAll(t, store, model)
    for (const { stores } of opened) stores.close()
  },

  'counts of many rows, in several superbuckets, however rows come and go': async (t, engine) => {
    const { stores, store } = await open(await engine.create(t))
    t.teardown(() => stores.close())
    const { many } = engine
    const order = shuffled(many)
    const rowKey = (n: number) => keyBefore(entry(n, 0).key)
    let seq = 0
    const write = async (ids: readonly number[], isThere: boolean) => {
      for (let from = 0; from < ids.length; from += 5000) {
        const docs = ids.slice(from, from + 5000).map((n) => docOf(String(n), isThere ? [[n, n]] : []))
        seq += 1
        await update(store, docs, seq)
      }
    }
    const check = async (there: ReadonlySet<number>, says: string) => {
      const sorted = [...there].sort((a, b) => a - b)
      const rowKeys = Array.from({ length: MAX_COUNTED_KEYS }, (_, n) =>
        Math.floor((n * many) / MAX_COUNTED_KEYS),
      )
      const { total, before } = await store.counts(0, rowKeys.map(rowKey))
      t.equal(total, sorted.length, says)
      for (const [at, n] of rowKeys.entries()) {
        const found = sorted.findIndex((each) => each >= n)
        if (before[at] !== (found === -1 ? sorted.length : found)) t.fail(`${says}: rows before ${n}`)
        const row = sorted[n] === undefined ? null : entry(sorted[n] as number, 0).key
        const { rowKey: here } = await store.rowKeyAt(0, n)
        const isRight =
          row === null ? here === null : here !== null && Buffer.from(here).subarray(0, 4).equals(row)
        if (!isRight) t.fail(`${says}: row ${n}`)
      }
    }
    await write(order, true)
    await check(new Set(order), 'inserted in any order')
    const kept = order.filter((n) => n % 10 === 0 || n < 300)
    await write(
      order.filter((n) => n % 10 !== 0 && n >= 300),
      false,
    )
    await check(new Set(kept), 'most removed')
    await write(kept, false)
    await check(new Set(), 'all removed')
    const ascending = Array.from({ length: many }, (_, n) => n)
    await write(ascending, true)
    await check(new Set(ascending), 'inserted in order')
    await write(
      ascending.filter((n) => n > 100),
      false,
    )
    await check(new Set(ascending.slice(0, 101)), 'the end removed')
  },

  'an error at every operation leaves rows and counts that belong together': async (t, engine) => {
    const hook = new FaultHook()
    const database = await engine.create(t, hook.onOperation)
    const { stores, store } = await open(database)
    const model = new Map<string, IndexedDoc>()
    // Buckets are split and joined on the way.
    await update(
      store,
      Array.from({ length: 1000 }, (_, n) => docOf(`doc${n}`, [[n, n]])),
      1,
    )
    for (let n = 0; n < 1000; n++) model.set(`doc${n}`, docOf(`doc${n}`, [[n, n]]))
    let seq = 1
    for (let failAt = 1; ; failAt++) {
      const docs = Array.from({ length: 300 }, (_, n) =>
        docOf(`doc${(n * 7 + failAt * 11) % 1500}`, (n + failAt) % 3 === 0 ? [] : [[(n * 13) % 900, failAt]]),
      )
      seq += 1
      hook.arm(failAt, false)
      try {
        await update(store, docs, seq)
        const { ranges, version } = await store.reducedRanges(0, {}, 3)
        const whole = ranges.flatMap(({ bucket }) => (bucket === null ? [] : [{ bucket, reduction: '1' }]))
        await store.keepReductions(0, version, whole)
      } catch (error) {
        t.match((error as Error).message, /./)
      }
      const failed = hook.disarm()
      const expected = (await positionOf(store))?.seq
      if (failed !== null && expected !== seq) await update(store, docs, seq)
      for (const doc of docs) model.set(doc.id, doc)
      t.strictSame(await all(store), listed(model), String(failed))
      t.equal(await countOf(store), listed(model).length)
      if (failed === null || failAt > MOST_FAULTS) break
    }
    await checkAll(t, store, model)
    stores.close()
  },
}

/** An update has so many operations at most that one of each kind has failed. */
const MOST_FAULTS = 60

/** Runs the suite over the index stores of one engine. */
export function runIndexTests(name: string, engine: IndexEngine): void {
  t.setTimeout(900_000)
  t.test(`${name}: indexes`, async (t) => {
    for (const [sentence, run] of Object.entries(CASES)) t.test(sentence, (t) => run(t, engine))
  })
}

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
