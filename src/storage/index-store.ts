/**
 * The storage contract for indexes: rows in the order of their keys, for views and for Mango. A design document has one
 * store, with an index for each of its views. All rows can be made again from the documents, so an engine may lose the
 * last updates at a power cut, but the rows and their {@link IndexStatus.position} always belong together.
 *
 * Each index also counts its rows in buckets of some hundred. So the number of rows before any row key is known without
 * reading them, and a bucket can keep its reduction until one of its rows changes.
 *
 * Several openers of a database may use one store at the same time, and none of them waits for another. Each read says
 * which version of the rows it has read, and an update says from which version it goes on: docs/decisions/0059.
 */
import type { Epochs } from './sequence.ts'
import { isRolledBack } from './sequence.ts'

/** How much of a database the rows of a store include. */
export interface IndexPosition {
  /** The sequence number of the last update that they include. */
  readonly seq: number
  /**
   * The newest update of the states that the rows were read from. A document that was updated after `seq`, and up to it, may lack
   * its rows or have newer ones, so the position is none of a database that goes back before it.
   */
  readonly seen: number
  /** The epoch of `seen`. */
  readonly epoch: string
  /** The last purge that they include. */
  readonly purgeSeq: number
}

/** One emitted row. The texts are JSON. */
export interface IndexEntry {
  /** The bytes by which rows are sorted. No key may be a prefix of another. */
  readonly key: Uint8Array
  readonly keyText: string
  readonly valueText: string
}

/** All rows of one document. */
export interface IndexedDoc {
  readonly id: string
  /** A list for each index of the store, sorted by key. Rows with equal keys stay in the order of their list. */
  readonly rows: readonly (readonly IndexEntry[])[]
}

/** A row as it is read. */
export interface IndexRow {
  /** Its row key in the index; see {@link rowKeyOf}. */
  readonly rowKey: Uint8Array
  /** The length of its key, in bytes, which are the first of its row key. */
  readonly keyLength: number
  readonly keyText: string
  readonly valueText: string
}

/** The rows from one row key up to, and without, another. An absent end is that of the index. */
export interface KeyRange {
  readonly from?: Uint8Array | undefined
  readonly to?: Uint8Array | undefined
}

/** A range of rows that are read in one of both orders. */
export interface ReadRange extends KeyRange {
  readonly descending?: boolean | undefined
  /** Whether rows that damage hides are an error, as they always are for {@link IndexStore.readValues}: a sum does not show it. */
  readonly isWhole?: boolean | undefined
}

/** A part of a range of rows with its reduction: a whole bucket, whose reduction may be known, or rows of an incomplete bucket. */
export interface ReducedRange {
  readonly range: KeyRange
  /** The bucket whose reduction may be kept; null if it is not a whole bucket. */
  readonly bucket: Uint8Array | null
  /** The kept reduction. */
  readonly reduction: string | null
}

/** What a store includes. */
export interface IndexStatus {
  /** null if the store is empty. */
  readonly position: IndexPosition | null
  /** Two reads with equal versions have read the same rows. */
  readonly version: number
  /** Another opener has begun a long update, and has stored a part of it within the last seconds. */
  readonly isUpdatedElsewhere: boolean
}

/** A step of an update. */
export interface IndexStep {
  /** The version that the documents' rows go on from: it was read before the documents were. */
  readonly from: number
  /** What the store includes after the step. */
  readonly position: IndexPosition
  /** Whether more steps follow soon: other openers then leave the update to this one. */
  readonly more: boolean
}

/** Numbers of rows, of one version. */
export interface RowCounts extends Pick<IndexStatus, 'position' | 'version'> {
  /** All rows of the index. */
  readonly total: number
  /** The rows before each of the row keys. */
  readonly before: readonly number[]
}

/** The maximum number of row keys whose rows are counted at once. */
export const MAX_COUNTED_KEYS = 64

/** A reduction of a bucket, as {@link IndexStore.keepReductions} keeps it. */
export interface KeptReduction {
  readonly bucket: Uint8Array
  readonly reduction: string
}

/** All methods reject with insufficient_storage, disk_fault, damaged_file or unavailable. */
export interface IndexStore {
  /** The number of indexes. */
  readonly indexes: number
  status(): Promise<IndexStatus>
  /**
   * Replaces the rows of documents, in short turns; a document without rows leaves the indexes. When the promise is
   * resolved, the position is the new one. If it rejects, some of the documents may have been replaced, and the position
   * is the old one.
   * @returns the new version; null if the store has another version than `from`, because another opener has changed it.
   * Then some of the documents may have been replaced as well: read the status, and go on from there.
   */
  update(docs: readonly IndexedDoc[], step: IndexStep): Promise<number | null>
  /** Removes all rows. @returns whether the store had this version */
  clear(from: number): Promise<boolean>
  /**
   * Begins to fill an empty store, or continues after an interruption.
   * @returns null if the engine fills an empty store as fast by {@link update}
   */
  build(): Promise<IndexBuild | null>
  /**
   * Reads rows in order, in one turn of a few milliseconds.
   * @param index the number of the index
   * @returns at least one row if the range has one, at most `limit`, and whether the range has more
   */
  read(
    index: number,
    range: ReadRange,
    limit: number,
  ): Promise<{ readonly rows: IndexRow[]; readonly more: boolean; readonly version: number }>
  /**
   * Reads only the values of rows, as {@link read}, in a third of its time.
   * @returns the JSON texts, and the row key at which to read on; null after the last row
   */
  readValues(
    index: number,
    range: KeyRange,
  ): Promise<{
    readonly values: string[]
    readonly next: Uint8Array | null
    readonly version: number
  }>
  /** Counts rows in O(buckets). @param rowKeys at most {@link MAX_COUNTED_KEYS} */
  counts(index: number, rowKeys: readonly Uint8Array[]): Promise<RowCounts>
  /** The row key of the row that has this many rows before it; null if there are not so many. */
  rowKeyAt(
    index: number,
    count: number,
  ): Promise<{ readonly rowKey: Uint8Array | null; readonly version: number }>
  /**
   * The buckets of a range with their reductions, in order, at most `limit` of them.
   * @returns these, and whether the range has more after the last
   */
  reducedRanges(
    index: number,
    range: KeyRange,
    limit: number,
  ): Promise<{ readonly ranges: ReducedRange[]; readonly more: boolean; readonly version: number }>
  /** Keeps reductions of buckets. Does nothing if the rows have another version by now. */
  keepReductions(index: number, version: number, reductions: readonly KeptReduction[]): Promise<void>
  /** In bytes: on disk, and in use on disk. */
  sizes(): Promise<{ readonly file: number; readonly active: number }>
  /** Returns free pages to the file system, in short turns. */
  compact(): Promise<void>
}

/** The first rows of a store: they are collected as they come, and sorted at the end. */
export interface IndexBuild {
  /**
   * The update at which the build ends. A document that changes while the build runs comes again after it, so no
   * document comes twice.
   */
  readonly target: IndexPosition | null
  /** The last update whose rows were added. */
  readonly seq: number
  /** What the rows take on disk so far, in bytes. */
  bytes(): number
  /** Begins again, with another target. */
  restart(target: IndexPosition): Promise<void>
  /**
   * Adds the rows of documents, in short turns.
   * @param seq the last update that they include @param seen as in {@link IndexPosition}
   */
  add(docs: readonly IndexedDoc[], seq: number, seen: number): Promise<void>
  /** Sorts the rows, outside of this thread. Then the store has them, and the position is the target. */
  finish(): Promise<void>
  /** Ends the use of the build; what was added stays, for the next one. Idempotent. */
  close(): void
}

/** The index stores of one open database. */
export interface IndexStores {
  /**
   * A store; it is created, empty, when it is first used.
   * @param signature a file name of at most 64 letters and digits, which changes with the meaning of the rows
   * @param indexes the number of indexes in the store
   */
  open(signature: string, indexes: number): IndexStore
  /** The signatures of all stores, open or not. */
  signatures(): Promise<string[]>
  /** Removes a store. Its uses here fail with `unavailable`; for other openers it becomes empty. */
  remove(signature: string): Promise<void>
  /**
   * Empties a store that was found damaged: the next query builds it. Absent: the engine finds none.
   * @param signature one of {@link signatures}
   */
  discard?(signature: string): Promise<void>
  /** Bytes on disk of all stores, with their logs and unfinished builds. A long log is first written to its file. */
  fileBytes(): Promise<number>
  /** Ends the use of all stores: updates under way are refused with `unavailable`. */
  close(): void
}

/** Whether a database still has the updates that the rows of an index were read from. */
export function isPositionOf(
  database: { readonly epochs: Epochs; readonly updateSeq: number },
  { epoch, seen }: IndexPosition,
): boolean {
  return !isRolledBack(database, { epoch, updateSeq: seen })
}

const LAST = Uint8Array.of(0xff)
const NUL = 0
/** Follows a NUL that belongs to an id. */
const ESCAPE = 0xff
const END_OF_ID = Buffer.of(NUL)
/** Bytes of the number that distinguishes the rows of a document with equal keys. */
const NUMBER_BYTES = 3

/**
 * The bytes by which all rows are sorted: the key of a row, its id, and its number among the rows of its document.
 * @param number below 2^24
 */
export function rowKeyOf(key: Uint8Array, id: Uint8Array, number: number): Buffer {
  const rowKey = Buffer.allocUnsafe(key.length + id.length + NUMBER_BYTES)
  rowKey.set(key, 0)
  rowKey.set(id, key.length)
  rowKey.writeUIntBE(number, rowKey.length - NUMBER_BYTES, NUMBER_BYTES)
  return rowKey
}

/** The bytes of an id within a row key, with their end: a NUL, so that a NUL of the id is escaped. */
export function idBytes(id: string): Buffer {
  const bytes = Buffer.from(id)
  if (!bytes.includes(NUL)) return Buffer.concat([bytes, END_OF_ID])
  const escaped = [...bytes].flatMap((byte) => (byte === NUL ? [NUL, ESCAPE] : [byte]))
  return Buffer.from([...escaped, NUL])
}

/** The id of a row. */
export function idOfRow({ rowKey, keyLength }: Pick<IndexRow, 'rowKey' | 'keyLength'>): string {
  const bytes = rowKey.subarray(keyLength, rowKey.length - NUMBER_BYTES - END_OF_ID.length)
  // UTF-8 has no byte of this value.
  return Buffer.from(bytes.includes(ESCAPE) ? bytes.filter((byte) => byte !== ESCAPE) : bytes).toString()
}

/** The row key before all rows with a key; with an id, before the rows of that document with this key. */
export function keyBefore(key: Uint8Array, id?: string): Buffer {
  return id === undefined ? Buffer.from(key) : Buffer.concat([key, idBytes(id)])
}

/** The row key after all rows with a key, or whose key begins with these bytes; with an id, after those of that document. */
export function keyAfter(key: Uint8Array, id?: string): Buffer {
  return Buffer.concat(id === undefined ? [key, LAST] : [key, idBytes(id), LAST])
}
