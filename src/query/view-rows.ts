/** The rows that a view query selects, protocol.md 9.3, and the map rows as JSON texts in batches. */
import { Yielder } from '../core/event-loop.ts'
import { quoted } from '../core/json.ts'
import {
  type IndexRow,
  type IndexStore,
  idOfRow,
  type PlaceRange,
  placeAfter,
  placeBefore,
} from '../storage/index-store.ts'
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
  readonly ranges: readonly PlaceRange[]
}

/** The maximum number of rows in one batch. */
const STEP = 100
const NO_PREFIX = new Uint8Array(0)
/** A batch ends after this many characters. */
const STEP_CHARS = 256 * 1024

/** Selects the rows of a query. @throws key_too_long */
export async function select(rows: ViewRows, query: ViewQuery): Promise<Selection> {
  const { keys, docIds, descending, partition } = query
  const prefix = partition === undefined ? NO_PREFIX : partitionPrefix(partition)
  const selected = { ...rows, query, prefix }
  if (keys === undefined) return { ...selected, ranges: [rangeOf(query, selected)] }
  const ranges: PlaceRange[] = []
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

/** The places of the rows between the start and the end of a query. */
function rangeOf(
  { start, end, inclusiveEnd, descending }: Edges,
  { order, prefix }: Pick<Selection, 'order' | 'prefix'>,
): PlaceRange {
  const low = descending ? end : start
  const high = descending ? start : end
  // An exclusive end excludes all rows equal to it. In a descending query the end is the lower edge.
  const placeOf = (edge: NonNullable<ViewQuery['start']>, isAfter: boolean) =>
    (isAfter ? placeAfter : placeBefore)(Buffer.concat([prefix, encodeKey(edge.key, order)]), edge.docId)
  const whole: PlaceRange = prefix.length === 0 ? {} : { from: prefix, to: placeAfter(prefix) }
  return {
    from: low === undefined ? whole.from : placeOf(low, descending && !inclusiveEnd),
    to: high === undefined ? whole.to : placeOf(high, descending || inclusiveEnd),
  }
}

/** The number of rows of the view before the first row of the answer. */
export function offsetOf(selection: Selection): number {
  const { store, index, ranges, query } = selection
  const total = store.count(index)
  if (query.partition !== undefined) return offsetInPartition(selection, total)
  // Without any row, the place of the first key decides.
  const first = ranges.find((range) => countIn(store, index, range) > 0) ?? ranges[0]
  const place = query.descending ? first?.to : first?.from
  const ahead = place === undefined ? (query.descending ? total : 0) : store.countBefore(index, place)
  return Math.min(total, (query.descending ? total - ahead : ahead) + query.skip)
}

/** CouchDB counts as skipped only rows that exist, if a single one of its shards answers. */
function offsetInPartition({ store, index, ranges, query }: Selection, total: number): number {
  let { skip } = query
  let offset = 0
  for (const range of ranges) {
    const { from = NO_PREFIX, to = NO_PREFIX } = range
    offset = query.descending ? total - store.countBefore(index, to) : store.countBefore(index, from)
    const count = countIn(store, index, range)
    if (skip < count) return offset + skip
    skip -= count
    offset += count
  }
  return offset
}

function countIn(store: IndexStore, index: number, { from, to }: PlaceRange): number {
  const end = to === undefined ? store.count(index) : store.countBefore(index, to)
  return end - (from === undefined ? 0 : store.countBefore(index, from))
}

/** Reads the rows of a selection in the order of the answer, without the first `skip`. */
async function* walk(selection: Selection): AsyncGenerator<readonly IndexRow[]> {
  const { store, index, query } = selection
  let { skip } = query
  for (const range of selection.ranges) {
    const rows = skip === 0 ? Number.POSITIVE_INFINITY : countIn(store, index, range)
    if (skip >= rows) {
      skip -= rows
      continue
    }
    const rest = skip === 0 ? { range, skip } : skipped(selection, range, skip)
    yield* query.descending ? walkDown(selection, rest.range, rest.skip) : walkUp(selection, rest.range)
    skip = 0
  }
}

/** The range without its first `skip` rows; of a descending one, some rows may still have to be skipped. */
function skipped(
  { store, index, query }: Selection,
  range: PlaceRange,
  skip: number,
): { readonly range: PlaceRange; readonly skip: number } {
  const { from, to } = range
  if (!query.descending) {
    const before = from === undefined ? 0 : store.countBefore(index, from)
    return { range: { from: store.placeAt(index, before + skip) ?? from, to }, skip: 0 }
  }
  const before = to === undefined ? store.count(index) : store.countBefore(index, to)
  const place = store.placeAt(index, before - skip)
  const row = place === null ? undefined : store.read(index, { from: place }, 1).rows[0]
  if (row === undefined) return { range, skip }
  // Rows of one document with the same key are read in ascending order, so they are skipped one by one.
  const end = entryEnd(row)
  return { range: { from, to: end }, skip: store.countBefore(index, end) - (before - skip) }
}

async function* walkUp(
  { store, index, query }: Selection,
  range: PlaceRange,
): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  let { from } = range
  for (let limit = Math.min(STEP, query.limit); limit > 0; ) {
    const { rows, more } = store.read(index, { from, to: range.to }, limit)
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
  { store, index }: Selection,
  range: PlaceRange,
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
    const { rows, more } = store.read(index, { from: range.from, to, descending: true }, STEP)
    const ready: IndexRow[] = []
    for (const row of rows) {
      if (entry[0] !== undefined && !isSameEntry(entry[0], row)) ready.push(...take())
      entry.push(row)
    }
    if (!more) ready.push(...take())
    if (ready.length > 0) yield ready
    to = rows.at(-1)?.place
    if (!more || to === undefined) return
    await yielder.yieldIfDue()
  }
}

/** Bytes of a place behind those of its key and its document: the number of the row. */
const NUMBER_BYTES = 3

function entryOf({ place }: IndexRow): Uint8Array {
  return place.subarray(0, place.length - NUMBER_BYTES)
}

function entryEnd(row: IndexRow): Uint8Array {
  return placeAfter(entryOf(row))
}

function isSameEntry(a: IndexRow, b: IndexRow): boolean {
  return Buffer.compare(entryOf(a), entryOf(b)) === 0
}

/** The first place after a row. */
export function rowAfter({ place }: IndexRow): Uint8Array {
  return Buffer.concat([place, Uint8Array.of(0)])
}

/**
 * The map rows, in batches.
 * @param docsOf returns the JSON of the rows' documents, `null` for a missing one; undefined without `include_docs`
 */
export async function* mapRows(
  selection: Selection,
  docsOf: ((rows: readonly IndexRow[]) => AsyncIterable<readonly string[]>) | undefined,
): AsyncGenerator<string[]> {
  let left = selection.query.limit
  if (left === 0) return
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
  for await (const page of walk(selection)) {
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
