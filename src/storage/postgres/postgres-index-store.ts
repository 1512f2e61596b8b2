/** An index store in the tables of PostgreSQL (index-tables.ts); the contract is storage/index-store.ts. */
import { randomInt } from 'node:crypto'
import { CouchError, isFileFault } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { agrees } from '../checksum.ts'
import { type KeyedRow, reductionSum, rowSum } from '../index-rows.ts'
import type {
  IndexedDoc,
  IndexPosition,
  IndexRow,
  IndexStatus,
  IndexStep,
  IndexStore,
  KeptReduction,
  KeyRange,
  ReadRange,
  ReducedRange,
  RowCounts,
} from '../index-store.ts'
import type { Query, Statement } from './connections.ts'
import {
  CLEAR,
  COUNTS,
  KEEP,
  KEYS,
  REDUCED_RANGES,
  type ReadRow,
  type ReducedRangeTuple,
  ROW_KEY_AT,
  ROWS_DOWN,
  ROWS_UP,
  type RowTuple,
  STATUS,
  type StatusRow,
  UPDATE,
} from './index-statements.ts'
import { docKey, docSum, headOf, type IndexChange, type KnownDoc, stepsOf, tailOf } from './index-steps.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { LostAnswer } from './store-fault.ts'

/** Documents whose stored keys are read at once, and the bytes of these. */
const MOST_DOCS = 250
const MOST_KEY_BYTES = 1024 * 1024
/** Values that are read at once. */
const MOST_VALUES = 1000
/** A store that is emptied so often while it is read is not readable. */
const MOST_TRIES = 10

/** Places of rows are compared with these where a range has no end: no key begins with 255. */
const FIRST = new Uint8Array(0)
const END = Uint8Array.of(0xff, 0xff)

/** The bytes by which a kept reduction's bucket begins: the version that has changed it. */
const CHANGED_BYTES = 8

export interface PostgresIndexOptions {
  readonly database: Pick<OpenDatabase, 'db' | 'connections' | 'opener'>
  readonly signature: string
  readonly indexes: number
  /** Called when rows are left that nothing uses. */
  onUnusedRows(): void
}

export class PostgresIndexStore implements IndexStore {
  readonly #options: PostgresIndexOptions
  /** The number of its rows, as last seen; 0: unknown, or the store does not exist. */
  #store = 0
  #isClosed = false

  constructor(options: PostgresIndexOptions) {
    this.#options = options
  }

  get indexes(): number {
    return this.#options.indexes
  }

  async status(): Promise<IndexStatus> {
    const row = await this.#status()
    if (row === undefined) return { position: null, version: 0, isUpdatedElsewhere: false }
    const [, version, seq, epoch, purgeSeq, isUpdatedElsewhere] = row
    return { position: positionOf(seq, epoch, purgeSeq), version, isUpdatedElsewhere }
  }

  async #status(): Promise<StatusRow | undefined> {
    const { database, signature } = this.#options
    const [row] = await this.#read<StatusRow>(STATUS, [database.db, signature, database.opener])
    this.#store = row?.[0] ?? 0
    if (row !== undefined && !row[7]) return this.#discard(row[1])
    return row
  }

  async update(docs: readonly IndexedDoc[], { from, position, more }: IndexStep): Promise<number | null> {
    const yielder = new Yielder()
    // Of a document that comes twice, the last rows count.
    const waiting = new Map(docs.map((doc) => [doc.id, doc]))
    let version: number | null = from
    if (from !== 0 && this.#store === 0) await this.#status()
    do {
      const known = await this.#takeKnown(waiting)
      const steps = stepsOf(known)
      for (let step = steps.next(); !step.done && version !== null; ) {
        await yielder.yieldIfDue()
        const next = steps.next()
        const isLast = waiting.size === 0 && next.done === true
        version = await this.#apply(step.value, version, position, isLast, more)
        step = next
      }
    } while (waiting.size > 0 && version !== null)
    return version
  }

  /** Takes documents off with the keys of their stored rows, as many as fit into memory. */
  async #takeKnown(waiting: Map<string, IndexedDoc>): Promise<KnownDoc[]> {
    const { database } = this.#options
    const some = [...waiting.values()].slice(0, MOST_DOCS).map((doc) => ({ doc, key: docKey(doc.id) }))
    if (some.length === 0) return []
    const values = [database.db, this.#store, some.map(({ key }) => key), MOST_KEY_BYTES]
    type KeysRow = [doc: Buffer, keys: Buffer | null, checksum: number | null]
    const rows = this.#store === 0 ? [] : await this.#read<KeysRow>(KEYS, values)
    const isSound = ([doc, keys, sum]: KeysRow) => keys === null || agrees(sum, docSum(doc, keys), true)
    if (!rows.every(isSound)) await this.#discardCurrent()
    const found = new Map(rows.map(([doc, keys]) => [doc.toString('latin1'), keys]))
    const known: KnownDoc[] = []
    for (const { doc, key } of some) {
      const keys = found.get(key.toString('latin1'))
      if (keys === null) continue
      known.push({ doc, keys: keys ?? null })
      waiting.delete(doc.id)
    }
    return known
  }

  async #apply(
    change: IndexChange,
    from: number,
    position: IndexPosition,
    isLast: boolean,
    more: boolean,
  ): Promise<number | null> {
    const { database, signature, indexes } = this.#options
    const version = randomNumber()
    const values = [
      database.db,
      signature,
      indexes,
      from,
      version,
      from === 0 ? randomNumber() : this.#store,
      isLast ? position.seq : null,
      // With the first rows: from then on, the store has some of a newer state.
      epochText(position, isLast),
      isLast ? position.purgeSeq : null,
      more || !isLast ? database.opener : null,
      ...change.values(),
    ]
    const store = await this.#write(UPDATE, values)
    if (store === null || store === 0) return null
    if (store === -1) throw new CouchError('no_database')
    this.#store = Number(store)
    return version
  }

  async clear(from: number): Promise<boolean> {
    const { database, signature, onUnusedRows } = this.#options
    const isCleared = await this.#write(CLEAR, [database.db, signature, from, randomNumber(), randomNumber()])
    if (isCleared !== true) return false
    onUnusedRows()
    return true
  }

  /** An update that adds rows costs the same at any time. */
  async build(): Promise<null> {
    return null
  }

  async read(
    index: number,
    range: ReadRange,
    limit: number,
  ): Promise<{ rows: IndexRow[]; more: boolean; version: number }> {
    const statement = range.descending ? ROWS_DOWN : ROWS_UP
    const found = await this.#reading<RowTuple>(statement, [index, ...boundsOf(range), limit])
    const rows = await this.#sound(found, range)
    return { rows, more: hasMore(found, rows.length, limit), version: found.version }
  }

  async readValues(
    index: number,
    range: KeyRange,
  ): Promise<{ values: string[]; next: Uint8Array | null; version: number }> {
    const found = await this.#reading<RowTuple>(ROWS_UP, [index, ...boundsOf(range), MOST_VALUES])
    const rows = await this.#sound(found, range)
    const last = rows.at(-1)
    const isMore = last !== undefined && hasMore(found, rows.length, MOST_VALUES)
    const next = isMore ? Buffer.concat([last.rowKey, Uint8Array.of(0)]) : null
    return { values: rows.map(({ valueText }) => valueText), next, version: found.version }
  }

  /**
   * The rows that a statement has found in a range.
   * @throws unavailable if one of them does not say what was written, or is in another place, to which a damaged index of
   *   PostgreSQL leads; the store is empty then
   */
  async #sound({ rows, version }: Found<RowTuple>, range: ReadRange): Promise<KeyedRow[]> {
    const { from = FIRST, to = END, descending = false } = range
    const sound: KeyedRow[] = []
    const isBehind = (rowKey: Buffer, last: Buffer | undefined) =>
      last === undefined || Buffer.compare(rowKey, last) * (descending ? -1 : 1) > 0
    for (const [, , , head, tail, keyLength, keyText, valueText, sum] of rows) {
      if (head === null) continue
      const row = { rowKey: joined(head, tail), keyLength, keyText, valueText }
      const isInRange = Buffer.compare(from, row.rowKey) <= 0 && Buffer.compare(row.rowKey, to) < 0
      const isInOrder = isInRange && isBehind(row.rowKey, sound.at(-1)?.rowKey)
      if (!isInOrder || !agrees(sum, rowSum(row), true)) return this.#discard(version)
      sound.push(row)
    }
    return sound
  }

  async counts(index: number, rowKeys: readonly Uint8Array[]): Promise<RowCounts> {
    const { database, signature } = this.#options
    type Counts = [number, number | null, string | null, number | null, number, number[]]
    const values = [database.db, signature, index, rowKeys.map(headOf), rowKeys.map(tailOf)]
    const [row] = await this.#read<Counts>(COUNTS, values).catch((error: unknown) => {
      if (isFileFault(error)) return this.#discardCurrent()
      throw error
    })
    if (row === undefined) return { total: 0, before: rowKeys.map(() => 0), position: null, version: 0 }
    const [version, seq, epoch, purgeSeq, total, before] = row
    return { total, before: before.map(Number), position: positionOf(seq, epoch, purgeSeq), version }
  }

  async rowKeyAt(index: number, count: number): Promise<{ rowKey: Uint8Array | null; version: number }> {
    const { database, signature } = this.#options
    type FoundKey = [version: number, head: Buffer | null, tail: Buffer]
    const [row] = await this.#read<FoundKey>(ROW_KEY_AT, [database.db, signature, index, count])
    if (row === undefined) return { rowKey: null, version: 0 }
    const [version, head, tail] = row
    return { rowKey: head === null ? null : joined(head, tail), version }
  }

  async reducedRanges(
    index: number,
    { from = FIRST, to = END }: KeyRange,
    limit: number,
  ): Promise<{ ranges: ReducedRange[]; more: boolean; version: number }> {
    const found = await this.#reading<ReducedRangeTuple>(REDUCED_RANGES, [
      index,
      bytesOf(from),
      bytesOf(to),
      limit + 1,
    ])
    const { version } = found
    const buckets = found.rows.filter(([, , , start]) => start !== null)
    const isCut = buckets.length < (found.rows[0]?.[2] ?? 0)
    const ranges: ReducedRange[] = []
    for (const [at, [, , , start, rows, reduction, changed, sum]] of buckets.entries()) {
      const isSound = reduction === null || agrees(sum, reductionSum(start as Buffer, reduction), true)
      if (!isSound) return this.#discard(version)
      const following = buckets[at + 1]?.[3]
      // The end of the last one that was read is not known.
      if (at === limit || (isCut && following === undefined)) return { ranges, more: true, version }
      if (rows === 0) continue
      const isWhole = Buffer.compare(from, start as Buffer) <= 0 && (following !== undefined || to === END)
      const range = { from: later(start as Buffer, from), to: following ?? to }
      const bucket = isWhole ? bucketOf(start as Buffer, changed) : null
      ranges.push({ range, bucket, reduction: isWhole ? reduction : null })
    }
    return { ranges, more: false, version }
  }

  async keepReductions(index: number, _version: number, reductions: readonly KeptReduction[]): Promise<void> {
    const { database } = this.#options
    if (this.#store === 0 || reductions.length === 0) return
    await this.#write(KEEP, [
      database.db,
      this.#store,
      index,
      reductions.map(({ bucket }) => bytesOf(bucket.subarray(CHANGED_BYTES))),
      reductions.map(({ bucket }) => Number(bytesOf(bucket).readBigInt64BE())),
      reductions.map(({ reduction }) => reduction),
      reductions.map(({ bucket, reduction }) => reductionSum(bucket.subarray(CHANGED_BYTES), reduction)),
    ])
  }

  async sizes(): Promise<{ file: number; active: number }> {
    const bytes = (await this.#status())?.[6] ?? 0
    return { file: bytes, active: bytes }
  }

  /** PostgreSQL finds free pages itself. */
  async compact(): Promise<void> {
    this.#options.onUnusedRows()
  }

  /** Idempotent. */
  close(): void {
    this.#isClosed = true
  }

  /** Reads rows of the store together with its version, again if it was emptied since its number was read. */
  async #reading<R extends Row>(statement: Statement, values: readonly unknown[]): Promise<Found<R>> {
    const { database, signature } = this.#options
    for (let left = MOST_TRIES; left > 0; left--) {
      if (this.#store === 0 && (await this.#status()) === undefined) return { rows: [], version: 0 }
      const rows = await this.#read<R>(statement, [database.db, signature, this.#store, ...values])
      const store = rows[0]?.[0] ?? 0
      if (store === this.#store) return { rows, version: Number(rows[0]?.[1]) }
      this.#store = Number(store)
    }
    throw new CouchError('store_unavailable')
  }

  #read<R extends Row>(statement: Statement, values: Query['values']): Promise<R[]> {
    if (this.#isClosed) return Promise.reject(new CouchError('unavailable'))
    return this.#options.database.connections.read<R>({ ...statement, values })
  }

  /** Empties the store, which is damaged, so that the next query makes its rows again. @param version of what was read */
  async #discard(version: number): Promise<never> {
    await this.clear(version)
    throw new CouchError('unavailable')
  }

  /** As {@link #discard}, whatever its version is now. */
  async #discardCurrent(): Promise<never> {
    return this.#discard((await this.#status())?.[1] ?? 0)
  }

  /**
   * Calls a function. If its answer is lost, nobody needs to know whether it has changed something: the version tells.
   * @returns null if the answer was lost
   */
  async #write(statement: Statement, values: Query['values']): Promise<unknown> {
    if (this.#isClosed) throw new CouchError('unavailable')
    try {
      const [row] = await this.#options.database.connections.write<[unknown]>({ ...statement, values })
      return row?.[0] ?? null
    } catch (error) {
      if (error instanceof LostAnswer) return null
      throw error
    }
  }
}

/** Rows of a store together with its version. */
interface Found<R extends Row> {
  readonly rows: readonly R[]
  readonly version: number
}

/** A number that no other opener has drawn, and not 0. */
function randomNumber(): number {
  return randomInt(1, 2 ** 48 - 1)
}

/** An epoch, and `seen` behind it where that is not `seq`: in the form that older nodes know, for as many positions as possible. */
function epochText({ seq, seen, epoch }: IndexPosition, isWhole: boolean): string {
  return isWhole && seen === seq ? epoch : `${epoch} ${seen}`
}

/** A new store without `seq` has a part of the rows of its first step. */
function positionOf(seq: number | null, text: string | null, purgeSeq: number | null): IndexPosition | null {
  if (text === null) return null
  const [epoch = '', seen = seq ?? 0] = text.split(' ')
  return { seq: seq ?? 0, seen: Number(seen), epoch, purgeSeq: purgeSeq ?? 0 }
}

function boundsOf({ from = FIRST, to = END }: KeyRange): Buffer[] {
  return [headOf(from), tailOf(from), headOf(to), tailOf(to)]
}

function bytesOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}

function joined(head: Buffer, tail: Buffer): Buffer {
  return tail.length === 0 ? head : Buffer.concat([head, tail])
}

/** Whether a range has rows behind those that a read has returned. */
function hasMore(
  { rows }: { readonly rows: readonly ReadRow<readonly unknown[]>[] },
  returned: number,
  limit: number,
): boolean {
  const found = rows[0]?.[2] ?? 0
  return found === limit || found > returned
}

function bucketOf(start: Buffer, changed: number): Buffer {
  const version = Buffer.alloc(CHANGED_BYTES)
  version.writeBigInt64BE(BigInt(changed))
  return Buffer.concat([version, start])
}

function later(a: Uint8Array, b: Uint8Array): Uint8Array {
  return Buffer.compare(a, b) < 0 ? b : a
}
