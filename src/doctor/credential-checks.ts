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
    const text = 'The server has no admin: anyone can read, change and delete everything.'
    const isOurs = scene.stage.server === 'settee'
    return note(
      'credentials',
      text,
      toYou(
        isOurs ? 'Create one: settee passwd NAME --create' : "Create one, as the server's manual explains.",
      ),
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
    const text = 'The address has no credentials and needs none: anyone can read the database.'
    return note(
      'credentials',
      text,
      toYou(
        'Give the database members (settee vault add, or PUT /{db}/_security), and put user:password@ into the address.',
      ),
    )
  }
  return wrong(
    'credentials',
    `The address has no credentials: ${told(database, quote)}.`,
    toYou('Put user:password@ before the host.'),
  )
}

function judgeKnown({ name }: UserContext, username: string, { stage, quote }: Scene): Finding {
  if (name === username) return fine('credentials', 'Name and password are correct.')
  if (name !== null) {
    const text = `The server knows this account under another name: ${quote(name)}.`
    return { ...note('credentials', text), names: [quote(name)] }
  }
  return wrong(
    'credentials',
    'Name and password do not reach the server: a proxy removes them.',
    advise('authorization', stage, 'proxy'),
  )
}

function judgeRefused(reply: Reply, { stage, quote }: Scene): Finding {
  const reason = reasonOf(reply)
  if (NONE_CAME.test(reason)) {
    return wrong(
      'credentials',
      `Name and password do not reach the server, which answers "${quote(reason)}"`,
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
    const cure = toYou('After failed logins, wait five minutes; otherwise ask the admin.')
    return wrong('credentials', `The account is refused: ${quote(reason)}`, cure)
  }
  return wrong(
    'credentials',
    `Name or password is wrong: ${quote(reason)}`,
    toYou(
      'Percent-encode characters such as @ : / % in the address; to set a new password: settee passwd NAME',
    ),
  )
}

/** A server without `_session`: what the database answers is all that can be told. */
function judgeUnsaid({ session, database }: CredentialFacts, { quote }: Scene): Finding {
  if (isAnswer(database) && database.status < 400) return fine('credentials', 'The database accepts them.')
  return wrong('credentials', `They could not be checked: ${told(session, quote)}.`)
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
      toYou(`Create it: settee vault add ${name}, or PUT /${name} as an admin.`),
    )
  }
  if (database.status === 401 || database.status === 403) {
    const cure = toYou(`Make the account a member: settee vault add ${name}, or PUT /${name}/_security.`)
    return wrong('rights', `The account may not read ${name}: ${told(database, quote)}.`, cure)
  }
  if (database.status >= 300 || database.json === undefined) {
    return wrong('rights', `The answer is not that of a database: ${told(database, quote)}.`)
  }
  return fine('rights', `The account can read, as ${roleOf(security, user)}.`)
}

function roleOf(security: Reply, user: UserContext | null): string {
  if (user?.roles.includes('_admin')) return 'server admin'
  const { admins } = (isAnswer(security) ? (security.json ?? {}) : {}) as { readonly admins?: Party }
  const isNamed = user?.name != null && listOf(admins?.names).includes(user.name)
  const hasRole = user?.roles.some((role) => listOf(admins?.roles).includes(role)) ?? false
  if (isNamed || hasRole) return 'admin of the database'
  return 'member: it cannot change design documents or access rights'
}

interface Party {
  readonly names?: unknown
  readonly roles?: unknown
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
