/** The accounts of tenants: makes, changes and deletes them, and knows their usage; docs/settee-api.md. */
import { addUser, readUser, removeUser, rolesOfUser, SYSTEM_USER, userNames } from '../auth/accounts.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { FeedSlots } from './feed-slots.ts'
import type { Owners } from './owners.ts'
import type { TenantDatabases } from './tenant-databases.ts'
import type { Tenants } from './tenants.ts'
import { type QuotaChange, type Size, shownQuota, type Usage } from './usage.ts'

/** Sign-ups at once: each costs a hash, and the queue for hashes is shared. */
const MAX_SIGN_UPS = 8

interface TenantAccountsOptions {
  readonly databases: Pick<Databases, 'get' | 'has'>
  readonly owners: Owners
  readonly tenants: Tenants
  readonly tenantDatabases: TenantDatabases
  readonly usage: Usage
  readonly feeds: FeedSlots
  /** Revokes all device tokens of an account. @returns their number */
  deleteTokens(account: string): Promise<number>
}

/** The usage of an account. */
export interface AccountUsage extends Size {
  readonly databases: number
  /** Open feeds. */
  readonly feeds: number
}

export interface NewAccount {
  readonly name: string
  readonly password: string
  readonly roles: readonly string[]
  readonly quota: QuotaChange
}

export class TenantAccounts {
  readonly #options: TenantAccountsOptions
  readonly #users: UserDocuments
  readonly #deletions = new KeyedMutex()
  #signUps = 0

  constructor(options: TenantAccountsOptions) {
    this.#options = options
    this.#users = new UserDocuments(options.databases)
  }

  /** @returns the usage of an account, measured about 1 s after its latest write */
  usageOf(name: string): AccountUsage {
    const { owners, usage, feeds } = this.#options
    return { ...usage.sumOf(name), databases: owners.databasesOf(name).size, feeds: feeds.count(name) }
  }

  /** @returns the account as JSON; null if there is no such account */
  async describe(name: string): Promise<object | null> {
    const roles = await this.#users.rolesOf(name)
    const { owners, tenants, usage } = this.#options
    if (roles === null && !this.#isKnown(name)) return null
    await usage.settle()
    const databases = [...owners.databasesOf(name)].sort()
    return {
      name,
      roles: roles ?? [],
      ...this.#state(name),
      quota: shownQuota(tenants.quotaOf(name)),
      overrides: shownQuota(tenants.overridesOf(name)),
      usage: this.usageOf(name),
      databases: databases.map((database) => ({ name: database, ...usage.of(database) })),
    }
  }

  #state(name: string): object {
    const { tenants } = this.#options
    return { suspended: tenants.isSuspended(name), ...(tenants.isLeaving(name) && { deleting: true }) }
  }

  /** Whether there are records of the account beside its user document. */
  #isKnown(name: string): boolean {
    const { owners, tenants } = this.#options
    return owners.databasesOf(name).size > 0 || tenants.names().includes(name)
  }

  /**
   * A page of accounts in byte order: users, and owners of databases.
   * @param prefix with which their names begin; empty: all
   * @returns the accounts after `after`, and the last name if there may be more
   */
  async list(
    after: string,
    limit: number,
    prefix = '',
  ): Promise<{ accounts: object[]; next: string | null }> {
    const { owners, tenants } = this.#options
    const users = await this.#users.list(after, limit + 1, prefix)
    const others = [...owners.accounts(), ...tenants.names()].filter(
      (name) => isBehind(name, after) && name.startsWith(prefix),
    )
    const all = [...new Set([...users, ...others])].sort(byBytes)
    const names = all.slice(0, limit)
    const accounts = names.map((name) => ({
      name,
      ...this.#state(name),
      quota: shownQuota(tenants.quotaOf(name)),
      usage: this.usageOf(name),
    }))
    return { accounts, next: all.length > limit ? (names.at(-1) ?? null) : null }
  }

  /**
   * Makes an account.
   * @throws bad_request for its name or password; conflict if there is an account or admin of that name
   */
  async create({ name, password, roles, quota }: NewAccount): Promise<void> {
    checkAccount(name, password)
    this.#checkFree(name)
    await this.#makeUser(name, password, roles)
    if (Object.keys(quota).length > 0) await this.#options.tenants.change(name, { quota })
  }

  /** Makes an account for a person who signs up. @throws as {@link create}; unavailable */
  async signUp(name: string, password: string): Promise<void> {
    checkSignUp(name, password)
    this.#checkFree(name)
    if (this.#signUps >= MAX_SIGN_UPS) throw new CouchError('unavailable')
    this.#signUps += 1
    try {
      await this.#makeUser(name, password, [])
    } finally {
      this.#signUps -= 1
    }
  }

  /** An account may exist without a user document, by tokens or a proxy. Nobody else may get its databases. */
  #checkFree(name: string): void {
    if (this.#options.tenants.isAdmin(name) || this.#isKnown(name)) throw nameConflict()
  }

  async #makeUser(name: string, password: string, roles: readonly string[]): Promise<void> {
    try {
      await this.#users.create(name, password, roles)
    } catch (error) {
      throw error instanceof CouchError && error.code === 'conflict' ? nameConflict() : error
    }
  }

  /** @throws not_found, forbidden for a server admin */
  async change(name: string, change: { quota?: QuotaChange; isSuspended?: boolean }): Promise<void> {
    await this.checkExists(name)
    await this.#options.tenants.change(name, change)
  }

  /** @throws not_found; forbidden for a server admin */
  async checkExists(name: string): Promise<void> {
    if (this.#options.tenants.isAdmin(name)) {
      throw new CouchError('forbidden', 'This is a server admin, not a tenant.')
    }
    if (this.#isKnown(name) || (await this.#users.rolesOf(name)) !== null) return
    throw new CouchError('not_found', 'There is no account with this name.')
  }

  /**
   * Deletes an account with its databases and tokens. It loses access at once. After a crash, the next start continues
   * the deletion.
   * @returns the deleted databases, the number of tokens, and whether there was a user document
   * @throws not_found, forbidden
   */
  delete(name: string): Promise<object> {
    return this.#deletions.run(name, async () => {
      await this.checkExists(name)
      await this.#options.tenants.change(name, { isLeaving: true })
      return this.#remove(name)
    })
  }

  async #remove(name: string): Promise<object> {
    const { tenants, tenantDatabases, deleteTokens } = this.#options
    // Tokens before the user, whose deletion revokes those that are left: their number would depend on the timing.
    const tokens = await deleteTokens(name)
    // The user before the databases, since couch_peruser makes databases for users.
    const user = await this.#users.delete(name)
    const databases = await tenantDatabases.deleteAll(name)
    await tenants.forget(name)
    return { databases, user, tokens }
  }

  /** Continues interrupted deletions. @returns the accounts that are deleted now */
  async resume(): Promise<string[]> {
    const { tenants } = this.#options
    const leaving = tenants.names().filter((name) => tenants.isLeaving(name))
    for (const name of leaving) await this.#deletions.run(name, () => this.#remove(name))
    return leaving
  }

  /** The usage of each account that owns a database or has its own record, for metrics. */
  all(): ({ readonly account: string } & AccountUsage)[] {
    const { owners, tenants } = this.#options
    const names = new Set([...owners.accounts(), ...tenants.names()])
    return [...names].map((account) => ({ account, ...this.usageOf(account) }))
  }
}

function nameConflict(): CouchError {
  return new CouchError('conflict', 'There is already an account with this name.')
}

function isBehind(name: string, after: string): boolean {
  return byBytes(name, after) > 0
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}

// Rules for names and passwords.

const MAX_NAME = 128
const CONTROLS = /\p{Cc}/u
/** Names for sign-ups: none that looks like another name in other letters. */
const SIGN_UP_NAME = /^[a-z0-9][a-z0-9_.@+-]{1,63}$/
const MIN_PASSWORD = 8
const MAX_PASSWORD_BYTES = 1024

/**
 * Checks an account that an admin makes. A name has no colon, since Basic credentials end it there.
 * @throws bad_request
 */
function checkAccount(name: string, password: string): void {
  const isName =
    name.length <= MAX_NAME && name === name.trim() && name.isWellFormed() && !CONTROLS.test(name)
  if (name === '' || !isName || name.startsWith('_') || name.includes(':')) {
    throw new CouchError(
      'bad_request',
      `\`name\` must have 1 to ${MAX_NAME} characters without colons or control characters, and must not begin with _ or a space.`,
    )
  }
  if (password === '' || !password.isWellFormed() || Buffer.byteLength(password) > MAX_PASSWORD_BYTES) {
    throw new CouchError('bad_request', `\`password\` must have 1 to ${MAX_PASSWORD_BYTES} bytes.`)
  }
}

/** Checks a sign-up. @throws bad_request */
function checkSignUp(name: string, password: string): void {
  if (!SIGN_UP_NAME.test(name)) {
    throw new CouchError(
      'bad_request',
      'A name must have 2 to 64 characters: lower-case letters, digits and _ . @ + -. It must begin with a letter or a digit.',
    )
  }
  checkAccount(name, password)
  if ([...password].length < MIN_PASSWORD) {
    throw new CouchError('bad_request', `A password must have at least ${MIN_PASSWORD} characters.`)
  }
}

// The user documents in `_users`.

/** Leaves of one document; only replication makes more than one. */
const MAX_LEAVES = 100

class UserDocuments {
  readonly #databases: Pick<Databases, 'get' | 'has'>

  constructor(databases: Pick<Databases, 'get' | 'has'>) {
    this.#databases = databases
  }

  /** @throws no_database */
  #open(): Promise<DatabaseHandle> {
    return this.#databases.get(USERS_DATABASE)
  }

  #areKept(): Promise<boolean> {
    return this.#databases.has(USERS_DATABASE)
  }

  /** Makes a user; the database hashes the password. @throws conflict if there is one of that name; no_database */
  async create(name: string, password: string, roles: readonly string[]): Promise<void> {
    return addUser(await this.#open(), { name, password, roles })
  }

  /** @returns the roles of a user; null if there is no such user */
  async rolesOf(name: string): Promise<readonly string[] | null> {
    const text = (await this.#areKept()) ? await readUser(await this.#open(), name) : null
    return text === null ? null : rolesOfUser(text)
  }

  /** @returns names in byte order, at most `limit` after `after` */
  async list(after: string, limit: number, prefix: string): Promise<string[]> {
    return (await this.#areKept()) ? userNames(await this.#open(), after, limit, prefix) : []
  }

  /** Removes a user with all stored revisions. @returns whether there was one */
  async delete(name: string): Promise<boolean> {
    if (!(await this.#areKept())) return false
    const users = await this.#open()
    for (let leaf = 0; leaf < MAX_LEAVES; leaf++) {
      const text = await readUser(users, name)
      if (text === null) {
        if (leaf > 0) await users.compact(SYSTEM_USER)
        return leaf > 0
      }
      await removeUser(users, name, text)
    }
    throw new CouchError('contended')
  }
}
