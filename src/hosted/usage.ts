/**
 * The sizes of databases with an owner. The node that wrote to a database measures it about 1 s later, so an idle one costs
 * nothing, and stores the size together with its owner's totals. So no start opens a database, and every node knows them.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../changes/source.ts'
import { CouchError } from '../core/errors.ts'
import { type Allowance, SYSTEM_USER } from '../core/types.ts'
import { RecordCache } from '../storage/record-cache.ts'
import type { RecordWrite, WatchedRecords } from '../storage/records.ts'
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
import type { Owners } from './owners.ts'
import { countedBy, OWNER, readOwned } from './ownership.ts'
import type { Quota } from './quota.ts'

const MEASURE_MS = 1000
/** Databases that are measured at once. */
const AT_ONCE = 4
/** Sizes that one write stores. */
const STORED_AT_ONCE = 64
/** How often a size is stored anew while others change the same totals. */
const MAX_TRIES = 50
/** Sizes and totals that are remembered: a few megabytes. */
const MAX_REMEMBERED = 20_000

interface UsageOptions {
  readonly databases: Pick<Databases, 'get' | 'watchWrites'>
  readonly owners: Pick<Owners, 'ownerOf'>
  readonly records: WatchedRecords
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
    const { databases, records } = options
    this.#sizes = new RecordCache({ records, kind: SIZES, max: MAX_REMEMBERED, parse: readSize })
    this.#totals = new RecordCache({ records, kind: TOTALS, max: MAX_REMEMBERED, parse: readTotals })
    this.#unwatch = databases.watchWrites((name) => this.changed(name))
  }

  /** @returns the size of a database, as it was stored last; nothing for one without an owner */
  of(name: string): Size | Promise<Size> {
    return this.#sizes.get(name)
  }

  /** @returns the sizes of databases, in their order */
  async ofAll(names: readonly string[]): Promise<Size[]> {
    const texts = await this.#options.records.readRecords(SIZES, names)
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

  /** @returns the refusal of an index that is to grow by so many bytes; null if it may */
  async refusalOfGrowth(account: string, bytes: number, { bytes: limit }: Quota): Promise<CouchError | null> {
    const { bytes: used } = await this.sumOf(account)
    if (used + bytes <= limit) return null
    return new CouchError(
      'forbidden',
      `The owner of this database may store ${limit} bytes and stores ${used}; the index needs about ${bytes} more. ` +
        'Delete documents or indexes, and compact the database.',
    )
  }

  /** Adds the most that a finished write may have stored, until the database is measured: not each write is told by an event. */
  wrote(account: string, name: string, most: Size): void {
    this.#unmeasured.add(account, name, most)
    this.changed(name)
  }

  /** @returns for each database of an account, the most that this node may have written to it since it was measured */
  unmeasuredOf(account: string): ReadonlyMap<string, Size> {
    return this.#unmeasured.of(account)
  }

  /** Measures some databases now; never rejects. */
  async measureAll(names: readonly string[]): Promise<void> {
    for (const name of names) this.#changedDatabases.add(name)
    await this.#measureChanged()
  }

  /** Measures databases with writes since they were measured. */
  async measureChanged(): Promise<void> {
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
      for (let at = 0; at < names.length; at += STORED_AT_ONCE) {
        await this.#measure(names.slice(at, at + STORED_AT_ONCE))
      }
    })
    return this.#work
  }

  /** Never rejects. */
  async #measure(names: readonly string[]): Promise<void> {
    const marks = names.map((name) => this.#unmeasured.mark(name))
    try {
      const measured = await this.#sizesOf(names)
      await this.#store(measured)
      await this.#remember(measured)
      for (const mark of marks) this.#unmeasured.remove(mark)
    } catch (fault) {
      this.#options.onFault(fault)
      for (const name of names) this.changed(name)
    }
  }

  /** Reads what has changed, since the next write to each of these databases would have to wait for it. */
  async #remember(measured: readonly Measured[]): Promise<void> {
    const owners = await Promise.all(measured.map(({ name }) => this.#options.owners.ownerOf(name)))
    await Promise.all([
      ...measured.map(({ name }) => this.#sizes.get(name)),
      ...owners.map((owner) => owner !== undefined && this.#totals.get(owner)),
    ])
  }

  /** Databases without an owner, deleted ones, and those that cannot be read are left out: their next write measures them. */
  async #sizesOf(names: readonly string[]): Promise<Measured[]> {
    const owners = await this.#options.records.readRecords(OWNER, names)
    const left = names.filter((_, at) => accountOf(owners[at] ?? null) !== null)
    const measured: Measured[] = []
    const looking = Array.from({ length: AT_ONCE }, async () => {
      for (let name = left.pop(); name !== undefined; name = left.pop()) {
        const size = await this.#sizeOf(name).catch(() => null)
        if (size !== null) measured.push({ name, size })
      }
    })
    await Promise.all(looking)
    return measured
  }

  async #sizeOf(name: string): Promise<Size> {
    const database = await this.#options.databases.get(name)
    const [{ sizes, doc_count }, usage] = await Promise.all([
      database.info(SYSTEM_USER),
      database.indexUsage(),
    ])
    return { bytes: sizes.active + usage.bytes, documents: doc_count, indexes: usage.indexes }
  }

  /**
   * Stores sizes with the totals of their owners, in one write if nobody else changes these totals meanwhile.
   * @throws unavailable if others change the totals of an account all the time
   */
  async #store(measured: readonly Measured[], tries = 0): Promise<void> {
    const writes = await this.#writesOf(measured)
    if (writes.length === 0 || (await this.#options.records.writeRecords(writes))) return
    if (measured.length > 1) {
      const half = Math.ceil(measured.length / 2)
      await this.#store(measured.slice(0, half))
      await this.#store(measured.slice(half))
      return
    }
    if (tries >= MAX_TRIES) throw new CouchError('unavailable')
    await this.#store(measured, tries + 1)
  }

  /**
   * A change of an owner changes the totals too, so these writes fail if an owner changes from now on. If one has changed
   * while the totals were read, everything is read again.
   */
  async #writesOf(measured: readonly Measured[]): Promise<RecordWrite[]> {
    const { records } = this.#options
    const names = measured.map(({ name }) => name)
    const owners = await records.readRecords(OWNER, names)
    const accounts = [...new Set(owners.map(accountOf).filter((account) => account !== null))]
    const totals = await records.readRecords(TOTALS, accounts)
    const sizes = await records.readRecords(SIZES, names)
    if (!isDeepStrictEqual(await records.readRecords(OWNER, names), owners)) return this.#writesOf(measured)
    const changes = new Map<string, { before: Size; after: Size }>()
    const writes: RecordWrite[] = []
    measured.forEach(({ name, size }, at) => {
      const account = accountOf(owners[at] ?? null)
      const text = sizes[at] ?? null
      const before = readSize(text)
      if (account === null || (text !== null && isDeepStrictEqual(before, size))) return
      writes.push({ kind: SIZES, key: name, value: JSON.stringify(size), expected: text })
      const change = changes.get(account) ?? { before: NOTHING, after: NOTHING }
      changes.set(account, {
        before: sumOfSizes(change.before, before),
        after: sumOfSizes(change.after, size),
      })
    })
    accounts.forEach((account, at) => {
      const change = changes.get(account)
      if (change !== undefined)
        writes.push(...totalsWrites(account, totals[at] ?? null, { databases: 0, ...change }))
    })
    return writes
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

interface Measured {
  readonly name: string
  readonly size: Size
}

/**
 * @param owner the record of a database
 * @returns the account in whose totals it counts; null if there is none, or if the record is damaged, which must
 * not keep the sizes of other databases from being stored
 */
function accountOf(owner: string | null): string | null {
  try {
    return countedBy(readOwned(owner))
  } catch {
    return null
  }
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
