import { isAnswer, type Reply } from '../client.ts'
import { type Finding, fine, toYou, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'
import type { UserContext } from './credentials.ts'

export interface RightsFacts {
  /** To `GET /{db}/`. */
  readonly database: Reply
  /** To `GET /{db}/_security`. */
  readonly security: Reply
  /** null: the server does not say. */
  readonly user: UserContext | null
}

/** Judges what the account may do with the database; whether it may write, `local` shows. */
export function judgeRights({ database, security, user }: RightsFacts, { address, quote }: Scene): Finding {
  const { database: name } = address
  if (!isAnswer(database)) return wrong('rights', `The database does not answer: ${told(database, quote)}.`)
  if (database.status === 404) {
    return wrong(
      'rights',
      `There is no database ${name}.`,
      toYou(`Make it: settee vault add ${name}, or PUT it as an admin.`),
    )
  }
  if (database.status === 401 || database.status === 403) {
    const cure = toYou(
      `Put the account into the members: settee vault add ${name}, or PUT /${name}/_security.`,
    )
    return wrong('rights', `The account may not read ${name}: ${told(database, quote)}.`, cure)
  }
  if (database.status >= 300 || database.json === undefined) {
    return wrong('rights', `The database does not answer as one: ${told(database, quote)}.`)
  }
  return fine('rights', `May read as ${roleOf(security, user)}.`)
}

function roleOf(security: Reply, user: UserContext | null): string {
  if (user?.roles.includes('_admin')) return 'server admin'
  const { admins } = (isAnswer(security) ? (security.json ?? {}) : {}) as { readonly admins?: Party }
  const isNamed = user?.name != null && listOf(admins?.names).includes(user.name)
  const hasRole = user?.roles.some((role) => listOf(admins?.roles).includes(role)) ?? false
  if (isNamed || hasRole) return 'admin of the database'
  return 'member: not to change design documents or who has access'
}

interface Party {
  readonly names?: unknown
  readonly roles?: unknown
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
