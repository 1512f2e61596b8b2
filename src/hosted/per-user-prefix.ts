import type { Config } from '../config/config.ts'

/** What names of users' own databases begin with. */
export function perUserPrefix(config: Config): string {
  return config.get('couch_peruser', 'database_prefix') || 'userdb-'
}
