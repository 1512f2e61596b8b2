/** The file of an index store: its tables, its position, and the rows of documents. */
import { rmSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { agrees } from '../checksum.ts'
import { type KeyedRow, keyedRows, keysSum, rowKeysOf, rowSum, unpackedKeys } from '../index-rows.ts'
import type { IndexedDoc, IndexPosition } from '../index-store.ts'
import type { Connection } from './connection.ts'
import { BucketWriter, bucketTables } from './index-buckets.ts'
import { positionSum, refuseDamaged, type StoredSum } from './index-checksums.ts'

/** The statements that create the tables of a store. `c` is the checksum of a row, which is compared each time that it is read. */
export function tables(indexes: number): string {
  const each = Array.from(
    { length: indexes },
    (_, index) => `
    CREATE TABLE rows_${index} (k BLOB PRIMARY KEY, l INTEGER, key TEXT, value TEXT, c INTEGER) WITHOUT ROWID;
    ${bucketTables(index)}`,
  )
  return `
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE docs (id TEXT PRIMARY KEY, ks BLOB, c INTEGER) WITHOUT ROWID;${each.join('')}`
}

/**
 * The versions of the tables: without checksums; with them; and with numbers of rows that show a changed bit
 * ({@link COUNT_FACTOR}).
 */
const LAYOUTS = ['plain', 'summed', 'coded'] as const

export interface Layout {
  readonly version: (typeof LAYOUTS)[number]
  readonly indexes: number
}

function statementsOf({ version, indexes }: Layout): string[] {
  const newest = tables(indexes)
  const counted = version === 'coded' ? newest : newest.replaceAll(' nc INTEGER', ' n INTEGER')
  const sql = version === 'plain' ? counted.replaceAll(', c INTEGER', '') : counted
  return sql
    .split(';')
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '')
    .sort()
}

/**
 * Which tables a file has. Each text is compared, because a changed bit of one can rename a column, or change what is kept in it.
 * @returns null for a file without tables
 * @throws SqliteError if the tables are not those of any version
 */
export function readLayout(connection: Pick<Connection, 'prepareTuples'>): Layout | null {
  const select = connection.prepareTuples<[unknown]>(
    "SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY sql",
  )
  const found = select.all().map(([sql]) => String(sql))
  if (found.length === 0) return null
  const indexes = found.filter((sql) => sql.startsWith('CREATE TABLE rows_')).length
  const text = found.join(';')
  const version = LAYOUTS.find((each) => statementsOf({ version: each, indexes }).join(';') === text)
  if (version === undefined)
    throw new Sqlite.SqliteError('an index has other tables than settee makes', 'SQLITE_CORRUPT')
  return { version, indexes }
}

/**
 * Whether a file is damaged, or has other tables than this version of settee writes. A row that is there already is one that
 * a search has not found.
 */
export function isUnreadable(thrown: unknown): boolean {
  return (
    thrown instanceof Sqlite.SqliteError && /^SQLITE_(?:CORRUPT|NOTADB|ERROR|CONSTRAINT)/.test(thrown.code)
  )
}

/** The name in `meta` of a file from before there were checksums: rows may lack them. */
const UNSUMMED = 'unsummed'

/** Adds the columns of checksums to the tables of an older settee, in the open transaction. */
export function addChecksums(connection: Connection, indexes: number): void {
  const tables = Array.from({ length: indexes }, (_, index) => [`rows_${index}`, `sums_${index}`])
  for (const table of ['docs', ...tables.flat()]) connection.exec(`ALTER TABLE ${table} ADD COLUMN c INTEGER`)
  connection.exec(`INSERT OR REPLACE INTO meta VALUES ('${UNSUMMED}', 1)`)
}

/** Whether the file is one of an older settee, whose rows may lack their checksums. */
export function isUnsummed(connection: Pick<Connection, 'prepare'>): boolean {
  return connection.prepare('SELECT 1 FROM meta WHERE name = ?').get(UNSUMMED) !== undefined
}

/** Removes the file of a store, and those that SQLite keeps beside it. */
export function removeFile(path: string): void {
  for (const companion of ['-wal', '-shm', '-journal', '']) rmSync(path + companion, { force: true })
}

/**
 * Reads a position from the table `meta`.
 * @throws SqliteError if it is damaged
 */
export function readPosition(connection: Pick<Connection, 'prepareTuples'>): IndexPosition | null {
  const read = connection.prepareTuples<[string, string | number]>('SELECT name, value FROM meta')
  const values = Object.fromEntries(read.all())
  // An older settee did not write `seen`.
  const { seq, seen = seq, epoch, purgeSeq, [POSITION_SUM]: sum, [UNSUMMED]: unsummed } = values
  if (Object.keys(values).every((name) => name === UNSUMMED)) return null
  const position = {
    seq: Number(seq),
    seen: Number(seen),
    epoch: String(epoch),
    purgeSeq: Number(purgeSeq),
  }
  const isSound = sum === undefined ? unsummed !== undefined : sum === positionSum(position)
  if (!isSound) throw new Sqlite.SqliteError('the position of an index is damaged', 'SQLITE_CORRUPT')
  return position
}

/** The name in `meta` of the checksum of the position. */
const POSITION_SUM = 'sum'

/** Writes a position to the table `meta`, in the open transaction. */
export function writePosition(connection: Connection, position: IndexPosition): void {
  const write = connection.prepare('INSERT OR REPLACE INTO meta VALUES (?, ?)')
  for (const [name, value] of Object.entries(position)) write.run(name, value as string | number)
  write.run(POSITION_SUM, positionSum(position))
}

/** Changes the rows of documents, and the buckets with them. All calls are made in an open transaction. */
export class RowWriter {
  readonly #connection: Connection
  readonly #mayLack: boolean
  readonly #writers: BucketWriter[] = []

  /** @param mayLack whether rows may lack their checksums */
  constructor(connection: Connection, mayLack: boolean) {
    this.#connection = connection
    this.#mayLack = mayLack
  }

  #buckets(index: number): BucketWriter {
    this.#writers[index] ??= new BucketWriter(this.#connection, index)
    return this.#writers[index]
  }

  /** Creates the first bucket of each index of a new file. */
  addFirstBuckets(indexes: number): void {
    for (let index = 0; index < indexes; index++) this.#buckets(index).addFirst()
  }

  /** Replaces the rows of a document. */
  replace(doc: IndexedDoc): void {
    const { id } = doc
    const found = this.#connection
      .prepareTuples<[Buffer, StoredSum]>('SELECT ks, c FROM docs WHERE id = ?')
      .get(id)
    if (found !== undefined && !agrees(found[1], keysSum(id, found[0]), this.#mayLack)) refuseDamaged()
    const isEmpty = doc.rows.every((rows) => rows.length === 0)
    if (found === undefined && isEmpty) return
    const { rows, keys } = keyedRows(doc)
    const old = found === undefined ? [] : rowKeysOf(id, unpackedKeys(found[0]))
    for (const [index, list] of rows.entries()) this.#replaceList(index, old[index] ?? [], list)
    if (isEmpty) this.#connection.prepare('DELETE FROM docs WHERE id = ?').run(id)
    else if (found === undefined || !found[0].equals(keys)) {
      this.#connection
        .prepare('INSERT OR REPLACE INTO docs VALUES (?, ?, ?)')
        .run(id, keys, keysSum(id, keys))
    }
  }

  /** Both lists are sorted by row key. */
  #replaceList(index: number, old: readonly Buffer[], rows: readonly KeyedRow[]): void {
    let at = 0
    for (const row of rows) {
      while (at < old.length && Buffer.compare(old[at] as Buffer, row.rowKey) < 0) {
        this.#remove(index, old[at++] as Buffer)
      }
      const isKept = at < old.length && (old[at] as Buffer).equals(row.rowKey)
      if (isKept) at += 1
      if (isKept) this.#change(index, row)
      else this.#insert(index, row)
    }
    for (; at < old.length; at++) this.#remove(index, old[at] as Buffer)
  }

  #insert(index: number, row: KeyedRow): void {
    const { rowKey, keyLength, keyText, valueText } = row
    const insert = this.#connection.prepare(`INSERT INTO rows_${index} VALUES (?, ?, ?, ?, ?)`)
    insert.run(rowKey, keyLength, keyText, valueText, rowSum(row))
    this.#buckets(index).adjust(rowKey, 1)
  }

  #change(index: number, row: KeyedRow): void {
    const { rowKey, keyText, valueText } = row
    const change = this.#connection.prepare(
      `UPDATE rows_${index} SET key = ?, value = ?, c = ? WHERE k = ? AND (key <> ? OR value <> ?)`,
    )
    if (change.run(keyText, valueText, rowSum(row), rowKey, keyText, valueText).changes > 0)
      this.#buckets(index).adjust(rowKey, 0)
    else if (this.#connection.prepare(`SELECT 1 FROM rows_${index} WHERE k = ?`).get(rowKey) === undefined)
      refuseDamaged()
  }

  #remove(index: number, rowKey: Buffer): void {
    const remove = this.#connection.prepare(`DELETE FROM rows_${index} WHERE k = ?`)
    // The keys of documents say which rows there are, so a search that finds none was misled.
    if (remove.run(rowKey).changes === 0) refuseDamaged()
    this.#buckets(index).adjust(rowKey, -1)
  }
}
