/** The accounts of `_users`, and how they stand beside the server admins of the configuration; protocol.md 11.1. */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Sendable } from '../core/byte-text.ts'
import { atMost } from '../core/cache-room.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId } from '../core/user-ids.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { Account, AccountListener, Accounts } from './accounts.ts'
import { userAccount } from './user-account.ts'
import { type ChangedNames, HOUSE, UsersFeed } from './users-feed.ts'

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

export interface UsersOptions {
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
    const { json } = await database.open(HOUSE, userDocId(name), { conflicts: true })
    return userAccount(name, JSON.parse(textOf(json)))
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    if (error instanceof CouchError && error.code === 'account_conflicts') return error
    throw error
  }
}

/** @returns the text of a document that a database thread has sent */
export function textOf(json: Sendable): string {
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
