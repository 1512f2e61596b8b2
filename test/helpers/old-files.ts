/** Files of older versions of settee: the rows of a current file, as far as the older schema can store them. */
import Sqlite from 'better-sqlite3'
import { Connection } from '../../src/storage/sqlite/connection.ts'
import { MIGRATIONS, type Migration, migrate } from '../../src/storage/sqlite/schema.ts'

export const NEWEST: number = MIGRATIONS.length

/**
 * Writes a file.
 * @param from a current file, which must be closed
 * @param schema the older schema
 * @param migrations of the kind of file; by default, of databases
 */
export function writeOldFile(
  path: string,
  from: string,
  schema: number,
  migrations: readonly Migration[] = MIGRATIONS,
): void {
  const connection = new Connection(path)
  migrate(connection, path, migrations.slice(0, schema))
  connection.close()
  const file = new Sqlite(path)
  file.prepare('ATTACH ? AS today').run(from)
  const tables = file.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table'").pluck().all()
  for (const table of tables as string[]) {
    const columns = (file.pragma(`table_info(${table})`) as { name: string }[]).map(({ name }) => name).join()
    file.exec(`INSERT OR REPLACE INTO main.${table} (${columns}) SELECT ${columns} FROM today.${table}`)
  }
  file.close()
}

/** The schema version of a file, which may be open. */
export function schemaOfFile(path: string): number {
  const file = new Sqlite(path, { readonly: true })
  try {
    return file.pragma('user_version', { simple: true }) as number
  } finally {
    file.close()
  }
}
