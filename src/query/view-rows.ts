/** The rows that a view query selects, protocol.md 9.3, and the map rows as JSON texts in batches. */
import { Yielder } from '../core/event-loop.ts'
import { quoted } from '../core/json.ts'
import {
  type IndexRow,
  type IndexStore,
  idOfRow,
  type KeyRange,
  keyAfter,
  keyBefore,
  MAX_COUNTED_KEYS,
} from '../storage/index-store.ts'
import { type IndexReader, inOneVersion, seqOf } from './index-reader.ts'
import { encodeKey, type KeyOrder, partitionPrefix } from './sort-keys.ts'
import type { ViewQuery } from './view-query.ts'

/** An index of a view. */
export interface ViewRows {
  readonly store: IndexStore
  /** The number of the index in its store. */
  readonly index: number
  readonly order: KeyOrder
}

/** The rows of a view that a query selects, before their documents are read. */
export interface Selection extends ViewRows {
  readonly query: ViewQuery
  /** The bytes with which the keys of the query's partition begin; empty if the view has no partitions. */
  readonly prefix: Uint8Array
  /** In the order of the answer. A descending query reads each range from its end. */
  readonly ranges: readonly KeyRange[]
}

/** The maximum number of rows in one batch. */
const STEP = 100
/** Ranges whose first rows are read at once, and how many rows of each. */
const RANGES_AT_ONCE = 8
const RANGE_ROWS = 4
const NO_PREFIX = new Uint8Array(0)
/** A batch ends after this many characters. */
const STEP_CHARS = 256 * 1024

/** Selects the rows of a query. @throws key_too_long */
export async function select(rows: ViewRows, query: ViewQuery): Promise<Selection> {
  const { keys, docIds, descending, partition } = query
  const prefix = partition === undefined ? NO_PREFIX : partitionPrefix(partition)
  const selected = { ...rows, query, prefix }
  if (keys === undefined) return { ...selected, ranges: [rangeOf(query, selected)] }
  const ranges: KeyRange[] = []
  const yielder = new Yielder()
  for (const key of descending ? keys.toReversed() : keys) {
    await yielder.yieldIfDue()
    const start = { key, docId: docIds.start }
    const end = { key, docId: docIds.end }
    ranges.push(rangeOf({ ...query, start, end }, selected))
  }
  return { ...selected, ranges }
}

type Edges = Pick<ViewQuery, 'start' | 'end' | 'inclusiveEnd' | 'descending'>

/** The row keys between the start and the end of a query. */
function rangeOf(
  { start, end, inclusiveEnd, descending }: Edges,
  { order, prefix }: Pick<Selection, 'order' | 'prefix'>,
): KeyRange {
  const low = descending ? end : start
  const high = descending ? start : end
  // An exclusive end excludes all rows equal to it. In a descending query the end is the lower edge.
  const edgeKey = (edge: NonNullable<ViewQuery['start']>, isAfter: boolean) =>
    (isAfter ? keyAfter : keyBefore)(Buffer.concat([prefix, encodeKey(edge.key, order)]), edge.docId)
  const whole: KeyRange = prefix.length === 0 ? {} : { from: prefix, to: keyAfter(prefix) }
  return {
    from: low === undefined ? whole.from : edgeKey(low, descending && !inclusiveEnd),
    to: high === undefined ? whole.to : edgeKey(high, descending || inclusiveEnd),
  }
}

/** What an answer says of its rows before it lists them. */
interface Counts {
  /** The rows of the whole view. */
  readonly total: number
  /** The rows of the view before the first row of the answer. */
  readonly offset: number
  /** The last update that the index includes. */
  readonly seq: number
}

/** The rows of an answer. */
interface OpenRows {
  /** null where they were not asked for. */
  readonly counts: Counts | null
  /** Without the first `skip`, in the order of the answer. */
  readonly pages: Pages
}

type Pages = AsyncIterable<readonly IndexRow[]> | Iterable<readonly IndexRow[]>

/**
 * Opens the rows of a selection. The counts and the first page are of one version of the rows. Later pages may be newer,
 * since another query may update the index while they are sent.
 */
export function openRows(selection: Selection, withCounts: boolean): Promise<OpenRows> {
  return inOneVersion(selection, async (reader) => {
    const pages = walk(reader, selection)
    const [counts, first] = await Promise.all([
      withCounts ? countsOf(reader, selection) : null,
      selection.query.limit === 0 ? null : pages.next(),
    ])
    return { counts, pages: first === null || first.done ? [] : joined(first.value, pages) }
  })
}

async function* joined<T>(first: T, others: AsyncIterable<T>): AsyncGenerator<T> {
  yield first
  yield* others
}

async function countsOf(reader: IndexReader, { ranges, query }: Selection): Promise<Counts> {
  const [only] = ranges
  if (only !== undefined && ranges.length === 1 && query.partition === undefined)
    return countsOfRange(reader, only, query)
  const offsetOf = ({ start, end, total }: CountedRange) => (query.descending ? total - end : start)
  let { skip } = query
  let first: CountedRange | undefined
  let last: CountedRange | undefined
  for await (const counted of countedRanges(reader, ranges)) {
    const { start, end, total, seq } = counted
    first ??= counted
    last = counted
    const rows = end - start
    const offset = offsetOf(counted) + skip
    if (query.partition === undefined) {
      if (rows > 0) return { total, offset: Math.min(total, offset), seq }
    } else if (skip < rows) return { total, offset, seq }
    // CouchDB counts as skipped only rows that exist, if a single one of its shards answers.
    else skip -= rows
  }
  if (first === undefined || last === undefined) {
    const { total, position } = await reader.counts([])
    return { total, offset: Math.min(total, skip), seq: seqOf(position) }
  }
  const { total, seq } = first
  // Without any row, the row key of the first key decides.
  if (query.partition === undefined) return { total, offset: Math.min(total, offsetOf(first) + skip), seq }
  return { total, offset: offsetOf(last) + last.end - last.start, seq }
}

/** The counts of a range that says what its answer needs with one of its ends. */
async function countsOfRange(
  reader: IndexReader,
  { from, to }: KeyRange,
  { descending, skip }: ViewQuery,
): Promise<Counts> {
  const begin = descending ? to : from
  const { total, before, position } = await reader.counts(begin === undefined ? [] : [begin])
  const [counted = descending ? total : 0] = before
  const offset = descending ? total - counted : counted
  return { total, offset: Math.min(total, offset + skip), seq: seqOf(position) }
}

/** A range, and the numbers of rows of the view before its start and before its end. */
interface CountedRange extends Pick<Counts, 'total' | 'seq'> {
  readonly range: KeyRange
  readonly start: number
  readonly end: number
}

/** The first range alone, since it is often the only one that is needed. */
async function* countedRanges(
  reader: IndexReader,
  ranges: readonly KeyRange[],
): AsyncGenerator<CountedRange> {
  const yielder = new Yielder()
  for (let at = 0, size = 1; at < ranges.length; at += size, size = MAX_COUNTED_KEYS / 2) {
    await yielder.yieldIfDue()
    const some = ranges.slice(at, at + size)
    const rowKeys = some.flatMap(({ from, to }) => [from, to]).filter((rowKey) => rowKey !== undefined)
    const { total, before, position } = await reader.counts(rowKeys)
    const counts = before.values()
    for (const range of some) {
      const start = range.from === undefined ? 0 : (counts.next().value as number)
      const end = range.to === undefined ? total : (counts.next().value as number)
      yield { range, start, end, total, seq: seqOf(position) }
    }
  }
}

/** Reads the rows of a selection in the order of the answer, without the first `skip`. */
async function* walk(reader: IndexReader, selection: Selection): AsyncGenerator<readonly IndexRow[]> {
  const { ranges, query } = selection
  let { skip } = query
  let whole = 0
  if (skip > 0) {
    for await (const counted of countedRanges(reader, ranges)) {
      if (skip === 0) break
      whole += 1
      const rows = counted.end - counted.start
      if (skip >= rows) {
        skip -= rows
        continue
      }
      const rest = await skipped(reader, query, counted, skip)
      yield* query.descending ? walkDown(reader, rest.range, rest.skip) : walkUp(reader, query, rest.range)
      skip = 0
    }
  }
  const others = ranges.slice(whole)
  if (!query.descending && others.length > 1) yield* walkRanges(reader, query, others)
  else
    for (const range of others)
      yield* query.descending ? walkDown(reader, range, 0) : walkUp(reader, query, range)
}

/** Reads the first rows of several ranges at once, since each read of a store over a network is a round trip. */
async function* walkRanges(
  reader: IndexReader,
  query: ViewQuery,
  ranges: readonly KeyRange[],
): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  const size = Math.max(1, Math.min(RANGES_AT_ONCE, query.limit))
  for (let at = 0; at < ranges.length; at += size) {
    await yielder.yieldIfDue()
    const some = ranges.slice(at, at + size)
    const reads = await Promise.all(some.map((range) => reader.read(range, RANGE_ROWS)))
    let ready: IndexRow[] = []
    for (const [n, { rows, more }] of reads.entries()) {
      ready.push(...rows)
      const last = rows.at(-1)
      if (!more || last === undefined) continue
      yield ready
      ready = []
      yield* walkUp(reader, query, { from: rowAfter(last), to: some[n]?.to })
    }
    if (ready.length > 0) yield ready
  }
}

/** The range without its first `skip` rows; of a descending one, some rows may still have to be skipped. */
async function skipped(
  reader: IndexReader,
  { descending }: ViewQuery,
  { range, start, end }: CountedRange,
  skip: number,
): Promise<{ readonly range: KeyRange; readonly skip: number }> {
  const { from, to } = range
  if (!descending) {
    return { range: { from: (await reader.rowKeyAt(start + skip)) ?? from, to }, skip: 0 }
  }
  const rowKey = await reader.rowKeyAt(end - skip)
  const row = rowKey === null ? undefined : (await reader.read({ from: rowKey }, 1)).rows[0]
  if (row === undefined) return { range, skip }
  // Rows of one document with the same key are read in ascending order, so they are skipped one by one.
  const entry = entryEnd(row)
  return { range: { from, to: entry }, skip: (await reader.countBefore(entry)) - (end - skip) }
}

async function* walkUp(
  reader: IndexReader,
  query: ViewQuery,
  range: KeyRange,
): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  let { from } = range
  for (let limit = Math.min(STEP, query.limit); limit > 0; ) {
    const { rows, more } = await reader.read({ from, to: range.to }, limit)
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows
    if (!more) return
    from = rowAfter(last)
    await yielder.yieldIfDue()
    limit = STEP
  }
}

/** Reads from the end. Like couch_mrview, it keeps the rows of one document with the same key in ascending order. */
async function* walkDown(
  reader: IndexReader,
  range: KeyRange,
  skip: number,
): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  let left = skip
  let { to } = range
  let entry: IndexRow[] = []
  const take = () => {
    const rows = entry.toReversed().slice(left)
    left = Math.max(0, left - entry.length)
    entry = []
    return rows
  }
  for (;;) {
    const { rows, more } = await reader.read({ from: range.from, to, descending: true }, STEP)
    const ready: IndexRow[] = []
    for (const row of rows) {
      if (entry[0] !== undefined && !isSameEntry(entry[0], row)) ready.push(...take())
      entry.push(row)
    }
    if (!more) ready.push(...take())
    if (ready.length > 0) yield ready
    to = rows.at(-1)?.rowKey
    if (!more || to === undefined) return
    await yielder.yieldIfDue()
  }
}

/** Bytes of a row key behind those of its key and its document: the number of the row. */
const NUMBER_BYTES = 3

function entryOf({ rowKey }: IndexRow): Uint8Array {
  return rowKey.subarray(0, rowKey.length - NUMBER_BYTES)
}

function entryEnd(row: IndexRow): Uint8Array {
  return keyAfter(entryOf(row))
}

function isSameEntry(a: IndexRow, b: IndexRow): boolean {
  return Buffer.compare(entryOf(a), entryOf(b)) === 0
}

/** The first row key after a row. */
export function rowAfter({ rowKey }: IndexRow): Uint8Array {
  return Buffer.concat([rowKey, Uint8Array.of(0)])
}

/**
 * The map rows, in batches.
 * @param pages of the rows @param limit the maximum number of rows
 * @param docsOf returns the JSON of the rows' documents, `null` for a missing one; undefined without `include_docs`
 */
export async function* mapRows(
  pages: Pages,
  limit: number,
  docsOf: ((rows: readonly IndexRow[]) => AsyncIterable<readonly string[]>) | undefined,
): AsyncGenerator<string[]> {
  let left = limit
  let texts: string[] = []
  let chars = 0
  const add = (text: string): boolean => {
    texts.push(text)
    chars += text.length
    return texts.length >= STEP || chars >= STEP_CHARS
  }
  const take = () => {
    const taken = texts
    texts = []
    chars = 0
    return taken
  }
  for await (const page of pages) {
    const rows = page.length > left ? page.slice(0, left) : page
    left -= rows.length
    if (docsOf === undefined) {
      for (const row of rows) if (add(mapRow(row, ''))) yield take()
    } else {
      let at = 0
      for await (const docs of docsOf(rows)) {
        for (const doc of docs) if (add(mapRow(rows[at++] as IndexRow, `,"doc":${doc}`))) yield take()
      }
    }
    if (left === 0) break
  }
  if (texts.length > 0) yield texts
}

function mapRow(row: IndexRow, doc: string): string {
  return `{"id":${quoted(idOfRow(row))},"key":${row.keyText},"value":${row.valueText}${doc}}`
}
