/**
 * The owners of databases: one record per database in server.sqlite, and the same in memory. A database without an
 * owner (an admin's, `_users`) has no record.
 */
import { isJsonObject } from '../core/json.ts'
import { allRecords, type WatchedRecords } from '../storage/records.ts'

const KIND = 'owner'
/** Deleted databases of an account that are still in its `_db_updates`. */
const MAX_FORMER = 100

/** `making`: not usable yet; `deleted`: still in the account's `_db_updates`, until the name is used again. */
type OwnedState = 'making' | 'owned' | 'deleted'

interface Owned {
  readonly account: string
  readonly state: OwnedState
}

export class Owners {
  readonly #store: WatchedRecords
  readonly #byDatabase = new Map<string, Owned>()
  readonly #byAccount = new Map<string, Set<string>>()
  /** The oldest deletion first. */
  readonly #former = new Map<string, Set<string>>()

  private constructor(store: WatchedRecords) {
    this.#store = store
  }

  /** Reads the records. */
  static async open(store: WatchedRecords): Promise<Owners> {
    const owners = new Owners(store)
    for await (const { key, value } of allRecords(store, KIND)) owners.#add(key, readOwned(value))
    return owners
  }

  /** @returns the account; undefined if there is none, or while the database is being made */
  ownerOf(database: string): string | undefined {
    const owned = this.#byDatabase.get(database)
    return owned?.state === 'owned' ? owned.account : undefined
  }

  /** @returns the record; undefined if there is none */
  recordOf(database: string): Owned | undefined {
    return this.#byDatabase.get(database)
  }

  /** In no order. */
  databasesOf(account: string): ReadonlySet<string> {
    return this.#byAccount.get(account) ?? NONE
  }

  /** The latest databases that the account had and that were deleted. */
  formerDatabasesOf(account: string): ReadonlySet<string> {
    return this.#former.get(account) ?? NONE
  }

  /** Accounts that own databases, or owned some. */
  accounts(): string[] {
    return [...new Set([...this.#byAccount.keys(), ...this.#former.keys()])]
  }

  /** All databases with a record, also those in the making and deleted ones. */
  databases(): string[] {
    return [...this.#byDatabase.keys()]
  }

  /** Durable when resolved, and visible only then. */
  async set(database: string, account: string, state: OwnedState): Promise<void> {
    const dropped = state === 'deleted' ? this.#beyondFormer(account, database) : []
    const value = JSON.stringify({ account, ...(state !== 'owned' && { state }) })
    await this.#store.writeRecords([
      { kind: KIND, key: database, value },
      ...dropped.map((key) => ({ kind: KIND, key, value: null })),
    ])
    this.#remove(database)
    for (const name of dropped) this.#remove(name)
    this.#add(database, { account, state })
  }

  /** Removes records. Durable when resolved. */
  async forget(databases: readonly string[]): Promise<void> {
    const known = databases.filter((name) => this.#byDatabase.has(name))
    if (known.length === 0) return
    await this.#store.writeRecords(known.map((key) => ({ kind: KIND, key, value: null })))
    for (const name of known) this.#remove(name)
  }

  #beyondFormer(account: string, next: string): string[] {
    const former = [...this.formerDatabasesOf(account)].filter((name) => name !== next)
    return former.slice(0, Math.max(0, former.length + 1 - MAX_FORMER))
  }

  #add(database: string, owned: Owned): void {
    this.#byDatabase.set(database, owned)
    const index = owned.state === 'deleted' ? this.#former : this.#byAccount
    const names = index.get(owned.account)
    if (owned.state === 'making') return
    if (names === undefined) index.set(owned.account, new Set([database]))
    else names.add(database)
  }

  #remove(database: string): void {
    const owned = this.#byDatabase.get(database)
    if (owned === undefined) return
    this.#byDatabase.delete(database)
    for (const index of [this.#byAccount, this.#former]) {
      const names = index.get(owned.account)
      if (names?.delete(database) && names.size === 0) index.delete(owned.account)
    }
  }
}

const NONE: ReadonlySet<string> = new Set()

function readOwned(value: string): Owned {
  const read: unknown = JSON.parse(value)
  if (!isJsonObject(read) || typeof read.account !== 'string') throw new Error('an owner record is damaged')
  const { account, state } = read
  return { account, state: state === 'making' || state === 'deleted' ? state : 'owned' }
}
