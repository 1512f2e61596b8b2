/**
 * The file of a new database. Its tables are made once, in memory, and copied for each database. Otherwise SQLite would make
 * 24 tables, a log and its index for each, which takes three times the CPU time.
 */
import { writeFileSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import type { DatabaseProperties } from '../catalog.ts'
import { PAGE } from './page-size.ts'
import { migrate } from './schema.ts'
import { State } from './state.ts'
import type { Statement } from './statement.ts'

/** Where a file's header says how it is written and read: 1 with a rollback journal, 2 with a log (fileformat2, 1.3.3). */
const JOURNAL_MODE = { from: 18, to: 20, log: 2 }

let template: Buffer | undefined

/**
 * Writes the file of a new database, with small pages (page-size.ts). The caller makes it durable.
 * @param path of a file that does not exist
 * @param createdAt in seconds since 1970
 * @throws the operating system's error
 */
export function writeNewFile(path: string, createdAt: number, properties: DatabaseProperties): void {
  template ??= emptyDatabase()
  const db = new Sqlite(template)
  let content: Buffer
  try {
    const prepare = <R extends object>(sql: string) => db.prepare(sql) as unknown as Statement<R>
    const pragma = (text: string) => db.pragma(text, { simple: true })
    State.create({ prepare, pragma }, createdAt, properties)
    content = db.serialize()
  } finally {
    db.close()
  }
  content.fill(JOURNAL_MODE.log, JOURNAL_MODE.from, JOURNAL_MODE.to)
  writeFileSync(path, content, { flag: 'wx', mode: 0o600 })
}

/** The content of a file with a database's tables and no rows. A database in memory can have no log. */
function emptyDatabase(): Buffer {
  const db = new Sqlite(':memory:')
  try {
    db.pragma(`page_size = ${PAGE.small}`)
    db.pragma('auto_vacuum = INCREMENTAL')
    const connection = {
      exec: (sql: string) => void db.exec(sql),
      pragma: (sql: string) => db.pragma(sql, { simple: true }),
      prepare: <R extends object>(sql: string) => db.prepare(sql) as unknown as Statement<R>,
    }
    migrate(connection, 'a new database')
    return db.serialize()
  } finally {
    db.close()
  }
}
