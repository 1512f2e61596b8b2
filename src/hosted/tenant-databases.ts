/**
 * Makes and deletes databases with their owners. After a crash, no database is open to others or without an owner: the
 * owner's record is written first, a database without a security object is for server admins only, and a record of
 * unfinished work lets the next start, or another node, finish it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { perUserPrefix } from '../auth/peruser.ts'
import type { DatabaseRegistry } from '../auth/policy.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import { type SecurityObject, SYSTEM_USER } from '../core/types.ts'
import type { DatabaseProperties, NameRange } from '../storage/catalog.ts'
import type { Databases, PreparedRestore } from '../threads/databases.ts'
import type { Totals } from './account-totals.ts'
import type { OwnerChange, Owners } from './owners.ts'
import type { Owned } from './ownership.ts'
import type { Tenants } from './tenants.ts'

/** Lets one node at a time work on a database (threads/claims.ts). */
export interface WorkClaims {
  /** @returns null if another node does this work */
  take(name: string): Promise<{ release(): Promise<void> } | null>
}

/** The claims of a server that has its store for itself. */
export const NO_OTHERS: WorkClaims = { take: async () => ({ release: async () => {} }) }

interface TenantDatabasesOptions {
  readonly config: Config
  readonly databases: Pick<
    Databases,
    'has' | 'allNames' | 'get' | 'create' | 'delete' | 'prepareRestore' | 'treatAsRestored'
  >
  readonly owners: Owners
  readonly tenants: Tenants
  readonly claims: WorkClaims
  /** A database has another owner or another content, and is to be measured. */
  onChange(database: string): void
}

/** How long one node waits for another's work on a database. */
const MAX_WAIT_MS = 5000
const RETRY_MS = 50
/** Databases that are deleted between two looks at the list of an account's. */
const PAGE = 100

export class TenantDatabases implements DatabaseRegistry {
  readonly #options: TenantDatabasesOptions
  /** Locked by account, and then by name; always in this order. */
  readonly #accounts = new KeyedMutex()
  readonly #names = new KeyedMutex()

  constructor(options: TenantDatabasesOptions) {
    this.#options = options
  }

  /**
   * Makes a database. With an owner, its security object gives access to the owner only.
   * @param account null: nobody owns it
   * @throws illegal_database_name, database_name_too_long, file_exists; unavailable while another node works on it
   */
  create(name: string, account: string | null, properties?: DatabaseProperties): Promise<void> {
    checkDatabaseName(name)
    if (account === null) return this.#alone(name, () => this.#makeUnowned(name, properties))
    return this.#accounts.run(account, () => this.#alone(name, () => this.#make(name, account, properties)))
  }

  /** Makes a database for an account that asks for it. @throws as {@link create}; forbidden for its name or the quota */
  createOwn(name: string, account: string, properties?: DatabaseProperties): Promise<void> {
    checkDatabaseName(name)
    this.#checkNameFor(account, name)
    const { owners, tenants } = this.#options
    return this.#accounts.run(account, async () => {
      await tenants.guard(account)
      const { databases: limit } = await tenants.quotaOf(account)
      const checkTotals = ({ databases }: Totals) => checkNumber(databases, limit)
      checkTotals(await owners.totalsOf(account))
      const rules = { checkTotals, guards: async () => [await tenants.guard(account)] }
      await this.#alone(name, () => this.#make(name, account, properties, rules))
    })
  }

  /** Runs work on a database when no other does, on this node or another. @throws unavailable; as `work` */
  #alone<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#names.run(name, async () => {
      const claim = await this.#claim(name)
      try {
        return await work()
      } finally {
        await claim.release()
      }
    })
  }

  async #claim(name: string): Promise<{ release(): Promise<void> }> {
    const until = performance.now() + MAX_WAIT_MS
    for (;;) {
      const claim = await this.#options.claims.take(claimOf(name))
      if (claim !== null) return claim
      if (performance.now() > until) throw new CouchError('unavailable')
      await sleep(RETRY_MS)
    }
  }

  /** Refuses names of the server's databases, and of other users' own databases (`couch_peruser`). */
  #checkNameFor(account: string, name: string): void {
    const { config } = this.#options
    const prefix = perUserPrefix(config)
    const own = prefix + Buffer.from(account).toString('hex')
    const isOthers = config.boolean('couch_peruser', 'enable') && name.startsWith(prefix) && name !== own
    if (!isOthers && !name.startsWith('_')) return
    throw new CouchError('forbidden', 'Only the server makes databases with such a name.')
  }

  /** Resolves when the account's databases that this node makes or deletes now are finished. */
  whenIdle(account: string): Promise<void> {
    return this.#accounts.whenIdle(account)
  }

  async #makeUnowned(name: string, properties: DatabaseProperties | undefined): Promise<void> {
    const { databases } = this.#options
    if (await databases.has(name)) throw new CouchError('file_exists')
    await this.#forgetFormer(name)
    await databases.create(name, properties)
  }

  async #make(
    name: string,
    account: string,
    properties: DatabaseProperties | undefined,
    rules: Pick<OwnerChange, 'checkTotals' | 'guards'> = {},
  ): Promise<void> {
    const { databases, owners } = this.#options
    if (await databases.has(name)) throw new CouchError('file_exists')
    const before = await owners.change(name, {
      ...rules,
      next: (owned) => {
        if (isFree(owned)) return { account, state: 'making' }
        throw new CouchError('file_exists')
      },
    })
    let isMade = false
    try {
      await databases.create(name, properties)
      isMade = true
      await this.#finish(name)
    } catch (error) {
      // If that fails as well, the next start finishes the work.
      if (isMade) await databases.delete(name)
      await owners.set(name, before)
      throw error
    }
  }

  async #finish(name: string): Promise<void> {
    const { databases, owners, onChange } = this.#options
    const record = await owners.recordOf(name)
    if (record === null) throw new CouchError('unavailable')
    const database = await databases.get(name)
    if ((await database.security()) === null) {
      await database.setSecurity(SYSTEM_USER, securityFor(record.account))
    }
    await owners.set(name, { ...record, state: 'owned' })
    onChange(name)
  }

  /** Deletes a database with any owner or none. @throws no_database; unavailable while another node works on it */
  async delete(name: string): Promise<void> {
    const account = await this.#options.owners.ownerOf(name)
    const work = () => this.#alone(name, () => this.#delete(name))
    return account === undefined ? work() : this.#accounts.run(account, work)
  }

  async #delete(name: string): Promise<void> {
    const { databases, owners } = this.#options
    if ((await owners.recordOf(name)) === null) return databases.delete(name)
    await owners.begin(name)
    try {
      await databases.delete(name)
    } catch (error) {
      // Its file was removed by hand: then it is nobody's.
      if (isMissing(error)) await this.#left(name)
      else await owners.end(name)
      throw error
    }
    await this.#left(name)
  }

  /** The database is gone. */
  async #left(name: string): Promise<void> {
    const { owners } = this.#options
    const before = await owners.change(name, {
      next: (owned) => {
        if (owned === null || owned.state === 'deleted') return 'same'
        return owned.state === 'making' ? null : { ...owned, state: 'deleted' }
      },
    })
    if (before === null || before.state === 'deleted') await owners.end(name)
  }

  async mayBelongTo(name: string, account: string): Promise<boolean> {
    const owner = await this.#options.owners.ownerOf(name)
    return owner === undefined || owner === account
  }

  has(name: string): Promise<boolean> {
    return this.#options.databases.has(name)
  }

  allNames(range?: NameRange): AsyncIterable<string> {
    return this.#options.databases.allNames(range)
  }

  /** As {@link Databases.prepareRestore}. The owner stays; a new database has none. */
  async prepareRestore(name: string, copy: string): Promise<PreparedRestore> {
    const prepared = await this.#options.databases.prepareRestore(name, copy)
    return { ...prepared, finish: () => this.#restored(name, prepared.finish) }
  }

  /** As {@link Databases.treatAsRestored}. */
  treatAsRestored(name: string): Promise<void> {
    return this.#restored(name, () => this.#options.databases.treatAsRestored(name))
  }

  #restored<T>(name: string, restore: () => Promise<T>): Promise<T> {
    const { databases, onChange } = this.#options
    return this.#alone(name, async () => {
      if (!(await databases.has(name))) await this.#forgetFormer(name)
      const done = await restore()
      onChange(name)
      return done
    })
  }

  /**
   * Sets the owner of an existing database. Its security object does not change.
   * @throws no_database; unavailable while another node works on it
   */
  assign(name: string, account: string | null): Promise<void> {
    const { databases, owners, onChange } = this.#options
    return this.#alone(name, async () => {
      await databases.get(name)
      await owners.set(name, account === null ? null : { account, state: 'owned' })
      onChange(name)
    })
  }

  /**
   * Deletes all databases of an account with their records, after those that are being made.
   * @returns their names, sorted
   */
  deleteAll(account: string): Promise<string[]> {
    const { owners } = this.#options
    return this.#accounts.run(account, async () => {
      const deleted: string[] = []
      for (let names = await this.#finished(account); names.length > 0; ) {
        for (const name of names) {
          await this.#alone(name, () => this.#delete(name)).catch((error: unknown) => {
            if (!isMissing(error)) throw error
          })
        }
        deleted.push(...names)
        names = await this.#finished(account)
      }
      await owners.forgetAccount(account)
      return deleted.sort()
    })
  }

  /** @returns databases of an account, at most a page; none only when none is being made either */
  async #finished(account: string): Promise<string[]> {
    const { owners } = this.#options
    for (;;) {
      const owned = await owners.databasesOf(account, {}, PAGE)
      if (owned.length > 0) return owned
      const making = await owners.inTheMaking(account, PAGE)
      if (making.length === 0) return []
      for (const name of making) await this.#recover(name)
      await sleep(RETRY_MS)
    }
  }

  /** A name that somebody used has another database now. */
  async #forgetFormer(name: string): Promise<void> {
    await this.#options.owners.change(name, { next: (owned) => (isFree(owned) ? null : 'same') })
  }

  /** Databases may have gone without their owners' knowledge: their files were removed by hand. */
  async reconcile(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#reconcile(name)
  }

  async #reconcile(name: string): Promise<void> {
    const { databases, owners } = this.#options
    if (isFree(await owners.recordOf(name)) || (await databases.has(name))) return
    await this.#recover(name)
  }

  /** Finishes work that a crash interrupted, of this node or another. */
  async recover(): Promise<void> {
    for await (const name of this.#options.owners.unfinished()) await this.#recover(name)
  }

  /** Does nothing while a node works on the database. */
  #recover(name: string): Promise<void> {
    const { claims, databases, owners } = this.#options
    return this.#names.run(name, async () => {
      const claim = await claims.take(claimOf(name))
      if (claim === null) return
      try {
        if (!(await databases.has(name))) return await this.#left(name)
        const state = (await owners.recordOf(name))?.state
        if (state === 'making') await this.#finish(name)
        // Another database of that name, made by `_cluster_setup` or in single mode.
        else if (state === 'deleted') await owners.set(name, null)
        else await owners.end(name)
      } finally {
        await claim.release()
      }
    })
  }
}

/** Whether the name can be used: its record, if there is one, is that of a deleted database. */
function isFree(owned: Owned | null): boolean {
  return owned === null || owned.state === 'deleted'
}

function claimOf(name: string): string {
  return `database ${name}`
}

function isMissing(error: unknown): boolean {
  return error instanceof CouchError && error.code === 'no_database'
}

/** @throws forbidden */
function checkNumber(owned: number, limit: number): void {
  if (owned < limit) return
  throw new CouchError('forbidden', `This account may have ${limit} databases and has ${owned}.`)
}

function securityFor(account: string): SecurityObject {
  const alone = { names: [account], roles: [] }
  return { admins: alone, members: alone }
}
