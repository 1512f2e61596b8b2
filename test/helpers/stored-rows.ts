/** What lies in a database's file, looked at from outside while the server runs. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import Database from 'better-sqlite3'

/** Of attachments' contents. */
export interface StoredRows {
  readonly blobs: number
  readonly chunks: number
}

/** @param name of the database, one that needs no escapes in its file's name */
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
 * Everything that lies in a database's file, as a text for each table that is another when any of its rows is:
 * for comparing two moments.
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
