/** The accounts of `_users`, together with the server admins of the configuration; protocol.md 11.1. */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { hashingOf } from '../config/settings.ts'
import type { Sendable } from '../core/bytes.ts'
import { atMost } from '../core/cache.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId } from '../core/ids.ts'
import { deriveKey, type HashOptions, PRFS, withHash } from '../documents/password-hashing.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { type Account, type AccountListener, type Accounts, ADMIN_ROLE, userAccount } from './accounts.ts'
import { adminAccounts } from './admins.ts'
import { type PasswordHash, parseHash } from './password.ts'
import { PerUserDatabases, type PerUserOptions } from './peruser.ts'
import { type ChangedNames, SYSTEM_USER, UsersFeed } from './users-feed.ts'

/** Remembered accounts, and as many unknown names, which do not push out accounts. */
const REMEMBERED = 10_000
/** Maximum time for which an account is remembered, in ms. */
const FRESH_MS = 5000
/** No document has a longer name, in characters. */
const MAX_NAME = 8000

interface Known {
  /** An error if the account's document has conflicts. */
  readonly account: Account | CouchError | null
  /** In ms, as Date.now. */
  readonly until: number
}

interface Loading {
  readonly version: number
  readonly account: Promise<Account | null>
}

interface UsersOptions {
  /** Iterations for {@link Accounts.decoy}, as for new passwords. */
  hashing(): { readonly iterations: number }
}

/** @returns the accounts of `_users`, remembered until they change; `close` stops following the database */
export function usersAccounts(
  databases: Pick<Databases, 'get' | 'usersDatabase'>,
  options: UsersOptions,
): Accounts & { close(): void } {
  return new UsersAccounts(databases, options)
}

class UsersAccounts implements Accounts {
  readonly #feed: UsersFeed
  readonly #hashing: UsersOptions['hashing']
  readonly #found = new LRUCache<string, Known>(atMost(REMEMBERED))
  readonly #missing = new LRUCache<string, Known>(atMost(REMEMBERED))
  readonly #loading = new Map<string, Loading>()
  readonly #listeners = new Set<AccountListener>()
  readonly #decoyKey = randomBytes(32).toString('hex')
  readonly #decoySalt = randomBytes(16).toString('hex')

  constructor(databases: Pick<Databases, 'get' | 'usersDatabase'>, { hashing }: UsersOptions) {
    this.#hashing = hashing
    this.#feed = new UsersFeed(databases, (names) => this.#forget(names))
  }

  async find(name: string): Promise<Account | null> {
    if (this.#feed.isSettled) {
      const known = this.#found.get(name) ?? this.#missing.get(name)
      if (known !== undefined && Date.now() < known.until) return usable(known.account)
    }
    if (name === '' || name.length > MAX_NAME || !name.isWellFormed()) return null
    const database = await this.#feed.database()
    return database === null ? null : this.#load(database, name)
  }

  /** Calls at the same time share one read, unless something has changed since it began. */
  #load(database: DatabaseHandle, name: string): Promise<Account | null> {
    const { version } = this.#feed
    const under = this.#loading.get(name)
    if (under?.version === version) return under.account
    const loading = { version, account: this.#read(database, name, version) }
    this.#loading.set(name, loading)
    const forget = () => {
      if (this.#loading.get(name) === loading) this.#loading.delete(name)
    }
    loading.account.then(forget, forget)
    return loading.account
  }

  async #read(database: DatabaseHandle, name: string, version: number): Promise<Account | null> {
    const account = await readAccount(database, name)
    if (version === this.#feed.version) {
      const known = { account, until: Date.now() + FRESH_MS }
      ;(account === null ? this.#missing : this.#found).set(name, known)
    }
    return usable(account)
  }

  #forget(names: ChangedNames): void {
    for (const known of [this.#found, this.#missing]) {
      if (names === 'all') known.clear()
      else for (const name of names) known.delete(name)
    }
    if (names !== 'all' && names.size === 0) return
    for (const listener of this.#listeners) listener(names)
  }

  decoy(): string {
    return `-pbkdf2:sha256-${this.#decoyKey},${this.#decoySalt},${this.#hashing().iterations}`
  }

  /** Starts to follow the database, since otherwise a listener would never be called. */
  onChange(listener: AccountListener): () => void {
    this.#listeners.add(listener)
    this.#feed.database().catch(() => undefined)
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#feed.close()
  }
}

/** @throws account_conflicts */
function usable(account: Account | CouchError | null): Account | null {
  if (account instanceof CouchError) throw account
  return account
}

async function readAccount(database: DatabaseHandle, name: string): Promise<Account | CouchError | null> {
  try {
    const { json } = await database.open(SYSTEM_USER, userDocId(name), { conflicts: true })
    return userAccount(name, JSON.parse(textOf(json)))
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    if (error instanceof CouchError && error.code === 'account_conflicts') return error
    throw error
  }
}

/** @returns the text of a document from a database thread */
function textOf(json: Sendable): string {
  return (typeof json === 'string' ? Buffer.from(json, 'latin1') : Buffer.from(json)).toString()
}

/**
 * Server admins and users together: the password in the configuration wins, and the roles of both count.
 * @param admins the server admins of the configuration
 * @param users the accounts of `_users`
 */
export function combinedAccounts(admins: Accounts, users: Accounts): Accounts {
  return {
    find: async (name) => {
      const admin = await admins.find(name)
      return admin === null ? users.find(name) : withRoles(admin, users)
    },
    decoy: () => admins.decoy(),
    onChange: (listener) => {
      const ends = [admins.onChange(listener), users.onChange(listener)]
      return () => {
        for (const end of ends) end()
      }
    },
  }
}

async function withRoles(admin: Account, users: Accounts): Promise<Account> {
  // If `_users` cannot be read, an admin can still log in to repair it.
  const user = await users.find(admin.name).catch(() => null)
  if (user === null || user.roles.length === 0) return admin
  return { ...admin, roles: [...new Set([...admin.roles, ...user.roles])] }
}

interface OpenedUsers {
  readonly accounts: Accounts
  readonly upgrades: HashUpgrades
  /** Call it before the databases are closed. */
  close(): Promise<void>
}

interface OpenUsersOptions {
  readonly config: Config
  readonly databases: Databases
  /** Makes and deletes users' own databases. */
  readonly registry: PerUserOptions['registry']
  readonly logger: Pick<Logger, 'error' | 'warn'>
}

/**
 * Makes `_users` if it is missing, follows it, and runs `couch_peruser`.
 * @throws the error that keeps `_users` from being made, except for a full disk
 */
export async function openUsers({
  config,
  databases,
  registry,
  logger,
}: OpenUsersOptions): Promise<OpenedUsers> {
  await databases.create(databases.usersDatabase).catch((error: unknown) => {
    // On a full disk an admin must still be able to start the server and free space.
    const code = error instanceof CouchError ? error.code : null
    if (code === 'insufficient_storage')
      logger.error({ err: error }, 'cannot create the database of accounts')
    else if (code !== 'file_exists') throw error
  })
  const hashing = () => hashingOf(config)
  const users = usersAccounts(databases, { hashing })
  const upgrades = new HashUpgrades({
    databases,
    isOn: () => config.boolean('chttpd_auth', 'upgrade_hash_on_auth'),
    hashing,
    onFault: (fault) => logger.warn({ err: fault }, 'could not replace the weak password hash of a user'),
  })
  const perUser = new PerUserDatabases({
    databases,
    registry,
    config,
    onFault: (fault, user) =>
      logger.warn({ err: fault, user }, 'couch_peruser failed for a user, or for now'),
  })
  perUser.start()
  return {
    accounts: combinedAccounts(adminAccounts(config), users),
    upgrades,
    close: async () => {
      users.close()
      await perUser.close()
    },
  }
}

// Replaces weak hashes of users after a login, when the password is known; CouchDB's `upgrade_hash_on_auth`.

/** Upgrades that may wait; others follow with another login. */
const MAY_WAIT = 100

interface HashUpgradesOptions {
  readonly databases: Pick<Databases, 'get' | 'usersDatabase'>
  /** Whether weak hashes are replaced. */
  isOn(): boolean
  /** How new passwords are hashed. */
  hashing(): HashOptions
  /** An upgrade failed, but not because of another write to the document. */
  onFault(fault: unknown): void
}

export class HashUpgrades {
  readonly #options: HashUpgradesOptions
  readonly #limiter = new Limiter(1, MAY_WAIT)
  readonly #names = new Set<string>()

  constructor(options: HashUpgradesOptions) {
    this.#options = options
  }

  /**
   * Replaces the hash of an account in the background if it is weak. Call it after a login.
   * @param password the right one
   */
  consider(account: Account, password: string): void {
    if (account.stored === null || account.roles.includes(ADMIN_ROLE) || !this.#options.isOn()) return
    const hash = parseHash(account.stored)
    if (hash === null || !isWeak(hash, this.#options.hashing()) || this.#names.has(account.name)) return
    this.#names.add(account.name)
    this.#limiter
      .run(() => this.#upgrade(account, hash.salt, password))
      .catch((fault: unknown) => {
        if (!isExpected(fault)) this.#options.onFault(fault)
      })
      .finally(() => this.#names.delete(account.name))
      .catch(() => undefined)
  }

  /** The salt stays, as in CouchDB, since the keys of sessions depend on it. */
  async #upgrade({ name, stored }: Account, salt: string, password: string): Promise<void> {
    const { databases } = this.#options
    const database = databases.get(databases.usersDatabase)
    const { json } = await database.open(SYSTEM_USER, userDocId(name), { conflicts: true })
    const text = textOf(json)
    if (userAccount(name, JSON.parse(text))?.stored !== stored) return
    const hashing = this.#options.hashing()
    const key = await deriveKey(password, salt, hashing)
    const bytes = Buffer.from(withHash(text, key, salt, hashing))
    await database.put(SYSTEM_USER, userDocId(name), { bytes }, {})
  }
}

/** Whether a hash is weaker than that of a new password would be. */
function isWeak({ scheme, prf, iterations }: PasswordHash, wanted: HashOptions): boolean {
  if (scheme !== 'pbkdf2' || iterations < wanted.iterations) return true
  return (PRFS[prf]?.length ?? 0) < (PRFS[wanted.prf]?.length ?? 0)
}

/** Another write came first, the account or database is gone, or too many upgrades wait. */
function isExpected(fault: unknown): boolean {
  return fault instanceof CouchError && [404, 409, 503].includes(fault.status)
}
