/** One open database of the engine over PostgreSQL. */
import { CouchError } from '../../core/errors.ts'
import type { BlobReference, BlobUpload } from '../blob-leases.ts'
import type { CommitTally } from '../commit-tally.ts'
import type {
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
import type { HistoryStore } from '../history-store.ts'
import type { DocReadSet } from '../read-set.ts'
import type { StoreEvent } from '../store-events.ts'
import type { RememberedPoint } from '../token-position.ts'
import type { CompactOptions, GarbageCounts, StoreSizes } from '../upkeep.ts'
import { Uploads } from './blob-uploads.ts'
import { Compaction } from './compaction-run.ts'
import type { DatabaseEvents } from './database-events.ts'
import { readProgress, readView, updateSettings } from './database-settings.ts'
import { DocumentCommits } from './document-commits.ts'
import { countAttachments, countChanges } from './document-counts.ts'
import { DocumentHistories } from './document-histories.ts'
import { DocumentLoader } from './document-loader.ts'
import { DocumentPages, type FeedRange } from './document-pages.ts'
import { FeedPoints } from './feed-points.ts'
import { LocalDocuments } from './local-documents.ts'
import { MendedRows } from './mended-rows.ts'
import type { OpenDatabase } from './open-database.ts'
import { RangeTotals } from './range-totals.ts'
import { readPurges } from './stored-purges.ts'
import { Sizes } from './stored-sizes.ts'
import { WriteCommits } from './write-commits.ts'

/** What a store is given by its engine. */
export interface StoreParts {
  readonly events: DatabaseEvents
  readonly partitioned: boolean
  readonly shards: number
  /** Whether it was found, when it was opened, to be behind its last known sequence. */
  readonly wasRolledBack: boolean
  /** As of {@link DatabaseStore}. */
  readonly needsDevices: boolean
  /** In seconds since 1970. */
  readonly createdAt: number
  readonly tally: CommitTally | undefined
  /** As of `WriteCommits`. */
  readonly beginEpoch: (() => Promise<void>) | null
  onClosed(): void
}

export class PostgresStore {
  readonly history: HistoryStore
  readonly partitioned: boolean
  readonly shards: number
  readonly wasRolledBack: boolean
  readonly needsDevices: boolean
  readonly #database: OpenDatabase
  readonly #parts: StoreParts
  readonly #totals: RangeTotals
  readonly #pages: DocumentPages
  readonly #commits: WriteCommits
  readonly #documents: DocumentCommits
  readonly #locals: LocalDocuments
  readonly #points: FeedPoints
  readonly #uploads: Uploads
  readonly #compaction: Compaction
  readonly #sizes: Sizes
  readonly #rows: MendedRows
  #closing: Promise<void> | undefined

  constructor(database: OpenDatabase, parts: StoreParts) {
    const { events, tally, beginEpoch } = parts
    this.#database = database
    this.#parts = parts
    this.partitioned = parts.partitioned
    this.shards = parts.shards
    this.wasRolledBack = parts.wasRolledBack
    this.needsDevices = parts.needsDevices
    this.history = new DocumentHistories(database, () => this.#open())
    const loader = new DocumentLoader(database)
    this.#totals = new RangeTotals(database)
    this.#pages = new DocumentPages(loader, this.#totals)
    this.#commits = new WriteCommits({ database, events, beginEpoch, tally })
    this.#documents = new DocumentCommits(database, loader, this.#commits)
    this.#locals = new LocalDocuments(database, this.#commits)
    this.#points = new FeedPoints(database, this.#commits)
    this.#uploads = new Uploads(database)
    this.#compaction = new Compaction(database)
    this.#sizes = new Sizes(database)
    this.#uploads.startSweeping()
    this.#rows = new MendedRows(database, this.#commits)
    database.rows.onFound = (id, version) => this.#rows.note(id, version)
  }

  async info(): Promise<StoreInfo> {
    const { name } = this.#open()
    const { createdAt } = this.#parts
    const { compacting, ...info } = await this.#sizes.info(this.#compaction.claim)
    return { ...info, name, createdAt, compacting: compacting || this.#compaction.isRunning }
  }

  async view(): Promise<StoreView> {
    return readView(this.#open())
  }

  async progress(): Promise<StoreProgress> {
    return readProgress(this.#open())
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ): Promise<R[]> {
    this.#open()
    return this.#pages.readDocs(ids, read, readSet, chars)
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#open()
    return this.#pages.readRange(range, paging, read)
  }

  async countRange(range: IdRange): Promise<number> {
    this.#open()
    return this.#totals.count(range)
  }

  async skipRange(range: IdRange, documents: number): Promise<IdRange | null> {
    this.#open()
    return this.#totals.skip(range, documents)
  }

  async measureRange(range: IdRange): Promise<RangeSizes> {
    this.#open()
    return this.#totals.measure(range)
  }

  async readChanges<R>(
    range: FeedRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#open()
    return this.#pages.readChanges(range, paging, read)
  }

  async readForked<R>(
    after: number,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<ForkedPage<R>> {
    this.#open()
    return this.#pages.readForked(after, paging, read)
  }

  async countChanges(seq: number): Promise<number> {
    return countChanges(this.#open(), seq)
  }

  async countAttachments(most: number): Promise<number> {
    return countAttachments(this.#open(), most)
  }

  async readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    this.#open()
    return this.#uploads.readBlob(blob, offset, length)
  }

  async referenceBlob(blob: number): Promise<BlobReference | null> {
    this.#open()
    return this.#uploads.referenceBlob(blob)
  }

  async uploadBlob(): Promise<BlobUpload> {
    this.#open()
    return this.#uploads.uploadBlob()
  }

  async compact(options: CompactOptions = {}): Promise<void> {
    this.#open()
    return this.#compaction.run(options)
  }

  async garbage(): Promise<GarbageCounts> {
    this.#open()
    return this.#sizes.garbage()
  }

  async sizes(): Promise<StoreSizes> {
    this.#open()
    return this.#sizes.count()
  }

  async updateDocs<R, N = never>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]> {
    this.#open()
    return this.#documents.update(updates)
  }

  async purgeDocs<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]> {
    this.#open()
    return this.#documents.purge(updates)
  }

  async readPurges(): Promise<PurgeInfo[]> {
    return readPurges(this.#open())
  }

  async readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    this.#open()
    return this.#locals.read(ids)
  }

  async readLocalRange(range: IdRange, paging: Paging): Promise<Page<LocalDoc>> {
    this.#open()
    return this.#locals.readRange(range, paging)
  }

  async countLocals(range: IdRange): Promise<number> {
    this.#open()
    return this.#locals.count(range)
  }

  async updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    this.#open()
    return this.#locals.update(updates)
  }

  async rememberPoints(points: readonly RememberedPoint[]): Promise<void> {
    this.#open()
    return this.#points.remember(points)
  }

  async findPoint(
    family: string,
    total: number,
    passes: (point: RememberedPoint) => boolean,
  ): Promise<RememberedPoint | null> {
    this.#open()
    return this.#points.find(family, total, passes)
  }

  async updateSettings<R>(decide: (view: StoreView) => { result: R; write?: SettingsChange }): Promise<R> {
    return updateSettings(this.#open(), this.#commits, decide)
  }

  onEvent(listener: (event: StoreEvent) => void): void {
    this.#parts.events.on(listener)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const writes = [this.#documents.drained(), this.#locals.drained(), this.#rows.drained()]
    await Promise.all([...writes, this.#compaction.close(), this.#uploads.close()])
    await this.#commits.drained()
    await this.#database.leaves.drained()
    this.#parts.events.close()
    this.#parts.onClosed()
  }

  /** @throws no_database; unavailable when it is closed */
  #open(): OpenDatabase {
    if (this.#parts.events.isGone) throw new CouchError('no_database')
    if (this.#closing !== undefined) throw new CouchError('unavailable')
    return this.#database
  }
}
