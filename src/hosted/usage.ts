/**
 * The sizes of databases with an owner. The node that wrote to a database measures it about 1 s later, so an idle one costs
 * nothing, and stores the size together with its owner's totals. So no start opens a database, and every node knows them.
 */
import { isDeepStrictEqual } from 'node:util'
import { SYSTEM_USER } from '../auth/accounts.ts'
import type { Clock } from '../changes/source.ts'
import type { Allowance } from '../core/types.ts'
import { RecordCache } from '../storage/record-cache.ts'
import type { WatchedRecords } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'
import {
  NOTHING,
  readSize,
  readTotals,
  SIZES,
  type Size,
  sumOfSizes,
  TOTALS,
  type Totals,
  totalsWrites,
} from './account-totals.ts'
import { OWNER, readOwned } from './ownership.ts'
import type { Quota } from './quota.ts'

const MEASURE_MS = 1000
/** Databases that are measured at once. */
const AT_ONCE = 4
/** How often a size is stored anew while others change the same totals. */
const MAX_TRIES = 50
/** Sizes and totals that are remembered: a few megabytes. */
const MAX_REMEMBERED = 20_000

interface UsageOptions {
  readonly databases: Pick<Databases, 'get' | 'watchWrites'>
  readonly store: WatchedRecords
  readonly clock: Clock
  /** A size could not be stored; it will be measured again. */
  onFault(fault: unknown): void
}

export class Usage {
  readonly #options: UsageOptions
  readonly #sizes: RecordCache<Size>
  readonly #totals: RecordCache<Totals>
  readonly #changedDatabases = new Set<string>()
  readonly #unmeasured = new Unmeasured()
  readonly #unwatch: () => void
  #cancelMeasure: (() => void) | null = null
  #work: Promise<unknown> = Promise.resolve()
  #isClosed = false

  constructor(options: UsageOptions) {
    this.#options = options
    const { databases, store } = options
    this.#sizes = new RecordCache({ records: store, kind: SIZES, max: MAX_REMEMBERED, parse: readSize })
    this.#totals = new RecordCache({ records: store, kind: TOTALS, max: MAX_REMEMBERED, parse: readTotals })
    this.#unwatch = databases.watchWrites((name) => this.changed(name))
  }

  /** @returns the size of a database, as it was stored last; nothing for one without an owner */
  of(name: string): Size | Promise<Size> {
    return this.#sizes.get(name)
  }

  /** @returns the sizes of databases, in their order */
  async ofAll(names: readonly string[]): Promise<Size[]> {
    const texts = await this.#options.store.readRecords(SIZES, names)
    return texts.map(readSize)
  }

  /** @returns the number of an account's databases, and their sizes together */
  sumOf(account: string): Totals | Promise<Totals> {
    return this.#totals.get(account)
  }

  /** @returns what may still be written to a database of an account; undefined: any amount */
  async allowance(database: string, account: string, quota: Quota): Promise<Allowance | undefined> {
    const { bytes, documents, indexes, document_size: maxDocumentSize } = quota
    if ([bytes, documents, indexes, maxDocumentSize].every((limit) => limit === Infinity)) return undefined
    const here = await this.of(database)
    const sum = await this.sumOf(account)
    return {
      bytes: { limit: bytes, others: Math.max(0, sum.bytes - here.bytes), here: here.bytes },
      documents: { limit: documents, others: Math.max(0, sum.documents - here.documents) },
      indexes: { limit: indexes, others: Math.max(0, sum.indexes - here.indexes) },
      maxDocumentSize,
    }
  }

  /** Adds the most that a finished write may have stored, until the database is measured. */
  wrote(account: string, name: string, most: Size): void {
    this.#unmeasured.add(account, name, most)
  }

  /** @returns by database, the most that this node may have written to an account's since they were measured */
  unmeasuredOf(account: string): ReadonlyMap<string, Size> {
    return this.#unmeasured.of(account)
  }

  /** Measures some databases now; never rejects. */
  async measureAll(names: readonly string[]): Promise<void> {
    for (const name of names) this.#changedDatabases.add(name)
    await this.#measureChanged()
  }

  /** Measures databases with writes since they were measured. */
  async settle(): Promise<void> {
    await this.#measureChanged()
  }

  /** Measures a database within about a second. */
  changed(name: string): void {
    if (this.#isClosed) return
    this.#changedDatabases.add(name)
    this.#cancelMeasure ??= this.#options.clock.after(MEASURE_MS, () => {
      this.#cancelMeasure = null
      void this.#measureChanged()
    })
  }

  /** One round after the other; never rejects. */
  #measureChanged(): Promise<unknown> {
    this.#work = this.#work.then(async () => {
      const names = [...this.#changedDatabases]
      this.#changedDatabases.clear()
      const looking = Array.from({ length: AT_ONCE }, async () => {
        for (let name = names.pop(); name !== undefined; name = names.pop()) await this.#measure(name)
      })
      await Promise.all(looking)
    })
    return this.#work
  }

  async #measure(name: string): Promise<void> {
    const measured = this.#unmeasured.mark(name)
    const size = await this.#sizeOf(name)
    try {
      if (size === null || (await this.#store(name, size))) this.#unmeasured.remove(measured)
      else this.changed(name)
    } catch (fault) {
      this.#options.onFault(fault)
      this.changed(name)
    }
  }

  /** @returns null if the database has no owner, was deleted, or cannot be read: its next write measures it again */
  async #sizeOf(name: string): Promise<Size | null> {
    try {
      const [owner = null] = await this.#options.store.readRecords(OWNER, [name])
      if (!isCounted(owner)) return null
      const database = await this.#options.databases.get(name)
      const [{ sizes, doc_count }, usage] = await Promise.all([
        database.info(SYSTEM_USER),
        database.indexUsage(),
      ])
      return { bytes: sizes.active + usage.bytes, documents: doc_count, indexes: usage.indexes }
    } catch {
      return null
    }
  }

  /** Stores a size with the totals of the owner. @returns false if others change the totals all the time */
  async #store(name: string, size: Size): Promise<boolean> {
    const { store } = this.#options
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const [[owner = null], [text = null]] = await Promise.all([
        store.readRecords(OWNER, [name]),
        store.readRecords(SIZES, [name]),
      ])
      const account = readOwned(owner)?.account
      if (account === undefined || !isCounted(owner)) return true
      const before = readSize(text)
      if (text !== null && isDeepStrictEqual(before, size)) return true
      const [totals = null] = await store.readRecords(TOTALS, [account])
      const stored = await store.writeRecords([
        { kind: OWNER, key: name, value: owner, expected: owner },
        { kind: SIZES, key: name, value: JSON.stringify(size), expected: text },
        ...totalsWrites(account, totals, { databases: 0, before, after: size }),
      ])
      if (stored) return true
    }
    return false
  }

  /** Stops measuring, after a last round. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#unwatch()
    this.#cancelMeasure?.()
    await this.#measureChanged()
    this.#sizes.close()
    this.#totals.close()
  }
}

function isCounted(owner: string | null): boolean {
  const owned = readOwned(owner)
  return owned !== null && owned.state !== 'deleted'
}

/** The most that this node may have written to databases since they were measured. */
class Unmeasured {
  readonly #accounts = new Map<string, Map<string, Size>>()
  readonly #accountOf = new Map<string, string>()

  add(account: string, name: string, most: Size): void {
    const before = this.#accountOf.get(name)
    if (before !== undefined && before !== account) this.#delete(name)
    this.#accountOf.set(name, account)
    const sizes = this.#accounts.get(account) ?? new Map<string, Size>()
    sizes.set(name, sumOfSizes(sizes.get(name) ?? NOTHING, most))
    this.#accounts.set(account, sizes)
  }

  of(account: string): ReadonlyMap<string, Size> {
    return this.#accounts.get(account) ?? NONE
  }

  /** @returns what a measurement that begins now includes */
  mark(name: string): { readonly name: string; readonly size: Size | undefined } {
    return { name, size: this.#sizeOf(name) }
  }

  /** Forgets what was measured, unless there was another write meanwhile. */
  remove({ name, size }: ReturnType<Unmeasured['mark']>): void {
    if (this.#sizeOf(name) === size) this.#delete(name)
  }

  #sizeOf(name: string): Size | undefined {
    const account = this.#accountOf.get(name)
    return account === undefined ? undefined : this.#accounts.get(account)?.get(name)
  }

  #delete(name: string): void {
    const account = this.#accountOf.get(name)
    if (account === undefined) return
    this.#accountOf.delete(name)
    const sizes = this.#accounts.get(account)
    if (sizes?.delete(name) && sizes.size === 0) this.#accounts.delete(account)
  }
}

const NONE: ReadonlyMap<string, Size> = new Map()
