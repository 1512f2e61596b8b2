/** Loads documents and runs callbacks on them. A callback that reads something not loaded runs again after it is loaded. */
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import type { StoreView } from '../engine.ts'
import type { HistoryReadSet } from '../history-store.ts'
import type { Query, Run } from './connections.ts'
import type { ViewRow } from './database-view.ts'
import { bound, type Columns, documentStatement, type Source } from './document-statements.ts'
import { LoadPlan } from './load-plan.ts'
import {
  LoadedDocument,
  type LoadedRevision,
  NotLoaded,
  refusing,
  type WriteFacts,
} from './loaded-document.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { textOf } from './stored-text.ts'

/** A document to load, and what its reader declares. */
export interface LoadRequest {
  readonly id: string
  readonly readSet?: HistoryReadSet | undefined
  /** As of {@link PurgeUpdate}. */
  readonly salvages?: boolean | undefined
}

export type Called<R> = { readonly result: R } | { readonly error: unknown }

/** Documents whose missing parts one statement loads. */
const FILL_DOCS = 100
/** Bytes of bodies that it loads, unless the first is longer. */
const FILL_BYTES = 8 * 1024 * 1024
/** A callback that still misses something then never ends, or reads far more than it declares. */
const MAX_FILLS = 20_000
/** Documents that change so often while their missing parts are loaded. */
const MAX_TRIES = 20

/** What one statement has read. */
export interface Loaded {
  /** null if the database was deleted. */
  readonly view: ViewRow | null
  /** In the order of the result. */
  readonly docs: readonly LoadedDocument[]
  /** Whether another document follows the last, in a page. */
  readonly more: boolean | null
}

export interface LoadOptions {
  /** Runs the statement. */
  readonly run?: Run | undefined
  /** Bodies are read until they reach this; then `body` of the next documents is not loaded. */
  readonly bytes?: number | undefined
  readonly writeFacts?: boolean
  /** Whether it is for several readers, who wait for each other: then long bodies of several documents are not loaded. */
  readonly isShared?: boolean
}

export class DocumentLoader {
  readonly #database: OpenDatabase
  readonly #showsRetained: boolean

  /** @param showsRetained whether documents are read for the time machine */
  constructor(database: OpenDatabase, showsRetained = false) {
    this.#database = database
    this.#showsRetained = showsRetained
  }

  /**
   * Loads documents for a decision on each of them, all at one moment, with their {@link WriteFacts}, and calls `call` with each until it misses nothing.
   * @param call pure; an error that it throws is its outcome
   * @param run runs the statements; by default each is a read of its own
   * @returns the documents, and the outcomes of the last calls, in the order of `requests`
   * @throws no_database; as {@link Connections.read}; store_unavailable if the documents change all the time
   */
  async decide<R>(
    requests: readonly LoadRequest[],
    call: (doc: LoadedDocument | null, view: StoreView, place: number) => R,
    run: Run = (query) => this.#database.connections.read(query),
  ): Promise<{
    readonly view: StoreView
    readonly docs: readonly (LoadedDocument | null)[]
    readonly outcomes: readonly Called<R>[]
  }> {
    return this.loadAndCall(
      () => this.load(requests, { run, writeFacts: true }),
      ({ docs }, view, callEach) => {
        const byId = new Map(docs.map((doc) => [doc.id, doc]))
        for (const { id, salvages } of requests) if (salvages) byId.get(id)?.salvage()
        const placed = requests.map(({ id }) => byId.get(id) ?? null)
        return callEach(placed, (doc, place) => call(doc, view, place)).then((outcomes) => ({
          view,
          docs: placed,
          outcomes,
        }))
      },
      run,
    )
  }

  /**
   * Loads documents and calls back with them. Begins again if a document has changed before its missing parts were loaded.
   * @param use is given `callEach`, which calls back with each of the documents
   */
  async loadAndCall<T>(
    load: () => Promise<Loaded>,
    use: (loaded: Loaded, view: StoreView, callEach: CallEach) => Promise<T>,
    run: Run = (query) => this.#database.connections.read(query),
  ): Promise<T> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      try {
        return await this.#database.views.reading(
          async () => {
            const loaded = await load()
            return { view: loaded.view, rows: loaded }
          },
          (loaded, view) => use(loaded, view, (docs, call, chars) => this.#callEach(docs, call, run, chars)),
        )
      } catch (thrown) {
        if (!(thrown instanceof Moved)) throw thrown
      }
    }
    throw new CouchError('store_unavailable')
  }

  /** Loads documents with one statement. */
  async load(
    requests: readonly LoadRequest[],
    { run, bytes, writeFacts = false, isShared = false }: LoadOptions = {},
  ): Promise<Loaded> {
    const plan = new LoadPlan(writeFacts)
    for (const { id, readSet } of requests) plan.add(id, readSet)
    const isBounded = bytes !== undefined && plan.shape.content === 'body' && plan.ids.length > 1
    const statement = documentStatement(plan.source(isBounded, isShared), plan.shape)
    const own: Readonly<Record<string, unknown>> = { db: this.#database.db, bytes }
    const query = bound(statement, (name) => own[name] ?? plan.value(name))
    return this.decode(await (run ?? this.#read)(query), statement.columns, plan)
  }

  /** Loads documents of a page with one statement. @param values of the page */
  async loadPage(
    source: Source,
    readSet: HistoryReadSet | undefined,
    values: Readonly<Record<string, unknown>>,
  ): Promise<Loaded> {
    const plan = new LoadPlan()
    plan.addAll(readSet)
    const statement = documentStatement(source, plan.shape)
    const own: Readonly<Record<string, unknown>> = { ...values, db: this.#database.db }
    const query = bound(statement, (name) => own[name] ?? plan.value(name))
    return this.decode(await this.#read(query), statement.columns, plan)
  }

  readonly #read = (query: Query): Promise<Row[]> => this.#database.connections.read(query)

  /** Makes documents of the rows of a statement. */
  decode(rows: readonly Row[], columns: Columns, plan: LoadPlan): Loaded {
    const docs: LoadedDocument[] = []
    /** Made when a row of another revision comes. */
    let byId: Map<string, LoadedDocument> | undefined
    let view: ViewRow | null = null
    let more: boolean | null = null
    const sought = { leaves: plan.shape.leaves, superseded: plan.listsAll, versions: plan.versions }
    for (const row of rows) {
      if (row[0] === null) {
        view = row.slice(3, 7) as unknown as ViewRow
      } else if (row[3] === null) {
        byId ??= new Map(docs.map((doc) => [doc.id, doc]))
        byId.get(textOf(row[0] as string))?.add(revisionOf(row, columns, false))
      } else {
        const doc = this.#document(row, columns)
        doc.note(sought, plan.namedOf(doc.id))
        docs.push(doc)
        more = columns.next < 0 ? null : row[columns.next] === true
      }
    }
    return { view, docs, more }
  }

  #document(row: Row, columns: Columns): LoadedDocument {
    return new LoadedDocument(
      {
        id: textOf(row[0] as string),
        seq: row[3] as number,
        version: row[4] as number,
        firstSeq: row[5] as number,
        leaves: row[6] as number,
        checksum: row[7] as number | null,
        winner: revisionOf(row, columns, true),
        writeFacts: columns.writeFacts < 0 ? undefined : writeFactsOf(row, columns.writeFacts),
      },
      { database: this.#database, showsRetained: this.#showsRetained },
    )
  }

  /**
   * Calls with each document until nothing is missed.
   * @param chars the outcomes end with the document with which the bodies that were read reach this
   * @throws Moved
   */
  async #callEach<R>(
    docs: readonly (LoadedDocument | null)[],
    call: (doc: LoadedDocument | null, place: number) => R,
    run: Run,
    chars = Number.POSITIVE_INFINITY,
  ): Promise<Called<R>[]> {
    const outcomes: Called<R>[] = []
    const yielder = new Yielder()
    let left = chars
    for (let from = 0, fills = 0; ; fills++) {
      if (fills > MAX_FILLS) throw new RangeError(`A callback has missed ${MAX_FILLS} parts of documents.`)
      const missed: number[] = []
      for (let place = from; place < docs.length && missed.length < FILL_DOCS; place++) {
        const doc = docs[place] ?? null
        const outcome = called(doc, place, call)
        if (outcome === null) missed.push(place)
        else outcomes[place] = outcome
        if (missed.length === 0) left -= doc?.charsRead ?? 0
        if (left <= 0) return outcomes.slice(0, place + 1)
        if (yielder.isDue) await yielder.yieldNow()
      }
      if (missed.length === 0) return outcomes
      await this.#fill(
        missed.map((place) => docs[place] as LoadedDocument),
        run,
      )
      yielder.restart()
      // A call may depend on those before it, as decisions of a group of writes do.
      from = missed[0] as number
    }
  }

  /** Loads what the documents have missed. @throws Moved if one of them has changed */
  async #fill(docs: readonly LoadedDocument[], run: Run): Promise<void> {
    const distinct = [...new Set(docs)]
    const requests = distinct.map(({ id, missing }) => ({ id, readSet: missing }))
    const loaded = await this.load(requests, { run, bytes: FILL_BYTES })
    const byId = new Map(loaded.docs.map((doc) => [doc.id, doc]))
    for (const doc of distinct) if (!doc.merge(byId.get(doc.id) ?? null)) throw new Moved()
  }
}

/** Calls with each of the documents, in order, until the bodies that were read reach `chars`. */
export type CallEach = <R>(
  docs: readonly (LoadedDocument | null)[],
  call: (doc: LoadedDocument | null, place: number) => R,
  chars?: number,
) => Promise<Called<R>[]>

/** A document has changed between two statements that have read parts of it. */
class Moved extends Error {}

/** @returns null if something was missed */
function called<R>(
  doc: LoadedDocument | null,
  place: number,
  call: (doc: LoadedDocument | null, place: number) => R,
): Called<R> | null {
  try {
    return { result: call(doc === null || doc.isUsable ? doc : refusing(doc), place) }
  } catch (error) {
    if (error instanceof NotLoaded) return null
    return { error }
  }
}

function revisionOf(row: Row, columns: Columns, isWinner: boolean): LoadedRevision {
  const { content } = columns
  const body = content < 0 ? undefined : textAt(row, content + 2)
  return {
    rev: textOf(row[1] as string),
    deleted: row[2] as boolean,
    leaf: isWinner || row[6] === 1,
    retained: !isWinner && row[6] === 2,
    body: body === undefined ? undefined : textOf(body),
    attachments: content < 0 ? undefined : textAt(row, content),
    contentChecksum: content < 0 ? null : (row[content + 1] as number | null),
    ancestry: columns.ancestry < 0 ? undefined : ((row[columns.ancestry] as Uint8Array | null) ?? undefined),
    ancestryChecksum: columns.ancestry < 0 ? null : (row[columns.ancestry + 1] as number | null),
    ancestryBytes:
      columns.ancestryBytes < 0 ? undefined : ((row[columns.ancestryBytes] as number | null) ?? undefined),
    version: columns.versions < 0 ? undefined : versionOf(row, columns.versions),
  }
}

function textAt(row: Row, column: number): string | undefined {
  return (row[column] as string | null) ?? undefined
}

function writeFactsOf(row: Row, at: number): WriteFacts {
  type Facts = [size: number, bodyBytes: number, ancestryBytes: number, hasAttachments: boolean]
  const [size, bodyBytes, ancestryBytes, hasAttachments] = row.slice(at, at + 4) as Facts
  return { size, bodyBytes, ancestryBytes, hasAttachments }
}

function versionOf(row: Row, at: number) {
  const [place, storedAt, supersededAt, grownAt, size, attachments] = row.slice(at, at + 6)
  return {
    place: place as number,
    storedAt: storedAt as number | null,
    supersededAt: supersededAt as number | null,
    grownAt: grownAt as number | null,
    size: size as number,
    attachments: attachments as number,
  }
}
