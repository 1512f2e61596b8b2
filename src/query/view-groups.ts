/** The reduced rows of a view query, protocol.md 9.3, as JSON texts in batches. */
import { Yielder } from '../core/event-loop.ts'
import type { Grouping } from '../documents/list-parameters.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import {
  type IndexRow,
  idOfRow,
  type KeptReduction,
  type KeyRange,
  keyAfter,
  type ReducedRange,
} from '../storage/index-store.ts'
import { compareJson, compareRaw } from './collation.ts'
import { type IndexReader, inOneVersion } from './index-reader.ts'
import { builtinReducer, type Reducer } from './reduce.ts'
import { arrayPrefix, type KeyOrder } from './sort-keys.ts'
import { rowAfter, type Selection, type ViewRows } from './view-rows.ts'

/** The maximum number of rows that are read at once, of groups in a batch, and of values that one call reduces. */
const STEP = 100
/** Rows that are read where a long group is likely. */
const PROBED = 2
/** The maximum number of buckets whose reductions are read at once, and of reductions that are kept at once. */
const RANGES = 512
const KEPT = 64
/** Buckets whose values are read at once, since each read of a store over a network is a round trip. */
const BUCKETES_AT_ONCE = 8

/** Rows that are reduced together, with the JSON text of their common key: a short list, or a range of the index. */
type Group =
  | { readonly key: string; readonly rows: readonly IndexRow[] }
  | { readonly key: string; readonly range: KeyRange }

/** Reduces groups, each as of one version of the rows. The results are the members of an answer that follow the key. */
export interface GroupReducer {
  /** @param groups rows in the order of their keys */
  ofRows(groups: readonly (readonly IndexRow[])[]): Promise<string[]>
  /** @returns null if the range has no rows */
  ofRange(range: KeyRange): Promise<string | null>
}

/** The reduced rows, in batches. */
export async function* reducedRows(selection: Selection, reducer: GroupReducer): AsyncGenerator<string[]> {
  const { skip, limit } = selection.query
  let texts: string[] = []
  let short: { readonly key: string; readonly rows: readonly IndexRow[] }[] = []
  const reduceShort = async () => {
    const results = await reducer.ofRows(short.map(({ rows }) => rows))
    for (const [at, { key }] of short.entries()) texts.push(groupRow(key, results[at] as string))
    short = []
  }
  let count = 0
  for await (const group of groupsOf(selection)) {
    if (count >= skip + limit) break
    count += 1
    if (count <= skip) continue
    if ('rows' in group) short.push(group)
    if (short.length === STEP || ('range' in group && short.length > 0)) await reduceShort()
    if ('range' in group) {
      const result = await reducer.ofRange(group.range)
      if (result !== null) texts.push(groupRow(group.key, result))
    }
    if (texts.length < STEP) continue
    yield texts
    texts = []
  }
  if (short.length > 0) await reduceShort()
  if (texts.length > 0) yield texts
}

/** As in CouchDB, the row of an error has no key. */
function groupRow(key: string, result: string): string {
  return `{"key":${result.startsWith('"error"') ? 'null' : key},${result}}`
}

/** The groups of a selection, in the order of the answer. */
async function* groupsOf(selection: Selection): AsyncGenerator<Group> {
  const { ranges, query } = selection
  for (const range of ranges) {
    if (query.grouping !== 'none') yield* groupsIn(selection, range)
    else yield { key: 'null', range }
  }
}

async function* groupsIn(
  { store, index, order, prefix: partition, query }: Selection,
  range: KeyRange,
): AsyncGenerator<Group> {
  const { descending, grouping } = query
  const yielder = new Yielder()
  let rest = range
  // After a long group, another one is likely: then its first rows are enough.
  let limit = STEP
  for (;;) {
    await yielder.yieldIfDue()
    const { rows, more } = await store.read(index, { ...rest, descending, isWhole: true }, limit)
    limit = STEP
    for (let at = 0; at < rows.length; ) {
      const first = rows[at] as IndexRow
      const { key, prefix } = groupOf(first, grouping, { order, partition })
      let end = at + 1
      while (end < rows.length && startsWith((rows[end] as IndexRow).rowKey, prefix)) end += 1
      const isComplete = end < rows.length || !more
      if (isComplete) {
        const group = rows.slice(at, end)
        yield { key, rows: descending ? group.reverse() : group }
      } else if (at === 0) {
        // A long group: its buckets are reduced already.
        const whole = within(range, prefix)
        yield { key, range: whole }
        limit = PROBED
        rest = descending ? { from: range.from, to: whole.from } : { from: whole.to, to: range.to }
      } else {
        rest = descending ? { from: range.from, to: rowAfter(first) } : { from: first.rowKey, to: range.to }
      }
      at = end
    }
    if (!more) return
  }
}

/** @returns the JSON text of a row's group, and the bytes with which the keys of the group begin */
function groupOf(
  row: IndexRow,
  grouping: Grouping,
  { order, partition }: { readonly order: KeyOrder; readonly partition: Uint8Array },
): { key: string; prefix: Uint8Array } {
  const prefixOf = (elements: readonly unknown[]) => Buffer.concat([partition, arrayPrefix(elements, order)])
  if (typeof grouping === 'number') {
    const key: unknown = JSON.parse(row.keyText)
    if (Array.isArray(key) && key.length > grouping) {
      const elements = key.slice(0, grouping)
      return { key: JSON.stringify(elements), prefix: prefixOf(elements) }
    }
    if (Array.isArray(key) && key.length === grouping) return { key: row.keyText, prefix: prefixOf(key) }
  }
  return { key: row.keyText, prefix: row.rowKey.subarray(0, row.keyLength) }
}

function startsWith(rowKey: Uint8Array, prefix: Uint8Array): boolean {
  return Buffer.compare(rowKey.subarray(0, prefix.length), prefix) === 0
}

/** The part of a range with keys that begin with these bytes. */
function within({ from, to }: KeyRange, prefix: Uint8Array): KeyRange {
  const end = keyAfter(prefix)
  return {
    from: from !== undefined && Buffer.compare(from, prefix) > 0 ? from : prefix,
    to: to !== undefined && Buffer.compare(to, end) < 0 ? to : end,
  }
}

/** Reduces with one of CouchDB's built-in functions. @param name as the design document has it */
export function builtinGroups(rows: ViewRows, name: string): GroupReducer {
  const compare = rows.order === 'raw' ? compareRaw : compareJson
  const make = () => builtinReducer(name, compare)
  return {
    async ofRows(groups): Promise<string[]> {
      const yielder = new Yielder()
      const results: string[] = []
      for (const group of groups) {
        await yielder.yieldIfDue()
        const reducer = make()
        for (const row of group) reducer.add(row)
        results.push(`"value":${reducer.result()}`)
      }
      return results
    },
    ofRange: (range) =>
      inOneVersion(rows, async (reader) => {
        const reducer = make()
        let isEmpty = true
        const stateOf = async (part: KeyRange) => {
          const bucket = make()
          return (await addRows(reader, part, bucket)) ? bucket.state() : null
        }
        for await (const state of reductionsIn(reader, range, stateOf, BUCKETES_AT_ONCE)) {
          reducer.addState(state)
          isEmpty = false
        }
        return isEmpty ? null : `"value":${reducer.result()}`
      }),
  }
}

/** @returns whether the range has rows */
async function addRows(rows: IndexReader, range: KeyRange, reducer: Reducer): Promise<boolean> {
  if (!reducer.usesKeys) return addValues(rows, range, reducer)
  let hasRows = false
  for await (const page of pagesOf(rows, range)) {
    hasRows = true
    for (const row of page) reducer.add(row)
  }
  return hasRows
}

async function addValues(rows: IndexReader, { from, to }: KeyRange, reducer: Reducer): Promise<boolean> {
  const yielder = new Yielder()
  let next: Uint8Array | null | undefined = from
  let hasRows = false
  do {
    await yielder.yieldIfDue()
    const page = await rows.readValues({ from: next, to })
    for (const valueText of page.values) reducer.add({ keyText: '', valueText })
    hasRows ||= page.values.length > 0
    next = page.next
  } while (next !== null)
  return hasRows
}

async function* pagesOf(rows: IndexReader, range: KeyRange): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  let { from } = range
  for (;;) {
    await yielder.yieldIfDue()
    const page = await rows.read({ from, to: range.to, isWhole: true }, STEP)
    const last = page.rows.at(-1)
    if (last === undefined) return
    yield page.rows
    if (!page.more) return
    from = rowAfter(last)
  }
}

/**
 * The reductions of the parts of a range, in order, without those that have no rows. Keeps those of whole buckets for
 * later queries.
 * @param reduce reduces a part; null if it has no rows @param atOnce how many parts are reduced at once
 */
async function* reductionsIn(
  rows: IndexReader,
  range: KeyRange,
  reduce: (part: KeyRange) => Promise<string | null>,
  atOnce: number,
): AsyncGenerator<string> {
  const yielder = new Yielder()
  let { from } = range
  for (;;) {
    const { ranges, more, version } = await rows.reducedRanges({ from, to: range.to }, RANGES)
    let kept: KeptReduction[] = []
    for (let at = 0; at < ranges.length; at += atOnce) {
      const some: { readonly part: ReducedRange; readonly reduced: Promise<string | null> }[] = []
      for (const part of ranges.slice(at, at + atOnce)) {
        await yielder.yieldIfDue()
        const reduced = part.reduction === null ? reduce(part.range) : Promise.resolve(part.reduction)
        // If an earlier one fails, nobody waits for this one.
        reduced.catch(() => undefined)
        some.push({ part, reduced })
      }
      for (const { part, reduced } of some) {
        const reduction = await reduced
        if (reduction === null) continue
        const { bucket } = part
        if (part.reduction === null && bucket !== null && !isOverflow(reduction))
          kept.push({ bucket, reduction })
        yield reduction
      }
      if (kept.length < KEPT) continue
      await rows.keepReductions(version, kept)
      kept = []
    }
    if (kept.length > 0) await rows.keepReductions(version, kept)
    from = ranges.at(-1)?.range.to
    if (!more || from === undefined) return
  }
}

/** In characters. CouchDB refuses a result that is longer than this and longer than half of its input. */
const MAX_RESULT = 5000

/** Reduces with a function of a design document: first in pieces, then the results of the pieces. */
export function functionGroups(rows: ViewRows, sandbox: Sandbox, fn: UserFunction): GroupReducer {
  const reducer = new FunctionReducer(sandbox, fn)
  return {
    async ofRows(groups): Promise<string[]> {
      const results = await reducer.reduce(groups)
      return results.map(memberOf)
    },
    ofRange: (range) =>
      inOneVersion(rows, async (reader) => {
        let results: string[] = []
        const reduce = (part: KeyRange) => reduceRange(reader, part)
        // One at a time: the functions of other callers are to have their turns.
        for await (const result of reductionsIn(reader, range, reduce, 1)) {
          if (isOverflow(result)) return result
          results.push(result)
          if (results.length === STEP) results = [await reducer.rereduce(results)]
        }
        return results.length === 0 ? null : memberOf(await reducer.rereduce(results))
      }),
  }

  async function reduceRange(reader: IndexReader, range: KeyRange): Promise<string | null> {
    const pages: (readonly IndexRow[])[] = []
    for await (const page of pagesOf(reader, range)) pages.push(page)
    if (pages.length === 0) return null
    const results = await reducer.reduce(pages)
    return results.find(isOverflow) ?? reducer.rereduce(results)
  }
}

function memberOf(result: string): string {
  return isOverflow(result) ? result : `"value":${result}`
}

const OVERFLOW = '"error":"reduce_overflow_error"'

/** No JSON text begins like this. */
function isOverflow(result: string): boolean {
  return result.startsWith(OVERFLOW)
}

class FunctionReducer {
  readonly #sandbox: Sandbox
  readonly #fn: UserFunction

  constructor(sandbox: Sandbox, fn: UserFunction) {
    this.#sandbox = sandbox
    this.#fn = fn
  }

  /** Reduces lists of at most {@link STEP} rows. @returns a JSON text for each, or the members of an overflow */
  async reduce(lists: readonly (readonly IndexRow[])[]): Promise<string[]> {
    const results = await this.#sandbox.reduce(
      this.#fn,
      lists.map((rows) => ({
        keys: listText(rows.map((row) => `[${row.keyText},${JSON.stringify(idOfRow(row))}]`)),
        values: listText(rows.map(({ valueText }) => valueText)),
        rereduce: false,
      })),
    )
    return results.map((result, at) => overflowOf(result, lists[at] as readonly IndexRow[]) ?? result)
  }

  /** @returns a JSON text */
  async rereduce(results: readonly string[]): Promise<string> {
    let rest = results
    while (rest.length > 1) {
      const calls: { keys: string; values: string; rereduce: boolean }[] = []
      for (let at = 0; at < rest.length; at += STEP) {
        calls.push({ keys: 'null', values: listText(rest.slice(at, at + STEP)), rereduce: true })
      }
      rest = await this.#sandbox.reduce(this.#fn, calls)
    }
    return rest[0] ?? 'null'
  }
}

function listText(texts: readonly string[]): string {
  return `[${texts.join(',')}]`
}

function overflowOf(result: string, rows: readonly IndexRow[]): string | null {
  if (result.length <= MAX_RESULT) return null
  const input = rows.reduce((sum, { valueText }) => sum + valueText.length, 0)
  if (result.length * 2 <= input) return null
  const reason = `Reduce output must shrink more rapidly: input size: ${input} output size: ${result.length}`
  return `${OVERFLOW},"reason":${JSON.stringify(reason)}`
}
