/** The databases of this server as the HTTP thread sees them: which there are, and a way to each. */
import type { ChangesSource } from '../changes/page.ts'
import type { Sendable } from '../core/bytes.ts'
import type { CouchError, ErrorName } from '../core/errors.ts'
import type { SecurityObject, Settings, Space } from '../core/types.ts'
import type { Database } from '../documents/database.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import type { FindSource } from '../query/find.ts'
import type { ViewSource } from '../query/views.ts'
import type {
  CatalogUpdates,
  DatabaseEntry,
  RecordWrite,
  ServerRecord,
  UpdatesRange,
} from '../storage/catalog.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'
import type { Copies } from './copies.ts'
import type { ThreadReport } from './thread-stats.ts'

/** What happens to a database while somebody watches it. */
export type DatabaseEvent =
  | { readonly type: 'committed'; readonly updateSeq: number }
  | { readonly type: 'secured'; readonly security: SecurityObject | null }
  /** A compaction has ended: the database may be smaller. */
  | { readonly type: 'compacted' }
  /** Deleted, or the server is stopping: feeds end. */
  | { readonly type: 'gone' }

/** A database's thread sends short answers as texts (packed-bytes.ts). */
type TextMethod = 'open' | 'revsDiff' | 'missingRevs'

export interface DatabaseHandle extends Omit<Database, TextMethod>, ChangesSource, ViewSource, FindSource {
  readonly name: string
  readonly incarnation: number
  open(
    ...asked: Parameters<Database['open']>
  ): Promise<{ readonly etag: string | null; readonly json: Sendable }>
  revsDiff(...asked: Parameters<Database['revsDiff']>): Promise<Sendable>
  missingRevs(...asked: Parameters<Database['missingRevs']>): Promise<Sendable>
  /** The security object as last heard of, fetched at first use: for a fast refusal, never for the last word. */
  securityCopy(): Promise<SecurityObject | null>
  /** Calls `listener` on each event until the returned function is called. */
  watch(listener: (event: DatabaseEvent) => void): () => void
}

/** The databases of the server as the composition root has them: what the disk and the threads do to them. */
export interface OwnedDatabases extends Databases {
  /** What is left of the disk, for all that is written from now on. */
  setSpace(space: Space): void
}

export interface DatabasesStats {
  readonly threads: readonly ThreadReport[]
  /** Threads that run functions of design documents. */
  readonly sandboxThreads: number
}

/** A database that can be restored now. */
export interface PreparedRestore {
  readonly name: string
  readonly updateSeq: number
  readonly docCount: number
  /**
   * Gives it its name, with no moment at which that is free. What has the name until then is ended as if it were
   * deleted, but kept aside.
   * @returns where it is kept; null: there was none
   */
  finish(): Promise<string | null>
  /** Removes it. Idempotent, and nothing after {@link finish}; never rejects. */
  discard(): Promise<void>
}

export interface Databases {
  readonly serverUuid: string
  /** The name of the database of accounts. */
  readonly usersDatabase: string
  /** In byte order. */
  names(): readonly string[]
  /** @throws no_database */
  get(name: string): DatabaseHandle
  /** @throws illegal_database_name, database_name_too_long, file_exists */
  create(name: string): Promise<void>
  /** Ends its feeds and removes it. @throws no_database */
  delete(name: string): Promise<void>
  /**
   * Makes of a copy of a database's file what can take a database's place; see StorageEngine.prepare. Nothing changes
   * for anybody yet. One at a time; takes as long as reading the file.
   * @param copy absolute path
   * @throws illegal_database_name, database_name_too_long, bad_request when the copy is not good
   */
  prepareRestore(name: string, copy: string): Promise<PreparedRestore>
  /**
   * Lets a database whose file was put back by hand begin anew, as one that was restored.
   * @throws no_database
   */
  beginAnew(name: string): Promise<void>
  /** What happened to databases, of each pair of name and type the latest; for `_db_updates`. */
  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /**
   * Calls `listener` when there may be further updates, until the returned function is called. Writes are told of
   * within about a second.
   */
  watchUpdates(listener: () => void): () => void
  /** Calls `listener` with the name of each database whose security object has changed; see `watchUpdates`. */
  watchSecurity(listener: (database: string) => void): () => void
  /** What the server keeps beside its databases; see storage/catalog.ts. */
  readRecords(kind: string): Promise<ServerRecord[]>
  writeRecords(writes: readonly RecordWrite[]): Promise<void>
  /** The compactions under way. */
  tasks(): readonly CompactionTask[]
  /** How the threads are, within about a second however busy they are. Never rejects. */
  stats(): Promise<DatabasesStats>
  /** Copies of databases as files; null: the engine makes none. */
  readonly copies: Copies | null
  /** The names of open databases that cannot be read; looked for within bounds. */
  unreadable(): Promise<readonly string[]>
  /** What has gone wrong so far. */
  faults(): Faults
  /**
   * Whether a database that is not open keeps bodies for the time machine that were to be gone by now, and may be
   * compacted without being asked. Looks without opening it.
   * @throws no_database
   */
  isOverdue(name: string): Promise<boolean>
  /** New limits and rules for all that is asked from now on. */
  setSettings(settings: Settings): void
  /** Tells whoever watches a database that it is over: the server stops. */
  endFeeds(): void
  /** Ends feeds, finishes writes, closes files and stops the threads. Idempotent. */
  close(): Promise<void>
}

/** A compaction under way, for `_active_tasks`. */
export interface CompactionTask extends CompactionProgress {
  readonly database: string
  readonly incarnation: number
  /** Seconds since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** The compactions that the database threads have told of. */
export class Tasks {
  readonly #tasks = new Map<number, CompactionTask>()

  /** Notes how far a database's compaction is; null: it has ended. */
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

  /** The database, or its thread, is gone. */
  forget(incarnation: number): void {
    this.#tasks.delete(incarnation)
  }

  /** The oldest first. */
  list(): readonly CompactionTask[] {
    return [...this.#tasks.values()]
  }
}

// What has gone wrong with databases and threads since the server started, as the HTTP thread has heard of it.

/** A database whose file is not as it should be. */
export interface DatabaseFault {
  readonly database: string
  /** `damaged_file`: until it is replaced. `disk_fault`: until something was written to it. */
  readonly code: ErrorName
  readonly reason: string
  /** Seconds since 1970: when it was met first, and last. */
  readonly since: number
  readonly last: number
}

/** Threads that have died; others took their places. */
export interface ThreadDeaths {
  readonly count: number
  /** Seconds since 1970; null: none has. */
  readonly last: number | null
}

export interface Faults {
  readonly databases: readonly DatabaseFault[]
  readonly threads: ThreadDeaths
}

export class FaultRecord {
  /** By incarnation: never more than there are databases. */
  readonly #databases = new Map<number, DatabaseFault>()
  #deaths: ThreadDeaths = { count: 0, last: null }

  /** Notes a fault. @returns whether it is news, which the log should have once */
  note({ name, incarnation }: DatabaseEntry, { code, message }: CouchError): boolean {
    const known = this.#databases.get(incarnation)
    const isNews = known?.code !== code
    const last = now()
    const since = isNews ? last : known.since
    this.#databases.set(incarnation, { database: name, code, reason: message, since, last })
    return isNews
  }

  /** Something was written to the database, as to a disk that works again. */
  written(incarnation: number): void {
    if (this.#databases.get(incarnation)?.code === 'disk_fault') this.#databases.delete(incarnation)
  }

  /** The database is gone. */
  forget(incarnation: number): void {
    this.#databases.delete(incarnation)
  }

  died(): void {
    this.#deaths = { count: this.#deaths.count + 1, last: now() }
  }

  list(): Faults {
    return { databases: [...this.#databases.values()], threads: this.#deaths }
  }
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}

// What the databases of a server are made with, and who is told what becomes of them.

export interface ServerDatabasesOptions {
  readonly dataDir: string
  readonly settings: Settings
  /** Databases kept open at the most, unless more are in use. */
  readonly maxOpen: number
  /** A copy of server.sqlite that takes the place of the folder's own first; absolute. */
  readonly serverFile?: string | undefined
  /** The file that a thread runs; by default host.ts beside this file. */
  readonly threadEntry?: URL | undefined
  /** The file that a thread for functions of design documents runs; by default the sandbox's own. */
  readonly sandboxEntry?: URL | undefined
  /** How often threads are looked at whether they hang, in ms; by default 1000. For tests. */
  readonly watchMs?: number | undefined
  /** A thread has died. */
  onFault(fault: unknown): void
  /** Most of a database was deleted within a minute; told again while that goes on. */
  onMassDeletion?(database: DatabaseEntry, found: MassDeletion): void
  /** A database's file was found to be put back by hand; its devices compare anew. */
  onPutBack?(database: string): void
  /** A compaction has failed; the database is as it was, less what was cleaned up by then. */
  onCompactionFault(database: string, fault: unknown): void
  /** A database's file is damaged, or the disk has failed it; told once of each. */
  onDatabaseFault?(database: string, fault: unknown): void
  /** A write has met the end of the disk. */
  onFull?(): void
}
