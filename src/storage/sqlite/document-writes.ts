/** The writes of documents, with the resulting changes of the feed and the counters. */

import { agrees, type PurgeFacts, purgeChecksum } from '../checksum.ts'
import type { DamageReports } from '../damage.ts'
import type {
  ChangesRange,
  DatabaseStore,
  Decision,
  DocUpdate,
  Outcome,
  Page,
  Paging,
  PurgeInfo,
  PurgeUpdate,
  PurgeWrite,
  StoreView,
} from '../engine.ts'
import type { DocReadSet } from '../read-set.ts'
import { Attachments, Blobs } from './blobs.ts'
import type { Connection } from './connection.ts'
import { DamagedLeaves } from './damaged-leaves.ts'
import type { Plan } from './database-access.ts'
import { Documents, FeedCounts, Locals } from './documents.ts'
import { GarbageCounters, Superseded } from './garbage.ts'
import { fillPage, inFeedRange, PageBound } from './id-pages.ts'
import { Meta } from './meta.ts'
import { RememberedPoints } from './remembered-points.ts'
import { Revisions } from './revisions.ts'
import { State } from './state.ts'
import type { Statement } from './statement.ts'
import type { StoredDocument } from './stored-document.ts'

interface Dependencies {
  readonly documents: Documents
  readonly revisions: Revisions
  readonly feed: FeedCounts
  readonly state: State
  readonly garbage: GarbageCounters
  readonly damagedLeaves: DamagedLeaves
}

/** The approximate size of a purge, in bytes. */
const PURGE_BYTES = 1024

export class DocWrites {
  readonly #deps: Dependencies
  readonly #purges: Purges
  /**
   * Documents that the current group of writes will read. Each is used once, and every write takes its document from
   * here, so that a later read in the group sees the changes of an earlier write.
   */
  readonly #prefetched = new Map<string, StoredDocument | null>()

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, deps: Dependencies, now: () => number) {
    this.#deps = deps
    this.#purges = new Purges(connection, deps, now)
  }

  /** Reads the documents of a group with a single statement, which takes a fifth of the time of one for each. */
  prefetch(ids: readonly string[]): void {
    if (ids.length < 2) return
    const found = this.#deps.documents.byIds(ids, undefined)
    for (const [at, doc] of found.entries()) this.#prefetched.set(ids[at] as string, doc)
  }

  /** Drops the unused documents at the end of the transaction. */
  clearPrefetched(): void {
    this.#prefetched.clear()
  }

  #takePrefetched(id: string): StoredDocument | null {
    const expected = this.#prefetched.get(id)
    if (expected === undefined) return this.#deps.documents.byId(id)
    this.#prefetched.delete(id)
    return expected
  }

  update<R, N>(update: DocUpdate<R, N>): Plan<Outcome<R, N>> {
    const { id, bytes } = update
    const decide = () => {
      const doc = this.#takePrefetched(id)
      const decision = update.decide(doc, this.#deps.state.view)
      return () => this.#carryOut(id, doc, decision)
    }
    return { id, bytes, decide }
  }

  #carryOut<R, N>(id: string, doc: StoredDocument | null, decision: Decision<R, N>): Outcome<R, N> {
    if ('needs' in decision) return { needs: decision.needs }
    const { result, write } = decision
    if (write !== undefined) {
      const { documents, feed, state } = this.#deps
      const seq = write.sequenced || doc === null ? state.takeSeq() : doc.seq
      const effect = documents.write(id, doc, write, seq)
      if (seq !== effect.oldSeq) feed.move(effect.oldSeq, seq)
      state.count(effect, write.deleted)
      if (write.design) state.touchDesign()
    }
    return { result }
  }

  purge<R>(update: PurgeUpdate<R>): Plan<Outcome<R>> {
    const { id } = update
    const decide = () => {
      const doc = update.salvages ? this.#deps.documents.salvaged(id) : this.#takePrefetched(id)
      const { result, write } = update.decide(doc, this.#deps.state.view)
      return () => {
        if (doc !== null && write !== undefined) this.#purges.carryOut(doc, write)
        return { result }
      }
    }
    return { id, bytes: PURGE_BYTES, decide }
  }

  /** The remembered purges, oldest first. */
  purges(): PurgeInfo[] {
    return this.#purges.newest()
  }
}

type PurgedRow = NonNullable<ReturnType<Revisions['find']>>

type PurgeRow = PurgeFacts & { readonly checksum: number | null }

type PurgedDoc = NonNullable<ReturnType<Documents['byId']>>

/** Removes revisions as if they had never existed, and lists the removed ones; protocol.md 4.7. */
class Purges {
  readonly #deps: Dependencies
  readonly #now: () => number
  readonly #names: Statement<readonly [rev: string]>
  readonly #dropDoc: Statement
  readonly #note: Statement
  readonly #forget: Statement
  readonly #newest: Statement<PurgeRow>

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, deps: Dependencies, now: () => number) {
    this.#deps = deps
    this.#now = now
    this.#names = connection.prepareTuples('SELECT rev FROM revision WHERE doc = ?')
    this.#dropDoc = connection.prepare('DELETE FROM doc WHERE num = ?')
    this.#note = connection.prepare('INSERT INTO purge (seq, id, revs, checksum) VALUES (?, ?, ?, ?)')
    this.#forget = connection.prepare('DELETE FROM purge WHERE seq <= ?')
    this.#newest = connection.prepare('SELECT seq, id, revs, checksum FROM purge WHERE seq > ? ORDER BY seq')
  }

  /** Carries out the purge of a document, inside the transaction of the caller. */
  carryOut(doc: PurgedDoc, { purged, removed, rest, design }: PurgeWrite): void {
    const { state } = this.#deps
    if (rest === null) this.#forgetDoc(doc)
    else this.#keep(doc, removed, rest)
    if (design) state.touchDesign()
    const seq = state.takePurgeSeq()
    const { id } = doc
    const revs = JSON.stringify(purged)
    this.#note.run(seq, id, revs, purgeChecksum({ seq, id, revs }))
    this.#forget.run(seq - state.view.purgedInfosLimit)
  }

  #forgetDoc(doc: PurgedDoc): void {
    const { feed, state } = this.#deps
    const names = this.#names.all(doc.num).map(([rev]) => rev)
    const freed = this.#drop(doc.num, this.#rowsOf(doc.num, names))
    this.#dropDoc.run(doc.num)
    feed.move(doc.seq, null)
    state.uncount(doc.deleted, freed)
  }

  #keep(doc: PurgedDoc, removed: readonly string[], rest: NonNullable<PurgeWrite['rest']>): void {
    const { documents, feed, revisions, state } = this.#deps
    // Otherwise the document would seem not to have existed while one of the removed revisions was its winner.
    revisions.noteLoss(this.#now())
    const freed = this.#drop(doc.num, this.#rowsOf(doc.num, removed))
    const seq = rest.sequenced ? state.takeSeq() : doc.seq
    const { id, num, rev, deleted } = doc
    // The next read counts the leaves and looks up the winner's row.
    const old = { num, seq: doc.seq, rev, deleted, leaves: 0, winner: null }
    const effect = documents.write(id, old, rest, seq)
    if (seq !== doc.seq) feed.move(doc.seq, seq)
    state.count({ ...effect, externalBytes: effect.externalBytes - freed }, rest.deleted)
  }

  /** @throws damaged_document if the index names a row of another revision */
  #rowsOf(doc: number, names: readonly string[]): PurgedRow[] {
    return names.flatMap((rev) => this.#deps.revisions.find(doc, rev) ?? [])
  }

  /** Removes revisions with their attachments. @returns the bytes of the leaves among them */
  #drop(doc: number, rows: readonly PurgedRow[]): number {
    let freed = 0
    for (const { num, rev, leaf, size, bytes } of rows) {
      this.#deps.revisions.drop(num)
      this.#deps.damagedLeaves.forget(doc, rev)
      this.#deps.garbage.addUnreferenced(size - bytes)
      freed += leaf * size
    }
    return freed
  }

  /** The remembered purges, oldest first. A damaged one is as if it had been forgotten. */
  newest(): PurgeInfo[] {
    const { purgeSeq, view } = this.#deps.state
    return this.#newest
      .all(purgeSeq - view.purgedInfosLimit)
      .filter((row) => agrees(row.checksum, purgeChecksum(row), false))
      .map(({ seq, id, revs }) => ({ seq, id, revs: JSON.parse(revs) as string[] }))
  }
}

export type Tables = ReturnType<typeof openTables>

interface TablesOptions {
  /** The time, in ms since 1970; by default the system clock. */
  readonly now?: () => number
  /** Gets what does not say what was written. */
  readonly damage: DamageReports
  /** Called with each damaged leaf that was not known. */
  readonly onDamagedLeaf?: () => void
  /** See {@link State}. */
  readonly closedAt?: string | undefined
  /** By default {@link Revisions}. */
  readonly RevisionTable?: typeof Revisions
}

/** Opens the tables of one file. */
export function openTables(connection: Connection, options: TablesOptions) {
  const {
    now = Date.now,
    damage,
    onDamagedLeaf = () => undefined,
    closedAt,
    RevisionTable = Revisions,
  } = options
  const meta = new Meta(connection)
  const garbage = new GarbageCounters(meta)
  const state = new State(connection, meta, damage, garbage, closedAt)
  const damagedLeaves = new DamagedLeaves(connection, meta, now, onDamagedLeaf)
  const blobs = new Blobs(connection, damage, garbage, damagedLeaves)
  const attachments = new Attachments(connection, blobs, damage, garbage, damagedLeaves)
  const superseded = new Superseded(connection, garbage)
  const revisions = new RevisionTable(connection, { attachments, superseded, garbage, damage, damagedLeaves })
  const documents = new Documents(connection, revisions, now)
  const feed = new FeedCounts(connection)
  const locals = new Locals(connection, damage, garbage)
  const points = new RememberedPoints(connection, now)
  return {
    meta,
    state,
    garbage,
    damagedLeaves,
    blobs,
    attachments,
    superseded,
    revisions,
    documents,
    feed,
    locals,
    points,
  }
}

/** As {@link DatabaseStore.readChanges}, in one state of the file. @throws SqliteError, damaged_file, what `read` throws */
export function readChanges<R>(
  { documents, state }: Pick<Tables, 'documents' | 'state'>,
  range: ChangesRange,
  paging: Paging,
  read: (doc: StoredDocument, view: StoreView) => R,
): Page<R> {
  const { view } = state
  const { since, before = Number.MAX_SAFE_INTEGER, descending = false } = range
  const page = fillPage<StoredDocument, R>(
    paging,
    (last, limit) => {
      const above = last === null || descending ? since : last.seq
      const below = last !== null && descending ? last.seq : before
      return documents.inFeed(above, below, descending, limit, paging.readSet)
    },
    inFeedRange(since, before, descending),
    (doc) => read(doc, view),
    (doc) => doc.charsRead,
  )
  return { ...page, view }
}

/** Documents that one query reads by id, without and with their bodies. */
const READ_ROWS = 100
const READ_BODIES = 20

/** As {@link DatabaseStore.readDocs}, in one state of the file. @throws SqliteError, damaged_document, what `read` throws */
export function readDocs<R>(
  { documents, state }: Pick<Tables, 'documents' | 'state'>,
  ids: readonly string[],
  read: (doc: StoredDocument | null, id: string, view: StoreView, place: number) => R,
  readSet: DocReadSet | undefined,
  chars: number | undefined,
): R[] {
  const { view } = state
  const results: R[] = []
  const bound = new PageBound(chars)
  const step = readSet?.body ? READ_BODIES : READ_ROWS
  for (let at = 0; at < ids.length; at += step) {
    const some = ids.slice(at, at + step)
    const docs = documents.byIds(some, readSet)
    bound.begin()
    for (const [n, doc] of docs.entries()) {
      results.push(read(doc, some[n] as string, view, at + n))
      if (bound.isReached(doc?.charsRead ?? 0)) return results
    }
  }
  return results
}
