/**
 * The sorted rows of the views of one design document. They are kept in memory and updated from the feed by each query.
 * CouchDB orders strings by ICU's collation, which no index of the store can provide (docs/decisions/0003).
 */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import { renderDocument } from '../documents/render.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import { type Compare, compareRaw } from './collation.ts'
import { mergeSorted, Runs, rowOrder, sortInSteps, type ViewRow } from './view-rows.ts'

/** The maximum number of documents, and of their characters, that one call passes to the map functions. */
const PAGE_DOCS = 250
const PAGE_CHARS = 1024 * 1024
/** The memory that a row takes in addition to its texts, in bytes. */
const ROW_BYTES = 200

export interface ViewDefinition {
  readonly name: string
  readonly map: UserFunction
  /** The order of its keys. */
  readonly order: Compare
}

interface ViewOptions {
  /** Whether design documents are also mapped. */
  readonly includeDesign: boolean
  /** Whether documents have `_local_seq`. */
  readonly localSeq: boolean
}

/** A document from the feed. `text` is null if the document is deleted or is not mapped. */
interface Candidate {
  readonly id: string
  readonly seq: number
  readonly text: string | null
}

/** The new rows of a refresh. */
interface NewRows {
  /** The last sequence number of each document. A document that is written during the refresh appears twice. */
  readonly seqs: Map<string, number>
  readonly runs: Map<string, Runs<ViewRow>>
}

export class ViewIndex {
  readonly #store: DatabaseStore
  readonly #sandbox: Sandbox
  readonly #definitions: readonly ViewDefinition[]
  readonly #options: ViewOptions
  readonly #maxBytes: () => number
  #rows = new Map<string, readonly ViewRow[]>()
  #seq = 0
  #purgeSeq = 0
  #bytes = 0
  #refreshing: Promise<void> | undefined

  /** @param maxBytes returns the current limit on the memory of all rows */
  constructor(
    store: DatabaseStore,
    sandbox: Sandbox,
    definitions: readonly ViewDefinition[],
    options: ViewOptions,
    maxBytes: () => number,
  ) {
    this.#store = store
    this.#sandbox = sandbox
    this.#definitions = definitions
    this.#options = options
    this.#maxBytes = maxBytes
  }

  /** The approximate memory of all rows. */
  get bytes(): number {
    return this.#bytes
  }

  /** The sequence number of the last update that the rows include. */
  get seq(): number {
    return this.#seq
  }

  get isRefreshing(): boolean {
    return this.#refreshing !== undefined
  }

  /** The current rows of a view. The list is never changed, only replaced. */
  rows(view: string): readonly ViewRow[] {
    return this.#rows.get(view) ?? []
  }

  /**
   * Includes everything that was written before the call.
   * @throws view_too_large, and the errors of the sandbox
   */
  async refresh(): Promise<void> {
    // A refresh under way may have missed a write that the caller already knows.
    while (this.#refreshing !== undefined) await this.#refreshing.catch(() => undefined)
    this.#refreshing = this.#refresh()
    try {
      await this.#refreshing
    } finally {
      this.#refreshing = undefined
    }
  }

  async #refresh(): Promise<void> {
    const { purgeSeq, updateSeq } = await this.#store.info()
    if (purgeSeq !== this.#purgeSeq) this.#reset(purgeSeq)
    if (updateSeq === this.#seq) return
    const newRows: NewRows = { seqs: new Map(), runs: new Map() }
    for (const { name, order } of this.#definitions) newRows.runs.set(name, new Runs(rowOrder(order)))
    let weight = this.#bytes
    let since = this.#seq
    for (let more = true; more; ) {
      const page = await this.#page(since)
      weight += await this.#map(page.docs, newRows)
      if (weight > this.#maxBytes()) throw new CouchError('view_too_large')
      since = page.end
      more = page.more
    }
    await this.#merge(newRows, since)
  }

  /** Starts over after a purge, which does not appear in the feed. */
  #reset(purgeSeq: number): void {
    this.#rows = new Map()
    this.#seq = 0
    this.#bytes = 0
    this.#purgeSeq = purgeSeq
  }

  async #page(since: number): Promise<{ docs: readonly Candidate[]; end: number; more: boolean }> {
    let chars = 0
    let end = since
    const page = await this.#store.readChanges(
      { since },
      { limit: PAGE_DOCS, touches: { body: true, branches: true }, enough: () => chars > PAGE_CHARS },
      (doc) => {
        end = doc.seq
        const text = this.#textOf(doc)
        chars += text?.length ?? 0
        return { id: doc.id, seq: doc.seq, text }
      },
    )
    return { docs: page.rows, end: page.more ? end : page.view.updateSeq, more: page.more }
  }

  #textOf(doc: DocState): string | null {
    const { includeDesign, localSeq } = this.#options
    if (doc.deleted || (isDesignId(doc.id) && !includeDesign)) return null
    // The options with which couch_mrview opens documents for map functions.
    return renderDocument(doc, doc.rev, { localSeq, conflicts: true, deletedConflicts: true })
  }

  /** @returns the approximate memory of the new rows, in bytes */
  async #map(docs: readonly Candidate[], { seqs, runs }: NewRows): Promise<number> {
    for (const { id, seq } of docs) seqs.set(id, seq)
    const live = docs.filter((doc): doc is Candidate & { text: string } => doc.text !== null)
    if (live.length === 0) return 0
    const texts = live.map(({ text }) => text)
    let weight = 0
    for (const { name, map, order } of this.#definitions) {
      const emitted = await this.#sandbox.map(map, texts)
      const rows: ViewRow[] = []
      for (const [at, doc] of live.entries()) {
        for (const row of await rowsOf(doc, emitted[at] as string)) rows.push(row)
      }
      for (const { keyText, valueText } of rows) weight += keyText.length + valueText.length + ROW_BYTES
      await runs.get(name)?.add(await sortInSteps(rows, rowOrder(order)))
    }
    return weight
  }

  async #merge({ seqs, runs }: NewRows, seq: number): Promise<void> {
    const rows = new Map<string, readonly ViewRow[]>()
    for (const { name, order } of this.#definitions) {
      const kept = await filtered(this.rows(name), ({ id }) => !seqs.has(id))
      const all = (await runs.get(name)?.all()) ?? []
      const added = await filtered(all, (row) => seqs.get(row.id) === row.seq)
      rows.set(name, await mergeSorted(kept, added, rowOrder(order)))
    }
    this.#rows = rows
    this.#seq = seq
    this.#bytes = 0
    for (const list of rows.values()) this.#bytes += await weightOf(list)
  }
}

type Emitted = readonly [key: unknown, value: unknown]

/**
 * The order of the pairs of one document in couch_mrview_updater: Erlang's order of terms, first of keys, then of
 * values.
 */
function compareEmitted([key, value]: Emitted, [otherKey, otherValue]: Emitted): number {
  return compareRaw(key, otherKey) || compareRaw(value, otherValue)
}

/** Turns the pairs that a map function has emitted for a document into rows. @param emitted a JSON list of pairs */
async function rowsOf({ id, seq }: Candidate, emitted: string): Promise<ViewRow[]> {
  if (emitted === '[]') return []
  const pairs = await sortInSteps(JSON.parse(emitted) as Emitted[], compareEmitted)
  return pairs.map(([key, value]) => ({
    id,
    seq,
    key,
    keyText: JSON.stringify(key),
    valueText: JSON.stringify(value),
  }))
}

async function filtered(
  rows: readonly ViewRow[],
  isWanted: (row: ViewRow) => boolean,
): Promise<readonly ViewRow[]> {
  const kept: ViewRow[] = []
  const yielder = new Yielder()
  for (const [at, row] of rows.entries()) {
    if (at % 1024 === 0) await yielder.yieldIfDue()
    if (isWanted(row)) kept.push(row)
  }
  return kept
}

async function weightOf(rows: readonly ViewRow[]): Promise<number> {
  let weight = 0
  const yielder = new Yielder()
  for (const [at, { keyText, valueText }] of rows.entries()) {
    if (at % 1024 === 0) await yielder.yieldIfDue()
    weight += keyText.length + valueText.length + ROW_BYTES
  }
  return weight
}

interface CachedIndex {
  readonly owner: object
  readonly index: ViewIndex
}

/**
 * A cache of the view indexes of a thread, limited by their total memory. It evicts the least recently used index
 * first.
 */
export class ViewMemory {
  readonly #maxBytes: () => number
  /** Least recently used first. */
  readonly #indexes = new Map<string, CachedIndex>()

  /** @param maxBytes returns the current limit on the memory of all indexes, which is also the limit of each one */
  constructor(maxBytes: () => number) {
    this.#maxBytes = maxBytes
  }

  get maxBytes(): number {
    return this.#maxBytes()
  }

  /**
   * Returns the index with a key, and creates it if necessary.
   * @param owner the open database
   * @param key identifies the database and the index
   */
  use(owner: object, key: string, make: () => ViewIndex): ViewIndex {
    const cached = this.#indexes.get(key)
    const index = cached?.owner === owner ? cached.index : make()
    this.#indexes.delete(key)
    this.#indexes.set(key, { owner, index })
    return index
  }

  /** Removes the least recently used indexes until the others fit. Call it when an index has grown. */
  trim(): void {
    let bytes = 0
    for (const { index } of this.#indexes.values()) bytes += index.bytes
    for (const [key, { index }] of this.#indexes) {
      if (bytes <= this.maxBytes) return
      bytes -= index.bytes
      this.#indexes.delete(key)
    }
  }

  /** The memory of the indexes of a database, in bytes. */
  bytesOf(owner: object): number {
    let bytes = 0
    for (const cached of this.#indexes.values()) if (cached.owner === owner) bytes += cached.index.bytes
    return bytes
  }

  /** Removes the indexes of a database that is closed. */
  forget(owner: object): void {
    for (const [key, cached] of this.#indexes) if (cached.owner === owner) this.#indexes.delete(key)
  }
}
