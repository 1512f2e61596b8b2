import type { DatabaseStore } from '../../../src/storage/engine.ts'
import {
  forgotten,
  MAX_REMEMBERED,
  NUMBERS,
  type RememberedPoint,
} from '../../../src/storage/token-position.ts'
import { put } from './edits.ts'
import { openNotes, openWithCopies, type StorageCases } from './setup.ts'

function number(total: number, seq: number): RememberedPoint {
  return { family: NUMBERS, parts: [['', total]], total, seq }
}

const any = () => true

async function numbersUpTo(store: DatabaseStore, total: number): Promise<[number, number][]> {
  const seen: [number, number][] = []
  await store.findPoint(NUMBERS, total, (point) => {
    seen.push([point.total, point.seq])
    return false
  })
  return seen
}

/** Remembered tokens of other servers. */
export const rememberedCases: StorageCases = {
  'points are found by their family and total, the greatest first, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const sharded = { family: 'shards a', parts: [['f', 4] as const, ['', 0] as const], total: 4, seq: 9 }
    await store.rememberPoints([number(5, 2), number(30, 7), sharded, number(10, 3)])
    const check = async (each: DatabaseStore) => {
      t.same(await numbersUpTo(each, 29), [
        [10, 3],
        [5, 2],
      ])
      t.strictSame(await each.findPoint('shards a', Infinity, any), sharded)
      t.equal(await each.findPoint('shards a', 3, any), null)
      t.equal(await each.findPoint('shards b', 9, any), null)
    }
    await check(store)
    await check((await reopen()).store)
  },

  'a point that is remembered again keeps the lower number': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.rememberPoints([number(5, 4), number(5, 6)])
    await store.rememberPoints([number(5, 3)])
    await store.rememberPoints([number(5, 8)])
    t.same(await numbersUpTo(store, 9), [[5, 3]])
  },

  'the search ends with the first point that passes': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.rememberPoints(Array.from({ length: 500 }, (_, at) => number(at + 1, at)))
    const asked: number[] = []
    const found = await store.findPoint(NUMBERS, 400, ({ total }) => {
      asked.push(total)
      return total <= 150
    })
    t.strictSame(found, number(150, 149))
    t.same([asked.length, asked[0], asked.at(-1)], [251, 400, 150])
  },

  'of too many points those are forgotten that can be spared': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const many = Array.from({ length: MAX_REMEMBERED }, (_, at) => number(at + 1, 0))
    await store.rememberPoints(many)
    t.equal((await numbersUpTo(store, Infinity)).length, MAX_REMEMBERED)
    const added = [number(MAX_REMEMBERED + 1, 0), number(1, 0), number(MAX_REMEMBERED + 2, 0)]
    await store.rememberPoints(added)
    const gone = new Set(forgotten([...many, added[0], added[2]] as RememberedPoint[], 0))
    const left = [...many, added[0], added[2]].filter((point) => point && !gone.has(point))
    const totals = (await numbersUpTo(store, Infinity)).map(([total]) => total)
    t.same(totals, left.map((point) => point?.total).reverse())
    t.ok(totals.length <= MAX_REMEMBERED)
  },

  'points belong to the copy of a database, and change nothing else': async (t, makeEngine) => {
    const open = await openWithCopies(t, makeEngine)
    if (open === null) return
    const { store, snapshot, engine, catalog, copies } = open
    await store.updateDocs([put('a')])
    const before = await store.view()
    await store.rememberPoints([number(5, 1)])
    t.same(await store.view(), before)
    const { draft } = await copies.prepare('copy', await snapshot())
    await catalog.replace('copy', draft)
    const copy = await engine.openDatabase('copy')
    t.same(await numbersUpTo(copy, 9), [[5, 1]])
  },
}
