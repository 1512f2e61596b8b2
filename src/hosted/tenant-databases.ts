/**
 * Makes and deletes databases with their owners. After a crash, no database is open to others or without an owner: the
 * owner's record is written first, a database without a security object is for server admins only, and the next start
 * finishes interrupted work.
 */
import { SYSTEM_USER } from '../auth/accounts.ts'
import { perUserPrefix } from '../auth/peruser.ts'
import type { DatabaseRegistry } from '../auth/policy.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import type { SecurityObject } from '../core/types.ts'
import type { DatabaseProperties, NameRange } from '../storage/catalog.ts'
import type { Databases, PreparedRestore } from '../threads/databases.ts'
import type { Owners } from './owners.ts'
import type { Tenants } from './tenants.ts'

interface TenantDatabasesOptions {
  readonly config: Config
  readonly databases: Pick<
    Databases,
    'has' | 'allNames' | 'get' | 'create' | 'delete' | 'prepareRestore' | 'treatAsRestored'
  >
  readonly owners: Owners
  readonly tenants: Tenants
  /** An account owns a database from now on. */
  onOwned(database: string): void
  /** A database was deleted, or has no owner any more. */
  onLeft(database: string): void
}

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
   * @throws illegal_database_name, database_name_too_long, file_exists
   */
  create(name: string, account: string | null, properties?: DatabaseProperties): Promise<void> {
    checkDatabaseName(name)
    if (account === null) return this.#names.run(name, () => this.#makeUnowned(name, properties))
    return this.#accounts.run(account, () =>
      this.#names.run(name, () => this.#make(name, account, properties)),
    )
  }

  /** Makes a database for an account that asks for it. @throws as {@link create}; forbidden for its name or the quota */
  createOwn(name: string, account: string, properties?: DatabaseProperties): Promise<void> {
    checkDatabaseName(name)
    this.#checkNameFor(account, name)
    return this.#accounts.run(account, async () => {
      this.#checkNumber(account)
      await this.#names.run(name, () => this.#make(name, account, properties))
    })
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

  /** Resolves when the account's databases that are being made or deleted now are finished. */
  settled(account: string): Promise<void> {
    return this.#accounts.whenIdle(account)
  }

  async #makeUnowned(name: string, properties: DatabaseProperties | undefined): Promise<void> {
    const { databases, owners } = this.#options
    if (await databases.has(name)) throw new CouchError('file_exists')
    await owners.forget([name])
    await databases.create(name, properties)
  }

  async #make(name: string, account: string, properties: DatabaseProperties | undefined): Promise<void> {
    const { databases, owners } = this.#options
    if (await databases.has(name)) throw new CouchError('file_exists')
    const before = owners.recordOf(name)
    let isMade = false
    try {
      await owners.set(name, account, 'making')
      await databases.create(name, properties)
      isMade = true
      await this.#finish(name, account)
    } catch (error) {
      // If that fails as well, the next start finishes the work.
      if (isMade) await databases.delete(name)
      if (before?.state === 'deleted') await owners.set(name, before.account, 'deleted')
      else await owners.forget([name])
      throw error
    }
  }

  async #finish(name: string, account: string): Promise<void> {
    const { databases, owners, onOwned } = this.#options
    const database = await databases.get(name)
    if ((await database.security()) === null) await database.setSecurity(SYSTEM_USER, securityFor(account))
    await owners.set(name, account, 'owned')
    onOwned(name)
  }

  #checkNumber(account: string): void {
    const { owners, tenants } = this.#options
    const refusal = tenants.refusalOf(account)
    if (refusal !== null) throw new CouchError('forbidden', refusal)
    const limit = tenants.quotaOf(account).databases
    const owned = owners.databasesOf(account).size
    if (owned < limit) return
    throw new CouchError('forbidden', `This account may have ${limit} databases and has ${owned}.`)
  }

  /** Deletes a database with any owner or none. @throws no_database */
  delete(name: string): Promise<void> {
    const account = this.#options.owners.ownerOf(name)
    const work = () => this.#names.run(name, () => this.#delete(name))
    return account === undefined ? work() : this.#accounts.run(account, work)
  }

  async #delete(name: string): Promise<void> {
    const { databases, owners, onLeft } = this.#options
    await databases.delete(name)
    onLeft(name)
    const record = owners.recordOf(name)
    if (record !== undefined) await owners.set(name, record.account, 'deleted')
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
    const { owners, onOwned, onLeft } = this.#options
    return this.#names.run(name, async () => {
      if (!(await this.has(name))) await owners.forget([name])
      const done = await restore()
      if (owners.ownerOf(name) !== undefined) {
        onLeft(name)
        onOwned(name)
      }
      return done
    })
  }

  /**
   * Sets the owner of an existing database. Its security object does not change.
   * @throws no_database
   */
  assign(name: string, account: string | null): Promise<void> {
    const { databases, owners, onOwned, onLeft } = this.#options
    return this.#names.run(name, async () => {
      await databases.get(name)
      onLeft(name)
      if (account === null) return owners.forget([name])
      await owners.set(name, account, 'owned')
      onOwned(name)
    })
  }

  /**
   * Deletes all databases of an account with their records, after those that are being made.
   * @returns their names, sorted
   */
  deleteAll(account: string): Promise<string[]> {
    const { owners } = this.#options
    return this.#accounts.run(account, async () => {
      const names = [...owners.databasesOf(account)].sort()
      for (const name of names) await this.#names.run(name, () => this.#delete(name))
      await owners.forget([...owners.formerDatabasesOf(account)])
      return names
    })
  }

  /** Finishes work that a crash interrupted. Call it once, before the server answers. */
  async recover(): Promise<void> {
    const { databases, owners, onOwned } = this.#options
    for (const name of owners.databases()) {
      const { account, state } = owners.recordOf(name) as NonNullable<ReturnType<Owners['recordOf']>>
      if (!(await databases.has(name))) {
        if (state === 'making') await owners.forget([name])
        else if (state === 'owned') await owners.set(name, account, 'deleted')
      } else if (state === 'owned') onOwned(name)
      else if (state === 'making') await this.#finish(name, account)
      // Another database of that name, made by `_cluster_setup` or in single mode.
      else await owners.forget([name])
    }
  }
}

function securityFor(account: string): SecurityObject {
  const alone = { names: [account], roles: [] }
  return { admins: alone, members: alone }
}
