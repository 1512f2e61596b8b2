/** The versions of server.sqlite. */
import { RECORDS_SCHEMA, UPDATE_LOG_SCHEMA } from './catalog-tables.ts'
import { RECORD_KEYS } from './record-keys.ts'
import type { Migration } from './schema.ts'
import { SERVER_CHECKSUMS } from './server-rows.ts'

/** IF NOT EXISTS, since the first release's file has these tables but no version. */
const VERSION_1 = `
CREATE TABLE IF NOT EXISTS server (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS database (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL) WITHOUT ROWID;
`

/** A released migration never changes; new ones are appended. */
export const SERVER_MIGRATIONS: readonly Migration[] = [
  VERSION_1,
  UPDATE_LOG_SCHEMA,
  RECORDS_SCHEMA,
  RECORD_KEYS,
  SERVER_CHECKSUMS,
]
