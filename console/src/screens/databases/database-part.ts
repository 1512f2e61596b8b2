import type { Route } from '../../shell/hash.ts'

/** What a part of a database's page gets: the rest of its address. */
export interface DatabasePartProps extends Route {
  readonly database: string
}
