/** A database in one SQLite file: implements the contract of storage/engine.ts with the tables of schema.ts. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { CouchError } from '../../core/errors.ts'
import type { BlobReference, BlobUpload } from '../blob-leases.ts'
import type { CommitTally } from '../commit-tally.ts'
import type {
  ChangesRange,
  DamagedLeaf,
  DocState,
  DocUpdate,
  ForkedPage,
  IdRange,
  LocalDoc,
  LocalUpdate,
  Outcome,
  Page,
  Paging,
  PurgeInfo,
  PurgeUpdate,
  RangeSizes,
  SettingsChange,
  StoreInfo,
  StoreProgress,
  StoreView,
} from '../engine.ts'
import type { VersionedStore } from '../history-store.ts'
import type { DocReadSet } from '../read-set.ts'
import type { Epoch, LastKnownSequence } from '../sequence.ts'
import type { StoreEvent } from '../store-events.ts'
import type { RememberedPoint } from '../token-position.ts'
import type { CompactOptions, GarbageCounts, StoreSizes } from '../upkeep.ts'
import { Compaction } from './compaction.ts'
import type { Connection } from './connection.ts'
import {
  Checkpointer,
  DatabaseAccess,
  type DiskWatch,
  FileErrors,
  PageCache,
  type PageCaches,
} from './database-access.ts'
import { DocWrites, openTables, readChanges, readDocs, type Tables } from './document-writes.ts'
import { type FoundLocal, SMALL_WRITE } from './documents.ts'
import { ForkedDocuments } from './forked-documents.ts'
import { History } from './history-reader.ts'
import { fillPage, type IsInPlace, inIdRange } from './id-pages.ts'
import { repairMeta } from './meta-repair.ts'
import { countRange, skipRange } from './range-counts.ts'
import { measureRange } from './range-sizes.ts'
import { markRestoredIfRolledBack } from './restored-mark.ts'
import { Sizes } from './size-counters.ts'
import type { ClosedPositions } from './state.ts'
import type { StoredDocument } from './stored-document.ts'
import { References, Uploads } from './uploads.ts'
import { Writer } from './writer.ts'

/** Remembered tokens that are read or written in one turn, and about how many bytes one takes. */
const POINTS = 200
const POINT_BYTES = 400

interface StoreOptions {
  /** The connection to the file, which has the newest schema. The store closes it. */
  readonly connection: Connection
  readonly watch?: DiskWatch | undefined
  /** The caches of the thread. */
  readonly caches: PageCaches
  /** Counts the commits of the thread's databases. */
  readonly tally?: CommitTally | undefined
  /** The time, in ms since 1970. */
  now(): number
  /** The databases that the engine has closed. */
  readonly closed: ClosedPositions
  /** The last known sequence of the database. */
  readonly lastKnown?: LastKnownSequence | undefined
  onClosed(): void
}

export class SqliteStore implements VersionedStore {
  readonly history: History
  readonly wasRolledBack: boolean
  readonly needsDevices: boolean
  readonly damageAtOpening: CouchError | null
  readonly partitioned: boolean
  readonly shards: number
  readonly #name: string
  readonly #connection: Connection
  readonly #tables: Tables
  readonly #references = new References()
  readonly #uploads: Uploads
  readonly #sizes: Sizes
  readonly #docWrites: DocWrites
  readonly #forked: ForkedDocuments
  readonly #access: DatabaseAccess
  readonly #compaction: Compaction
  readonly #checkpointer: Checkpointer
  readonly #listeners: ((event: StoreEvent) => void)[] = []
  readonly #options: StoreOptions
  readonly #cache: PageCache
  #closing: Promise<void> | undefined

  /** Takes over an open file. @throws SqliteError when it cannot be read, and closes it */
  constructor(name: string, path: string, options: StoreOptions) {
    this.#name = name
    this.#options = options
    this.#connection = options.connection
    this.#cache = new PageCache(this.#connection, options.caches)
    const errors = new FileErrors(name, options.watch)
    try {
      const { lastKnown } = options
      const wasMended = repairMeta(this.#connection, { lastKnown, now: options.now() })
      this.damageAtOpening = wasMended ? errors.damagedCounters() : null
      this.wasRolledBack = markRestoredIfRolledBack(this.#connection, lastKnown, options.now())
      this.#tables = openTables(this.#connection, {
        now: options.now,
        damage: errors,
        onDamagedLeaf: () => void this.#noteDamagedLeaf(),
        closedAt: options.closed.get(name),
      })
    } catch (error) {
      this.#connection.close()
      throw error
    }
    const { state, garbage, feed, damagedLeaves } = this.#tables
    this.needsDevices = damagedLeaves.areNewSince(state.restoredAt)
    this.partitioned = state.partitioned
    this.shards = state.shards
    this.#docWrites = new DocWrites(this.#connection, this.#tables, options.now)
    this.#forked = new ForkedDocuments(this.#connection, this.#tables.revisions)
    const memory = {
      prefetch: (ids: readonly string[]) => this.#docWrites.prefetch(ids),
      flush: () => {
        feed.flush()
        state.flush()
        garbage.flush()
        damagedLeaves.flush()
      },
      committed: (writes: number, ms: number) => this.#committed(writes, ms),
      rollBack: () => this.#rollBack(),
    }
    const access = new DatabaseAccess(new Writer(this.#connection, memory, errors), this.#cache, errors)
    this.#access = access
    this.#checkpointer = new Checkpointer(this.#connection, access)
    this.#uploads = new Uploads(access, this.#tables.blobs, this.#references)
    this.#uploads.sweep()
    const deps = { ...this.#tables, access, references: this.#references, now: options.now }
    this.history = new History(this.#connection, deps)
    this.#compaction = new Compaction(this.#connection, deps)
    this.#sizes = new Sizes(this.#connection, path, { access, state, garbage })
  }

  #committed(writes: number, ms: number): void {
    this.#docWrites.clearPrefetched()
    this.#tables.feed.clearChanges()
    const updates = this.#tables.state.committed()
    this.#tables.garbage.committed()
    this.#tellRestored(this.#tables.damagedLeaves.committed())
    this.#options.tally?.add(writes, updates, ms)
    if (updates > 0) this.#tell(updates)
    this.#checkpointer.committed()
  }

  /** Writes the leaves that were noted, before anybody asks devices for them. */
  async #noteDamagedLeaf(): Promise<void> {
    try {
      await this.#access.writeOne(SMALL_WRITE, () => undefined)
      this.#options.watch?.onDamagedLeaf?.(this.#name)
    } catch {
      // They are noted again when they are read again.
    }
  }

  #tellRestored(leaves: number): void {
    if (leaves === 0) return
    this.#options.watch?.onRestored?.(this.#name, leaves, this.#tables.damagedLeaves.size)
  }

  #tell(updates: number): void {
    const { updateSeq, epochs } = this.#tables.state.view
    const { id } = epochs.at(-1) as Epoch
    const event = { type: 'committed', updateSeq, epoch: id, updates } as const
    for (const listener of this.#listeners) listener(event)
  }

  #rollBack(): void {
    this.#docWrites.clearPrefetched()
    this.#tables.feed.clearChanges()
    this.#tables.state.restore()
    this.#tables.garbage.restore()
    this.#tables.damagedLeaves.restore()
  }

  async info(): Promise<StoreInfo> {
    return this.#access.read(() => {
      const { view, purgeSeq, createdAt } = this.#tables.state
      const compacting = this.#compaction.isRunning
      return { ...view, purgeSeq, compacting, name: this.#name, createdAt, sizes: this.#sizes.info() }
    })
  }

  async view(): Promise<StoreView> {
    return this.#access.read(() => this.#tables.state.view)
  }

  async progress(): Promise<StoreProgress> {
    const { state } = this.#tables
    return this.#access.read(() => ({ ...state.view, purgeSeq: state.purgeSeq }))
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ): Promise<R[]> {
    return this.#access.read(() => readDocs(this.#tables, ids, read, readSet, chars))
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    const isInRange = inIdRange(range)
    return this.#page<StoredDocument, R>(
      paging,
      (last, limit) => this.#tables.documents.inRange(after(last, range), limit, paging.readSet),
      (doc, last) => !doc.deleted && isInRange(doc, last),
      read,
      (doc) => doc.charsRead,
    )
  }

  async readChanges<R>(
    range: ChangesRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#access.read(() => readChanges(this.#tables, range, paging, read))
  }

  /** A page, and the view of the same state. */
  #page<Source extends { readonly isDamaged?: boolean }, R>(
    paging: Paging,
    fetch: (last: Source | null, limit: number) => Iterable<Source>,
    isInPlace: IsInPlace<Source>,
    read: (row: Source, view: StoreView) => R,
    charsOf: (row: Source) => number,
  ): Page<R> {
    return this.#access.read(() => {
      const { view } = this.#tables.state
      return { ...fillPage(paging, fetch, isInPlace, (row) => read(row, view), charsOf), view }
    })
  }

  async countRange(range: IdRange): Promise<number> {
    return countRange(this.#access, this.#tables, range)
  }

  async skipRange(range: IdRange, documents: number): Promise<IdRange | null> {
    return skipRange(this.#access, this.#tables, range, documents)
  }

  async measureRange(range: IdRange): Promise<RangeSizes> {
    return measureRange(this.#connection, this.#access, range.descending ? swapped(range) : range)
  }

  async countChanges(seq: number): Promise<number> {
    return this.#access.read(() => this.#tables.feed.above(seq))
  }

  async readForked<R>(
    after: number,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<ForkedPage<R>> {
    return this.#access.read(() => {
      const { view } = this.#tables.state
      return { ...this.#forked.search(after, paging, (doc) => read(doc, view)), view }
    })
  }

  async damagedLeaves(): Promise<readonly DamagedLeaf[]> {
    return this.#access.read(() => this.#tables.damagedLeaves.list())
  }

  async countAttachments(most: number): Promise<number> {
    return this.#access.read(() => this.#tables.attachments.count(most))
  }

  async readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    return this.#access.read(() => this.#tables.blobs.read(blob, offset, length))
  }

  async referenceBlob(blob: number): Promise<BlobReference | null> {
    return this.#uploads.reference(blob)
  }

  async uploadBlob(): Promise<BlobUpload> {
    return this.#uploads.begin()
  }

  async updateDocs<R, N = never>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]> {
    return this.#access.write(updates.map((update) => this.#docWrites.update(update)))
  }

  async purgeDocs<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#access.write(updates.map((update) => this.#docWrites.purge(update)))
  }

  async readPurges(): Promise<PurgeInfo[]> {
    return this.#access.read(() => this.#docWrites.purges())
  }

  async compact(options: CompactOptions = {}): Promise<void> {
    return this.#compaction.run(options)
  }

  async garbage(): Promise<GarbageCounts> {
    this.#access.refuseIfClosed()
    return this.#sizes.garbage()
  }

  async sizes(): Promise<StoreSizes> {
    return this.#sizes.count()
  }

  async readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    return this.#access.read(() => ids.map((id) => this.#tables.locals.byId(id)))
  }

  async readLocalRange(range: IdRange, paging: Paging): Promise<Page<LocalDoc>> {
    return this.#page<FoundLocal, LocalDoc>(
      paging,
      (last, limit) => this.#tables.locals.inRange(after(last, range), limit),
      inIdRange(range),
      (doc) => doc,
      ({ body }) => body.length,
    )
  }

  async countLocals(range: IdRange): Promise<number> {
    return this.#access.read(() => this.#tables.locals.count(range.descending ? swapped(range) : range))
  }

  async updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    const { locals, state } = this.#tables
    return this.#access.write(updates.map((update) => locals.plan(update, () => state.view)))
  }

  async rememberPoints(points: readonly RememberedPoint[]): Promise<void> {
    for (let at = 0; at < points.length; at += POINTS) {
      const some = points.slice(at, at + POINTS)
      await this.#access.writeOne(POINT_BYTES * some.length, () =>
        this.#tables.points.remember(some, this.#tables.state.view.updateSeq),
      )
    }
  }

  async findPoint(
    family: string,
    total: number,
    passes: (point: RememberedPoint) => boolean,
  ): Promise<RememberedPoint | null> {
    for (let skipped = 0; ; skipped += POINTS, await nextTurn()) {
      const points = this.#access.read(() => this.#tables.points.upTo(family, total, POINTS, skipped))
      const found = points.find(passes)
      if (found !== undefined || points.length < POINTS) return found ?? null
    }
  }

  async updateSettings<R>(decide: (view: StoreView) => { result: R; write?: SettingsChange }): Promise<R> {
    return this.#access.decideOne(SMALL_WRITE, () => {
      const { result, write } = decide(this.#tables.state.view)
      return () => {
        if (write !== undefined) this.#tables.state.change(write)
        if (write?.revsLimit !== undefined) this.#tables.garbage.allowAncestry(write.revsLimit)
        return result
      }
    })
  }

  onEvent(listener: (event: StoreEvent) => void): void {
    this.#listeners.push(listener)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    await this.#access.close()
    await this.#compaction.ended()
    this.#cache.close()
    this.#connection.close()
    const position = this.#tables.state.closedPosition
    if (position !== null) this.#options.closed.note(this.#name, position)
    this.#options.onClosed()
  }
}

/** The rest of a range behind a row of it. */
function after(last: { readonly id: string } | null, range: IdRange): IdRange {
  return last === null ? range : { ...range, start: { id: last.id, inclusive: false } }
}

/** A descending range read upwards. */
function swapped({ start, end }: IdRange): IdRange {
  return { ...(end && { start: end }), ...(start && { end: start }) }
}
