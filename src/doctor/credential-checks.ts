/** Checks whether name and password are correct, and what the account may do. */
import { advise, type CheckContext } from './advice.ts'
import { isAnswer, type Reply } from './doctor-client.ts'
import { adviceToUser, describe, type Finding, fine, note, reasonOf, wrong } from './finding.ts'

/** The user as `GET /_session` names it. */
interface UserContext {
  readonly name: string | null
  readonly roles: readonly string[]
}

interface CredentialFacts {
  /** Of `GET /_session` with the credentials. */
  readonly session: Reply
  /** Of `GET /{db}/` with the credentials. */
  readonly database: Reply
}

/** @returns null if the answer names no user context */
export function userOf(session: Reply): UserContext | null {
  if (!isAnswer(session) || session.status !== 200) return null
  const { userCtx } = (session.json ?? {}) as { readonly userCtx?: Partial<UserContext> }
  if (userCtx === undefined || userCtx === null) return null
  const roles = Array.isArray(userCtx.roles) ? userCtx.roles.filter((role) => typeof role === 'string') : []
  return { name: typeof userCtx.name === 'string' ? userCtx.name : null, roles }
}

/** CouchDB's reasons for missing credentials. It has other reasons for wrong credentials. */
const MISSING_CREDENTIALS = /^(?:Authentication required|You are not authorized to access this db)/

export function checkCredentials(facts: CredentialFacts, context: CheckContext): Finding {
  const { username } = context.address
  const user = userOf(facts.session)
  const isOpen = user !== null && user.name === null && user.roles.includes('_admin')
  if (isOpen) {
    const text = 'The server has no admin: anyone can read, change and delete everything.'
    const isOurs = context.stack.server === 'settee'
    return note(
      'credentials',
      text,
      adviceToUser(
        isOurs ? 'Create one: settee passwd NAME --create' : "Create one, as the server's manual explains.",
      ),
    )
  }
  if (username === undefined) return missingCredentials(facts, context)
  const refused = [facts.session, facts.database].find(
    (each) => isAnswer(each) && [401, 403].includes(each.status),
  )
  if (user !== null) return knownUser(user, username, context)
  return refused === undefined
    ? credentialsWithoutSession(facts, context)
    : refusedCredentials(refused, context)
}

function missingCredentials({ database }: CredentialFacts, { quote }: CheckContext): Finding {
  if (isAnswer(database) && database.status === 200) {
    const text = 'The address has no credentials and needs none: anyone can read the database.'
    return note(
      'credentials',
      text,
      adviceToUser(
        'Give the database members (settee vault add, or PUT /{db}/_security), and put user:password@ into the address.',
      ),
    )
  }
  return wrong(
    'credentials',
    `The address has no credentials: ${describe(database, quote)}.`,
    adviceToUser('Put user:password@ before the host.'),
  )
}

function knownUser({ name }: UserContext, username: string, { stack, quote }: CheckContext): Finding {
  if (name === username) return fine('credentials', 'Name and password are correct.')
  if (name !== null) {
    const text = `The server knows this account under another name: ${quote(name)}.`
    return { ...note('credentials', text), names: [quote(name)] }
  }
  return wrong(
    'credentials',
    'Name and password do not reach the server: a proxy removes them.',
    advise('authorization', stack, 'proxy'),
  )
}

function refusedCredentials(reply: Reply, { stack, quote }: CheckContext): Finding {
  const reason = reasonOf(reply)
  if (MISSING_CREDENTIALS.test(reason)) {
    return wrong(
      'credentials',
      `Name and password do not reach the server, which answers "${quote(reason)}"`,
      advise('authorization', stack, 'proxy'),
    )
  }
  if (reason === '') {
    return wrong(
      'credentials',
      'The proxy asks for a password of its own.',
      advise('proxyPassword', stack, 'proxy'),
    )
  }
  if (isAnswer(reply) && reply.status === 403) {
    const cure = adviceToUser('After failed logins, wait five minutes; otherwise ask the admin.')
    return wrong('credentials', `The account is refused: ${quote(reason)}`, cure)
  }
  return wrong(
    'credentials',
    `Name or password is wrong: ${quote(reason)}`,
    adviceToUser(
      'Percent-encode characters such as @ : / % in the address; to set a new password: settee passwd NAME',
    ),
  )
}

/** Uses only the database's answer, because the server has no `_session`. */
function credentialsWithoutSession({ session, database }: CredentialFacts, { quote }: CheckContext): Finding {
  if (isAnswer(database) && database.status < 400) return fine('credentials', 'The database accepts them.')
  return wrong('credentials', `They could not be checked: ${describe(session, quote)}.`)
}

interface RightsFacts {
  /** Of `GET /{db}/`. */
  readonly database: Reply
  /** Of `GET /{db}/_security`. */
  readonly security: Reply
  /** null: unknown. */
  readonly user: UserContext | null
}

/** Checks whether the account can read the database, and its role; the finding `local` shows whether it can write. */
export function checkRights(
  { database, security, user }: RightsFacts,
  { address, quote }: CheckContext,
): Finding {
  const { database: name } = address
  if (!isAnswer(database))
    return wrong('rights', `The database does not answer: ${describe(database, quote)}.`)
  if (database.status === 404) {
    return wrong(
      'rights',
      `There is no database ${name}.`,
      adviceToUser(`Create it: settee vault add ${name}, or PUT /${name} as an admin.`),
    )
  }
  if (database.status === 401 || database.status === 403) {
    const cure = adviceToUser(
      `Make the account a member: settee vault add ${name}, or PUT /${name}/_security.`,
    )
    return wrong('rights', `The account may not read ${name}: ${describe(database, quote)}.`, cure)
  }
  if (database.status >= 300 || database.json === undefined) {
    return wrong('rights', `The answer is not that of a database: ${describe(database, quote)}.`)
  }
  return fine('rights', `The account can read, as ${roleOf(security, user)}.`)
}

function roleOf(security: Reply, user: UserContext | null): string {
  if (user?.roles.includes('_admin')) return 'server admin'
  const { admins } = (isAnswer(security) ? (security.json ?? {}) : {}) as { readonly admins?: NamesAndRoles }
  const isNamed = user?.name != null && listOf(admins?.names).includes(user.name)
  const hasRole = user?.roles.some((role) => listOf(admins?.roles).includes(role)) ?? false
  if (isNamed || hasRole) return 'admin of the database'
  return 'member: it cannot change design documents or access rights'
}

interface NamesAndRoles {
  readonly names?: unknown
  readonly roles?: unknown
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
