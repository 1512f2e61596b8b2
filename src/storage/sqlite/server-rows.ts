/**
 * The checksums of the rows of server.sqlite. Each row is compared when it is read. Rows of an older settee get their
 * checksums after the opening, in short steps.
 */
import { CouchError, shown } from '../../core/errors.ts'
import { agrees, rowChecksum } from '../checksum.ts'
import { isMadeAnew } from '../records.ts'
import type { Connection } from './connection.ts'
import type { Value } from './statement.ts'
import type { Readable } from './table-walk.ts'

/** The version of server.sqlite since which rows have checksums. */
export const SUMMED_SERVER_VERSION = 5

const UNSUMMED = 'unsummed'
/** The key of the number of changes to records that are not made anew. */
export const CHANGES = 'changes'

/** Version 5 of server.sqlite. */
export const SERVER_CHECKSUMS = `
ALTER TABLE server ADD COLUMN checksum INTEGER;
ALTER TABLE database ADD COLUMN checksum INTEGER;
ALTER TABLE database_update ADD COLUMN checksum INTEGER;
ALTER TABLE record ADD COLUMN checksum INTEGER;
INSERT INTO server (key, value) VALUES ('${UNSUMMED}', 1);
`

interface SummedTable {
  readonly table: string
  /** The columns of the primary key, in its order. */
  readonly key: readonly string[]
  /** All columns that the checksum covers, in its order, with the types that they have. */
  readonly columns: Readonly<Record<string, 'string' | 'number' | 'any'>>
}

const TABLES = {
  server: { table: 'server', key: ['key'], columns: { key: 'string', value: 'any' } },
  database: { table: 'database', key: ['name'], columns: { name: 'string', incarnation: 'number' } },
  update: {
    table: 'database_update',
    key: ['seq'],
    columns: { seq: 'number', name: 'string', type: 'string' },
  },
  record: {
    table: 'record',
    key: ['kind', 'key'],
    columns: { kind: 'string', key: 'string', value: 'string' },
  },
} as const satisfies Record<string, SummedTable>

type TableName = keyof typeof TABLES

/** Rows of one step of {@link ServerRows.fill} and {@link damagedServerRows}, which takes about a millisecond. */
const STEP = 200

/** A row as it is read. */
export interface SummedRow {
  readonly checksum: number | null
}

type Row = SummedRow & Readonly<Record<string, unknown>>

/** @throws never; a column of another type has no checksum */
function checksumOf({ columns }: SummedTable, row: Readonly<Record<string, unknown>>): number {
  const values: (string | number)[] = []
  for (const [column, type] of Object.entries(columns)) {
    const value = row[column]
    if (typeof value !== 'string' && typeof value !== 'number') return Number.NaN
    if (type !== 'any' && type !== typeof value) return Number.NaN
    values.push(value)
  }
  return rowChecksum(...values)
}

/** Compares rows with their checksums, and makes those of new rows. */
export class ServerRows {
  readonly #connection: Connection
  /** Whether rows of an older settee may lack their checksums. */
  #mayLack: boolean
  readonly #filling = { table: 0, after: [] as Value[] }

  /** @throws damaged_server_file, SqliteError */
  constructor(connection: Connection) {
    this.#connection = connection
    this.#mayLack = lacksChecksums(connection)
  }

  /** Whether {@link fill} has work. */
  get isUnsummed(): boolean {
    return this.#mayLack
  }

  /** @returns the checksum of a row that is to be stored */
  sumOf(table: TableName, row: Readonly<Record<string, string | number>>): number {
    return checksumOf(TABLES[table], row)
  }

  /** Whether a row says what was written. */
  isSound(table: TableName, row: SummedRow): boolean {
    return agrees(row.checksum, checksumOf(TABLES[table], row as Row), this.#mayLack)
  }

  /** @throws damaged_server_file if the row does not say what was written */
  check(table: TableName, row: SummedRow): void {
    if (!this.isSound(table, row)) throw damagedRow(TABLES[table], row as Row)
  }

  /** A value of the table `server`; undefined if there is none. @throws damaged_server_file */
  value(key: string): string | number | undefined {
    const sql = 'SELECT key, value, checksum FROM server WHERE key = ?'
    const row = this.#connection.prepare<Row>(sql).get(key)
    if (row === undefined) return undefined
    this.check('server', row)
    return row.value as string | number
  }

  /** Stores a value of the table `server`. Part of the caller's transaction. */
  putValue(key: string, value: string | number): void {
    const sql = 'INSERT OR REPLACE INTO server (key, value, checksum) VALUES (?, ?, ?)'
    this.#connection.prepare(sql).run(key, value, this.sumOf('server', { key, value }))
  }

  /**
   * Notes the checksums of some rows that lack them, inside the transaction of the caller. What such a row says now counts
   * as what was written. After a rollback, the rows are found by the next opening.
   * @returns whether there may be more
   */
  fill(): boolean {
    if (!this.#mayLack) return false
    const summed = Object.values(TABLES)[this.#filling.table] as SummedTable | undefined
    if (summed === undefined) {
      this.#connection.prepare('DELETE FROM server WHERE key = ?').run(UNSUMMED)
      this.#mayLack = false
      return false
    }
    const rows = pageOf(this.#connection, summed, this.#filling.after)
    const { table, key } = summed
    const where = key.map((column) => `${column} = ?`).join(' AND ')
    const put = this.#connection.prepare(`UPDATE ${table} SET checksum = ? WHERE ${where}`)
    for (const row of rows) {
      if (row.checksum === null) put.run(checksumOf(summed, row), ...keyOf(summed, row))
    }
    this.#filling.after = rows.length < STEP ? [] : keyOf(summed, rows.at(-1) as Row)
    if (rows.length < STEP) this.#filling.table += 1
    return true
  }
}

function lacksChecksums(database: Readable): boolean {
  return database.prepare('SELECT 1 AS found FROM server WHERE key = ?').get(UNSUMMED) !== undefined
}

/** The rows behind a key, at most {@link STEP}. @param after no key: from the beginning */
function pageOf(database: Readable, { table, key, columns }: SummedTable, after: readonly Value[]): Row[] {
  const keys = key.join(', ')
  const where = after.length === 0 ? '' : `WHERE (${keys}) > (${key.map(() => '?').join(', ')})`
  const sql = `SELECT ${Object.keys(columns).join(', ')}, checksum FROM ${table} ${where} ORDER BY ${keys} LIMIT ${STEP}`
  return database.prepare<Row>(sql).all(...after)
}

function keyOf({ key }: SummedTable, row: Row): Value[] {
  return key.map((column) => row[column] as Value)
}

/** A damaged row of server.sqlite. */
export interface DamagedServerRow {
  /** For people: such as `the record "a" of the kind token`. */
  readonly text: string
  /** The key of a record that counts as missing; absent for all other rows. */
  readonly madeAnew?: { readonly kind: string; readonly key: string }
}

/**
 * Reads all rows of a file of this version, and finds the damaged ones.
 * @param file open for reading, or a connection
 * @returns yields after some rows: null, or a damaged row
 * @throws SqliteError
 */
export function* damagedServerRows(file: Readable): Generator<DamagedServerRow | null> {
  const mayLack = lacksChecksums(file)
  for (const summed of Object.values(TABLES) as SummedTable[]) {
    for (let after: Value[] = [], rows = 0; ; ) {
      const page = pageOf(file, summed, after)
      for (const row of page) {
        if (agrees(row.checksum, checksumOf(summed, row), mayLack)) continue
        yield { text: textOf(summed, row), ...recordMadeAnew(summed, row) }
      }
      yield null
      if (page.length < STEP) break
      after = keyOf(summed, page.at(-1) as Row)
      rows += page.length
      // Damaged pages may refer to each other without an end.
      if (rows > MAX_ROWS) yield { text: `the table ${summed.table}, which has no end` }
      if (rows > MAX_ROWS) return
    }
  }
}

/** More than any server has. */
const MAX_ROWS = 100_000_000

function recordMadeAnew({ table }: SummedTable, { kind, key }: Row): Pick<DamagedServerRow, 'madeAnew'> {
  if (table !== TABLES.record.table || typeof kind !== 'string' || typeof key !== 'string') return {}
  return isMadeAnew(kind) ? { madeAnew: { kind, key } } : {}
}

/** Values are not in it, since they may be secret. */
function textOf({ table }: SummedTable, row: Row): string {
  const named = (value: unknown) => (typeof value === 'string' ? JSON.stringify(shown(value)) : 'unreadable')
  if (table === TABLES.record.table) return `the record ${named(row.key)} of the kind ${named(row.kind)}`
  if (table === TABLES.server.table) return `the value ${named(row.key)}`
  return `a row of the database ${named(row.name)}`
}

/** The key is for the log alone: it may tell of another account. */
function damagedRow(summed: SummedTable, row: Row): CouchError {
  const { kind } = row
  const what = typeof kind === 'string' ? `A record of the kind ${shown(kind)}` : 'A part'
  return new CouchError(
    'damaged_server_file',
    `${what} of server.sqlite is damaged: the disk has changed what was stored. ` +
      'Restart settee: it then starts from the newest copy of the file.',
    { cause: new Error(`${textOf(summed, row)} of server.sqlite is damaged`) },
  )
}
