/** The table of databases in server.sqlite: the name and incarnation of each, with its last known sequence. */
import type { DatabaseEntry, NameRange } from '../catalog.ts'
import type { LastKnownSequence } from '../sequence.ts'
import type { RecordTable, UpdateLog } from './catalog-tables.ts'
import type { Connection } from './connection.ts'
import type { ServerRows } from './server-rows.ts'

/** Above every character of a legal name. */
const ABOVE = '\x7f'

interface DatabaseRow {
  readonly name: string
  readonly incarnation: number
  readonly checksum: number | null
}

interface TableOptions {
  readonly connection: Connection
  readonly rows: ServerRows
  readonly updates: UpdateLog
  readonly records: RecordTable
}

/** Methods throw damaged_server_file for a row that is not what was written. */
export class DatabaseTable {
  readonly #connection: Connection
  readonly #rows: ServerRows
  readonly #updates: UpdateLog
  readonly #records: RecordTable
  /** Databases that are deleted, but whose rows a full disk kept from being removed; the next start removes them. */
  readonly #hidden = new Set<string>()

  constructor({ connection, rows, updates, records }: TableOptions) {
    this.#connection = connection
    this.#rows = rows
    this.#updates = updates
    this.#records = records
  }

  has(name: string): boolean {
    return this.#incarnationOf(name) !== undefined
  }

  find(name: string): DatabaseEntry | null {
    const incarnation = this.#incarnationOf(name)
    if (incarnation === undefined) return null
    const lastKnown: LastKnownSequence | null = this.#records.lastKnown(name)
    return { name, incarnation, ...(lastKnown !== null && { lastKnown }) }
  }

  #incarnationOf(name: string): number | undefined {
    if (this.#hidden.has(name)) return undefined
    const row = this.#connection
      .prepare<DatabaseRow>('SELECT name, incarnation, checksum FROM database WHERE name = ?')
      .get(name)
    if (row !== undefined) this.#rows.check('database', row)
    return row?.incarnation
  }

  /** @returns at most `limit` names of the range, in its direction */
  names({ prefix = '', from, after, descending = false }: NameRange, limit: number): string[] {
    // Hidden rows are left out of the result, so as many more are read.
    const most = Math.min(limit + this.#hidden.size, Number.MAX_SAFE_INTEGER)
    // One bound on each side, since SQLite would search with only one of several.
    const low = descending ? prefix : largest([prefix, ...(from === undefined ? [] : [from]), ...next(after)])
    const below = descending
      ? smallest([prefix + ABOVE, ...next(from), ...(after === undefined ? [] : [after])])
      : prefix + ABOVE
    const sql =
      'SELECT name, incarnation, checksum FROM database WHERE name >= ? AND name < ? ' +
      `ORDER BY name ${descending ? 'DESC' : 'ASC'} LIMIT ?`
    const rows = this.#connection.prepare<DatabaseRow>(sql).all(low, below, most)
    for (const row of rows) this.#rows.check('database', row)
    const names = rows.map(({ name }) => name).filter((name) => !this.#hidden.has(name))
    return names.slice(0, limit)
  }

  /** Gives a database an incarnation that was never used. Part of the caller's transaction. */
  enter(name: string): DatabaseEntry {
    const [entry] = this.enterAll([name])
    return entry as DatabaseEntry
  }

  /** As {@link enter}, for several. */
  enterAll(names: readonly string[]): DatabaseEntry[] {
    let last = Number(this.#rows.value('incarnation') ?? 0)
    const put = this.#connection.prepare(
      'INSERT OR REPLACE INTO database (name, incarnation, checksum) VALUES (?, ?, ?)',
    )
    const entries = names.map((name) => {
      last += 1
      const incarnation = last
      put.run(name, incarnation, this.#rows.sumOf('database', { name, incarnation }))
      this.#records.forgetLastKnown(name)
      this.#hidden.delete(name)
      return { name, incarnation }
    })
    this.#rows.putValue('incarnation', last)
    this.#updates.note(names, 'created')
    return entries
  }

  /** Removes databases. Part of the caller's transaction. */
  forget(names: readonly string[]): void {
    const remove = this.#connection.prepare('DELETE FROM database WHERE name = ?')
    for (const name of names) {
      remove.run(name)
      this.#records.forgetLastKnown(name)
    }
    this.#updates.note(names, 'deleted')
  }

  /** Hides databases whose files are gone, whether or not their rows can be removed. */
  hide(names: readonly string[]): void {
    for (const name of names) this.#hidden.add(name)
  }

  /** The rows of {@link forget} are gone. */
  unhide(names: readonly string[]): void {
    for (const name of names) this.#hidden.delete(name)
  }
}

/** The first text after a name. */
function next(name: string | undefined): string[] {
  return name === undefined ? [] : [`${name}\0`]
}

function largest(texts: readonly string[]): string {
  return texts.reduce((a, b) => (a > b ? a : b))
}

function smallest(texts: readonly string[]): string {
  return texts.reduce((a, b) => (a < b ? a : b))
}
