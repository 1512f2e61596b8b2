/** Accounts as an admin keeps them: making, changing and deleting them, and what each takes. docs/settee-api.md. */
import { addUser, readUser, removeUser, rolesOfUser, userNames } from '../auth/accounts.ts'
import { SYSTEM_USER } from '../auth/users-feed.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { FeedSlots } from './feed-slots.ts'
import type { Owners } from './owners.ts'
import type { TenantDatabases } from './tenant-databases.ts'
import type { Tenants } from './tenants.ts'
import { type QuotaChange, type Size, shownQuota, type Usage } from './usage.ts'

/** Accounts that are being made by the people themselves: each costs a hash, and the queue for those is shared. */
const MAX_SIGN_UPS = 8

interface TenantAccountsOptions {
  readonly databases: Pick<Databases, 'get' | 'names'>
  readonly owners: Owners
  readonly tenants: Tenants
  readonly tenantDatabases: TenantDatabases
  readonly usage: Usage
  readonly feeds: FeedSlots
  /** Revokes all device tokens of an account. @returns how many there were */
  deleteTokens(account: string): Promise<number>
}

/** What an account takes. */
export interface AccountUsage extends Size {
  readonly databases: number
  /** Feeds that are open now. */
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

  /** @returns what an account takes, as it was found at most about a second after the latest write */
  usageOf(name: string): AccountUsage {
    const { owners, usage, feeds } = this.#options
    return { ...usage.sumOf(name), databases: owners.databasesOf(name).size, feeds: feeds.count(name) }
  }

  /** @returns the account as JSON; null: there is none of that name */
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

  /** Whether something is kept of the account beside its user document. */
  #isKnown(name: string): boolean {
    const { owners, tenants } = this.#options
    return owners.databasesOf(name).size > 0 || tenants.names().includes(name)
  }

  /**
   * A page of accounts in their order: users, and whoever owns a database.
   * @returns the accounts behind `after`, and the last name when there may be more
   */
  async list(after: string, limit: number): Promise<{ accounts: object[]; next: string | null }> {
    const { owners, tenants } = this.#options
    const users = await this.#users.list(after, limit + 1)
    const others = [...owners.accounts(), ...tenants.names()].filter((name) => isBehind(name, after))
    const all = [...new Set([...users, ...others])].sort(byBytes)
    const names = all.slice(0, limit)
    const accounts = names.map((name) => ({ name, ...this.#state(name), usage: this.usageOf(name) }))
    return { accounts, next: all.length > limit ? (names.at(-1) ?? null) : null }
  }

  /**
   * Makes an account.
   * @throws bad_request for its name or password; conflict when there is one, or an admin, of that name
   */
  async create({ name, password, roles, quota }: NewAccount): Promise<void> {
    checkAccount(name, password)
    this.#checkFree(name)
    await this.#makeUser(name, password, roles)
    if (Object.keys(quota).length > 0) await this.#options.tenants.change(name, { quota })
  }

  /** The same for somebody who makes it for himself. @throws as {@link create}; unavailable */
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

  /** Databases of an account that is known by a token or a proxy alone must not become a stranger's. */
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

  /** @throws not_found; forbidden for a server admin, who is no tenant */
  async checkExists(name: string): Promise<void> {
    if (this.#options.tenants.isAdmin(name)) {
      throw new CouchError('forbidden', 'This is a server admin, not a tenant.')
    }
    if (this.#isKnown(name) || (await this.#users.rolesOf(name)) !== null) return
    throw new CouchError('not_found', 'There is no account with this name.')
  }

  /**
   * Deletes an account with all that is its: it is let in nowhere from the first moment on; a crash in between is
   * gone on from at the next start.
   * @returns what was deleted
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
    // The user first: while there is one, couch_peruser may make a database for it.
    const user = await this.#users.delete(name)
    const tokens = await deleteTokens(name)
    const databases = await tenantDatabases.deleteAll(name)
    await tenants.forget(name)
    return { databases, user, tokens }
  }

  /** Goes on with deletions that the server's end has interrupted. @returns the accounts that are gone now */
  async resume(): Promise<string[]> {
    const { tenants } = this.#options
    const leaving = tenants.names().filter((name) => tenants.isLeaving(name))
    for (const name of leaving) await this.#deletions.run(name, () => this.#remove(name))
    return leaving
  }

  /** What every account takes that owns a database or differs from others: for metrics. */
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

// What accounts may be called, and what their passwords must be.

const MAX_NAME = 128
const CONTROLS = /\p{Cc}/u
/** What people may call themselves: nothing that looks like another's name in other letters. */
const SIGN_UP_NAME = /^[a-z0-9][a-z0-9_.@+-]{1,63}$/
const MIN_PASSWORD = 8
const MAX_PASSWORD_BYTES = 1024

/**
 * Checks an account that an admin makes. Basic credentials end the name at the first colon.
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

/** Checks an account that somebody makes for himself. @throws bad_request */
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

// The documents of `_users` that are accounts: made, listed and removed for the accounts API.

/** Leaves of one document: conflicts come of replication alone. */
const MAX_LEAVES = 100

class UserDocuments {
  readonly #databases: Pick<Databases, 'get' | 'names'>

  constructor(databases: Pick<Databases, 'get' | 'names'>) {
    this.#databases = databases
  }

  /** @throws no_database */
  get #users(): DatabaseHandle {
    return this.#databases.get(USERS_DATABASE)
  }

  get #areKept(): boolean {
    return this.#databases.names().includes(USERS_DATABASE)
  }

  /** Makes a user; the database hashes the password. @throws conflict when there is one of that name; no_database */
  create(name: string, password: string, roles: readonly string[]): Promise<void> {
    return addUser(this.#users, { name, password, roles })
  }

  /** @returns the roles of a user; null: there is none */
  async rolesOf(name: string): Promise<readonly string[] | null> {
    const text = this.#areKept ? await readUser(this.#users, name) : null
    return text === null ? null : rolesOfUser(text)
  }

  /** @returns names in their order, at most `limit` behind `after` */
  async list(after: string, limit: number): Promise<string[]> {
    return this.#areKept ? userNames(this.#users, after, limit) : []
  }

  /** Removes a user, and what its document said before. @returns whether there was one */
  async delete(name: string): Promise<boolean> {
    if (!this.#areKept) return false
    for (let leaf = 0; leaf < MAX_LEAVES; leaf++) {
      const text = await readUser(this.#users, name)
      if (text === null) {
        if (leaf > 0) await this.#users.compact(SYSTEM_USER)
        return leaf > 0
      }
      await removeUser(this.#users, name, text)
    }
    throw new CouchError('contended')
  }
}
