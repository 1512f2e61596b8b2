/** `#/databases` is the list, `#/databases/NAME/…` one database. */
import type { Route } from '../../shell/hash.ts'
import { DatabaseList } from './database-list.tsx'
import { DatabasePage } from './database-page.tsx'

export default function DatabasesScreen({ path, query }: Route) {
  const [database, ...rest] = path
  return database === undefined ? (
    <DatabaseList query={query} />
  ) : (
    <DatabasePage key={database} database={database} path={rest} query={query} />
  )
}
