/** The accounts of tenants: makes, changes and deletes them, and knows their usage; docs/settee-api.md. */

import { addUser, readUser, removeUser, rolesOfUser, userNames } from '../auth/accounts.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { accountKey, allRecords, type Records } from '../storage/records.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { RANKS, readTotals, type Size, TOTALS, type Totals } from './account-totals.ts'
import type { FeedSlots } from './feed-slots.ts'
import type { Owners } from './owners.ts'
import { type QuotaChange, shownQuota } from './quota.ts'
import type { TenantDatabases, WorkClaims } from './tenant-databases.ts'
import type { TenantState, Tenants } from './tenants.ts'
import type { Usage } from './usage.ts'

/** Sign-ups at once: each costs a hash, and the queue for hashes is shared. */
const MAX_SIGN_UPS = 8
/** Databases that the description of an account lists. */
const MAX_LISTED = 1000
/** Records that one call reads. */
const PAGE = 500

interface TenantAccountsOptions {
  readonly databases: Pick<Databases, 'get' | 'has'>
  readonly records: Pick<Records, 'readRecords' | 'listRecords'>
  readonly owners: Owners
  readonly tenants: Tenants
  readonly tenantDatabases: TenantDatabases
  readonly usage: Usage
  readonly feeds: FeedSlots
  readonly claims: WorkClaims
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
  async usageOf(name: string): Promise<AccountUsage> {
    return this.#shown(name, await this.#options.usage.sumOf(name))
  }

  #shown(name: string, { bytes, documents, indexes, databases }: Totals): AccountUsage {
    return { bytes, documents, indexes, databases, feeds: this.#options.feeds.count(name) }
  }

  /** @returns the account as JSON; null if there is no such account */
  async describe(name: string): Promise<object | null> {
    const roles = await this.#users.rolesOf(name)
    const { owners, tenants, usage } = this.#options
    if (roles === null && !(await this.#isKnown(name))) return null
    await usage.measureChanged()
    const { quota, overrides, ...state } = await tenants.stateOf(name)
    const databases = await owners.databasesOf(name, {}, MAX_LISTED)
    const sizes = await usage.ofAll(databases)
    return {
      name,
      roles: roles ?? [],
      ...shownState(state),
      quota: shownQuota(quota),
      overrides: shownQuota(overrides),
      usage: await this.usageOf(name),
      databases: databases.map((database, at) => ({ name: database, ...sizes[at] })),
    }
  }

  /** Whether there are records of the account beside its user document. */
  async #isKnown(name: string): Promise<boolean> {
    const { usage, tenants } = this.#options
    return (await usage.sumOf(name)).databases > 0 || tenants.isKnown(name)
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
    const { records, tenants } = this.#options
    const [users, owners, others] = await Promise.all([
      this.#users.list(after, limit + 1, prefix),
      records.listRecords(TOTALS, { prefix, after }, limit + 1),
      tenants.names(prefix, after, limit + 1),
    ])
    const all = [...new Set([...users, ...owners.map(({ key }) => key), ...others])].sort(byBytes)
    const names = all.slice(0, limit)
    const totals = await records.readRecords(TOTALS, names)
    const accounts = await Promise.all(
      names.map(async (name, at) => {
        const { quota, overrides: _, ...state } = await tenants.stateOf(name)
        const usage = this.#shown(name, readTotals(totals[at] ?? null))
        return { name, ...shownState(state), quota: shownQuota(quota), usage }
      }),
    )
    return { accounts, next: all.length > limit ? (names.at(-1) ?? null) : null }
  }

  /**
   * Makes an account.
   * @throws bad_request for its name or password; conflict if there is an account or admin of that name
   */
  async create({ name, password, roles, quota }: NewAccount): Promise<void> {
    checkAccount(name, password)
    await this.#checkFree(name)
    await this.#makeUser(name, password, roles)
    if (Object.keys(quota).length > 0) await this.#options.tenants.change(name, { quota })
  }

  /** Makes an account for a person who signs up. @throws as {@link create}; unavailable */
  async signUp(name: string, password: string): Promise<void> {
    checkSignUp(name, password)
    await this.#checkFree(name)
    if (this.#signUps >= MAX_SIGN_UPS) throw new CouchError('unavailable')
    this.#signUps += 1
    try {
      await this.#makeUser(name, password, [])
    } finally {
      this.#signUps -= 1
    }
  }

  /** An account may exist without a user document, by tokens or a proxy. Nobody else may get its databases. */
  async #checkFree(name: string): Promise<void> {
    if (this.#options.tenants.isAdmin(name) || (await this.#isKnown(name))) throw nameConflict()
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
    if ((await this.#isKnown(name)) || (await this.#users.rolesOf(name)) !== null) return
    throw new CouchError('not_found', 'There is no account with this name.')
  }

  /**
   * Deletes an account with its databases and tokens. It loses access at once. After a crash, the next start or another
   * node continues the deletion.
   * @returns the deleted databases, the number of tokens, and whether there was a user document
   * @throws not_found, forbidden; unavailable while another node deletes it
   */
  delete(name: string): Promise<object> {
    return this.#deletions.run(name, async () => {
      await this.checkExists(name)
      await this.#options.tenants.change(name, { isBeingDeleted: true })
      const done = await this.#claimed(name, () => this.#remove(name))
      if (done === null) throw new CouchError('unavailable')
      return done
    })
  }

  /** Runs the deletion of an account on one node at a time. @returns null if another node runs it */
  async #claimed<T>(name: string, work: () => Promise<T>): Promise<T | null> {
    const claim = await this.#options.claims.take(`deletion of ${accountKey(name)}`)
    if (claim === null) return null
    try {
      return await work()
    } finally {
      await claim.release()
    }
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

  /**
   * Continues interrupted deletions, one account after the other.
   * @param isOver asked before each
   * @returns the accounts that are deleted now
   */
  async resume(isOver: () => boolean): Promise<string[]> {
    const done: string[] = []
    for await (const name of this.#options.tenants.beingDeleted()) {
      if (isOver()) break
      const removed = await this.#deletions.run(name, () => this.#claimed(name, () => this.#remove(name)))
      if (removed !== null) done.push(name)
    }
    return done
  }

  /** The usage of the accounts with the most bytes that own databases or owned some, for metrics. */
  async largest(limit: number): Promise<({ readonly account: string } & AccountUsage)[]> {
    const { records } = this.#options
    const names: string[] = []
    for await (const { value } of allRecords(records, RANKS)) {
      if (names.length >= limit) break
      names.push(value)
    }
    const found: ({ readonly account: string } & AccountUsage)[] = []
    for (let at = 0; at < names.length; at += PAGE) {
      const page = names.slice(at, at + PAGE)
      const totals = await records.readRecords(TOTALS, page)
      page.forEach((account, n) => {
        found.push({ account, ...this.#shown(account, readTotals(totals[n] ?? null)) })
      })
    }
    return found.sort((a, b) => b.bytes - a.bytes)
  }
}

function nameConflict(): CouchError {
  return new CouchError('conflict', 'There is already an account with this name.')
}

function shownState({
  isSuspended,
  isBeingDeleted,
}: Pick<TenantState, 'isSuspended' | 'isBeingDeleted'>): object {
  return { suspended: isSuspended, ...(isBeingDeleted && { deleting: true }) }
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
