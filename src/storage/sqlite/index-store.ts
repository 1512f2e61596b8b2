/** An index store in a SQLite file of its own; the contract is storage/index-store.ts. */
import Sqlite from 'better-sqlite3'
import { CouchError } from '../../core/errors.ts'
import { isHeldLong, Yielder } from '../../core/event-loop.ts'
import type {
  IndexBuild,
  IndexedDoc,
  IndexPosition,
  IndexRow,
  IndexStore,
  PlaceRange,
  ReducedPart,
} from '../index-store.ts'
import { Connection } from './connection.ts'
import { type FileErrors, PageCache, type PageCaches } from './database-access.ts'
import { StagedBuild } from './index-build.ts'
import { RowWriter, readPosition, removeFile, tables, writePosition } from './index-file.ts'
import { countRows, countRowsBefore, FIRST, placeOfRow, stretchOf } from './index-stretches.ts'
import { fileBytes, logOf } from './page-copy.ts'

/** The places of the rows of a range are compared with this one where it has no end: no key begins with it. */
const END = Uint8Array.of(0xff, 0xff)

/** Rows in the first batch of a reading turn, and in the others. Rows may have values of a megabyte. */
const FIRST_ROWS = 16
const MORE_ROWS = 64
/** Values that are read at once, unless the first of them are long. */
const MOST_ROWS = 256
/** Characters of rows after which a reading turn ends. */
const MAX_READ_CHARS = 1024 * 1024
/** Free pages that one step of a compaction returns: 1 MB. */
const VACUUMED_PAGES = 128

type RowTuple = [place: Buffer, keyLength: number, keyText: string, valueText: string]

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
}

export class SqliteIndexStore implements IndexStore {
  readonly #options: IndexFileOptions
  /** null while the file is closed to make room for others. */
  #file: OpenFile | null
  #position: IndexPosition | null
  #version = 0
  /** The numbers of rows of the indexes, as far as they were asked for, of one version. */
  #counted = { version: 0, rows: new Map<number, number>() }
  #isClosed = false

  constructor(options: IndexFileOptions) {
    this.#options = options
    this.#file = this.#openFile()
    this.#position = readPosition(this.#file.connection)
  }

  #openFile(): OpenFile {
    const connection = this.#openOrCreate()
    return {
      connection,
      cache: new PageCache(connection, this.#options.caches),
      rows: new RowWriter(connection),
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
      const found = connection.prepareTuples<[number]>('SELECT count(*) FROM sqlite_schema').get()
      if (found?.[0] === 0) {
        connection.begin()
        connection.exec(tables(indexes))
        new RowWriter(connection).addFirstStretches(indexes)
        connection.commit()
      }
      // Finds a file whose tables are not those of this store.
      for (let index = 0; index < indexes; index++)
        connection.prepare(`SELECT l, m FROM rows_${index}, blocks_${index}`)
      return connection
    } catch (error) {
      connection.close()
      throw error
    }
  }

  get indexes(): number {
    return this.#options.indexes
  }

  get position(): IndexPosition | null {
    return this.#position
  }

  get version(): number {
    return this.#version
  }

  async update(docs: readonly IndexedDoc[], position: IndexPosition): Promise<void> {
    const yielder = new Yielder()
    let at = 0
    do {
      await yielder.yieldIfDue()
      this.#version += 1
      this.#transaction(({ connection, rows }) => {
        const since = performance.now()
        while (at < docs.length && !isHeldLong(since)) rows.replace(docs[at++] as IndexedDoc)
        if (at === docs.length) writePosition(connection, position)
      })
    } while (at < docs.length)
    this.#position = position
  }

  async clear(): Promise<void> {
    this.#refuseIfClosed()
    this.#replaceFile(() => removeFile(this.#options.path))
  }

  build(): IndexBuild {
    this.#refuseIfClosed()
    const { path, indexes, errors, onOperation } = this.#options
    return new StagedBuild({
      ...{ path, indexes, errors, onOperation },
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
      this.#file = this.#openFile()
      this.#position = readPosition(this.#file.connection)
    }
  }

  read(
    index: number,
    { from, to, descending }: PlaceRange & { readonly descending?: boolean },
    limit: number,
  ): { rows: IndexRow[]; more: boolean } {
    const order = descending ? 'DESC' : 'ASC'
    return this.#reading((connection) => {
      const next = connection.prepareTuples<RowTuple>(
        `SELECT k, l, key, value FROM rows_${index} WHERE k >= ? AND k < ? ORDER BY k ${order} LIMIT ?`,
      )
      const since = performance.now()
      const rows: IndexRow[] = []
      let [low, high]: [Uint8Array, Uint8Array] = [from ?? FIRST, to ?? END]
      let chars = 0
      for (let batch = FIRST_ROWS; rows.length < limit; batch = MORE_ROWS) {
        const wanted = Math.min(batch, limit - rows.length)
        const found = next.all(low, high, wanted)
        for (const [place, keyLength, keyText, valueText] of found) {
          rows.push({ place, keyLength, keyText, valueText })
          chars += keyText.length + valueText.length
        }
        if (found.length < wanted) return { rows, more: false }
        const last = (found.at(-1) as RowTuple)[0]
        if (descending) high = last
        else low = justAfter(last)
        if (chars > MAX_READ_CHARS || isHeldLong(since)) break
      }
      return { rows, more: true }
    })
  }

  readValues(
    index: number,
    { from = FIRST, to = END }: PlaceRange,
  ): { values: string[]; next: Uint8Array | null } {
    const where = `FROM rows_${index} WHERE k >= ? AND k < ? ORDER BY k LIMIT ?`
    return this.#reading((connection) => {
      const values = connection.prepareValues<string>(`SELECT value ${where}`)
      let found = values.all(from, to, FIRST_ROWS)
      if (found.length < FIRST_ROWS) return { values: found, next: null }
      let rows = FIRST_ROWS
      if (lengthOf(found) < MAX_READ_CHARS / (MOST_ROWS / FIRST_ROWS)) {
        rows = MOST_ROWS
        found = values.all(from, to, rows)
      }
      if (found.length < rows) return { values: found, next: null }
      const last = connection.prepareValues<Buffer>(`SELECT k ${where} OFFSET ?`).all(from, to, 1, rows - 1)
      return { values: found, next: justAfter(last[0] as Buffer) }
    })
  }

  count(index: number): number {
    if (this.#counted.version !== this.#version) this.#counted = { version: this.#version, rows: new Map() }
    const { rows } = this.#counted
    const known = rows.get(index)
    if (known !== undefined) return known
    const count = this.#reading((connection) => countRows(connection, index))
    rows.set(index, count)
    return count
  }

  countBefore(index: number, place: Uint8Array): number {
    return this.#reading((connection) => countRowsBefore(connection, index, place))
  }

  placeAt(index: number, count: number): Uint8Array | null {
    return this.#reading((connection) => placeOfRow(connection, index, count))
  }

  parts(
    index: number,
    { from = FIRST, to = END }: PlaceRange,
    limit: number,
  ): { parts: ReducedPart[]; more: boolean } {
    return this.#reading((connection) => {
      const stretches = connection
        .prepareTuples<[Buffer, number, string | null]>(
          `SELECT k, n, red FROM sums_${index} WHERE k >= ? AND k < ? ORDER BY k LIMIT ?`,
        )
        .all(stretchOf(connection, index, from), to, limit + 1)
      const parts: ReducedPart[] = []
      for (const [at, [start, rows, reduction]] of stretches.entries()) {
        if (at === limit) return { parts, more: true }
        // The last stretch of a range with an end may have rows behind it.
        const end = stretches[at + 1]?.[0] ?? to
        const isWhole = Buffer.compare(from, start) <= 0 && (at + 1 < stretches.length || to === END)
        if (rows === 0) continue
        const range = { from: later(start, from), to: end }
        parts.push({ range, stretch: isWhole ? start : null, reduction: isWhole ? reduction : null })
      }
      return { parts, more: false }
    })
  }

  keepReductions(
    index: number,
    version: number,
    reductions: readonly { readonly stretch: Uint8Array; readonly reduction: string }[],
  ): void {
    if (version !== this.#version || reductions.length === 0) return
    this.#transaction(({ connection }) => {
      const keep = connection.prepare(`UPDATE sums_${index} SET red = ? WHERE k = ?`)
      for (const { stretch, reduction } of reductions) keep.run(reduction, stretch)
    })
  }

  sizes(): { file: number; active: number } {
    const { path } = this.#options
    return this.#reading((connection) => {
      const [pages, free] = ['page_count', 'freelist_count'].map((name) => Number(connection.pragma(name)))
      const active = ((pages ?? 0) - (free ?? 0)) * connection.pageSize
      return { file: fileBytes(path) + fileBytes(logOf(path)), active }
    })
  }

  async compact(): Promise<void> {
    const yielder = new Yielder()
    while (this.#reading((connection) => Number(connection.pragma('freelist_count'))) > 0) {
      this.#reading((connection) => connection.exec(`PRAGMA incremental_vacuum(${VACUUMED_PAGES})`))
      await yielder.yieldIfDue()
    }
    this.#reading((connection) => connection.checkpoint())
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

  #reading<R>(work: (connection: Connection) => R): R {
    const { connection } = this.#use()
    try {
      return this.#options.errors.retrying(() => work(connection))
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

/** Whether a file is damaged, or has other tables than this version of settee writes. */
function isUnreadable(thrown: unknown): boolean {
  return thrown instanceof Sqlite.SqliteError && /^SQLITE_(?:CORRUPT|NOTADB|ERROR)/.test(thrown.code)
}

/** The first place after another. */
function justAfter(place: Uint8Array): Buffer {
  return Buffer.concat([place, Uint8Array.of(0)])
}

function lengthOf(texts: readonly string[]): number {
  return texts.reduce((sum, { length }) => sum + length, 0)
}

function later(a: Uint8Array, b: Uint8Array): Uint8Array {
  return Buffer.compare(a, b) < 0 ? b : a
}
