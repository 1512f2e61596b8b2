/**
 * Manages accounts for the operator, who has the data folder and needs no password: from the command line, whether the
 * server runs or not (clients.md pain 16: nobody is locked out for good).
 */
import type { Config } from '../config/config.ts'
import { secretFromEnvironment } from '../config/sources.ts'
import { CouchError } from '../core/errors.ts'
import type { Databases } from '../threads/databases.ts'
import {
  ADMIN_ROLE,
  addUser,
  readUser,
  removeUser,
  rolesOfUser,
  setUserPassword,
  userNames,
} from './accounts.ts'
import { deleteAdmin, requireNoAdmin, setAdmin } from './admins.ts'

interface PasswordChange {
  readonly name: string
  readonly password: string
  /** Makes a server admin when there is neither an admin nor an account of this name. */
  readonly create: boolean
  /** Makes the first admin: refused if there is another by the time of the write. Default false. */
  readonly isFirst?: boolean
}

interface NewAccount {
  readonly name: string
  /** null: no password, only device tokens. */
  readonly password: string | null
  readonly roles: readonly string[]
}

type AccountKind = 'admin' | 'account'

export interface PasswordOutcome {
  readonly kind: AccountKind
  readonly isNew: boolean
  /** A warning about settings that will undo the change; null: none. */
  readonly warning: string | null
}

export interface AccountRow {
  readonly name: string
  readonly kind: AccountKind
  readonly roles: readonly string[]
}

interface AccountPage {
  readonly rows: readonly AccountRow[]
  /** The `after` of the next page; null: this is the last one. */
  readonly next: string | null
}

interface DeletionOutcome {
  readonly deleted: readonly AccountKind[]
  readonly warning: string | null
}

/** Arguments and results are plain data, since they go through the control socket (control/control-server.ts). */
export interface Operator {
  /**
   * Changes the password of a server admin, or else of the account with this name.
   * @throws not_found; bad_request for a bad password; conflict with `isFirst`; as `Config.set` and writes of documents
   */
  setPassword(change: PasswordChange): Promise<PasswordOutcome>
  /** @throws conflict if the name is in use; and what the rules of `_users` throw */
  addAccount(account: NewAccount): Promise<null>
  /** Server admins, then accounts. */
  listAccounts(page: { readonly after: string | null }): Promise<AccountPage>
  /**
   * Deletes everything that gives access with this name: the account, the server admin, device tokens.
   * @throws not_found; forbidden for the last server admin
   */
  deleteAccount(account: { readonly name: string }): Promise<DeletionOutcome>
}

export interface OperatorServices {
  readonly config: Config
  readonly databases: Databases
  /** The environment of the server, or of the command if no server runs. */
  readonly env: NodeJS.ProcessEnv
  revokeTokens(account: string): Promise<void>
}

/** Accounts on a page; each is read as a separate document. */
const PAGE = 100

/** Manages the accounts of a server whose configuration and databases are open in this process. */
export function localOperator(services: OperatorServices): Operator {
  return {
    setPassword: (change) => setPassword(services, change),
    addAccount: (account) => addAccount(services, account),
    listAccounts: ({ after }) => listAccounts(services, after),
    deleteAccount: ({ name }) => deleteAccount(services, name),
  }
}

async function setPassword(
  services: OperatorServices,
  { name, password, create, isFirst = false }: PasswordChange,
): Promise<PasswordOutcome> {
  const { config, databases } = services
  checkPassword(password)
  const isAdmin = config.get('admins', name) !== undefined
  if (!isAdmin) {
    const text = await readAccount(databases, name)
    if (text !== null) {
      await setUserPassword(await databases.get(databases.usersDatabase), name, text, password)
      return { kind: 'account', isNew: false, warning: null }
    }
    if (!create) throw notThere(name)
  }
  const isFixed = await isFromEnvironment(services.env, name)
  await setAdmin(config, name, password, isFirst ? { precondition: () => requireNoAdmin(config) } : {})
  const warning = isFixed
    ? `COUCHDB_PASSWORD sets the password of ${name} at each start; change it as well.`
    : null
  return { kind: 'admin', isNew: !isAdmin, warning }
}

async function addAccount({ config, databases }: OperatorServices, account: NewAccount): Promise<null> {
  if (account.password !== null) checkPassword(account.password)
  const isAdmin = config.get('admins', account.name) !== undefined
  if (isAdmin || (await readAccount(databases, account.name)) !== null) {
    throw new CouchError(
      'conflict',
      `There is ${isAdmin ? 'a server admin' : 'an account'} ${account.name} already.`,
    )
  }
  if (!(await databases.has(databases.usersDatabase))) await databases.create(databases.usersDatabase)
  await addUser(await databases.get(databases.usersDatabase), account)
  return null
}

async function listAccounts(
  { config, databases }: OperatorServices,
  after: string | null,
): Promise<AccountPage> {
  const admins = after === null ? Object.keys(config.section('admins')).sort() : []
  const rows = admins.map((name): AccountRow => ({ name, kind: 'admin', roles: [ADMIN_ROLE] }))
  if (!(await databases.has(databases.usersDatabase))) return { rows, next: null }
  const users = await databases.get(databases.usersDatabase)
  const names = await userNames(users, after, PAGE)
  for (const name of names) {
    const text = await readUser(users, name)
    if (text !== null) rows.push({ name, kind: 'account', roles: rolesOfUser(text) })
  }
  return { rows, next: names.length < PAGE ? null : (names.at(-1) ?? null) }
}

async function deleteAccount(services: OperatorServices, name: string): Promise<DeletionOutcome> {
  const { config, databases } = services
  const isAdmin = config.get('admins', name) !== undefined
  const text = await readAccount(databases, name)
  if (!isAdmin && text === null) throw notThere(name)
  if (isAdmin && Object.keys(config.section('admins')).length === 1) {
    throw new CouchError(
      'forbidden',
      `${name} is the last server admin; without an admin, everybody may do everything.`,
    )
  }
  const isFixed = await isFromEnvironment(services.env, name)
  if (text !== null) await removeUser(await databases.get(databases.usersDatabase), name, text)
  if (isAdmin) await deleteAdmin(config, name)
  await services.revokeTokens(name)
  const deleted: AccountKind[] = [...(text === null ? [] : ['account' as const])]
  if (isAdmin) deleted.push('admin')
  const warning = isFixed ? `COUCHDB_USER makes the server admin ${name} again at the next start.` : null
  return { deleted, warning }
}

async function readAccount(databases: Databases, name: string): Promise<string | null> {
  if (name === '' || !(await databases.has(databases.usersDatabase))) return null
  return readUser(await databases.get(databases.usersDatabase), name)
}

function checkPassword(password: string): void {
  if (password.trim() === '') throw new CouchError('bad_request', 'The password must not be empty.')
}

function notThere(name: string): CouchError {
  return new CouchError('not_found', `There is neither an account nor a server admin ${name}.`)
}

/** Whether the environment makes this admin, with this password, at each start (`prepareAdmins`). */
async function isFromEnvironment(env: NodeJS.ProcessEnv, name: string): Promise<boolean> {
  return (await secretFromEnvironment(env, 'COUCHDB_USER')) === name
}
