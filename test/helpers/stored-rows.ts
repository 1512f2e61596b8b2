/** Reads a database's file from outside, while the server runs. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import Database from 'better-sqlite3'

/** Bytes of attachment contents. */
export interface StoredRows {
  readonly blobs: number
  readonly chunks: number
}

/** @param name of the database, which must need no escapes in the file name */
export function storedRows(dataDir: string, name: string): StoredRows {
  const file = new Database(join(dataDir, 'databases', `${name}.sqlite`), { readonly: true })
  try {
    const count = (table: string) =>
      (file.prepare(`SELECT count(*) AS rows FROM ${table}`).get() as { rows: number }).rows
    return { blobs: count('blob'), chunks: count('chunk') }
  } finally {
    file.close()
  }
}

/**
 * The contents of a database's file: a text for each table, which differs if any row differs. For comparing two states.
 */
export function storedTables(dataDir: string, name: string): Readonly<Record<string, string>> {
  const file = new Database(join(dataDir, 'databases', `${name}.sqlite`), { readonly: true })
  try {
    const listed = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all() as {
      name: string
    }[]
    return Object.fromEntries(listed.map(({ name }) => [name, summary(file, name)]))
  } finally {
    file.close()
  }
}

function summary(file: Database.Database, table: string): string {
  const hash = createHash('sha256')
  let rows = 0
  for (const row of file.prepare(`SELECT * FROM ${table}`).raw().iterate() as Iterable<unknown[]>) {
    rows += 1
    for (const value of row) {
      const bytes = value instanceof Uint8Array ? value : Buffer.from(JSON.stringify(value))
      hash.update(`${bytes.length}:`).update(bytes)
    }
  }
  return `${rows} rows, ${hash.digest('hex').slice(0, 16)}`
}
