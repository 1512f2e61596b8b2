/** The contract's other half: the list of databases, and what belongs to the server; see engine.ts. */
import type { Epochs, LastKnownSequence } from './sequence.ts'

/** A database as the server lists it. */
export interface DatabaseEntry {
  readonly name: string
  /** Never given twice by one server, so that a message to a deleted database reaches no later one of its name. */
  readonly incarnation: number
  /** How far it was when that was last noted; absent: it never was. */
  readonly lastKnown?: LastKnownSequence
}

/** A thing that the server keeps beside its databases, such as a device token. */
export interface ServerRecord {
  readonly kind: string
  readonly key: string
  /** JSON, as far as those who keep it there care. */
  readonly value: string
}

/** A record as it is to be; null: it is removed, if it is there. */
export interface RecordWrite extends Omit<ServerRecord, 'value'> {
  readonly value: string | null
}

/** How far a database is. */
export interface DatabaseSequence extends LastKnownSequence {
  readonly name: string
}

export interface Replaced extends DatabaseEntry {
  /** The path, as far as there are files, of what was there before; null: nothing was, or it has begun anew. */
  readonly kept: string | null
}

export interface Catalog {
  /** 32 hex digits, made once for the life of the data. */
  readonly serverUuid: string
  list(): Promise<DatabaseEntry[]>
  /** Makes an empty database; durable when resolved. @throws file_exists */
  create(name: string): Promise<DatabaseEntry>
  /** Removes a database that nobody holds open. @throws no_database */
  delete(name: string): Promise<void>
  /**
   * Gives a name to what was prepared for it ({@link StorageEngine.prepare}), in the place of a database that nobody
   * holds open, or of none. At every moment, a crash included, the old one or the new is there whole. What was there
   * is kept aside.
   * @param draft null: what is there begins anew, as if it had been prepared from a copy of itself
   * @throws no_database when there is nothing that could begin anew
   */
  replace(name: string, draft: string | null): Promise<Replaced>
  /** Removes what was prepared and is not wanted. Never rejects. */
  discard(name: string, draft: string): Promise<void>
  /** Notes that databases were written to, and how far they are; of one that is not listed (any more), nothing. */
  noteUpdated(names: readonly string[], sequences?: readonly DatabaseSequence[]): Promise<void>
  /** All records of a kind, in the order of their keys' bytes. */
  readRecords(kind: string): Promise<ServerRecord[]>
  /** Sets and removes records, in their order: all of them or none; durable when resolved. */
  writeRecords(writes: readonly RecordWrite[]): Promise<void>
  /** What happened to databases, of each pair of name and type the latest; at most `limit` rows of the range. */
  readUpdates(range: UpdatesRange, limit: number): Promise<CatalogUpdates>
  /** Copies what belongs to the server to a new file, which is durable when resolved. */
  copyTo(path: string): Promise<void>
}

/** Above `since` upwards, or, descending, from the newest below `before` down. */
export interface UpdatesRange {
  readonly since: number
  readonly descending?: boolean
  readonly before?: number
  /** Of these databases alone, and nothing from before they were last made: they may have been somebody else's. */
  readonly names?: readonly string[]
}

/** What `_db_updates` tells of, protocol.md 4.9. */
export interface CatalogUpdate {
  readonly seq: number
  readonly name: string
  readonly type: 'created' | 'updated' | 'deleted'
}

export interface CatalogUpdates {
  readonly rows: readonly CatalogUpdate[]
  /** The number of things that happened so far. */
  readonly lastSeq: number
  readonly epochs: Epochs
}
