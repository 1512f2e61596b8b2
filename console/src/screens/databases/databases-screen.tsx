/** `#/databases` is the list, `#/databases/NAME/…` one database. */
import type { ScreenProps } from '../../shell/screens.ts'
import { DatabaseList } from './database-list.tsx'
import { DatabasePage } from './database-page.tsx'

export default function DatabasesScreen({ path, query }: ScreenProps) {
  const [database, ...rest] = path
  return database === undefined ? (
    <DatabaseList query={query} />
  ) : (
    <DatabasePage key={database} database={database} path={rest} query={query} />
  )
}
