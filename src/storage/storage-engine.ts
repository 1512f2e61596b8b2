/** The contract's first part: an engine as a whole, and how its databases are opened; see engine.ts. */
import type { Catalog } from './catalog.ts'
import type { VersionedStore } from './history-store.ts'
import type { LastKnownSequence } from './sequence.ts'
import type { RetainedVersions } from './upkeep.ts'

/** What a kind of engine can do; the house asks for a capability, never for an engine's name. */
interface EngineCapabilities {
  /** Whether data survives the end of the process. */
  readonly durable: boolean
  /** Whether another process may write the same databases at the same time. */
  readonly sharedWriters: boolean
  /** Whether databases can be copied as files; what is about copies rejects otherwise. */
  readonly copies: boolean
}

export interface StorageEngine {
  readonly capabilities: EngineCapabilities
  /**
   * The list of databases and what belongs to the server. One holder at a time: a second call, here or in
   * another process, rejects with a plain Error that says who holds it.
   * @param copy the path of a copy, as far as engines have files, that takes the place of what belongs to the server
   * first; databases stay as they are
   */
  openCatalog(copy?: string): Promise<Catalog>
  /**
   * Opens a database that exists.
   * @param lastKnown how far it was when last heard of: one that is not that far was put back by hand, and begins anew
   * @throws no_database
   */
  openDatabase(name: string, lastKnown?: LastKnownSequence): Promise<VersionedStore>
  /**
   * What a database that need not be open keeps, as of its last compaction. Cheap, and changes nothing: what is of an
   * older schema stays so. @returns null: it keeps nothing as this schema does
   * @throws no_database
   */
  retainedVersions(name: string): Promise<RetainedVersions | null>
  /**
   * Makes of a copy of a database what can take a database's place ({@link Catalog.replace}): examined, of the newest
   * schema, and begun anew: the next number is of a new epoch, `createdAt` is a later one, no replication's checkpoint
   * is left, and {@link StoreView.wasRestored}. The copy stays as it is. Takes as long as reading all of it, and its
   * thread is busy meanwhile.
   * @param copy the path of a file, as far as engines have files
   * @throws bad_request when it is no database, a damaged one, or one of a newer settee
   */
  prepare(name: string, copy: string): Promise<Prepared>
  /**
   * A database as its last commit left it, to be copied from; also one that another engine over the same data has open
   * and writes to, which neither waits for it nor is seen in it. @throws no_database
   */
  openSnapshot(name: string): Promise<DatabaseSnapshot>
  /**
   * A text that differs from any earlier one when the database was written to in between; null: that cannot be told
   * without reading the database. Cheap.
   */
  fingerprint(name: string): Promise<string | null>
  /**
   * Reads a copy from its first to its last byte.
   * @throws Error whose message says what is wrong with it
   */
  checkCopy(path: string): Promise<CopyFacts>
  /** As {@link checkCopy}, of what {@link Catalog.copyTo} has made. @returns the server's uuid */
  checkCatalogCopy(path: string): Promise<string>
  /** Closes what is open. Idempotent. */
  close(): Promise<void>
}

/** A database that was prepared to take another's place; nobody knows of it yet, and the next start forgets it. */
export interface Prepared {
  /** Names it in {@link Catalog.replace} and {@link Catalog.discard}. */
  readonly draft: string
  readonly updateSeq: number
  readonly docCount: number
}

// Copies of databases, as every engine gives them that can: see engine.ts.

/** What a database holds at one moment. Two databases with equal facts hold the same. */
export interface CopyFacts {
  readonly schemaVersion: number
  /** Seconds since 1970 of the database's making. */
  readonly createdAt: number
  readonly updateSeq: number
  readonly purgeSeq: number
  readonly docCount: number
  readonly deletedCount: number
  readonly localCount: number
  /** Bytes of whole contents of attachments, each content once. */
  readonly attachmentBytes: number
  /** 64 hex digits, over all rows that the database has. */
  readonly digest: string
}

/** How far a reading or a copying is. */
export interface CopyProgress {
  /** Of `total` steps of about equal work. */
  readonly done: number
  readonly total: number
}

/** A database at one moment, which stays as it is until it is closed; meanwhile what is written takes room twice. */
export interface DatabaseSnapshot {
  /** Bytes that a copy takes. */
  readonly bytes: number
  /** Reads all of it, at its leisure. */
  facts(onProgress?: (progress: CopyProgress) => void): Promise<CopyFacts>
  /** Makes a new file with all of it, which is durable when resolved. */
  copyTo(path: string, onProgress?: (progress: CopyProgress) => void): Promise<void>
  /** Idempotent. */
  close(): void
}

/**
 * Below the data folder: the files of it as they were before a newer settee changed their schema. A folder by kind
 * and schema (`databases-4`, `server-2`) holds them under their own names.
 */
export const COPIES_FOLDER = 'before-upgrade'
