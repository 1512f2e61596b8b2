/**
 * The views of one design document, held in memory in their order and brought up to date from the feed when they are
 * asked for. CouchDB's order of strings is ICU's, which no index of the store can follow (docs/decisions/0003).
 */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import { renderDocument } from '../documents/render.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import { type Compare, compareRaw } from './collation.ts'
import { mergeSorted, Runs, rowOrder, sortInSteps, type ViewRow } from './view-rows.ts'

/** Documents, and characters of documents, that go to the map functions at a time. */
const PAGE_DOCS = 250
const PAGE_CHARS = 1024 * 1024
/** What a row weighs beside its texts. */
const ROW_BYTES = 200

/** One view's definition. */
export interface ViewDefinition {
  readonly name: string
  readonly map: UserFunction
}

interface ViewOptions {
  /** Design documents are mapped too. */
  readonly includeDesign: boolean
  /** Documents carry `_local_seq`. */
  readonly localSeq: boolean
  readonly order: Compare
}

/** A document that is to be mapped; null: it is gone, or not for views. */
interface Candidate {
  readonly id: string
  readonly seq: number
  readonly text: string | null
}

/** Rows of all documents of one refresh, sorted as they come. */
interface Gathered {
  /** Where each document was met last: one that is written meanwhile is met twice. */
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

  /** @param maxBytes about what its rows may weigh, now */
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

  /** About what it weighs. */
  get bytes(): number {
    return this.#bytes
  }

  /** Up to which update of the database it goes. */
  get seq(): number {
    return this.#seq
  }

  get isRefreshing(): boolean {
    return this.#refreshing !== undefined
  }

  /** A view's rows as they are now; the list never changes. */
  rows(view: string): readonly ViewRow[] {
    return this.#rows.get(view) ?? []
  }

  /**
   * Takes in all that was written before the call.
   * @throws view_too_large, and as the sandbox
   */
  async refresh(): Promise<void> {
    // What is under way may have read past a write that the caller has seen answered.
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
    if (purgeSeq !== this.#purgeSeq) this.#forget(purgeSeq)
    if (updateSeq === this.#seq) return
    const gathered: Gathered = { seqs: new Map(), runs: new Map() }
    for (const { name } of this.#definitions) gathered.runs.set(name, new Runs(rowOrder(this.#options.order)))
    let weight = this.#bytes
    let since = this.#seq
    for (let more = true; more; ) {
      const page = await this.#page(since)
      weight += await this.#map(page.docs, gathered)
      if (weight > this.#maxBytes()) throw new CouchError('view_too_large')
      since = page.end
      more = page.more
    }
    await this.#take(gathered, since)
  }

  /** A purge leaves no row in the feed: what was gathered of the documents is not to be trusted. */
  #forget(purgeSeq: number): void {
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
    // As couch_mrview opens them for map functions.
    return renderDocument(doc, doc.rev, { localSeq, conflicts: true, deletedConflicts: true })
  }

  /** @returns about what the new rows weigh */
  async #map(docs: readonly Candidate[], { seqs, runs }: Gathered): Promise<number> {
    for (const { id, seq } of docs) seqs.set(id, seq)
    const live = docs.filter((doc): doc is Candidate & { text: string } => doc.text !== null)
    if (live.length === 0) return 0
    const texts = live.map(({ text }) => text)
    let weight = 0
    for (const { name, map } of this.#definitions) {
      const emitted = await this.#sandbox.map(map, texts)
      const rows: ViewRow[] = []
      for (const [at, doc] of live.entries()) {
        for (const row of await rowsOf(doc, emitted[at] as string)) rows.push(row)
      }
      for (const { keyText, valueText } of rows) weight += keyText.length + valueText.length + ROW_BYTES
      await runs.get(name)?.add(await sortInSteps(rows, rowOrder(this.#options.order)))
    }
    return weight
  }

  async #take({ seqs, runs }: Gathered, seq: number): Promise<void> {
    const rows = new Map<string, readonly ViewRow[]>()
    for (const [name, run] of runs) {
      const kept = await filtered(this.rows(name), ({ id }) => !seqs.has(id))
      const added = await filtered(await run.all(), (row) => seqs.get(row.id) === row.seq)
      rows.set(name, await mergeSorted(kept, added, rowOrder(this.#options.order)))
    }
    this.#rows = rows
    this.#seq = seq
    this.#bytes = 0
    for (const list of rows.values()) this.#bytes += await weightOf(list)
  }
}

/** What a map function has emitted for one key and value. */
type Emitted = readonly [key: unknown, value: unknown]

/** As couch_mrview_updater sorts what one document emits: in Erlang's order of terms, and so equal keys by their values. */
function compareEmitted([key, value]: Emitted, [otherKey, otherValue]: Emitted): number {
  return compareRaw(key, otherKey) || compareRaw(value, otherValue)
}

/** The list of `[key, value]` that a map function has emitted for a document, as rows. */
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

// The view indexes that a thread holds: what they weigh together is bounded, and the least recently used goes first.

interface Held {
  readonly owner: object
  readonly index: ViewIndex
}

export class ViewMemory {
  readonly #maxBytes: () => number
  /** Least recently used first. */
  readonly #held = new Map<string, Held>()

  /** @param maxBytes what all indexes may weigh together, and so what one may; asked anew each time */
  constructor(maxBytes: () => number) {
    this.#maxBytes = maxBytes
  }

  get maxBytes(): number {
    return this.#maxBytes()
  }

  /**
   * An index, made if it is not there.
   * @param owner whose it is: the open database
   * @param key says whose it is and which
   */
  use(owner: object, key: string, make: () => ViewIndex): ViewIndex {
    const held = this.#held.get(key)
    const index = held?.owner === owner ? held.index : make()
    this.#held.delete(key)
    this.#held.set(key, { owner, index })
    return index
  }

  /** Lets go of indexes, the least recently used first, until the rest fits. To be called when one has grown. */
  trim(): void {
    let bytes = 0
    for (const { index } of this.#held.values()) bytes += index.bytes
    for (const [key, { index }] of this.#held) {
      if (bytes <= this.maxBytes) return
      bytes -= index.bytes
      this.#held.delete(key)
    }
  }

  /** What a database's indexes weigh. */
  bytesOf(owner: object): number {
    let bytes = 0
    for (const held of this.#held.values()) if (held.owner === owner) bytes += held.index.bytes
    return bytes
  }

  /** Lets go of a database's indexes: it is closed. */
  forget(owner: object): void {
    for (const [key, held] of this.#held) if (held.owner === owner) this.#held.delete(key)
  }
}
