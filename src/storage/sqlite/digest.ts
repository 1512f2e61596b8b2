/**
 * A digest over all that a database's file holds, whatever pages it is on: the schema, then each table by its name, its
 * rows in the order of their keys, each value with its type and its length. A table that a later schema adds is in it.
 */
import { createHash, type Hash } from 'node:crypto'
import type Sqlite from 'better-sqlite3'

/** Longer bytes are hashed by themselves; shorter ones go with the text around them. */
const SHORT_BYTES = 4096
/** Characters that are gathered before they are hashed. */
const TEXT = 64 * 1024

interface Table {
  readonly name: string
  /** Whether its key is its primary key, and not a number of SQLite's. */
  readonly wr: number
}

/** @returns 64 hex digits @param onRow called after each row */
export function digestOf(db: Sqlite.Database, onRow: () => void): string {
  const digest = new Digest()
  digest.add([db.pragma('application_id', { simple: true }), db.pragma('user_version', { simple: true })])
  digest.add(db.prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name').pluck().all())
  for (const table of tablesOf(db)) {
    digest.add([table.name])
    const rows = db
      .prepare(`SELECT * FROM "${table.name}" ORDER BY ${keyOf(db, table)}`)
      .raw()
      .iterate()
    for (const row of rows as IterableIterator<unknown[]>) {
      digest.add(row)
      onRow()
    }
  }
  return digest.end()
}

/** How many rows {@link digestOf} goes through. */
export function rowsOf(db: Sqlite.Database): number {
  let rows = 0
  for (const { name } of tablesOf(db)) {
    rows += db.prepare(`SELECT count(*) FROM "${name}"`).pluck().get() as number
  }
  return rows
}

function tablesOf(db: Sqlite.Database): Table[] {
  return db
    .prepare(
      "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name",
    )
    .all() as Table[]
}

function keyOf(db: Sqlite.Database, { name, wr }: Table): string {
  if (wr === 0) return 'rowid'
  const columns = db
    .prepare('SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk')
    .pluck()
    .all(name)
  return columns.map((column) => `"${column}"`).join(', ')
}

class Digest {
  readonly #hash: Hash = createHash('sha256')
  #text = ''

  /** Adds values that belong together. */
  add(values: readonly unknown[]): void {
    let text = `${this.#text}[${values.length}`
    for (const value of values) {
      if (value === null) text += 'n'
      else if (typeof value === 'string') text += `s${value.length}:${value}`
      else if (value instanceof Uint8Array) text = this.#withBytes(text, value)
      else text += `${typeof value}${String(value)};`
    }
    this.#text = text.length > TEXT ? this.#taken(text) : text
  }

  #withBytes(text: string, bytes: Uint8Array): string {
    const head = `${text}b${bytes.length}:`
    if (bytes.length <= SHORT_BYTES)
      return head + Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')
    this.#taken(head)
    this.#hash.update(bytes)
    return ''
  }

  #taken(text: string): '' {
    this.#hash.update(text)
    return ''
  }

  end(): string {
    this.#taken(this.#text)
    return this.#hash.digest('hex')
  }
}
