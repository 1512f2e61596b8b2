/** What lies in a database's file of attachments' contents, counted from outside while the server runs. */
import { join } from 'node:path'
import Database from 'better-sqlite3'

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
