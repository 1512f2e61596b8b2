/** The server's databases as the HTTP thread calls them. */

import type { ChangesSource } from '../changes/page.ts'
import type { Sendable } from '../core/bytes.ts'
import type { CouchError, ErrorName } from '../core/errors.ts'
import type { SecurityObject, Settings, Space } from '../core/types.ts'
import type { CouchappSource } from '../couchapps/couchapps.ts'
import type { Database } from '../documents/database.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import type { FindSource } from '../query/find.ts'
import type { IndexSource } from '../query/index-changes.ts'
import type { IndexReportSource } from '../query/index-report.ts'
import type { NormalSelector } from '../query/normal-selector.ts'
import type { SkippedDocument } from '../query/view-map.ts'
import type { ViewSource } from '../query/views.ts'
import type {
  CatalogUpdates,
  DatabaseEntry,
  DatabaseProperties,
  DeletionOptions,
  NameRange,
  UpdatesRange,
} from '../storage/catalog.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
import type { WatchedRecords } from '../storage/records.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'
import type { Checks, Copies } from './copies.ts'
import type { ThreadReport } from './thread-stats.ts'

/** An event of a watched database. */
export type DatabaseEvent =
  | { readonly type: 'committed'; readonly updateSeq: number }
  | { readonly type: 'secured'; readonly security: SecurityObject | null }
  /** A compaction has ended: the database may be smaller. */
  | { readonly type: 'compacted' }
  /** Deleted, or the server is stopping: feeds end. */
  | { readonly type: 'closed' }

/** A database's thread sends short answers as texts (rpc.ts). */
export type TextMethod = 'open' | 'revsDiff' | 'missingRevs'

export interface DatabaseHandle
  extends Omit<Database, TextMethod>,
    ChangesSource,
    ViewSource,
    FindSource,
    IndexSource,
    IndexReportSource,
    CouchappSource {
  readonly name: string
  readonly incarnation: number
  open(
    ...args: Parameters<Database['open']>
  ): Promise<{ readonly etag: string | null; readonly json: Sendable }>
  revsDiff(...args: Parameters<Database['revsDiff']>): Promise<Sendable>
  missingRevs(...args: Parameters<Database['missingRevs']>): Promise<Sendable>
  /**
   * The last known security object, fetched at first use. For an early refusal; the final check reads it again.
   * @returns no promise if it is known
   */
  securityCopy(): SecurityObject | null | Promise<SecurityObject | null>
  /** Calls `listener` on each event until the returned function is called. */
  watch(listener: (event: DatabaseEvent) => void): () => void
}

/** The databases as the composition root sees them, which also reports the free disk space. */
export interface OwnedDatabases extends Databases {
  /** Sets the free disk space, which later writes are checked against. */
  setSpace(space: Space): void
}

export interface DatabasesStats {
  readonly threads: readonly ThreadReport[]
  /** Threads that run functions of design documents. */
  readonly sandboxThreads: number
}

/** A database that is ready to be restored. */
export interface PreparedRestore {
  readonly name: string
  readonly updateSeq: number
  readonly docCount: number
  /**
   * Gives the database its name, which is never free in between. A database that has the name is replaced: its feeds
   * end as if it were deleted, but its file is kept.
   * @returns the path of the kept file; null if there was no database
   */
  finish(): Promise<string | null>
  /** Removes the prepared database. Idempotent; does nothing after {@link finish}; never rejects. */
  discard(): Promise<void>
}

export interface Databases extends WatchedRecords {
  /** What clients see. */
  readonly serverUuid: string
  /** Identifies the data folder, for its backups. */
  readonly folderUuid: string
  /** Whether other nodes may use the same databases, so that what decides for more than one request goes through records. */
  readonly sharedWriters: boolean
  /**
   * Takes over the uuid of the server that this one replaces, durably and at once. PouchDB's replication ids contain it,
   * so devices find their checkpoints again. @throws bad_request unless 1 to 64 digits, letters or `-`
   */
  adoptUuid(uuid: string): Promise<void>
  /** The name of the database of accounts. */
  readonly usersDatabase: string
  /** The names of the range, as `Catalog.names`. Until the data folder was looked through after a start, it waits. */
  names(range: NameRange, limit: number): Promise<readonly string[]>
  /** All names of a range, by default of all databases, read in pages. */
  allNames(range?: NameRange): AsyncIterable<string>
  /** The number of databases; waits as {@link names}. */
  count(): Promise<number>
  /** Whether there is such a database, also one that is being replaced. */
  has(name: string): Promise<boolean>
  /** @throws no_database; unavailable while a restore replaces the database */
  get(name: string): Promise<DatabaseHandle>
  /** @returns a database that is known without asking the catalog; undefined: {@link get} finds it, if there is one */
  cached(name: string): DatabaseHandle | undefined
  /**
   * @throws illegal_database_name, database_name_too_long, file_exists; bad_request for a database of the server that
   * is to be partitioned
   */
  create(name: string, properties?: DatabaseProperties): Promise<void>
  /** Removes a database and ends its feeds. @throws no_database */
  delete(name: string, options?: DeletionOptions): Promise<void>
  /**
   * Prepares a copy of a database's file for a restore; see StorageEngine.prepare. Replaces nothing yet. Copies are
   * prepared one at a time, which takes as long as reading the file.
   * @param copy absolute path
   * @throws illegal_database_name, database_name_too_long; bad_request when the copy is damaged
   */
  prepareRestore(name: string, copy: string): Promise<PreparedRestore>
  /**
   * Treats a database whose file was replaced by hand as one that was restored.
   * @throws no_database
   */
  treatAsRestored(name: string): Promise<void>
  /** The latest event for each pair of database name and type; for `_db_updates`. */
  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /**
   * Calls `listener` when there may be further updates, until the returned function is called. Writes are reported
   * within about a second.
   */
  watchUpdates(listener: () => void): () => void
  /**
   * Calls `listener` with the name of each database after a commit, a compaction or a change of its indexes by this node,
   * until the returned function is called.
   */
  watchWrites(listener: (database: string) => void): () => void
  /**
   * Sets what is asked before an index of a database grows, where accounts have quotas (`Rules.hasQuotas`).
   * Until then every index may grow.
   */
  limitGrowth(limit: GrowthLimit): void
  /** Calls `listener` with the name of each database whose security object has changed; see `watchUpdates`. */
  watchSecurity(listener: (database: string) => void): () => void
  /** The running compactions. */
  tasks(): readonly CompactionTask[]
  /** Documents written since the start of the server. */
  readonly documentsWritten: number
  /** The state of the threads, within about a second even if they are busy. Never rejects. */
  stats(): Promise<DatabasesStats>
  /** Copies of databases as files; null if the engine makes none. */
  readonly copies: Copies | null
  /** Checks of what is stored. */
  readonly checks: Checks
  /** The names of the open databases that cannot be read. The search has a time limit. */
  unreadable(): Promise<readonly string[]>
  /** Notes that a check has found all documents of a database as they were written. */
  noteWhole(incarnation: number): void
  /** The faults since the start of the server. */
  faults(): Faults
  /**
   * Whether a closed database holds expired bodies of the time machine, and may be compacted automatically. Does not
   * open the database.
   * @throws no_database
   */
  isOverdue(name: string): Promise<boolean>
  /**
   * Compiles a selector on a database thread, and converts it to CouchDB's normal form.
   * @throws the errors of `compileSelector`
   */
  normalSelector(selector: unknown): Promise<NormalSelector>
  /** Sets the limits and rules of later calls. */
  setSettings(settings: Settings): void
  /** Ends all feeds, because the server stops. */
  endFeeds(): void
  /** Ends feeds, finishes writes, closes files and stops the threads. Idempotent. */
  close(): Promise<void>
}

/** Lets an index grow, or refuses that; resolves when the growth has ended. */
export type GrowthStep = (refusal: CouchError | null) => Promise<void>

/** @param bytes about how many an index of the database takes more @param step is called once */
export type GrowthLimit = (database: string, bytes: number, step: GrowthStep) => Promise<void>

/** A compaction under way, for `_active_tasks`. */
export interface CompactionTask extends CompactionProgress {
  readonly database: string
  readonly incarnation: number
  /** Seconds since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** The compactions that database threads have reported. */
export class Tasks {
  readonly #tasks = new Map<number, CompactionTask>()

  /** Notes the progress of a compaction; null: it has ended. */
  note({ name, incarnation }: DatabaseEntry, progress: CompactionProgress | null): void {
    if (progress === null) {
      this.forget(incarnation)
      return
    }
    const updatedAt = Math.floor(Date.now() / 1000)
    const startedAt = this.#tasks.get(incarnation)?.startedAt ?? updatedAt
    const { done, total } = progress
    this.#tasks.set(incarnation, { database: name, incarnation, done, total, startedAt, updatedAt })
  }

  /** Removes the compaction of a database that was deleted, or whose thread has ended. */
  forget(incarnation: number): void {
    this.#tasks.delete(incarnation)
  }

  /** The oldest first. */
  list(): readonly CompactionTask[] {
    return [...this.#tasks.values()]
  }
}

/** A database with a fault of its file. */
export interface DatabaseFault {
  readonly database: string
  /** `damaged_file` lasts until the database is replaced, `disk_fault` until a write succeeds. */
  readonly code: ErrorName
  readonly reason: string
  /** The first and the last time, in seconds since 1970. */
  readonly since: number
  readonly last: number
}

/** Threads that have died and were replaced. */
export interface ThreadDeaths {
  readonly count: number
  /** Seconds since 1970; null if none has died. */
  readonly last: number | null
}

export interface Faults {
  readonly databases: readonly DatabaseFault[]
  readonly threads: ThreadDeaths
}

/** A copy of server.sqlite. */
export interface ServerCopy {
  readonly path: string
  /** When it was made, in ms since 1970. */
  readonly time: number
}

export interface ServerDatabasesOptions {
  readonly location: StoreLocation
  readonly settings: Settings
  /** The maximum number of databases to keep open, unless more are in use. */
  readonly maxOpen: number
  /** The absolute path of a copy of server.sqlite that first replaces the one in the folder. */
  readonly serverFile?: string | undefined
  /** The copies of server.sqlite, the newest first: asked for when the file in the folder is damaged. */
  serverCopies?(): Promise<readonly ServerCopy[]>
  /** The server starts from a copy of its damaged server.sqlite. @param fault what is damaged */
  onServerCopy?(copy: ServerCopy, fault: Error): void
  /** The open server.sqlite was found damaged. */
  onServerFault?(fault: unknown): void
  /** The file that a thread runs; by default host.ts in this folder. */
  readonly threadEntry?: URL | undefined
  /** The file that a sandbox thread runs; by default the sandbox's own. */
  readonly sandboxEntry?: URL | undefined
  /** Threads for users' databases, at least 1. */
  readonly threads: number
  /** How often the watchdog checks the threads, in ms; by default 1000. For tests. */
  readonly watchMs?: number | undefined
  /** A thread has died. */
  onFault(fault: unknown): void
  /** Most of a database was deleted within a minute. Called again while the deletions continue. */
  onMassDeletion?(database: DatabaseEntry, found: MassDeletion): void
  /** A database turned out to have gone back to an earlier state, so its devices compare all their documents again. */
  onWentBack?(database: string): void
  /** A compaction has failed. Garbage that it has already removed stays removed. */
  onCompactionFault(database: string, fault: unknown): void
  /** A database's file is damaged, or the disk has failed; called once per fault. */
  onDatabaseFault?(database: string, fault: unknown): void
  /** A database has a damaged leaf that was not known. */
  onDamagedLeaf?(database: string): void
  /** Damaged leaves were stored again. @param rest how many are still damaged, as far as known */
  onRestored?(database: string, leaves: number, rest: number): void
  /** A view has skipped a document; called once for each view. */
  onSkippedDocument?(database: string, ddoc: string, skipped: SkippedDocument): void
  /** A write has found the disk full. */
  onFull?(): void
}
