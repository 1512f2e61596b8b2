import { advise } from './advice.ts'
import { isAnswer, type Reply } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Finding, fine, note, reasonOf, told, toYou, wrong } from './finding.ts'

/** What `GET /_session` knows of who asks. */
interface UserContext {
  readonly name: string | null
  readonly roles: readonly string[]
}

interface CredentialFacts {
  /** To `GET /_session` with the credentials. */
  readonly session: Reply
  /** To `GET /{db}/` with the credentials. */
  readonly database: Reply
}

/** @returns null where the answer does not say */
export function userOf(session: Reply): UserContext | null {
  if (!isAnswer(session) || session.status !== 200) return null
  const { userCtx } = (session.json ?? {}) as { readonly userCtx?: Partial<UserContext> }
  if (userCtx === undefined || userCtx === null) return null
  const roles = Array.isArray(userCtx.roles) ? userCtx.roles.filter((role) => typeof role === 'string') : []
  return { name: typeof userCtx.name === 'string' ? userCtx.name : null, roles }
}

/** CouchDB says this to who brings no credentials, and something else to who brings wrong ones. */
const NONE_CAME = /^(?:Authentication required|You are not authorized to access this db)/

export function judgeCredentials(facts: CredentialFacts, scene: Scene): Finding {
  const { username } = scene.address
  const user = userOf(facts.session)
  const isOpen = user !== null && user.name === null && user.roles.includes('_admin')
  if (isOpen) {
    const text = 'The server has no admin: everybody may read, change and delete everything.'
    const isOurs = scene.stage.server === 'settee'
    return note(
      'credentials',
      text,
      toYou(isOurs ? 'Make one: settee passwd NAME --create' : "Make one, as the server's manual says."),
    )
  }
  if (username === undefined) return judgeNone(facts, scene)
  const refused = [facts.session, facts.database].find(
    (each) => isAnswer(each) && [401, 403].includes(each.status),
  )
  if (user !== null) return judgeKnown(user, username, scene)
  return refused === undefined ? judgeUnsaid(facts, scene) : judgeRefused(refused, scene)
}

function judgeNone({ database }: CredentialFacts, { quote }: Scene): Finding {
  if (isAnswer(database) && database.status === 200) {
    const text = 'None are given, and none are needed: everybody may read the database.'
    return note(
      'credentials',
      text,
      toYou('Give it members: settee vault add, or PUT /{db}/_security; then user:password@ in the address.'),
    )
  }
  return wrong(
    'credentials',
    `None are given: ${told(database, quote)}.`,
    toYou('Write user:password@ before the host.'),
  )
}

function judgeKnown({ name }: UserContext, username: string, { stage, quote }: Scene): Finding {
  if (name === username) return fine('credentials', 'Name and password are right.')
  if (name !== null) {
    const text = `The server knows this account by another name: ${quote(name)}.`
    return { ...note('credentials', text), names: [quote(name)] }
  }
  return wrong(
    'credentials',
    'Name and password do not arrive at the server: a proxy takes them away.',
    advise('authorization', stage, 'proxy'),
  )
}

function judgeRefused(reply: Reply, { stage, quote }: Scene): Finding {
  const reason = reasonOf(reply)
  if (NONE_CAME.test(reason)) {
    return wrong(
      'credentials',
      `Name and password do not arrive at the server, which says "${quote(reason)}"`,
      advise('authorization', stage, 'proxy'),
    )
  }
  if (reason === '') {
    return wrong(
      'credentials',
      'The proxy asks for a password of its own.',
      advise('proxyPassword', stage, 'proxy'),
    )
  }
  if (isAnswer(reply) && reply.status === 403) {
    const cure = toYou('After failed logins wait five minutes; else ask the admin.')
    return wrong('credentials', `The account is refused: ${quote(reason)}`, cure)
  }
  return wrong(
    'credentials',
    `Name or password is wrong: ${quote(reason)}`,
    toYou('Characters such as @ : / % are percent-encoded in an address; a new password: settee passwd NAME'),
  )
}

/** A server without `_session`: what the database answers is all that can be told. */
function judgeUnsaid({ session, database }: CredentialFacts, { quote }: Scene): Finding {
  if (isAnswer(database) && database.status < 400)
    return fine('credentials', 'They are taken by the database.')
  return wrong('credentials', `They could not be tried: ${told(session, quote)}.`)
}

interface RightsFacts {
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
