/** A database in one SQLite file: the contract of storage/engine.ts over the tables of schema.ts. */
import { statSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { CommitTally } from '../commit-tally.ts'
import type {
  BlobPin,
  BlobStage,
  CompactionProgress,
  DatabaseStore,
  DocState,
  DocUpdate,
  IdRange,
  LocalDoc,
  LocalUpdate,
  Outcome,
  Page,
  Paging,
  PurgeInfo,
  PurgeUpdate,
  SettingsChange,
  StoreInfo,
  StoreView,
  Touches,
} from '../engine.ts'
import { Access } from './access.ts'
import { Attachments } from './attachments.ts'
import { Blobs } from './blobs.ts'
import { Compaction } from './compaction.ts'
import { Connection, type ConnectionOptions } from './connection.ts'
import { DocWrites } from './doc-writes.ts'
import { Documents } from './documents.ts'
import { FeedCounts } from './feed-counts.ts'
import { History } from './history.ts'
import { Holds } from './holds.ts'
import { Locals } from './locals.ts'
import { PageCache, type PageCaches } from './page-caches.ts'
import { fillPage } from './paging.ts'
import { migrate } from './schema.ts'
import { Staging } from './staging.ts'
import { State } from './state.ts'
import { type Plan, Writer } from './writer.ts'

/** Rows counted in one turn: about a millisecond's work. */
const COUNT_STRETCH = 10_000
/** Documents read by id at once, and those of them whose bodies are read with them. */
const READ_ROWS = 100
const READ_BODIES = 20
/** About the bytes of a write that is no document's. */
const SMALL_WRITE = 1024

export interface StoreOptions {
  readonly onOperation?: ConnectionOptions['onOperation']
  /** Those of the thread. */
  readonly caches: PageCaches
  /** Counts the commits of the thread's databases. */
  readonly tally?: CommitTally | undefined
  /** The time, in ms since 1970. */
  now(): number
  onClosed(): void
}

export class SqliteStore implements DatabaseStore {
  readonly history: History
  readonly #name: string
  readonly #path: string
  readonly #connection: Connection
  readonly #documents: Documents
  readonly #attachments: Attachments
  readonly #blobs: Blobs
  readonly #holds = new Holds()
  readonly #staging: Staging
  readonly #locals: Locals
  readonly #feed: FeedCounts
  readonly #state: State
  readonly #docWrites: DocWrites
  readonly #access: Access
  readonly #compaction: Compaction
  readonly #listeners: ((updateSeq: number) => void)[] = []
  readonly #options: StoreOptions
  readonly #cache: PageCache
  #closing: Promise<void> | undefined

  /** Opens a file that exists. @throws SqliteError when it cannot be opened */
  constructor(name: string, path: string, options: StoreOptions) {
    this.#name = name
    this.#path = path
    this.#options = options
    this.#connection = new Connection(path, { onOperation: options.onOperation, mustExist: true })
    this.#cache = new PageCache(this.#connection, options.caches)
    try {
      migrate(this.#connection, path)
      this.#blobs = new Blobs(this.#connection)
      this.#attachments = new Attachments(this.#connection, this.#blobs)
      this.#documents = new Documents(this.#connection, this.#attachments, this.#blobs, options.now)
      this.#locals = new Locals(this.#connection)
      this.#feed = new FeedCounts(this.#connection)
      this.#state = new State(this.#connection)
    } catch (error) {
      this.#connection.close()
      throw error
    }
    const parts = {
      documents: this.#documents,
      attachments: this.#attachments,
      blobs: this.#blobs,
      holds: this.#holds,
      feed: this.#feed,
      state: this.#state,
    }
    this.#docWrites = new DocWrites(this.#connection, parts)
    const writer = new Writer(this.#connection, {
      expect: (ids) => this.#docWrites.expect(ids),
      flush: () => {
        this.#feed.flush()
        this.#state.flush()
      },
      committed: (writes, ms) => this.#committed(writes, ms),
      back: () => this.#back(),
    })
    this.#access = new Access(writer, this.#cache)
    const around = { ...parts, access: this.#access }
    this.history = new History(this.#connection, around)
    this.#staging = new Staging(this.#access, this.#blobs, this.#holds)
    this.#staging.sweep()
    this.#compaction = new Compaction(this.#connection, around)
  }

  #committed(writes: number, ms: number): void {
    this.#docWrites.forgetExpected()
    this.#feed.forget()
    const updates = this.#state.committed()
    this.#options.tally?.add(writes, updates, ms)
    if (updates > 0) for (const listener of this.#listeners) listener(this.#state.view.updateSeq)
  }

  #back(): void {
    this.#docWrites.forgetExpected()
    this.#feed.forget()
    this.#state.restore()
  }

  async info(): Promise<StoreInfo> {
    return this.#access.read(() => {
      const { view, purgeSeq, externalBytes } = this.#state
      const pages = (name: string) => Number(this.#connection.pragma(name))
      return {
        ...view,
        purgeSeq,
        compacting: this.#compaction.isRunning,
        name: this.#name,
        createdAt: this.#state.createdAt,
        sizes: {
          file: fileBytes(this.#path) + fileBytes(`${this.#path}-wal`),
          active: (pages('page_count') - pages('freelist_count')) * pages('page_size'),
          external: externalBytes,
        },
      }
    })
  }

  async view(): Promise<StoreView> {
    return this.#access.read(() => this.#state.view)
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView) => R,
    touches?: Touches,
  ): Promise<R[]> {
    return this.#access.read(() => {
      const { view } = this.#state
      const results: R[] = []
      const step = touches?.body ? READ_BODIES : READ_ROWS
      for (let at = 0; at < ids.length; at += step) {
        const some = ids.slice(at, at + step)
        const docs = this.#documents.byIds(some, touches)
        for (const [n, doc] of docs.entries()) results.push(read(doc, some[n] as string, view))
      }
      return results
    })
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#page(
      paging,
      (last, limit) =>
        this.#documents.inRange(
          last === null ? range : { ...range, start: { id: last.id, inclusive: false } },
          limit,
          paging.touches,
        ),
      read,
    )
  }

  async readChanges<R>(
    range: { readonly since: number; readonly descending?: boolean; readonly before?: number },
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    const descending = range.descending === true
    const before = range.before ?? Number.MAX_SAFE_INTEGER
    return this.#page(
      paging,
      (last, limit) => {
        const above = last === null || descending ? range.since : last.seq
        const below = last !== null && descending ? last.seq : before
        return this.#documents.inFeed(above, below, descending, limit, paging.touches)
      },
      read,
    )
  }

  /** A page, and the view of the same moment. */
  #page<Source, R>(
    paging: Paging,
    fetch: (last: Source | null, limit: number) => Source[],
    read: (row: Source, view: StoreView) => R,
  ): Page<R> {
    return this.#access.read(() => {
      const { view } = this.#state
      return { ...fillPage(paging, fetch, (row) => read(row, view)), view }
    })
  }

  async countRange(range: IdRange): Promise<number> {
    const ascending: IdRange = range.descending ? swapped(range) : range
    let total = 0
    for (let rest = ascending; ; await nextTurn()) {
      const deletedToo = this.#state.view.deletedCount === 0
      const { count, last } = this.#access.read(() =>
        this.#documents.countStretch(rest, deletedToo, COUNT_STRETCH),
      )
      total += count
      if (last === null || count < COUNT_STRETCH) return total
      rest = { ...rest, start: { id: last, inclusive: false } }
    }
  }

  async countChanges(seq: number): Promise<number> {
    return this.#access.read(() => this.#feed.above(seq))
  }

  async countAttachments(most: number): Promise<number> {
    return this.#access.read(() => this.#attachments.count(most))
  }

  async readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    return this.#access.read(() => this.#blobs.read(blob, offset, length))
  }

  async pinBlob(blob: number): Promise<BlobPin | null> {
    return this.#staging.pin(blob)
  }

  async stageBlob(): Promise<BlobStage> {
    return this.#staging.begin()
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

  async compact(onProgress?: (progress: CompactionProgress) => void): Promise<void> {
    return this.#compaction.run(onProgress)
  }

  async readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    return this.#access.read(() => ids.map((id) => this.#locals.byId(id)))
  }

  async readLocalRange(range: IdRange, paging: Paging): Promise<Page<LocalDoc>> {
    return this.#page(
      paging,
      (last, limit) =>
        this.#locals.inRange(
          last === null ? range : { ...range, start: { id: last.id, inclusive: false } },
          limit,
        ),
      (doc: LocalDoc) => doc,
    )
  }

  async countLocals(range: IdRange): Promise<number> {
    return this.#access.read(() => this.#locals.count(range.descending ? swapped(range) : range))
  }

  async updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    const plans = updates.map((update): Plan<Outcome<R>> => {
      const decide = () => {
        const { result, write } = update.decide(this.#locals.byId(update.id), this.#state.view)
        return () => {
          if (write !== undefined) this.#locals.write(update.id, write)
          return { result }
        }
      }
      return { bytes: SMALL_WRITE, decide }
    })
    return this.#access.write(plans)
  }

  async updateSettings<R>(decide: (view: StoreView) => { result: R; write?: SettingsChange }): Promise<R> {
    return this.#access.decideOne(SMALL_WRITE, () => {
      const { result, write } = decide(this.#state.view)
      return () => {
        if (write !== undefined) this.#state.change(write)
        return result
      }
    })
  }

  onCommit(listener: (updateSeq: number) => void): void {
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
    this.#options.onClosed()
  }
}

/** A descending range read upwards. */
function swapped({ start, end }: IdRange): IdRange {
  return { ...(end && { start: end }), ...(start && { end: start }) }
}

function fileBytes(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
