/** With whose rights a replication runs. They are looked up at each run, so a job ends with the rights of its user. */
import { type Accounts, ADMIN_ROLE, isServerAdmin } from '../../auth/accounts.ts'
import { isOpen } from '../../auth/admins.ts'
import { userOfToken } from '../../auth/token-record.ts'
import type { Tokens } from '../../auth/tokens.ts'
import type { Config } from '../../config/config.ts'
import { CouchError } from '../../core/errors.ts'
import { SYSTEM_USER, type UserCtx } from '../../core/types.ts'
import type { GivenUser } from '../requests/replication-document.ts'

/** A user as the owner of a job. */
export interface JobOwner {
  /** null: the owner was nobody, while the server had no admin. */
  readonly name: string | null
  /**
   * The user with today's roles.
   * @throws unauthorized if the right to replicate is lost for good, forbidden or unavailable if it is for now
   */
  rights(): Promise<UserCtx>
}

export interface RightsSources {
  readonly accounts: Pick<Accounts, 'find'>
  readonly tokens: Pick<Tokens, 'get'>
  readonly config: Config
}

/** A user who asks for a replication, and how the user was authenticated. */
export interface Caller {
  readonly user: UserCtx
  /** CouchDB's name of the handler; `token`: a device token; null: there was no need. */
  readonly handler: string | null
  /** The id of the device token. */
  readonly token: string | null
}

/**
 * The owner of a job of `POST /_replicate`. It lasts as long as the account, its password and its device token.
 * @throws as `Accounts.find`
 */
export async function ownerOfCall(sources: RightsSources, caller: Caller): Promise<JobOwner> {
  const { user, handler, token } = caller
  const { name } = user
  if (name === null) return nobody(sources.config)
  const before = await sources.accounts.find(name)
  const rights = async () => {
    requireReplicationAllowed(sources.config, user)
    const account = await sources.accounts.find(name)
    // A token or a proxy may name a user who has no account.
    if (account === null && before === null) return user
    if (account === null) throw gone(name)
    if (account.refusal !== undefined) throw new CouchError('forbidden', account.refusal)
    if (account.salt !== before?.salt) throw lost(`The password of ${name} has changed.`)
    if (token !== null) {
      const grant = await sources.tokens.get(token)
      if (grant === null) throw lost(`The device token of ${name} was revoked.`)
      return userOfToken(account, grant)
    }
    return handler === 'jwt' || handler === 'proxy' ? user : { name, roles: account.roles }
  }
  return { name, rights }
}

/**
 * The owner of a document of `_replicator`. The job lasts as long as the account.
 * @param name null: nobody
 * @param given `user_ctx`: only a server admin may name another user, or roles that the owner does not have
 */
export function ownerOfDocument(sources: RightsSources, name: string | null, given: GivenUser): JobOwner {
  const rights = async () => {
    const owner = name === null ? await nobody(sources.config).rights() : await accountOf(sources, name)
    requireReplicationAllowed(sources.config, owner)
    const roles = given.roles ?? owner.roles
    if (owner.roles.includes(ADMIN_ROLE)) {
      if (given.name === null || given.name === name) return { name, roles }
      return { name: given.name, roles: given.roles ?? (await accountOf(sources, given.name)).roles }
    }
    if (given.name !== null && given.name !== name)
      throw lost('Only server admins may name another user in `user_ctx`.')
    return { name, roles: roles.filter((role) => owner.roles.includes(role)) }
  }
  return { name, rights }
}

/** @throws unauthorized without the account; forbidden if it has no access */
async function accountOf({ accounts }: RightsSources, name: string): Promise<UserCtx> {
  const account = await accounts.find(name)
  if (account === null) throw gone(name)
  if (account.refusal !== undefined) throw new CouchError('forbidden', account.refusal)
  return { name, roles: account.roles }
}

function nobody(config: Config): JobOwner {
  const rights = async () => {
    if (isOpen(config)) return SYSTEM_USER
    throw lost('The replication was started before the server had an admin.')
  }
  return { name: null, rights }
}

function gone(name: string): CouchError {
  return lost(`There is no account ${name}.`)
}

function lost(reason: string): CouchError {
  return new CouchError('unauthorized', reason)
}

/** @throws hosted_replication for tenants, unless the configuration allows it */
export function requireReplicationAllowed(config: Config, user: UserCtx): void {
  const isOff = config.isHosted && !config.boolean('settee', 'hosted_replication')
  if (isOff && !isServerAdmin(user)) throw new CouchError('hosted_replication')
}

/** Whether the rights of an owner are lost for good. */
export function isLostForGood(error: unknown): boolean {
  return error instanceof CouchError && (error.code === 'unauthorized' || error.code === 'hosted_replication')
}

/** Whether two users may do the same. */
export function hasSameRights(a: UserCtx, b: UserCtx): boolean {
  return (
    a.name === b.name && a.roles.length === b.roles.length && a.roles.every((role) => b.roles.includes(role))
  )
}
