/** Files as an older settee wrote them: the rows of a file of today, as far as an older schema has room for them. */
import Sqlite from 'better-sqlite3'
import { Connection } from '../../src/storage/sqlite/connection.ts'
import { MIGRATIONS, type Migration, migrate } from '../../src/storage/sqlite/schema.ts'

export const NEWEST: number = MIGRATIONS.length

/**
 * Writes a file.
 * @param from one of today, which nobody has open
 * @param schema the older schema
 * @param migrations the file's kind: by default a database's
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

/** The schema that a file has, which may be open. */
export function schemaOfFile(path: string): number {
  const file = new Sqlite(path, { readonly: true })
  try {
    return file.pragma('user_version', { simple: true }) as number
  } finally {
    file.close()
  }
}
