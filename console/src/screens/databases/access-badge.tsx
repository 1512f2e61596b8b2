import { Badge } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import type { DatabaseRow } from './database-answers.ts'

/** Who has access, in a word or two. */
export function AccessBadge({ access }: Pick<DatabaseRow, 'access'>) {
  return <Badge tone={access === 'everyone' ? 'warn' : 'plain'}>{en.databases.entries[access]}</Badge>
}
