/** The rows of a view query, protocol.md 9.3: map rows or reduced rows, as JSON texts in batches. */
import { Yielder } from '../core/event-loop.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { Compare } from './collation.ts'
import { builtinReducer } from './reduce.ts'
import type { Grouping, ViewQuery } from './view-query.ts'
import { type Stretch, stretchOf, type ViewRow } from './view-rows.ts'

/** The rows of a view that a query selects, before their documents are read. */
export interface Selection {
  readonly rows: readonly ViewRow[]
  /** In the order of the answer. A descending query reads each stretch from its end. */
  readonly stretches: readonly Stretch[]
  readonly query: ViewQuery
  readonly order: Compare
}

/** The maximum number of rows in one batch. */
const STEP = 100
/** A batch ends after this many characters. */
const STEP_CHARS = 256 * 1024

/** Selects the rows of a query. */
export async function select(rows: readonly ViewRow[], query: ViewQuery, order: Compare): Promise<Selection> {
  const { keys, docIds, inclusiveEnd, descending } = query
  if (keys === undefined) return { rows, stretches: [stretchOf(rows, query, order)], query, order }
  const ordered = descending ? [...keys].reverse() : keys
  const stretches: Stretch[] = []
  let empty: Stretch | undefined
  const yielder = new Yielder()
  for (const key of ordered) {
    await yielder.yieldIfDue()
    const start = { key, docId: docIds.start }
    const end = { key, docId: docIds.end }
    const stretch = stretchOf(rows, { start, end, inclusiveEnd, descending }, order)
    if (stretch.to > stretch.from) stretches.push(stretch)
    else empty ??= stretch
  }
  // Without any row, the place of the first key decides the offset.
  if (stretches.length === 0 && empty !== undefined) stretches.push(empty)
  return { rows, stretches, query, order }
}

/** The number of rows of the view before the first row of the answer. */
export function offsetOf({ rows, stretches, query }: Selection): number {
  const [first] = stretches
  const before = first === undefined ? 0 : query.descending ? rows.length - first.to : first.from
  return Math.min(rows.length, before + query.skip)
}

function* walk({ rows, stretches, query }: Selection): Generator<ViewRow> {
  for (const { from, to } of stretches) {
    if (query.descending) yield* walkDown(rows, from, to)
    else for (let at = from; at < to; at++) yield rows[at] as ViewRow
  }
}

/** Reads from the end. Like couch_mrview, it keeps the rows of one document with the same key in ascending order. */
function* walkDown(rows: readonly ViewRow[], from: number, to: number): Generator<ViewRow> {
  for (let end = to; end > from; ) {
    const last = rows[end - 1] as ViewRow
    let start = end - 1
    while (start > from && isSameEntry(rows[start - 1] as ViewRow, last)) start -= 1
    for (let at = start; at < end; at++) yield rows[at] as ViewRow
    end = start
  }
}

function isSameEntry(a: ViewRow, b: ViewRow): boolean {
  return a.id === b.id && a.keyText === b.keyText
}

/**
 * The map rows, in batches.
 * @param docOf returns the JSON of a row's document, or `null` if it is missing; undefined without `include_docs`
 */
export async function* mapRows(
  selection: Selection,
  docOf: ((row: ViewRow) => Promise<string>) | undefined,
): AsyncGenerator<string[]> {
  const { skip, limit } = selection.query
  const yielder = new Yielder()
  let at = 0
  let texts: string[] = []
  let chars = 0
  for (const row of walk(selection)) {
    if (at >= skip + limit) break
    at += 1
    if (docOf !== undefined || at % STEP === 0) await yielder.yieldIfDue()
    if (at <= skip) continue
    const text = mapRow(row, await docOf?.(row))
    texts.push(text)
    chars += text.length
    if (texts.length < STEP && chars < STEP_CHARS) continue
    yield texts
    texts = []
    chars = 0
  }
  if (texts.length > 0) yield texts
}

function mapRow({ id, keyText, valueText }: ViewRow, doc: string | undefined): string {
  const member = doc === undefined ? '' : `,"doc":${doc}`
  return `{"id":${JSON.stringify(id)},"key":${keyText},"value":${valueText}${member}}`
}

/** Rows that are reduced together, with the JSON text of their common key. */
interface Group {
  readonly key: string
  readonly rows: ViewRow[]
}

/** Yields each group of a selection when it is complete. `skip` and `limit` count groups. */
async function* groupsOf(selection: Selection): AsyncGenerator<Group> {
  const { grouping, skip, limit } = selection.query
  const yielder = new Yielder()
  let group: Group | undefined
  let complete = 0
  let count = 0
  const isWanted = () => complete > skip && complete <= skip + limit
  for (const row of walk(selection)) {
    count += 1
    if (count % STEP === 0) await yielder.yieldIfDue()
    if (group !== undefined && isSameGroup(group.rows[0] as ViewRow, row, grouping, selection.order)) {
      group.rows.push(row)
      continue
    }
    complete += group === undefined ? 0 : 1
    if (group !== undefined && isWanted()) yield group
    if (complete >= skip + limit) return
    group = { key: groupKey(row, grouping), rows: [row] }
  }
  complete += 1
  if (group !== undefined && isWanted()) yield group
}

function isSameGroup(a: ViewRow, b: ViewRow, grouping: Grouping, order: Compare): boolean {
  if (grouping === 'none') return true
  return order(levelOf(a.key, grouping), levelOf(b.key, grouping)) === 0
}

/** The part of a key that determines its group: the first elements of an array, or the whole key. */
function levelOf(key: unknown, grouping: Grouping): unknown {
  return typeof grouping === 'number' && Array.isArray(key) ? key.slice(0, grouping) : key
}

function groupKey({ key, keyText }: ViewRow, grouping: Grouping): string {
  if (grouping === 'none') return 'null'
  return typeof grouping === 'number' && Array.isArray(key) ? JSON.stringify(levelOf(key, grouping)) : keyText
}

/** The reduced rows, in batches. @param reduce reduces groups and returns a JSON text for each */
export async function* reducedRows(
  selection: Selection,
  reduce: (groups: readonly (readonly ViewRow[])[]) => Promise<readonly string[]>,
): AsyncGenerator<string[]> {
  let ready: Group[] = []
  const takeBatch = async () => {
    const results = await reduce(ready.map(({ rows }) => rows))
    const texts = ready.map(({ key }, at) => groupRow(key, results[at] as string))
    ready = []
    return texts
  }
  for await (const group of groupsOf(selection)) {
    ready.push(group)
    if (ready.length === STEP) yield await takeBatch()
  }
  if (ready.length > 0) yield await takeBatch()
}

/** As in CouchDB, the row of an error has no key. */
function groupRow(key: string, result: string): string {
  return `{"key":${result.startsWith('"error"') ? 'null' : key},${result}}`
}

/** Reduces groups with one of CouchDB's built-in functions. @returns for each group the member that follows its key */
export async function reduceBuiltin(
  name: string,
  order: Compare,
  groups: readonly (readonly ViewRow[])[],
): Promise<string[]> {
  const yielder = new Yielder()
  const results: string[] = []
  for (const rows of groups) {
    const reducer = builtinReducer(name, order)
    for (const [at, row] of rows.entries()) {
      if (at % STEP === 0) await yielder.yieldIfDue()
      reducer.add(row)
    }
    results.push(`"value":${reducer.result()}`)
  }
  return results
}

/** In characters. CouchDB refuses a result that is longer than this and longer than half of its input. */
const MAX_RESULT = 5000

/** Reduces groups with a function of a design document: first in pieces, then the results of the pieces. */
export async function reduceByFunction(
  sandbox: Sandbox,
  fn: UserFunction,
  groups: readonly (readonly ViewRow[])[],
): Promise<string[]> {
  const results: string[] = []
  for (const rows of groups) results.push(await reduceGroup(sandbox, fn, rows))
  return results
}

async function reduceGroup(sandbox: Sandbox, fn: UserFunction, rows: readonly ViewRow[]): Promise<string> {
  const pieces = piecesOf(rows)
  const results = await sandbox.reduce(
    fn,
    pieces.map((piece) => ({
      keys: `[${piece.map(({ id, keyText }) => `[${keyText},${JSON.stringify(id)}]`).join(',')}]`,
      values: listText(piece.map(({ valueText }) => valueText)),
      rereduce: false,
    })),
  )
  for (const [at, piece] of pieces.entries()) {
    const overflow = overflowOf(results[at] as string, piece)
    if (overflow !== null) return overflow
  }
  return `"value":${await rereduce(sandbox, fn, results)}`
}

async function rereduce(sandbox: Sandbox, fn: UserFunction, results: readonly string[]): Promise<string> {
  let rest = results
  while (rest.length > 1) {
    const calls = piecesOf(rest).map((piece) => ({ keys: 'null', values: listText(piece), rereduce: true }))
    rest = await sandbox.reduce(fn, calls)
  }
  return rest[0] ?? 'null'
}

function listText(texts: readonly string[]): string {
  return `[${texts.join(',')}]`
}

function piecesOf<T>(list: readonly T[]): T[][] {
  const pieces: T[][] = []
  for (let at = 0; at < list.length; at += STEP) pieces.push(list.slice(at, at + STEP))
  return pieces
}

function overflowOf(result: string, piece: readonly ViewRow[]): string | null {
  if (result.length <= MAX_RESULT) return null
  const input = piece.reduce((sum, { valueText }) => sum + valueText.length, 0)
  if (result.length * 2 <= input) return null
  const reason = `Reduce output must shrink more rapidly: input size: ${input} output size: ${result.length}`
  return `"error":"reduce_overflow_error","reason":${JSON.stringify(reason)}`
}
