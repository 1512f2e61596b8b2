/** The storage contract for a whole engine: how its databases are opened, copied and restored; see engine.ts. */

import { CouchError } from '../core/errors.ts'
import type { Catalog } from './catalog.ts'
import type { Damage } from './damage.ts'
import type { DatabaseStore } from './engine.ts'
import type { VersionedStore } from './history-store.ts'
import type { IndexStores } from './index-store.ts'
import type { LastKnownSequence } from './sequence.ts'
import type { RetainedVersions } from './upkeep.ts'

/** What an engine can do; the server asks for a capability, never for an engine's name. */
interface EngineCapabilities {
  /** Whether data survives the end of the process. */
  readonly durable: boolean
  /** Whether another process may write the same databases at the same time: docs/decisions/0052. */
  readonly sharedWriters: boolean
}

export interface OpenOptions {
  /** If another opener may have deleted the database and created another of this name: fails unless it is this one. */
  readonly incarnation?: number
  /** Its last known sequence; a database that has not reached it was rolled back, and is marked as restored. */
  readonly lastKnown?: LastKnownSequence | undefined
}

export interface StorageEngine {
  readonly capabilities: EngineCapabilities
  /** Copies of databases as files; null if the engine has no files: backups are then a task of its store. */
  readonly copies: EngineCopies | null
  /**
   * Opens the list of databases and the server's own data. Unless `capabilities.sharedWriters`, only one catalog can be
   * open: a second call, here or in another process, rejects with a plain Error that names the user of the folder.
   * @param copy the path of a copy that first replaces the server's own data; databases are not changed. Only with
   * {@link copies}
   * @param isDamaged whether the server's own data was found damaged: then it is kept as it is
   * @throws damaged_server_file; bad_request for an unusable copy
   */
  openCatalog(copy?: string, isDamaged?: boolean): Promise<Catalog>
  /**
   * Opens a database that exists.
   * @throws no_database
   */
  openDatabase(name: string, options?: OpenOptions): Promise<VersionedStore>
  /** The index stores of a database that is open, until it is closed. They are removed with the database. */
  openIndexes(name: string): IndexStores
  /**
   * The retained versions of a database as of its last compaction, also if it is closed. Cheap, and changes nothing: a
   * file of an older schema is not upgraded. @returns null when the file has an older schema
   * @throws no_database
   */
  retainedVersions(name: string): Promise<RetainedVersions | null>
  /**
   * Checks a part of a database: each row with its checksum, each content with its digest, and what belongs to them. May block
   * the thread, which must have no other work. The database stays in use, and must stay open elsewhere.
   * @param from where the step before has ended; null: from the beginning
   * @param ms about how long the step takes
   * @throws no_database; as an opening when the file cannot be opened
   */
  checkDatabase(name: string, from: CheckPosition | null, ms: number): Promise<CheckStep>
  /**
   * Reads the server's own data, which may be in use, as {@link checkDatabase} does. Absent: it is not in a file.
   * @returns what is damaged, for people; null: nothing is
   */
  checkServer?(): Promise<string | null>
  /** Closes the catalog and all databases. Idempotent. */
  close(): Promise<void>
}

/** How far a database is checked. */
export interface CheckPosition {
  /** Which of the engine's tables is next. */
  readonly table: number
  /** What the engine needs to know of the rows that are done; 0 or less: none is. */
  readonly above: number | string
}

/** What a step of a check has found. */
export interface CheckStep {
  /** Where the next step begins; null: everything was checked. */
  readonly next: CheckPosition | null
  /** About how much of the database is checked, 0 to 1. */
  readonly share: number
  /** null: nothing is damaged in what the step has checked. */
  readonly damage: Damage | null
  /** Stores of indexes that are damaged, by their signatures: they can be emptied ({@link IndexStores.discard}). */
  readonly damagedIndexes?: readonly string[]
}

/** What an engine does with databases as files, for backups and restores. */
export interface EngineCopies {
  /**
   * Prepares a database from a copy, to replace another ({@link Catalog.replace}). It is checked, upgraded to the
   * newest schema and marked as restored: the next number has a new epoch, `createdAt` is later, all replication
   * checkpoints are removed, and {@link StoreView.wasRestored} is true. The copy is not changed. This takes as long as
   * reading all of it, and blocks the thread.
   * @param copy the path of a file
   * @throws bad_request when it is not a database, is damaged, or was written by a newer settee
   */
  prepare(name: string, copy: string): Promise<Prepared>
  /**
   * A database as of its last commit, for copying. Another engine over the same data may have it open and write to it:
   * it does not wait for the snapshot, and the snapshot does not show its later writes. @throws no_database
   */
  openSnapshot(name: string): Promise<DatabaseSnapshot>
  /**
   * A text that changes with every write to the database; null if only reading the database could show a change. Cheap.
   */
  fingerprint(name: string): Promise<string | null>
  /**
   * Reads a copy from its first to its last byte.
   * @throws Error whose message names the fault
   */
  checkCopy(path: string): Promise<CheckedCopy>
  /**
   * Opens a file for reading only.
   * @param place a database, which may be in use; or the path of a copy
   * @throws no_database; Error for a file of another schema, or one that cannot be opened
   */
  openReader(place: FilePlace): FileReader
  /**
   * Opens a database for reading beside the store that has it open, in this process. Takes about 1 ms, and waits for nobody.
   * @throws any error if the store must read it
   */
  openLiveReader(name: string): LiveReader
  /** Copies the server's own data, whose catalog is open, to a new file, which is durable when resolved. */
  copyCatalog(path: string): Promise<void>
  /** As {@link checkCopy}, for a copy that {@link copyCatalog} made. @returns the folder's uuid */
  checkCatalogCopy(path: string): Promise<string>
}

/** A database's own file, or a copy of it. */
export type FilePlace = { readonly database: string } | { readonly path: string }

type DocumentReads = Pick<
  DatabaseStore,
  'partitioned' | 'view' | 'readDocs' | 'readLocals' | 'readBlob' | 'referenceBlob'
>

/** Reads single documents of a file. Each row is compared with its checksum, as a store does. */
export interface FileReader extends DocumentReads {
  /** The SHA-256 of a content, as it was written; null if it is not there. @throws damaged_document */
  sha256Of(blob: number): Uint8Array | null
  /** The content with this SHA-256. */
  blobOf(sha256: Uint8Array): number | null
  close(): void
}

/**
 * Thrown by a {@link LiveReader}. It is no CouchError, which might become the error of a row; and there is one only, since its
 * stack says nothing and takes 10 us.
 */
export const LEFT_TO_STORE = new Error('The store must read this.')

/**
 * Reads short documents of a database, and what its feed has got lately, in microseconds. Each call reads what was durable when it
 * began. Its calls fail with {@link LEFT_TO_STORE} for what is long, which has a bounded turn in the store, and for what is damaged,
 * which the store reports.
 */
export interface LiveReader
  extends DocumentReads,
    Pick<DatabaseStore, 'readChanges' | 'countChanges' | 'findPoint'> {
  /** false after a fault: it is to be closed. */
  readonly isUsable: boolean
  /** Call it before the database is deleted or replaced. */
  close(): void
}

/** The copies of an engine. @throws no_copies where backups are a task of its store */
export function copiesOf({ copies }: Pick<StorageEngine, 'copies'>): EngineCopies {
  if (copies === null) throw new CouchError('no_copies')
  return copies
}

/** A database that was prepared to replace another. It is not listed yet, and the next start removes it. */
export interface Prepared {
  /** Identifies it in {@link Catalog.replace} and {@link Catalog.discard}. */
  readonly draft: string
  readonly updateSeq: number
  readonly docCount: number
}

/** The content of a database at one moment. Two databases with equal facts have equal contents. */
export interface CopyFacts {
  readonly schemaVersion: number
  /** When the database was created, in seconds since 1970. */
  readonly createdAt: number
  readonly updateSeq: number
  readonly purgeSeq: number
  readonly docCount: number
  readonly deletedCount: number
  readonly localCount: number
  /** The size of complete attachment contents, each counted once, in bytes. */
  readonly attachmentBytes: number
  /** SHA-256 over all rows, as 64 hex digits. */
  readonly digest: string
}

/** A checked copy. */
export interface CheckedCopy {
  readonly facts: CopyFacts
  /** null: every row is what was written. */
  readonly damage: Damage | null
}

/** The progress of a check or a copy. */
export interface CopyProgress {
  /** Of `total` steps of about equal work. */
  readonly done: number
  readonly total: number
}

/** A database at one moment, unchanged until it is closed. Until then new writes need twice the disk space. */
export interface DatabaseSnapshot {
  /** The size of a copy, in bytes. */
  readonly bytes: number
  /** Reads all of it, throttled. */
  facts(onProgress?: (progress: CopyProgress) => void): Promise<CopyFacts>
  /** Copies all of it to a new file, which is durable when resolved. */
  copyTo(path: string, onProgress?: (progress: CopyProgress) => void): Promise<void>
  /** Idempotent. */
  close(): void
}

/**
 * The folder, below the data folder, for copies of files from before an upgrade of their schema. It has a subfolder for
 * each kind and schema (`databases-4`, `server-2`); the copies keep their names.
 */
export const COPIES_FOLDER = 'before-upgrade'

/** The copy of the server's own data in the data folder, which is checked and at most some seconds old. */
export const SERVER_COPY = 'server.sqlite.copy'
