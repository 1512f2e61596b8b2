/**
 * Making and deleting databases that accounts own. A crash at any point leaves nothing that somebody else could reach
 * or that nobody owns: the owner is on record before the database is there, a database without a security object is
 * for server admins only, and what was begun is finished at the next start.
 */
import { perUserPrefix } from '../auth/peruser.ts'
import type { DatabaseRegistry } from '../auth/policy.ts'
import { SYSTEM_USER } from '../auth/users-feed.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import type { SecurityObject } from '../core/types.ts'
import type { Databases, PreparedRestore } from '../threads/databases.ts'
import type { Owners } from './owners.ts'
import type { Tenants } from './tenants.ts'

interface TenantDatabasesOptions {
  readonly config: Config
  readonly databases: Pick<Databases, 'names' | 'get' | 'create' | 'delete' | 'prepareRestore' | 'beginAnew'>
  readonly owners: Owners
  readonly tenants: Tenants
  /** An account has a database from now on. */
  onOwned(database: string): void
  /** A database is gone, or nobody's. */
  onLeft(database: string): void
}

export class TenantDatabases implements DatabaseRegistry {
  readonly #options: TenantDatabasesOptions
  /** Of one account, and of one name, one thing at a time; always in this order. */
  readonly #accounts = new KeyedMutex()
  readonly #names = new KeyedMutex()

  constructor(options: TenantDatabasesOptions) {
    this.#options = options
  }

  /**
   * Makes a database; of an account, with a security object that lets in that account alone.
   * @param account null: nobody owns it
   * @throws illegal_database_name, database_name_too_long, file_exists
   */
  create(name: string, account: string | null): Promise<void> {
    checkDatabaseName(name)
    if (account === null) return this.#names.run(name, () => this.#makeUnowned(name))
    return this.#accounts.run(account, () => this.#names.run(name, () => this.#make(name, account)))
  }

  /** The same for an account that makes it itself. @throws also forbidden, for the name, and beyond its number */
  createOwn(name: string, account: string): Promise<void> {
    checkDatabaseName(name)
    this.#checkNameFor(account, name)
    return this.#accounts.run(account, async () => {
      this.#checkNumber(account)
      await this.#names.run(name, () => this.#make(name, account))
    })
  }

  /** Names that are not a tenant's to take: the server's own, and those of others' databases (`couch_peruser`). */
  #checkNameFor(account: string, name: string): void {
    const { config } = this.#options
    const prefix = perUserPrefix(config)
    const own = prefix + Buffer.from(account).toString('hex')
    const isOthers = config.boolean('couch_peruser', 'enable') && name.startsWith(prefix) && name !== own
    if (!isOthers && !name.startsWith('_')) return
    throw new CouchError('forbidden', 'Only the server makes databases with such a name.')
  }

  /** Resolves when no database that was begun to be made, or deleted, for the account by now is half done. */
  settled(account: string): Promise<void> {
    return this.#accounts.whenIdle(account)
  }

  async #makeUnowned(name: string): Promise<void> {
    const { databases, owners } = this.#options
    if (databases.names().includes(name)) throw new CouchError('file_exists')
    await owners.forget([name])
    await databases.create(name)
  }

  async #make(name: string, account: string): Promise<void> {
    const { databases, owners } = this.#options
    if (databases.names().includes(name)) throw new CouchError('file_exists')
    const before = owners.recordOf(name)
    let isMade = false
    try {
      await owners.set(name, account, 'making')
      await databases.create(name)
      isMade = true
      await this.#finish(name, account)
    } catch (error) {
      // What cannot be undone either is finished at the next start.
      if (isMade) await databases.delete(name)
      if (before?.state === 'deleted') await owners.set(name, before.account, 'deleted')
      else await owners.forget([name])
      throw error
    }
  }

  async #finish(name: string, account: string): Promise<void> {
    const { databases, owners, onOwned } = this.#options
    const database = databases.get(name)
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

  /** Deletes a database, whoever owns it. @throws no_database */
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

  names(): readonly string[] {
    return this.#options.databases.names()
  }

  /** As {@link Databases.prepareRestore}. Who owns the database still does; a new one is nobody's. */
  async prepareRestore(name: string, copy: string): Promise<PreparedRestore> {
    const prepared = await this.#options.databases.prepareRestore(name, copy)
    return { ...prepared, finish: () => this.#restored(name, prepared.finish) }
  }

  /** As {@link Databases.beginAnew}. */
  beginAnew(name: string): Promise<void> {
    return this.#restored(name, () => this.#options.databases.beginAnew(name))
  }

  #restored<T>(name: string, restore: () => Promise<T>): Promise<T> {
    const { owners, onOwned, onLeft } = this.#options
    return this.#names.run(name, async () => {
      if (!this.names().includes(name)) await owners.forget([name])
      const done = await restore()
      if (owners.ownerOf(name) !== undefined) {
        onLeft(name)
        onOwned(name)
      }
      return done
    })
  }

  /**
   * Gives a database that is there to an account, or to nobody. Who may read and write it is not changed.
   * @throws no_database
   */
  assign(name: string, account: string | null): Promise<void> {
    const { databases, owners, onOwned, onLeft } = this.#options
    return this.#names.run(name, async () => {
      databases.get(name)
      onLeft(name)
      if (account === null) return owners.forget([name])
      await owners.set(name, account, 'owned')
      onOwned(name)
    })
  }

  /**
   * Deletes all that an account owns; what is being made of it is waited for. Its records go with it.
   * @returns the names, in their order
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

  /** Finishes what a crash has interrupted. To be called once, before anybody is served. */
  async recover(): Promise<void> {
    const { databases, owners, onOwned } = this.#options
    const there = new Set(databases.names())
    for (const name of owners.databases()) {
      const { account, state } = owners.recordOf(name) as NonNullable<ReturnType<Owners['recordOf']>>
      if (!there.has(name)) {
        if (state === 'making') await owners.forget([name])
        else if (state === 'owned') await owners.set(name, account, 'deleted')
      } else if (state === 'owned') onOwned(name)
      else if (state === 'making') await this.#finish(name, account)
      // Another of the same name, which `_cluster_setup` or single mode has made.
      else await owners.forget([name])
    }
  }
}

function securityFor(account: string): SecurityObject {
  const alone = { names: [account], roles: [] }
  return { admins: alone, members: alone }
}
