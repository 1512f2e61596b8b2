/** The accounts of `_users`, and how they stand beside the server admins of the configuration; protocol.md 11.1. */
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

/** Accounts that are remembered; as many names again of which there is none, which push out nobody. */
const REMEMBERED = 10_000
/** For how long at the most, whatever is heard of changes, in milliseconds. */
const FRESH_MS = 5000
/** Longer names have no document. */
const MAX_NAME = 8000

interface Known {
  /** An error where the account's document has conflicts. */
  readonly account: Account | CouchError | null
  /** In the milliseconds of Date.now. */
  readonly until: number
}

interface Loading {
  readonly version: number
  readonly account: Promise<Account | null>
}

interface UsersOptions {
  /** Rounds and digest of {@link Accounts.decoy}, those of new passwords. */
  hashing(): { readonly iterations: number }
}

/** @returns the accounts of `_users`, remembered as long as nothing changes in it; `close` ends the listening */
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

  /** Who asks at the same time shares the answer, unless something has changed since it was asked for. */
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

  /** Begins to follow the database, if nothing has yet: who only listens would hear nothing. */
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

/** @returns the text of a document that a database thread has sent */
function textOf(json: Sendable): string {
  return (typeof json === 'string' ? Buffer.from(json, 'latin1') : Buffer.from(json)).toString()
}

/**
 * Server admins and users together: the password of the configuration wins, and the roles of both count.
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
  // Whatever has befallen `_users`, an admin gets in to mend it.
  const user = await users.find(admin.name).catch(() => null)
  if (user === null || user.roles.length === 0) return admin
  return { ...admin, roles: [...new Set([...admin.roles, ...user.roles])] }
}

// The accounts of a server, put together: server admins of the configuration, and `_users`.

interface OpenedUsers {
  readonly accounts: Accounts
  readonly upgrades: HashUpgrades
  /** Before the databases are closed. */
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
 * Makes `_users` if it is not there, follows it, and gives each user a database where that is wished for.
 * @throws what keeps `_users` from being made, but for a full disk
 */
export async function openUsers({
  config,
  databases,
  registry,
  logger,
}: OpenUsersOptions): Promise<OpenedUsers> {
  await databases.create(databases.usersDatabase).catch((error: unknown) => {
    // A disk that is full must not keep an admin from starting the server to make room.
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

// Weak hashes of users, made anew when the plain password is at hand; CouchDB's `upgrade_hash_on_auth`.

/** Upgrades that may wait; of those beyond, another login will come. */
const MAY_WAIT = 100

interface HashUpgradesOptions {
  readonly databases: Pick<Databases, 'get' | 'usersDatabase'>
  /** Whether hashes are to be made anew. */
  isOn(): boolean
  /** How new passwords are hashed. */
  hashing(): HashOptions
  /** One has failed, for another reason than that somebody else has written the document. */
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
   * Looks at an account that somebody has just logged in to, and sees in the background to its hash if that is weak.
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

  /** The salt stays, and with it the sessions, whose keys hang on it; so it is in CouchDB. */
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

/** Whether a hash is easier to break than the one that a new password would get. */
function isWeak({ scheme, prf, iterations }: PasswordHash, wanted: HashOptions): boolean {
  if (scheme !== 'pbkdf2' || iterations < wanted.iterations) return true
  return (PRFS[prf]?.length ?? 0) < (PRFS[wanted.prf]?.length ?? 0)
}

/** Somebody else was first, the account or the whole database is gone, or too much is to be done just now. */
function isExpected(fault: unknown): boolean {
  return fault instanceof CouchError && [404, 409, 503].includes(fault.status)
}
