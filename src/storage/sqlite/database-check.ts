/**
 * Checks everything in a database's file: the pages, the counters, each row with its checksum, that no row is missing, and
 * each content with its digest. For copies of a backup, and in short steps for databases that are in use.
 */
import { createHash } from 'node:crypto'
import Sqlite from 'better-sqlite3'
import { isFileFault } from '../../core/errors.ts'
import { Throttle } from '../../core/event-loop.ts'
import { type DamagedPart, FoundDamage } from '../damage.ts'
import type { CheckPosition, CheckStep } from '../storage-engine.ts'
import type { Connection } from './connection.ts'
import { storageError } from './database-access.ts'
import { readMeta, SUMMED_META_VERSION } from './meta.ts'
import { RefusedFile, SUMMED_VERSION, schemaOf } from './schema.ts'
import type { Statement } from './statement.ts'
import { SummedRows, textOf } from './summed-rows.ts'
import { FIRST_ROW, type RowPosition, type WalkedTable, walkTables } from './table-walk.ts'

/** How long to wait while another connection opens or closes the file, in ms. */
const BUSY_MS = 5000

/** Opens a file read-only. @throws SqliteError */
export function openForReading(path: string): Sqlite.Database {
  return new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_MS })
}

/** A file as the functions for open databases use it. */
export type ReadableFile = Pick<Connection, 'pragma' | 'prepare'>

export function readable(db: Sqlite.Database): ReadableFile {
  // As a connection does: the same few statements read each stretch of rows.
  const statements = new Map<string, Sqlite.Statement>()
  return {
    pragma: (text) => db.pragma(text, { simple: true }),
    prepare: <R extends object>(sql: string) => {
      const statement = statements.get(sql) ?? db.prepare(sql)
      statements.set(sql, statement)
      return statement as unknown as Statement<R>
    },
  }
}

/** The maximum number of faults that SQLite reports. */
const FAULTS = 5

/** What is wrong with the pages of a file and the entries of its indexes, in one statement; null if nothing is. */
export function pageFaults(file: ReadableFile): string | null {
  const found = file.prepare<{ integrity_check: string }>(`PRAGMA integrity_check(${FAULTS})`).all()
  const faults = found.map(({ integrity_check: text }) => text).join('; ')
  return faults === 'ok' ? null : faults
}

/** The counters of a database, and the queries that verify them. */
const COUNTERS: readonly { readonly key: string; readonly rows: string }[] = [
  { key: 'doc_count', rows: 'SELECT count(*) AS n FROM doc WHERE NOT deleted' },
  { key: 'deleted_count', rows: 'SELECT count(*) AS n FROM doc WHERE deleted' },
]

/** Documents that lack rows: a document has as many leaves as it says, and a winner. */
const INCOMPLETE_DOCUMENTS = `
SELECT id FROM doc WHERE num > ? AND num <= ? AND (
  leaves > 0 AND leaves <> (SELECT count(*) FROM revision AS r WHERE r.doc = doc.num AND r.leaf)
  OR winner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.num = doc.winner))`

/** Revisions that lack attachments: each has as many as it says. */
const INCOMPLETE_REVISIONS = `
SELECT d.id, r.rev FROM revision AS r LEFT JOIN doc AS d ON d.num = r.doc
WHERE r.num > ? AND r.num <= ?
  AND r.attachments <> (SELECT count(*) FROM attachment AS a WHERE a.revision = r.num)`

/** Contents that attachments name, and that are not there. */
const LOST_CONTENTS = `
SELECT DISTINCT blob FROM attachment WHERE revision > ? AND revision <= ?
  AND NOT EXISTS (SELECT 1 FROM blob AS b WHERE b.num = attachment.blob AND b.sha256 IS NOT NULL)`

/** Numbers of a stretch of small rows. */
const STRETCH = 100

interface WholeBlob {
  readonly num: number
  readonly sha256: unknown
  readonly length: unknown
}

/** Finds the damaged parts of one file that can be read. */
export class DatabaseCheck {
  readonly #file: ReadableFile
  readonly #rows: SummedRows
  readonly #onDamaged: (part: DamagedPart) => void
  readonly #throttle = new Throttle()
  readonly #tables: readonly WalkedTable[]
  readonly #version: number

  /** @param onDamaged may be called several times with one part */
  constructor(file: ReadableFile, onDamaged: (part: DamagedPart) => void) {
    this.#file = file
    this.#onDamaged = onDamaged
    this.#rows = new SummedRows(file)
    const contents: WalkedTable = {
      table: 'blob',
      key: 'num',
      stretch: 1,
      visit: (_, num) => this.#checkContent(num),
    }
    // A copy that an older settee made is restored, and gets its checksums then.
    this.#version = file.pragma('user_version') as number
    const hasSums = this.#version >= SUMMED_VERSION
    this.#tables = hasSums ? [...this.#summedTables(), contents, this.#lostContents()] : [contents]
  }

  #summedTables(): readonly WalkedTable[] {
    const onDamaged = this.#onDamaged
    const unsummed = "SELECT 1 AS found FROM meta WHERE key = 'unsummed' AND value > 0"
    const mayLack = this.#file.prepare(unsummed).get() !== undefined
    return [
      ...this.#rows.tablesToCheck(this.#version, mayLack, onDamaged),
      this.#found<{ id: unknown }>('doc', 'num', INCOMPLETE_DOCUMENTS, ({ id }) =>
        onDamaged({ kind: 'document', id: textOf(id) }),
      ),
      this.#found<{ id: unknown; rev: unknown }>('revision', 'num', INCOMPLETE_REVISIONS, ({ id, rev }) =>
        onDamaged({ kind: 'revision', id: textOf(id), rev: textOf(rev) }),
      ),
    ]
  }

  #lostContents(): WalkedTable {
    return this.#found<{ blob: unknown }>('attachment', 'revision', LOST_CONTENTS, ({ blob }) =>
      this.#damagedContent(blob),
    )
  }

  #found<R extends object>(table: string, key: string, sql: string, each: (row: R) => void): WalkedTable {
    const visit = (above: number, end: number) => this.#file.prepare<R>(sql).all(above, end).forEach(each)
    return { table, key, stretch: STRETCH, visit }
  }

  /** Compares a content with its digest. Its pieces may be many, so it pauses between them. */
  #checkContent(num: number): void {
    const find = 'SELECT num, sha256, length FROM blob WHERE num = ? AND sha256 IS NOT NULL'
    const blob = this.#file.prepare<WholeBlob>(find).get(num)
    if (blob === undefined) return
    const hash = createHash('sha256')
    let bytes = 0
    const chunks = this.#file.prepare<{ data: unknown }>(
      'SELECT data FROM chunk WHERE blob = ? ORDER BY position',
    )
    for (const { data } of chunks.iterate(num)) {
      if (!(data instanceof Uint8Array)) continue
      hash.update(data)
      bytes += data.length
      // Damaged pages may refer to each other without an end.
      if (bytes > Number(blob.length)) break
      this.#throttle.pause()
    }
    const digest = hash.digest()
    if (bytes !== blob.length || !(blob.sha256 instanceof Uint8Array) || !digest.equals(blob.sha256))
      this.#damagedContent(num)
  }

  #damagedContent(blob: unknown): void {
    for (const part of this.#rows.attachmentsOf(blob)) this.#onDamaged(part)
  }

  /** Compares the counters with their checksums and with the rows, in statements that read an index of all documents. */
  counters(): void {
    const meta = this.#file.prepare<{ value: unknown }>('SELECT value FROM meta WHERE key = ?')
    const counter = (key: string) => Number(meta.get(key)?.value ?? 0)
    const number = (sql: string) => this.#file.prepare<{ n: number }>(sql).get()?.n ?? 0
    const areSound = this.#version < SUMMED_META_VERSION || readMeta(this.#file).damaged.length === 0
    const areRight =
      areSound &&
      COUNTERS.every(({ key, rows }) => number(rows) === counter(key)) &&
      number('SELECT coalesce(max(seq), 0) AS n FROM doc') <= counter('update_seq')
    if (!areRight) this.#onDamaged({ kind: 'counters' })
  }

  /**
   * Checks a stretch of rows at least, and one content at most that is not done in time.
   * @param until a time, in ms as of `performance.now`
   * @param onFault as in {@link walkTables}
   * @returns where the next step begins; null when everything was checked
   */
  step(from: RowPosition, until: number, onFault?: (error: unknown) => void): RowPosition | null {
    return walkTables(this.#file, this.#tables, from, until, onFault)
  }

  /** @returns how much of the rows lies before a position, 0 to 1, as if all tables had as many */
  shareBefore({ table, above }: RowPosition): number {
    const walked = this.#tables[table]
    if (walked === undefined) return 1
    const sql = `SELECT max(${walked.key}) AS last FROM ${walked.table}`
    const last = this.#file.prepare<{ last: number | null }>(sql).get()?.last ?? 0
    const share = last <= 0 ? 0 : Math.min(Math.max(above / last, 0), 1)
    return (table + share) / this.#tables.length
  }
}

/** The pages of a larger file are read with its rows alone: a single statement could take minutes, and nothing ends it. */
const MAX_PAGES_BYTES = 256 * 1024 * 1024
/** How long one read transaction is; the log of writes cannot be emptied meanwhile. In ms. */
const TRANSACTION_MS = 10

/**
 * Checks a part of a database that may be in use, on a thread that has nothing else to do.
 * @param path of its file, which another connection holds open
 * @param from where the step before has ended; null: from the beginning
 * @param ms about how long the step takes
 * @throws SqliteError when the file cannot be opened
 */
export function checkStored(path: string, from: CheckPosition | null, ms: number): CheckStep {
  const until = performance.now() + ms
  const db = openForReading(path)
  try {
    const damage = new FoundDamage()
    const onFault = (error: unknown) => {
      if (!isFileFault(storageError(error))) throw error
      damage.add({ kind: 'file' })
    }
    const file = readable(db)
    const check = new DatabaseCheck(file, (part) => damage.add(part))
    if (from === null) checkWhole(db, file, check, onFault)
    const throttle = new Throttle()
    let next: RowPosition | null = from === null ? FIRST_ROW : { ...from, above: Number(from.above) }
    do {
      const at: RowPosition = next
      next = inTransaction(db, () =>
        check.step(at, Math.min(until, performance.now() + TRANSACTION_MS), onFault),
      )
      throttle.pause()
    } while (next !== null && performance.now() < until)
    return { next, share: next === null ? 1 : check.shareBefore(next), damage: damage.found }
  } finally {
    db.close()
  }
}

/** What is checked in single statements. */
function checkWhole(
  db: Sqlite.Database,
  file: ReadableFile,
  check: DatabaseCheck,
  onFault: (error: unknown) => void,
): void {
  const bytes = (file.pragma('page_count') as number) * (file.pragma('page_size') as number)
  try {
    if ((bytes <= MAX_PAGES_BYTES && pageFaults(file) !== null) || isSchemaDamaged(file))
      onFault(new Sqlite.SqliteError('damaged pages', 'SQLITE_CORRUPT'))
    inTransaction(db, () => check.counters())
  } catch (error) {
    onFault(error)
  }
}

/** Whether the file has another schema than settee gives it: its rows may all be right, and the next start refuses it. */
function isSchemaDamaged(file: ReadableFile): boolean {
  try {
    schemaOf(file, 'The file')
    return false
  } catch (error) {
    if (error instanceof RefusedFile) return !error.isNewer
    throw error
  }
}

/** So that several statements read one state. */
function inTransaction<R>(db: Sqlite.Database, work: () => R): R {
  db.exec('BEGIN')
  try {
    return work()
  } finally {
    if (db.inTransaction) db.exec('ROLLBACK')
  }
}
