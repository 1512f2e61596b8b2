/** The storage contract for the list of databases and the server's own data; see engine.ts. */
import type { CatalogChange, Records } from './records.ts'
import type { Epochs, LastKnownSequence } from './sequence.ts'

/** A database in the list of the server. */
export interface DatabaseEntry {
  readonly name: string
  /** Never reused by a server, so that a message to a deleted database never reaches a later one of the same name. */
  readonly incarnation: number
  /** Its last known sequence; absent if none was noted. */
  readonly lastKnown?: LastKnownSequence
}

/** Names of databases: all, or those that begin with `prefix`. */
export interface NameRange {
  readonly prefix?: string
  /** Only this name and names behind it, in the direction of the list. */
  readonly from?: string
  /** Only names behind this one, in the direction of the list. */
  readonly after?: string
  readonly descending?: boolean
}

/** A database's last sequence number and its epoch. */
export interface DatabaseSequence extends LastKnownSequence {
  readonly name: string
}

export interface Replaced extends DatabaseEntry {
  /** The path of the replaced file, where the engine has files; null if there was none, or it was marked in place. */
  readonly kept: string | null
}

/** The properties that a database has from its creation on. */
export interface DatabaseProperties {
  /** Whether the ids of its documents name partitions (core/partitions.ts); false by default. */
  readonly partitioned?: boolean
  /** Into how many shards CouchDB would divide it (`q`): only reported; 1 by default. */
  readonly shards?: number
}

export interface DeletionOptions {
  /** Where the engine has files: keep the file, as that of a database that was replaced. Default false. */
  readonly isKept?: boolean
}

export interface Catalog extends Records {
  /** What clients see: the adopted uuid, or that of the data folder. */
  readonly serverUuid: string
  /** Identifies the data folder, for its backups: 32 hex digits, generated once. */
  readonly folderUuid: string
  /** Replaces the server's uuid; durable when resolved. @throws bad_request unless 1 to 64 digits, letters or `-` */
  adoptUuid(uuid: string): Promise<void>
  /** @returns null if there is no database of this name */
  find(name: string): Promise<DatabaseEntry | null>
  /** The names of the range in byte order, or the reverse of it if `descending`; at most `limit`. */
  names(range: NameRange, limit: number): Promise<string[]>
  /** The number of databases. */
  count(): Promise<number>
  /**
   * Resolves when the list is complete. After the start, an engine may look for what has changed while it was closed:
   * {@link names} and {@link count} wait for that, and whoever prepares a database must wait, too. What the engine finds is
   * reported like any change, and appended to the updates.
   */
  whenListed(): Promise<void>
  /** Makes an empty database; durable when resolved. @throws file_exists */
  create(name: string, properties?: DatabaseProperties): Promise<DatabaseEntry>
  /** Removes a database, which this opener has closed; the stores of others tell of it. @throws no_database */
  delete(name: string, options?: DeletionOptions): Promise<void>
  /**
   * Gives a prepared database ({@link EngineCopies.prepare}) the name of a closed database, or a new name. At every
   * moment, also after a crash, either the old or the new database is complete. The old file is kept.
   * @param draft null marks the existing database as restored, as if it had been prepared from a copy of itself
   * @throws no_database when `draft` is null and there is no database; no_copies for a draft, of an engine without copies
   */
  replace(name: string, draft: string | null): Promise<Replaced>
  /** Removes a prepared database. Never rejects. */
  discard(name: string, draft: string): Promise<void>
  /** Notes that databases were written to, and their last sequences. Ignores databases that are not listed. */
  noteUpdated(names: readonly string[], sequences?: readonly DatabaseSequence[]): Promise<void>
  /** The latest update of each pair of name and type; at most `limit` rows of the range. */
  readUpdates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /** Calls the listener after each change, by this opener or another, until the returned function is called. */
  watch(listener: (change: CatalogChange) => void): () => void
}

/** Above `since` upwards, or, descending, from the newest below `before` down. */
export interface UpdatesRange {
  readonly since: number
  readonly descending?: boolean
  readonly before?: number
  /**
   * Only these databases, and nothing from before they were last created: they may have belonged to another account.
   */
  readonly names?: readonly string[]
}

/** A row of `_db_updates`, protocol.md 4.9. */
export interface CatalogUpdate {
  readonly seq: number
  readonly name: string
  readonly type: 'created' | 'updated' | 'deleted'
}

export interface CatalogUpdates {
  readonly rows: readonly CatalogUpdate[]
  /** The number of updates so far. */
  readonly lastSeq: number
  readonly epochs: Epochs
}

/**
 * The names of a range, for engines that hold all names in memory.
 * @param sorted legal names, which are ASCII, so that the order of their characters is that of their bytes
 */
export function namesInRange(
  sorted: readonly string[],
  { prefix = '', from, after, descending = false }: NameRange,
  limit: number,
): string[] {
  const isBehind = descending
    ? (name: string) => (from === undefined || name <= from) && (after === undefined || name < after)
    : (name: string) => (from === undefined || name >= from) && (after === undefined || name > after)
  const found = sorted.filter((name) => name.startsWith(prefix) && isBehind(name))
  return (descending ? found.reverse() : found).slice(0, limit)
}
