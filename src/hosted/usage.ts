/**
 * The sizes of databases with an owner, and quotas. A database is measured about 1 s after a write or compaction, so an
 * idle one costs nothing. The sizes are kept in records, so that a start opens no database.
 */
import { isDeepStrictEqual } from 'node:util'
import { SYSTEM_USER } from '../auth/accounts.ts'
import type { Clock } from '../changes/source.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Allowance } from '../core/types.ts'
import type { WatchedRecords } from '../storage/records.ts'
import { allRecords } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'
import { RecordQueue } from '../threads/record-queue.ts'
import type { Owners } from './owners.ts'

const KIND = 'usage'
const MEASURE_MS = 1000
const SAVE_MS = 10_000
/** Databases that are measured at once. */
const AT_ONCE = 4

export interface Size {
  /** `sizes.active`, and the files of its indexes. */
  readonly bytes: number
  /** Live documents. */
  readonly documents: number
  readonly indexes: number
}

const NOTHING: Size = { bytes: 0, documents: 0, indexes: 0 }

interface UsageOptions {
  readonly databases: Pick<Databases, 'get' | 'watchWrites'>
  readonly owners: Owners
  readonly store: WatchedRecords
  readonly clock: Clock
  /** Records could not be written; they will be tried again. */
  onFault(fault: unknown): void
}

export class Usage {
  readonly #options: UsageOptions
  readonly #sizes = new Map<string, Size>()
  readonly #followed = new Set<string>()
  readonly #unwatch: () => void
  /** Cached sums of accounts, until one of their databases changes. */
  readonly #sums = new Map<string, Size>()
  readonly #changedDatabases = new Set<string>()
  /** The most that may have been written to databases since they were measured. */
  readonly #written = new Map<string, Size>()
  readonly #records: RecordQueue
  #cancelMeasure: (() => void) | null = null
  #work: Promise<unknown> = Promise.resolve()
  #isClosed = false

  private constructor(options: UsageOptions) {
    this.#options = options
    this.#records = new RecordQueue({
      clock: options.clock,
      delay: SAVE_MS,
      recordOf: (name) => ({ kind: KIND, key: name, value: written(this.#sizes.get(name)) }),
      writeRecords: (writes) => options.store.writeRecords(writes),
      onFault: (fault) => options.onFault(fault),
    })
    this.#unwatch = options.databases.watchWrites((name) => {
      if (this.#followed.has(name)) this.#changed(name)
    })
  }

  /** Reads the records of the last run. */
  static async open(options: UsageOptions): Promise<Usage> {
    const usage = new Usage(options)
    for await (const { key, value } of allRecords(options.store, KIND)) {
      usage.#sizes.set(key, readSize(value))
    }
    return usage
  }

  /** Measures the database from now on after each write. */
  follow(name: string): void {
    this.#followed.add(name)
    this.#forgetSum(name)
    if (!this.#sizes.has(name)) this.#changed(name)
  }

  /** The database was deleted, or has no owner any more. */
  leave(name: string): void {
    this.#followed.delete(name)
    this.#changedDatabases.delete(name)
    this.#written.delete(name)
    this.#forgetSum(name)
    if (this.#sizes.delete(name)) this.#records.add(name)
  }

  /** Removes records of databases that are not followed. Call it when all are followed. */
  sweep(): void {
    for (const name of [...this.#sizes.keys()]) if (!this.#followed.has(name)) this.leave(name)
  }

  of(name: string): Size {
    return this.#sizes.get(name) ?? NOTHING
  }

  /** The sizes of an account's databases together. */
  sumOf(account: string): Size {
    let sum = this.#sums.get(account)
    if (sum === undefined) {
      sum = NOTHING
      for (const name of this.#options.owners.databasesOf(account)) sum = sumOfSizes(sum, this.of(name))
      this.#sums.set(account, sum)
    }
    return sum
  }

  /** @returns what may still be written to a database of an account; undefined: any amount */
  allowance(database: string, account: string, quota: Quota): Allowance | undefined {
    const { bytes, documents, indexes, document_size: maxDocumentSize } = quota
    if ([bytes, documents, indexes, maxDocumentSize].every((limit) => limit === Infinity)) return undefined
    const here = this.of(database)
    const sum = this.sumOf(account)
    return {
      bytes: { limit: bytes, others: sum.bytes - here.bytes, here: here.bytes },
      documents: { limit: documents, others: sum.documents - here.documents },
      indexes: { limit: indexes, others: sum.indexes - here.indexes },
      maxDocumentSize,
    }
  }

  /** Adds the most that a finished write may have stored, until the database is measured. */
  wrote(name: string, most: Size): void {
    this.#written.set(name, sumOfSizes(this.#written.get(name) ?? NOTHING, most))
  }

  /** @returns the most that may have been written to a database since it was measured; null: nothing */
  unmeasured(name: string): Size | null {
    return this.#written.get(name) ?? null
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

  #changed(name: string): void {
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
    const written = this.#written.get(name)
    try {
      const database = await this.#options.databases.get(name)
      const [{ sizes, doc_count }, usage] = await Promise.all([
        database.info(SYSTEM_USER),
        database.indexUsage(),
      ])
      if (!this.#followed.has(name)) return
      // After a write meanwhile, the database is measured again.
      if (this.#written.get(name) === written) this.#written.delete(name)
      const before = this.#sizes.get(name)
      const { indexes } = usage
      const size = { bytes: sizes.active + usage.bytes, documents: doc_count, indexes }
      if (before !== undefined && isDeepStrictEqual(before, size)) return
      this.#sizes.set(name, size)
      this.#forgetSum(name)
      this.#records.add(name)
    } catch {
      // It was deleted, or its thread died; its next write measures it again.
    }
  }

  #forgetSum(name: string): void {
    const account = this.#options.owners.recordOf(name)?.account
    if (account !== undefined) this.#sums.delete(account)
  }

  /** Stops measuring, and writes the records. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelMeasure?.()
    this.#unwatch()
    await this.#work
    await this.#records.close()
  }
}

function sumOfSizes(a: Size, b: Size): Size {
  return { bytes: a.bytes + b.bytes, documents: a.documents + b.documents, indexes: a.indexes + b.indexes }
}

function written(size: Size | undefined): string | null {
  return size === undefined ? null : JSON.stringify(size)
}

function readSize(value: string): Size {
  const read: unknown = JSON.parse(value)
  if (!isJsonObject(read) || typeof read.bytes !== 'number' || typeof read.documents !== 'number') {
    return NOTHING
  }
  // Records from before there were indexes lack their number.
  const indexes = typeof read.indexes === 'number' ? read.indexes : 0
  return { bytes: read.bytes, documents: read.documents, indexes }
}

// Quotas: the defaults of section `[quota]`, and overrides that an admin has set for an account.

/** Infinity where there is no limit. */
export interface Quota {
  /** Bytes of all databases together, as `sizes.active` counts them: with revisions that are not compacted yet. */
  readonly bytes: number
  /** Live documents in all databases together. */
  readonly documents: number
  readonly databases: number
  /** Indexes in all databases together. */
  readonly indexes: number
  /** Bytes of JSON in one document. */
  readonly document_size: number
  /** Requests per second. */
  readonly requests: number
  /** Open feeds. */
  readonly feeds: number
  /** Replications at once, where tenants may replicate. */
  readonly replications: number
}

type QuotaName = keyof Quota

/** The values that an admin has set for an account; the configuration has the others. */
export type QuotaOverrides = Partial<Quota>

/** A change of overrides: a number sets one, null removes it. */
export type QuotaChange = Partial<Record<QuotaName, number | null>>

/** The smallest value of each. An account without any requests or feeds should be suspended instead. */
const LEAST: Quota = {
  bytes: 0,
  documents: 0,
  databases: 0,
  indexes: 0,
  document_size: 1,
  requests: 1,
  feeds: 1,
  replications: 0,
}

const NAMES = Object.keys(LEAST) as QuotaName[]

/** @returns the default quota as configured now */
export function defaultQuota(config: Config): Quota {
  return fromNames((name) => config.bytes('quota', name))
}

/** @returns the quota of an account with these overrides */
export function quotaWith(defaults: Quota, overrides: QuotaOverrides): Quota {
  return { ...defaults, ...overrides }
}

/** @returns the overrides after a change */
export function changedOverrides(overrides: QuotaOverrides, change: QuotaChange): QuotaOverrides {
  const merged = Object.entries({ ...overrides, ...change })
  return Object.fromEntries(merged.filter(([, value]) => value !== null)) as QuotaOverrides
}

/**
 * Reads a change of quotas from a request.
 * @param value whole numbers, `"infinity"`, or null for the default, by name
 * @throws bad_request
 */
export function readQuota(value: unknown): QuotaChange {
  if (!isJsonObject(value)) throw new CouchError('bad_request', '`quota` must be a JSON object.')
  return Object.fromEntries(Object.entries(value).map(([name, limit]) => [name, readLimit(name, limit)]))
}

function readLimit(name: string, limit: unknown): number | null {
  if (!isQuotaName(name)) {
    throw new CouchError(
      'bad_request',
      `\`quota\` may have ${NAMES.join(', ')}, but not \`${name.slice(0, 256)}\`.`,
    )
  }
  if (limit === null) return null
  if (limit === 'infinity') return Infinity
  if (Number.isSafeInteger(limit) && (limit as number) >= LEAST[name]) return limit as number
  throw new CouchError(
    'bad_request',
    `\`${name}\` must be a whole number of at least ${LEAST[name]}, "infinity", or null for the default.`,
  )
}

function isQuotaName(name: string): name is QuotaName {
  return Object.hasOwn(LEAST, name)
}

/** @returns the quota as JSON for {@link readQuota}, since JSON has no Infinity */
export function shownQuota(quota: Partial<Quota>): Record<string, number | 'infinity'> {
  return Object.fromEntries(
    Object.entries(quota).map(([name, limit]) => [name, limit === Infinity ? 'infinity' : limit]),
  )
}

function fromNames(limitOf: (name: QuotaName) => number): Quota {
  return Object.fromEntries(NAMES.map((name) => [name, limitOf(name)])) as unknown as Quota
}
