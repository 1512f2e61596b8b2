/** The records of server.sqlite: storage/catalog.ts says what they are. */
import type { RecordWrite, ServerRecord } from '../catalog.ts'
import type { Connection } from './connection.ts'

export const RECORDS_SCHEMA = `
CREATE TABLE record (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (kind, key)
) WITHOUT ROWID;
`

export function readRecords(connection: Connection, kind: string): ServerRecord[] {
  return connection
    .prepare<ServerRecord>('SELECT kind, key, value FROM record WHERE kind = ? ORDER BY key')
    .all(kind)
}

/** Part of the caller's transaction. */
export function writeRecords(connection: Connection, writes: readonly RecordWrite[]): void {
  const put = connection.prepare('INSERT OR REPLACE INTO record (kind, key, value) VALUES (?, ?, ?)')
  const remove = connection.prepare('DELETE FROM record WHERE kind = ? AND key = ?')
  for (const { kind, key, value } of writes) {
    if (value === null) remove.run(kind, key)
    else put.run(kind, key, value)
  }
}
