/**
 * Bits of the pages of an index's rows, and of their counts, are flipped, and views are queried: what a search finds is what
 * was asked for, in its order, and a reduction or a count has all of its rows. Pages and buckets are small, so that each
 * tree has inner pages.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { encodeKey } from '../../../src/query/sort-keys.ts'
import { builtinGroups, reducedRows } from '../../../src/query/view-groups.ts'
import { viewQuery } from '../../../src/query/view-query.ts'
import { openRows, select } from '../../../src/query/view-rows.ts'
import { type IndexStore, idOfRow } from '../../../src/storage/index-store.ts'
import { FileErrors, PageCaches } from '../../../src/storage/sqlite/database-access.ts'
import { countBuckets } from '../../../src/storage/sqlite/index-buckets.ts'
import { SqliteIndexStores } from '../../../src/storage/sqlite/index-stores.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { flipped, randomNumbers, usedBits } from './random-damage.ts'

/** About how many bits are flipped in each test: half of them lead a search. All of them are 115,000. */
const FLIPS = Number(process.env.SETTEE_DAMAGED_BITS ?? 150)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)
/** A file that so many queries have refused is not asked again: each refusal makes a new one. */
const MOST_REFUSALS = Number(process.env.SETTEE_DAMAGE_REFUSALS ?? 2)
const DOCS = 160
const PAGE_BYTES = 512
const SIZES = { bucket: 8, superbucket: 4 }
/** What a query says: its rows, in order, and what else must be as it was. */
interface Answer {
  readonly rows: readonly string[]
  readonly facts: unknown
}

type Query = (store: IndexStore) => Promise<Answer>

const RANGE = { startKey: [4], endKey: [19, 118] }
const LISTS = {
  ascending: {},
  descending: { descending: true },
  range: RANGE,
  'descending range': { startKey: RANGE.endKey, endKey: RANGE.startKey, descending: true },
  skipped: { skip: 37 },
  'skipped in a descending range': { startKey: [22], descending: true, skip: 30 },
  keys: {
    keys: [
      [2, 12],
      [9, 54],
      [20, 120],
    ],
  },
}
const REDUCED = { all: {}, range: RANGE, groups: { groupLevel: 1 }, each: { group: true } }

const rowsOf = (store: IndexStore) => ({ store, index: 0, order: 'json' }) as const

function queries(reduce: string): [name: string, query: Query][] {
  const lists = Object.entries(LISTS).map(([name, parameters]): [string, Query] => [
    name,
    async (store) => {
      const { counts, pages } = await openRows(await select(rowsOf(store), viewQuery(parameters)), true)
      const rows: string[] = []
      for await (const page of pages)
        for (const row of page) rows.push(`${idOfRow(row)} ${row.keyText} ${row.valueText}`)
      return { rows, facts: counts }
    },
  ])
  const reductions = Object.entries(REDUCED).map(([name, parameters]): [string, Query] => [
    `${name}, reduced`,
    async (store) => {
      const selection = await select(rowsOf(store), viewQuery(parameters))
      const facts: string[] = []
      for await (const texts of reducedRows(selection, builtinGroups(rowsOf(store), reduce)))
        facts.push(...texts)
      return { rows: [], facts }
    },
  ])
  return [...lists, ...reductions]
}

const opened = (folder: string) =>
  new SqliteIndexStores({ folder, errors: new FileErrors(), caches: new PageCaches() })

/** Answers queries from one file, and puts it back where it was refused, and emptied. */
class Asked {
  readonly #folder: string
  readonly #file: Buffer
  #stores: SqliteIndexStores | null = null

  constructor(folder: string, file: Buffer) {
    this.#folder = folder
    this.#file = file
  }

  /** @returns null for a file that is refused */
  async answer(query: Query): Promise<Answer | null> {
    if (this.#stores === null) writeFileSync(join(this.#folder, 'abc.sqlite'), this.#file)
    this.#stores ??= opened(this.#folder)
    const store = this.#stores.open('abc', 1)
    const answer = await query(store).catch((error: unknown) => {
      if (!(error instanceof CouchError)) throw error
      return null
    })
    if (answer !== null && (await store.status()).position !== null) return answer
    this.close()
    return null
  }

  close(): void {
    this.#stores?.close()
    this.#stores = null
  }
}

/** Six documents have the first element of a key in common, and two of them have the whole key. */
async function fill(folder: string): Promise<void> {
  const stores = opened(folder)
  const store = stores.open('abc', 1)
  const docs = Array.from({ length: DOCS }, (_, n) => {
    const value = [Math.floor(n / 6), n - (n % 2)]
    const entry = {
      key: encodeKey(value, 'json'),
      keyText: JSON.stringify(value),
      valueText: String(2 ** (n % 32)),
    }
    return { id: `doc-${n}`, rows: [[entry]] }
  })
  const position = { seq: DOCS, seen: DOCS, epoch: 'a', purgeSeq: 0 }
  await store.update(docs, { from: (await store.status()).version, position, more: false })
  stores.close()
}

/** Makes pages, buckets and superbuckets small. */
function divide(path: string): void {
  const db = new Sqlite(path)
  db.pragma('journal_mode = DELETE')
  db.pragma(`page_size = ${PAGE_BYTES}`)
  db.exec('DELETE FROM sums_0; DELETE FROM blocks_0')
  db.exec(countBuckets(0, SIZES))
  db.exec('VACUUM')
  db.close()
}

/** What of an answer was not written, or why; null if it is right, apart from rows that a list lacks. */
function faultOf(answer: Answer, truth: Answer): string | null {
  if (JSON.stringify(answer.facts) !== JSON.stringify(truth.facts))
    return `${JSON.stringify(answer.facts).slice(0, 300)} instead of ${JSON.stringify(truth.facts).slice(0, 300)}`
  let at = 0
  for (const row of answer.rows) {
    at = truth.rows.indexOf(row, at) + 1
    if (at === 0) return `a row twice, out of order, or of no such range: ${row}`
  }
  return null
}

/** @param kept what of the table of buckets keeps its reduction */
async function flipBits(t: Test, reduce: string, kept: string): Promise<void> {
  t.comment(`seed ${SEED}`)
  const asking = queries(reduce)
  const folder = await temporaryFolder(t)
  const path = join(folder, 'abc.sqlite')
  await fill(folder)
  divide(path)
  const whole = new Asked(folder, readFileSync(path))
  const truths = new Map<Query, Answer>()
  for (const [name, query] of asking) {
    const answer = await whole.answer(query)
    if (answer === null) throw new Error(`${name} was refused without damage`)
    truths.set(query, answer)
  }
  whole.close()
  const db = new Sqlite(path)
  db.exec(`UPDATE sums_0 SET red = NULL, c = NULL WHERE NOT (${kept})`)
  const ofTrees = "SELECT pageno FROM dbstat WHERE name GLOB '[rsb]*_0' ORDER BY pageno"
  const pages = db.prepare(ofTrees).pluck().all() as number[]
  db.pragma('journal_mode = DELETE')
  db.close()
  const file = readFileSync(path)
  const bits = pages.map((page) => usedBits(file, page))
  const random = randomNumbers(SEED)
  const wrong: object[] = []
  const counts = { right: 0, refused: 0, lacking: 0 }
  for (const some of [bits.flatMap(({ all }) => all), bits.flatMap(({ leading }) => leading)]) {
    const step = Math.max(1, (2 * some.length) / FLIPS)
    for (let from = 0; from < some.length; from += step) {
      const bit = some[Math.min(some.length - 1, Math.floor(from) + random(Math.ceil(step)))] as number
      const asked = new Asked(folder, flipped(file, bit))
      const first = random(asking.length)
      let refused = 0
      for (const [name, query] of [...asking.slice(first), ...asking.slice(0, first)]) {
        if (refused === MOST_REFUSALS) break
        const answer = await asked.answer(query)
        const truth = truths.get(query) as Answer
        const fault = answer && faultOf(answer, truth)
        if (fault !== null) wrong.push({ bit, name, fault })
        else if (answer === null) refused += 1
        else counts[answer.rows.length < truth.rows.length ? 'lacking' : 'right'] += 1
      }
      counts.refused += refused
      asked.close()
    }
  }
  t.comment(JSON.stringify({ ...counts, wrong: wrong.length }))
  t.same(wrong.slice(0, 20), [], `${wrong.length} wrong answers`)
}

t.test('a flipped bit of an index makes no query say what was not written', (t) =>
  flipBits(
    t,
    '_sum',
    'k IN (SELECT k FROM (SELECT k, row_number() OVER (ORDER BY k) AS n FROM sums_0) WHERE n % 2)',
  ),
)

t.test('nor without kept reductions, of keys', (t) => flipBits(t, '_approx_count_distinct', 'FALSE'))
