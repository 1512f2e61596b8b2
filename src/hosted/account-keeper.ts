/** Accounts as an admin keeps them: making, changing and deleting them, and what each takes. docs/settee-api.md. */
import { CouchError } from '../core/errors.ts'
import type { Databases } from '../threads/databases.ts'
import { checkAccount, checkSignUp } from './account-names.ts'
import { Chains } from './chains.ts'
import type { FeedPlaces } from './feed-places.ts'
import type { Owners } from './owners.ts'
import type { QuotaChange } from './quota.ts'
import { shownQuota } from './quota.ts'
import type { TenantDatabases } from './tenant-databases.ts'
import type { Tenants } from './tenants.ts'
import type { Size, Usage } from './usage.ts'
import { UserDocuments } from './user-documents.ts'

/** Accounts that are being made by the people themselves: each costs a hash, and the queue for those is shared. */
const MAX_SIGN_UPS = 8

export interface AccountKeeperOptions {
  readonly databases: Pick<Databases, 'get' | 'names'>
  readonly owners: Owners
  readonly tenants: Tenants
  readonly tenantDatabases: TenantDatabases
  readonly usage: Usage
  readonly feeds: FeedPlaces
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

export class AccountKeeper {
  readonly #options: AccountKeeperOptions
  readonly #users: UserDocuments
  readonly #deletions = new Chains()
  #signUps = 0

  constructor(options: AccountKeeperOptions) {
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
    if (this.#options.tenants.isAdmin(name) || this.#isKnown(name)) throw taken()
  }

  async #makeUser(name: string, password: string, roles: readonly string[]): Promise<void> {
    try {
      await this.#users.create(name, password, roles)
    } catch (error) {
      throw error instanceof CouchError && error.code === 'conflict' ? taken() : error
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
      throw new CouchError('forbidden', 'This is a server admin, and no tenant.')
    }
    if (this.#isKnown(name) || (await this.#users.rolesOf(name)) !== null) return
    throw new CouchError('not_found', 'There is no account of this name.')
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

function taken(): CouchError {
  return new CouchError('conflict', 'There is an account of this name already.')
}

function isBehind(name: string, after: string): boolean {
  return byBytes(name, after) > 0
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
