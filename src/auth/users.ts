/** The accounts of `_users`, together with the server admins of the configuration; protocol.md 11.1. */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { type ChangesOptions, PLAIN_CHANGES } from '../changes/rows.ts'
import { decodeSendable } from '../core/bytes.ts'
import { atMost } from '../core/cache.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId, userNameOf } from '../core/ids.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { maxUserIterations } from '../documents/password-hashing.ts'
import type { DatabaseEvent, DatabaseHandle, Databases } from '../threads/databases.ts'
import {
  type Account,
  type AccountListener,
  type Accounts,
  generationOf,
  MADE_AGAIN,
  userAccount,
} from './accounts.ts'

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
): UsersAccounts {
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
    if (this.#feed.isUpToDate) {
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
    const account = await readAccount(database, name, maxUserIterations(this.#hashing().iterations))
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

  isUpToDate(): boolean {
    return this.#feed.isUpToDate
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

  /** Follows the database that has the accounts now; those of another one are forgotten at once. */
  follow(): void {
    this.#feed.forgetOther()
    this.#feed.database().catch(() => undefined)
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

async function readAccount(
  database: DatabaseHandle,
  name: string,
  maxIterations: number,
): Promise<Account | CouchError | null> {
  try {
    const read = async (revsInfo: boolean): Promise<Record<string, unknown>> => {
      const { json } = await database.open(SYSTEM_USER, userDocId(name), { conflicts: true, revsInfo })
      return JSON.parse(decodeSendable(json))
    }
    const doc = await read(false)
    return userAccount(name, generationOf(doc._rev) < MADE_AGAIN ? doc : await read(true), maxIterations)
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    if (error instanceof CouchError && error.code === 'account_conflicts') return error
    throw error
  }
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
    isUpToDate: () => admins.isUpToDate() && users.isUpToDate(),
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

const PAGE_ROWS = 1000
/** Changed accounts that are listed by name; above that, `all`. */
const MAX_NAMES = 5000

/** A feed of `_users` with one row per line. */
export const PLAIN_FEED: ChangesOptions = { ...PLAIN_CHANGES, framing: 'lines' }

/** A row of {@link PLAIN_FEED} about an account. */
export interface UserChange {
  /** Its sequence number. */
  readonly seq: number
  readonly name: string
  readonly deleted: boolean
}

/** @returns the accounts in a page of {@link PLAIN_FEED}, in order */
export function userChanges(bytes: Uint8Array): UserChange[] {
  const lines = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString().split('\n')
  return lines.flatMap((line) => {
    if (line === '') return []
    const { seq, id, deleted } = JSON.parse(line) as { seq: string; id: string; deleted?: boolean }
    const name = userNameOf(id)
    return name === null ? [] : [{ seq: Number.parseInt(seq, 10), name, deleted: deleted === true }]
  })
}

/** @returns null if there is no such database */
export async function findDatabase(
  databases: Pick<Databases, 'get'>,
  name: string,
): Promise<DatabaseHandle | null> {
  try {
    return await databases.get(name)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    throw error
  }
}

type ChangedNames = ReadonlySet<string> | 'all'

class UsersFeed {
  readonly #databases: Pick<Databases, 'get' | 'usersDatabase'>
  readonly #onChange: (names: ChangedNames) => void
  #handle: DatabaseHandle | null = null
  #unwatch: () => void = () => {}
  /** Where the next page begins; null until it is known. */
  #since: number | null = null
  #reading: Promise<void> | null = null
  #version = 0

  /** @param onChange called with the changed accounts before {@link isUpToDate} is true again */
  constructor(databases: Pick<Databases, 'get' | 'usersDatabase'>, onChange: (names: ChangedNames) => void) {
    this.#databases = databases
    this.#onChange = onChange
  }

  /** Increases with everything that may have changed an account. */
  get version(): number {
    return this.#version
  }

  /**
   * Follows the database from now on.
   * @returns the database; null while there is none
   * @throws unavailable
   */
  async database(): Promise<DatabaseHandle | null> {
    const handle = await findDatabase(this.#databases, this.#databases.usersDatabase)
    if (handle !== this.#handle) this.#follow(handle)
    if (handle !== null && this.#since === null) this.#reading ??= this.#begin(handle)
    while (this.#reading !== null) await this.#reading
    return handle
  }

  /** Forgets a database that has the accounts no longer. */
  forgetOther(): void {
    if (this.#handle !== null && this.#handle.name !== this.#databases.usersDatabase) this.#follow(null)
  }

  /** Whether known accounts are up to date, since no changes are being read. */
  get isUpToDate(): boolean {
    return this.#reading === null && this.#since !== null && this.#handle !== null
  }

  #follow(handle: DatabaseHandle | null): void {
    this.#unwatch()
    this.#handle = handle
    this.#since = null
    this.#changed('all')
    this.#unwatch = handle?.watch((event) => this.#onEvent(event)) ?? (() => {})
  }

  #changed(names: ChangedNames): void {
    this.#version += 1
    this.#onChange(names)
  }

  #onEvent(event: DatabaseEvent): void {
    if (event.type === 'secured') return
    if (event.type === 'closed') {
      // It was deleted, or its thread died with commits that were not reported.
      this.#since = null
      this.#changed('all')
      return
    }
    this.#version += 1
    this.#wake()
  }

  async #begin(handle: DatabaseHandle): Promise<void> {
    const before = this.#version
    try {
      const { lastSeq } = await handle.changes(SYSTEM_USER, { options: PLAIN_FEED, since: 'now', limit: 0 })
      if (handle === this.#handle) this.#since = lastSeq
    } finally {
      this.#reading = null
    }
    // A commit was reported before this answer.
    if (this.#version !== before) this.#wake()
  }

  #wake(): void {
    if (this.#handle !== null && this.#since !== null) this.#reading ??= this.#read(this.#handle)
  }

  /** Reads up to the end, with new commits. Never rejects: after a failure all accounts count as changed. */
  async #read(handle: DatabaseHandle): Promise<void> {
    try {
      for (let seen = -1; seen !== this.#version && this.#since !== null; ) {
        seen = this.#version
        const names = await this.#namesSince(handle, this.#since)
        if (handle !== this.#handle) return
        this.#onChange(names)
      }
    } catch {
      this.#since = null
      this.#changed('all')
    } finally {
      this.#reading = null
    }
  }

  async #namesSince(handle: DatabaseHandle, since: number): Promise<ChangedNames> {
    const names = new Set<string>()
    for (let at = since; ; ) {
      const page = await handle.changes(SYSTEM_USER, { options: PLAIN_FEED, since: at, limit: PAGE_ROWS })
      for (const { name } of userChanges(page.bytes)) names.add(name)
      at = page.lastSeq
      if (this.#since !== null) this.#since = at
      if (page.atTip) return names.size > MAX_NAMES ? 'all' : names
    }
  }

  /** Stops following. */
  close(): void {
    this.#unwatch()
    this.#unwatch = () => {}
  }
}
