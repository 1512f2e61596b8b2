/** An index store in a SQLite file of its own; the contract is storage/index-store.ts. */
import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { CouchError } from '../../core/errors.ts'
import { isHeldLong, Yielder } from '../../core/event-loop.ts'
import { agrees } from '../checksum.ts'
import { type KeyedRow, reductionSum } from '../index-rows.ts'
import type {
  IndexBuild,
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
import { Connection } from './connection.ts'
import { type FileErrors, PageCache, type PageCaches } from './database-access.ts'
import { codeCounts, countRowsBefore, keyOfRow } from './index-buckets.ts'
import { removeBuild, StagedBuild } from './index-build.ts'
import { refuseDamaged, rowCount, type StoredSum } from './index-checksums.ts'
import {
  addChecksums,
  isUnreadable,
  isUnsummed,
  type Layout,
  RowWriter,
  readLayout,
  readPosition,
  removeFile,
  tables,
  writePosition,
} from './index-file.ts'
import {
  bucketOf,
  COLUMNS,
  checkedKey,
  checkedRows,
  END,
  FIRST,
  type KeyBounds,
  type OpenIndex,
  proveBuckets,
  proveRows,
  type RowTuple,
  readSuperbuckets,
  type Superbuckets,
} from './index-proofs.ts'
import { fileBytes, logOf } from './page-copy.ts'

/** Rows in the first batch of a reading turn, and in the others. Rows may have values of a megabyte. */
const FIRST_ROWS = 16
const MORE_ROWS = 64
/** Values that are read at once, unless the first of them are long. */
const MOST_ROWS = 256
/** Characters of rows after which a reading turn ends. */
const MAX_READ_CHARS = 1024 * 1024
/** Free pages that one step of a compaction returns: 1 MB. */
const VACUUMED_PAGES = 128

/** The length of a log that may stay beside its file. */
const MAX_LOG_BYTES = 256 * 1024

export interface IndexFileOptions {
  readonly path: string
  readonly indexes: number
  readonly caches: PageCaches
  readonly errors: FileErrors
  readonly onOperation?: ((operation: string) => void) | undefined
}

interface OpenFile {
  readonly connection: Connection
  readonly cache: PageCache
  readonly rows: RowWriter
  /** Whether rows may lack their checksums. */
  readonly mayLack: boolean
}

export class SqliteIndexStore implements IndexStore {
  readonly #options: IndexFileOptions
  /** null while the file is closed: until it is first used, and to make room for others. */
  #file: OpenFile | null = null
  /** undefined until the file is first used. */
  #position: IndexPosition | null | undefined
  #version = 0
  /** The superbuckets of the indexes, as far as they were asked for, of one version. */
  #counted = { version: 0, superbuckets: new Map<number, Superbuckets>() }
  #isClosed = false

  constructor(options: IndexFileOptions) {
    this.#options = options
  }

  #openFile(): OpenFile {
    const connection = this.#openOrCreate()
    if (this.#position === undefined) {
      this.#position = readPosition(connection)
      if (this.#position !== null) removeBuild(this.#options.path)
    }
    const mayLack = isUnsummed(connection)
    return {
      connection,
      cache: new PageCache(connection, this.#options.caches),
      rows: new RowWriter(connection, mayLack),
      mayLack,
    }
  }

  /** Closes the file until the store is used again. */
  rest(): void {
    this.#file?.cache.close()
    this.#file?.connection.close()
    this.#file = null
  }

  /** A file that cannot be read is removed: its rows can be made again. */
  #openOrCreate(): Connection {
    const { path, errors } = this.#options
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    try {
      return this.#open()
    } catch (error) {
      if (!isUnreadable(error)) throw errors.report(error)
      removeFile(path)
    }
    try {
      return this.#open()
    } catch (error) {
      throw errors.report(error)
    }
  }

  #open(): Connection {
    const { path, indexes, onOperation } = this.#options
    const connection = new Connection(path, { isDerived: true, onOperation })
    try {
      const layout = readLayout(connection)
      if (layout === null) {
        connection.begin()
        connection.exec(tables(indexes))
        new RowWriter(connection, false).addFirstBuckets(indexes)
        connection.commit()
      } else this.#complete(connection, layout)
      readPosition(connection)
      return connection
    } catch (error) {
      connection.close()
      throw error
    }
  }

  /** Makes the newest tables of those of an older settee. @throws SqliteError for a file with another number of indexes */
  #complete(connection: Connection, { version, indexes }: Layout): void {
    if (indexes !== this.#options.indexes) refuseDamaged()
    if (version === 'plain') {
      connection.begin()
      addChecksums(connection, indexes)
      connection.commit()
    }
    if (version !== 'coded') {
      connection.begin()
      for (let index = 0; index < indexes; index++) connection.exec(codeCounts(index))
      connection.commit()
    }
  }

  get indexes(): number {
    return this.#options.indexes
  }

  async status(): Promise<IndexStatus> {
    this.#use()
    return { position: this.#position ?? null, version: this.#version, isUpdatedElsewhere: false }
  }

  async update(docs: readonly IndexedDoc[], { from, position }: IndexStep): Promise<number | null> {
    const yielder = new Yielder()
    let at = 0
    let version = from
    do {
      await yielder.yieldIfDue()
      if (version !== this.#version) return null
      this.#version += 1
      version = this.#version
      this.#transaction(({ connection, rows }) => {
        const since = performance.now()
        while (at < docs.length && !isHeldLong(since)) rows.replace(docs[at++] as IndexedDoc)
        writePosition(connection, at === docs.length ? position : this.#underWay(position))
      })
    } while (at < docs.length)
    this.#position = position
    return version
  }

  /** The position while an update is written: some of its rows are in the file already. */
  #underWay(next: IndexPosition): IndexPosition {
    const { seq = 0, purgeSeq = next.purgeSeq } = this.#position ?? {}
    return { ...next, seq, purgeSeq }
  }

  async clear(from: number): Promise<boolean> {
    this.#refuseIfClosed()
    if (from !== this.#version) return false
    this.#replaceFile(() => removeFile(this.#options.path))
    return true
  }

  async build(): Promise<IndexBuild> {
    this.#use()
    const { path, indexes, errors, onOperation } = this.#options
    return new StagedBuild({
      path,
      indexes,
      errors,
      onOperation,
      isClosed: () => this.#isClosed,
      publish: (put) => this.#replaceFile(put),
    })
  }

  /** Closes the file, changes it, and opens it again. */
  #replaceFile(change: () => void): void {
    this.#version += 1
    this.rest()
    try {
      change()
    } finally {
      this.#position = undefined
      this.#file = this.#openFile()
    }
  }

  async read(
    index: number,
    { from = FIRST, to = END, descending = false, isWhole = false }: ReadRange,
    limit: number,
  ): Promise<{ rows: IndexRow[]; more: boolean; version: number }> {
    const order = descending ? 'DESC' : 'ASC'
    return this.#reading((connection, mayLack) => {
      const next = connection.prepareTuples<RowTuple>(
        `SELECT ${COLUMNS} FROM rows_${index} WHERE k >= ? AND k < ? ORDER BY k ${order} LIMIT ?`,
      )
      const since = performance.now()
      const rows: KeyedRow[] = []
      // What is left of the range.
      let rest = { from, to }
      let more = true
      let chars = 0
      for (let batch = FIRST_ROWS; more && rows.length < limit; batch = MORE_ROWS) {
        const wanted = Math.min(batch, limit - rows.length)
        const found = checkedRows(next.all(rest.from, rest.to, wanted), rest, descending, mayLack)
        for (const row of found) {
          rows.push(row)
          chars += row.keyText.length + row.valueText.length
        }
        more = found.length === wanted
        const last = more ? found.at(-1) : undefined
        if (last !== undefined)
          rest = descending ? { from, to: last.rowKey } : { from: justAfter(last.rowKey), to }
        if (chars > MAX_READ_CHARS || isHeldLong(since)) break
      }
      if (isWhole) {
        const read = !more ? { from, to } : descending ? { from: rest.to, to } : { from, to: rest.from }
        proveRows({ connection, index, mayLack }, read, rows.length)
      }
      return { rows, more, version: this.#version }
    })
  }

  async readValues(
    index: number,
    { from = FIRST, to = END }: KeyRange,
  ): Promise<{ values: string[]; next: Uint8Array | null; version: number }> {
    return this.#reading((connection, mayLack) => {
      const select = connection.prepareTuples<RowTuple>(
        `SELECT ${COLUMNS} FROM rows_${index} WHERE k >= ? AND k < ? ORDER BY k LIMIT ?`,
      )
      const read = (start: Uint8Array, limit: number) =>
        checkedRows(select.all(start, to, limit), { from: start, to }, false, mayLack)
      let rows = read(from, FIRST_ROWS)
      let next = rows.length < FIRST_ROWS ? null : justAfter((rows.at(-1) as KeyedRow).rowKey)
      if (next !== null && valueChars(rows) < MAX_READ_CHARS / (MOST_ROWS / FIRST_ROWS)) {
        const limit = MOST_ROWS - FIRST_ROWS
        const others = read(next, limit)
        rows = [...rows, ...others]
        next = others.length < limit ? null : justAfter((rows.at(-1) as KeyedRow).rowKey)
      }
      proveRows({ connection, index, mayLack }, { from, to: next ?? to }, rows.length)
      return { values: rows.map(({ valueText }) => valueText), next, version: this.#version }
    })
  }

  async counts(index: number, rowKeys: readonly Uint8Array[]): Promise<RowCounts> {
    return this.#reading((connection, mayLack) => {
      const open = { connection, index, mayLack }
      const superbuckets = this.#superbuckets(open)
      return {
        total: superbuckets.rowsBefore.at(-1) as number,
        before: rowKeys.map((rowKey) => countRowsBefore(open, superbuckets, rowKey)),
        position: this.#position ?? null,
        version: this.#version,
      }
    })
  }

  #superbuckets(open: OpenIndex): Superbuckets {
    if (this.#counted.version !== this.#version)
      this.#counted = { version: this.#version, superbuckets: new Map() }
    const known = this.#counted.superbuckets.get(open.index)
    const superbuckets = known ?? readSuperbuckets(open)
    if (known === undefined) this.#counted.superbuckets.set(open.index, superbuckets)
    return superbuckets
  }

  async rowKeyAt(index: number, count: number): Promise<{ rowKey: Uint8Array | null; version: number }> {
    return this.#reading((connection, mayLack) => {
      const open = { connection, index, mayLack }
      return { rowKey: keyOfRow(open, this.#superbuckets(open), count), version: this.#version }
    })
  }

  async reducedRanges(
    index: number,
    { from = FIRST, to = END }: KeyRange,
    limit: number,
  ): Promise<{ ranges: ReducedRange[]; more: boolean; version: number }> {
    return this.#reading((connection, mayLack) => {
      const open = { connection, index, mayLack }
      const first = bucketOf(open, from)
      const found = connection
        .prepareTuples<[unknown, unknown, string | null, StoredSum]>(
          `SELECT k, nc, red, c FROM sums_${index} WHERE k >= ? AND k < ? ORDER BY k LIMIT ?`,
        )
        .all(first, to, limit + 1)
      const buckets = found.map(([start, nc, reduction, sum]) => {
        const bucket = { start: checkedKey(start), rows: rowCount(nc), reduction }
        if (reduction === null || agrees(sum, reductionSum(bucket.start, reduction), mayLack)) return bucket
        return refuseDamaged()
      })
      this.#proveParts(open, buckets.slice(0, limit), { from: first, to: buckets[limit]?.start ?? to }, from)
      const ranges: ReducedRange[] = []
      let chars = 0
      for (const [at, { start, rows, reduction }] of buckets.entries()) {
        if (at === limit || chars > MAX_READ_CHARS) return { ranges, more: true, version: this.#version }
        // The last bucket of a range with an end may have rows behind it.
        const end = buckets[at + 1]?.start ?? to
        const isWhole = Buffer.compare(from, start) <= 0 && (at + 1 < buckets.length || to === END)
        if (rows === 0) continue
        chars += reduction?.length ?? 0
        const range = { from: later(start, from), to: end }
        ranges.push({ range, bucket: isWhole ? start : null, reduction: isWhole ? reduction : null })
      }
      return { ranges, more: false, version: this.#version }
    })
  }

  /** @param buckets those of a range that begins with a bucket @param rowKey in the first one; others are behind it */
  #proveParts(
    open: OpenIndex,
    buckets: readonly { readonly start: Buffer; readonly rows: number }[],
    range: KeyBounds,
    rowKey: Uint8Array,
  ): void {
    let rows = 0
    let last: Uint8Array | null = null
    for (const bucket of buckets) {
      const isInOrder: boolean =
        last === null
          ? bucket.start.equals(range.from)
          : Buffer.compare(bucket.start, last) > 0 && Buffer.compare(bucket.start, rowKey) > 0
      if (!isInOrder || Buffer.compare(bucket.start, range.to) >= 0) refuseDamaged()
      last = bucket.start
      rows += bucket.rows
    }
    proveBuckets(open, this.#superbuckets(open), range, { rows, buckets: buckets.length })
  }

  async keepReductions(index: number, version: number, reductions: readonly KeptReduction[]): Promise<void> {
    if (version !== this.#version || reductions.length === 0) return
    this.#transaction(({ connection }) => {
      const keep = connection.prepare(`UPDATE sums_${index} SET red = ?, c = ? WHERE k = ?`)
      for (const { bucket, reduction } of reductions)
        keep.run(reduction, reductionSum(bucket, reduction), bucket)
    })
  }

  async sizes(): Promise<{ file: number; active: number }> {
    const { path } = this.#options
    return this.#reading((connection) => {
      const [pages, free] = ['page_count', 'freelist_count'].map((name) => Number(connection.pragma(name)))
      const active = ((pages ?? 0) - (free ?? 0)) * connection.pageSize
      return { file: fileBytes(path) + fileBytes(logOf(path)), active }
    })
  }

  /** Writes a long log to the file, which then takes no space twice. */
  trim(): void {
    if (this.#file === null || fileBytes(logOf(this.#options.path)) <= MAX_LOG_BYTES) return
    this.#reading((connection) => connection.checkpoint())
  }

  async compact(): Promise<void> {
    const yielder = new Yielder()
    while (this.#reading((connection) => Number(connection.pragma('freelist_count'))) > 0) {
      this.#reading((connection) => connection.exec(`PRAGMA incremental_vacuum(${VACUUMED_PAGES})`))
      await yielder.yieldIfDue()
    }
    this.#reading((connection) => connection.checkpoint())
  }

  /** Removes all rows of a file that was found damaged. */
  discard(): void {
    this.#refuseIfClosed()
    this.#replaceFile(() => removeFile(this.#options.path))
  }

  /** Idempotent. */
  close(): void {
    this.#isClosed = true
    this.rest()
  }

  #refuseIfClosed(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
  }

  #use(): OpenFile {
    this.#refuseIfClosed()
    this.#file ??= this.#openFile()
    this.#file.cache.use()
    return this.#file
  }

  #reading<R>(work: (connection: Connection, mayLack: boolean) => R): R {
    const { connection, mayLack } = this.#use()
    try {
      return this.#options.errors.retrying(() => work(connection, mayLack))
    } catch (error) {
      throw this.#fault(error)
    }
  }

  #transaction(work: (file: OpenFile) => void): void {
    const file = this.#use()
    try {
      file.connection.begin()
      work(file)
      file.connection.commit()
    } catch (error) {
      file.connection.rollback(error)
      throw this.#fault(error)
    }
  }

  /** A damaged file is emptied, so that the next query makes the rows again. */
  #fault(error: unknown): unknown {
    if (!isUnreadable(error)) return this.#options.errors.report(error)
    this.#replaceFile(() => removeFile(this.#options.path))
    return new CouchError('unavailable', undefined, { cause: error })
  }
}

/** The first row key after another. */
function justAfter(rowKey: Uint8Array): Buffer {
  return Buffer.concat([rowKey, Uint8Array.of(0)])
}

function valueChars(rows: readonly KeyedRow[]): number {
  return rows.reduce((sum, { valueText }) => sum + valueText.length, 0)
}

function later(a: Uint8Array, b: Uint8Array): Uint8Array {
  return Buffer.compare(a, b) < 0 ? b : a
}
