/**
 * The owners of databases, as records of the server. A database without an owner (an admin's, `_users`) has no record.
 * Nothing keeps all owners in memory; those that requests ask for are remembered until they change, on any node.
 */
import { CouchError } from '../core/errors.ts'
import { RecordCache } from '../storage/record-cache.ts'
import {
  allRecords,
  type RecordRange,
  type RecordWrite,
  readRecord,
  type WatchedRecords,
} from '../storage/records.ts'
import { readTotals, SIZES, TOTALS, type Totals, totalsRemoval } from './account-totals.ts'
import {
  changedAccounts,
  FORMER,
  OF_ACCOUNT,
  OWNER,
  type Owned,
  ownershipWrites,
  prefixOf,
  readOwned,
  UNFINISHED,
} from './ownership.ts'

/** Owners that are remembered: a few megabytes. */
const MAX_REMEMBERED = 20_000
/** Every legal name of a database, including the server's own, and few other texts. */
const NAME = /^[a-z_][a-z0-9_$()+/-]{0,254}$/
/** Deleted databases of an account that are still in its `_db_updates`. */
const MAX_FORMER = 100
/** How often a change is tried while others change the same records. */
const MAX_TRIES = 50

interface Remembered {
  readonly owned: Owned | null
}

/** What must hold for a change of an owner. */
export interface OwnerChange {
  /** @returns the next state, or `same` @throws to refuse the change */
  next(before: Owned | null): Owned | null | 'same'
  /** @param totals of the next owner @throws if it may not have another database */
  checkTotals?(totals: Totals): void
  /** Further records that must still be as they were read. */
  guards?(): Promise<readonly RecordWrite[]>
}

export class Owners {
  readonly #records: WatchedRecords
  readonly #owners: RecordCache<Remembered>
  readonly #now: () => number

  /** @param now ms since 1970 */
  constructor(records: WatchedRecords, now: () => number = Date.now) {
    this.#records = records
    this.#now = now
    this.#owners = new RecordCache({
      records,
      kind: OWNER,
      max: MAX_REMEMBERED,
      parse: (text): Remembered => ({ owned: readOwned(text) }),
    })
  }

  /** @returns the account; undefined if there is none, or while the database is being made */
  ownerOf(database: string): string | undefined | Promise<string | undefined> {
    // Whatever a client asks for, only names that a database can have are read and remembered.
    if (!NAME.test(database)) return undefined
    const found = this.#owners.get(database)
    return found instanceof Promise ? found.then(ownerIn) : ownerIn(found)
  }

  /** @returns the record; null if there is none */
  async recordOf(database: string): Promise<Owned | null> {
    return (await this.#owners.get(database)).owned
  }

  /** A page of the databases that an account owns, in byte order. */
  databasesOf(account: string, range: RecordRange, limit: number): Promise<string[]> {
    return this.#withState('owned', account, range, limit)
  }

  /** Databases of the account that are being made, at most `limit`. */
  inTheMaking(account: string, limit: number): Promise<string[]> {
    return this.#withState('making', account, {}, limit)
  }

  async #withState(
    state: Owned['state'],
    account: string,
    { prefix = '', after }: RecordRange,
    limit: number,
  ): Promise<string[]> {
    const own = prefixOf(account)
    const range = { prefix: own + prefix, ...(after !== undefined && { after: own + after }) }
    const names: string[] = []
    for await (const { key, value } of allRecords(this.#records, OF_ACCOUNT, range)) {
      if (names.length >= limit) break
      if (value === state) names.push(key.slice(own.length))
    }
    return names
  }

  /** The latest databases that the account had and that were deleted, the oldest deletion first. */
  async formerDatabasesOf(account: string): Promise<string[]> {
    const prefix = prefixOf(account)
    const found = await this.#records.listRecords(FORMER, { prefix }, 2 * MAX_FORMER)
    return found.sort((a, b) => Number(a.value) - Number(b.value)).map(({ key }) => key.slice(prefix.length))
  }

  /** Databases on which work may be unfinished. */
  async *unfinished(): AsyncGenerator<string> {
    for await (const { key } of allRecords(this.#records, UNFINISHED)) yield key
  }

  /** Notes that work on a database begins that a crash may leave unfinished; a change of its owner ends it. */
  async begin(database: string): Promise<void> {
    await this.#records.writeRecords([{ kind: UNFINISHED, key: database, value: '' }])
  }

  /** The work on a database has ended without a change of its owner. */
  async end(database: string): Promise<void> {
    await this.#records.writeRecords([{ kind: UNFINISHED, key: database, value: null }])
  }

  /**
   * Changes the owner of a database with all records that depend on it: all of them or none. Durable when resolved.
   * @returns the state before
   * @throws what `change` throws; unavailable if others change the same records all the time
   */
  async change(database: string, change: OwnerChange): Promise<Owned | null> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const [owner = null, size = null] = await this.#read(database)
      const before = readOwned(owner)
      const after = change.next(before)
      if (after === 'same') return before
      const accounts = changedAccounts(before, after)
      const texts = await this.#records.readRecords(TOTALS, accounts)
      const totals = new Map(accounts.map((account, at) => [account, texts[at] ?? null]))
      if (after !== null && totals.has(after.account)) {
        change.checkTotals?.(readTotals(totals.get(after.account) ?? null))
      }
      const dropped = after?.state === 'deleted' ? await this.#beyondFormer(after.account, database) : []
      const guards = (await change.guards?.()) ?? []
      const records = { owner, size, totals, dropped }
      const writes = ownershipWrites(database, after, records, this.#now())
      if (await this.#records.writeRecords([...guards, ...writes])) return before
    }
    throw new CouchError('unavailable')
  }

  async #read(database: string): Promise<(string | null)[]> {
    const [[owner = null], [size = null]] = await Promise.all([
      this.#records.readRecords(OWNER, [database]),
      this.#records.readRecords(SIZES, [database]),
    ])
    return [owner, size]
  }

  /** @returns what the account's databases have together, as the store has it now */
  async totalsOf(account: string): Promise<Totals> {
    return readTotals(await readRecord(this.#records, TOTALS, account))
  }

  /** Removes what is left of an account whose databases are deleted. */
  async forgetAccount(account: string): Promise<void> {
    for (const name of await this.formerDatabasesOf(account)) {
      await this.change(name, {
        next: (owned) => (owned?.state === 'deleted' && owned.account === account ? null : 'same'),
      })
    }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const text = await readRecord(this.#records, TOTALS, account)
      if (text === null || readTotals(text).databases > 0) return
      if (await this.#records.writeRecords(totalsRemoval(account, text))) return
    }
    throw new CouchError('unavailable')
  }

  /** All databases that an account's `_db_updates` may show: its own, those in the making, and deleted ones. */
  async namesInUpdates(account: string): Promise<{ own: string[]; former: string[] }> {
    const prefix = prefixOf(account)
    const own: string[] = []
    for await (const { key } of allRecords(this.#records, OF_ACCOUNT, { prefix }))
      own.push(key.slice(prefix.length))
    return { own, former: await this.formerDatabasesOf(account) }
  }

  /** Sets the owner's state, whatever it was; null removes it. */
  async set(database: string, next: Owned | null): Promise<void> {
    await this.change(database, { next: () => next })
  }

  async #beyondFormer(account: string, next: string): Promise<string[]> {
    const former = (await this.formerDatabasesOf(account)).filter((name) => name !== next)
    return former.slice(0, Math.max(0, former.length + 1 - MAX_FORMER))
  }

  close(): void {
    this.#owners.close()
  }
}

function ownerIn({ owned }: Remembered): string | undefined {
  return owned?.state === 'owned' ? owned.account : undefined
}
