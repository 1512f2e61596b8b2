/**
 * What databases that accounts own take. A database is looked at about a second after it was written to or compacted,
 * so that one that rests costs nothing; what was found is kept on record, so that a start opens none.
 */
import { SYSTEM_USER } from '../auth/users-feed.ts'
import type { Clock } from '../changes/source.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Allowance } from '../core/types.ts'
import type { Databases } from '../threads/databases.ts'
import type { Owners, RecordStore } from './owners.ts'

const KIND = 'usage'
const MEASURE_MS = 1000
const SAVE_MS = 10_000
/** Databases that are looked at side by side. */
const AT_ONCE = 4
/** Records in one write: a few milliseconds of the catalog's thread. */
const BATCH = 500

export interface Size {
  /** `sizes.active`. */
  readonly bytes: number
  /** Live ones. */
  readonly documents: number
}

const NOTHING: Size = { bytes: 0, documents: 0 }

interface UsageOptions {
  readonly databases: Pick<Databases, 'get'>
  readonly owners: Owners
  readonly store: RecordStore
  readonly clock: Clock
  /** Records could not be written; they are tried again. */
  onFault(fault: unknown): void
}

export class Usage {
  readonly #options: UsageOptions
  readonly #sizes = new Map<string, Size>()
  readonly #watches = new Map<string, () => void>()
  /** Of accounts that were asked for, until one of their databases changes. */
  readonly #sums = new Map<string, Size>()
  readonly #changedDatabases = new Set<string>()
  /** What has been written at the most to databases that were not looked at since. */
  readonly #written = new Map<string, Size>()
  readonly #unsaved = new Set<string>()
  #cancelMeasure: (() => void) | null = null
  #cancelSave: (() => void) | null = null
  #work: Promise<unknown> = Promise.resolve()
  #isClosed = false

  private constructor(options: UsageOptions) {
    this.#options = options
  }

  /** Reads what was known when the server ended. */
  static async open(options: UsageOptions): Promise<Usage> {
    const usage = new Usage(options)
    for (const { key, value } of await options.store.readRecords(KIND)) {
      usage.#sizes.set(key, readSize(value))
    }
    return usage
  }

  /** Looks at the database from now on, whenever it was written to. */
  follow(name: string): void {
    this.#watches.get(name)?.()
    const unwatch = this.#options.databases.get(name).watch(({ type }) => {
      if (type === 'committed' || type === 'compacted') this.#changed(name)
    })
    this.#watches.set(name, unwatch)
    this.#forgetSum(name)
    if (!this.#sizes.has(name)) this.#changed(name)
  }

  /** The database is gone, or nobody's. */
  leave(name: string): void {
    this.#watches.get(name)?.()
    this.#watches.delete(name)
    this.#changedDatabases.delete(name)
    this.#written.delete(name)
    this.#forgetSum(name)
    if (this.#sizes.delete(name)) this.#queueRecord(name)
  }

  /** Removes what is kept of databases that are followed no more; to be called once all are followed. */
  sweep(): void {
    for (const name of [...this.#sizes.keys()]) if (!this.#watches.has(name)) this.leave(name)
  }

  of(name: string): Size {
    return this.#sizes.get(name) ?? NOTHING
  }

  /** What an account's databases take together. */
  sumOf(account: string): Size {
    let sum = this.#sums.get(account)
    if (sum === undefined) {
      sum = NOTHING
      for (const name of this.#options.owners.databasesOf(account)) sum = sumOfSizes(sum, this.of(name))
      this.#sums.set(account, sum)
    }
    return sum
  }

  /** What may still be written to a database of an account; undefined: any amount. */
  allowance(database: string, account: string, quota: Quota): Allowance | undefined {
    if (quota.bytes === Infinity && quota.documents === Infinity && quota.document_size === Infinity)
      return undefined
    const here = this.of(database)
    const sum = this.sumOf(account)
    return {
      bytes: { limit: quota.bytes, others: sum.bytes - here.bytes, here: here.bytes },
      documents: { limit: quota.documents, others: sum.documents - here.documents },
      maxDocumentSize: quota.document_size,
    }
  }

  /** Notes what a write that has ended may have brought at the most, until the database is looked at. */
  wrote(name: string, most: Size): void {
    this.#written.set(name, sumOfSizes(this.#written.get(name) ?? NOTHING, most))
  }

  /** What has been written to a database at the most since it was looked at; null: nothing. */
  unmeasured(name: string): Size | null {
    return this.#written.get(name) ?? null
  }

  /** Looks at some databases now; never rejects. */
  async measureAll(names: readonly string[]): Promise<void> {
    for (const name of names) this.#changedDatabases.add(name)
    await this.#measureChanged()
  }

  /** Looks at what was written to and not looked at since. */
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

  /** One look after the other; never rejects. */
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
      const { sizes, doc_count } = await this.#options.databases.get(name).info(SYSTEM_USER)
      if (!this.#watches.has(name)) return
      // What was written meanwhile is looked at again.
      if (this.#written.get(name) === written) this.#written.delete(name)
      const before = this.#sizes.get(name)
      if (before?.bytes === sizes.active && before.documents === doc_count) return
      this.#sizes.set(name, { bytes: sizes.active, documents: doc_count })
      this.#forgetSum(name)
      this.#queueRecord(name)
    } catch {
      // It is gone, or its thread has died: its next write brings it back.
    }
  }

  #forgetSum(name: string): void {
    const account = this.#options.owners.recordOf(name)?.account
    if (account !== undefined) this.#sums.delete(account)
  }

  #queueRecord(name: string): void {
    this.#unsaved.add(name)
    if (this.#isClosed) return
    this.#cancelSave ??= this.#options.clock.after(SAVE_MS, () => {
      this.#cancelSave = null
      this.#work = this.#work.then(() => this.#save())
    })
  }

  async #save(): Promise<void> {
    const names = [...this.#unsaved]
    this.#unsaved.clear()
    for (let at = 0; at < names.length; at += BATCH) {
      const batch = names.slice(at, at + BATCH)
      const writes = batch.map((key) => ({ kind: KIND, key, value: written(this.#sizes.get(key)) }))
      await this.#options.store.writeRecords(writes).catch((fault: unknown) => {
        this.#options.onFault(fault)
        for (const name of batch) this.#queueRecord(name)
      })
    }
  }

  /** Stops looking, and notes what is known. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelMeasure?.()
    this.#cancelSave?.()
    for (const unwatch of this.#watches.values()) unwatch()
    await this.#work
    await this.#save()
  }
}

function sumOfSizes(a: Size, b: Size): Size {
  return { bytes: a.bytes + b.bytes, documents: a.documents + b.documents }
}

function written(size: Size | undefined): string | null {
  return size === undefined ? null : JSON.stringify(size)
}

function readSize(value: string): Size {
  const read: unknown = JSON.parse(value)
  if (!isJsonObject(read) || typeof read.bytes !== 'number' || typeof read.documents !== 'number') {
    return NOTHING
  }
  return { bytes: read.bytes, documents: read.documents }
}

// How much an account may have: the defaults of section `[quota]`, and what an admin has set for one account.

/** Infinity where there is no limit. */
export interface Quota {
  /** Bytes of all databases together, as `sizes.active` counts them: with revisions that are not compacted yet. */
  readonly bytes: number
  /** Live documents in all databases together. */
  readonly documents: number
  readonly databases: number
  /** Bytes of JSON in one document. */
  readonly document_size: number
  /** Requests a second. */
  readonly requests: number
  /** Feeds that wait, at once. */
  readonly feeds: number
}

type QuotaName = keyof Quota

/** What was set for one account, by name; the rest is as the configuration says. */
export type QuotaOverrides = Partial<Quota>

/** A change of overrides: a number sets one, null takes it back. */
export type QuotaChange = Partial<Record<QuotaName, number | null>>

/** The least value of each: an account that may make no request or wait for nothing is one to be suspended. */
const LEAST: Quota = { bytes: 0, documents: 0, databases: 0, document_size: 1, requests: 1, feeds: 1 }

const NAMES = Object.keys(LEAST) as QuotaName[]

/** @returns what every account may have, as the configuration is now */
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
 * Reads what a client wants set.
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

/** The same as JSON that {@link readQuota} reads: it has no Infinity. */
export function shownQuota(quota: Partial<Quota>): Record<string, number | 'infinity'> {
  return Object.fromEntries(
    Object.entries(quota).map(([name, limit]) => [name, limit === Infinity ? 'infinity' : limit]),
  )
}

function fromNames(limitOf: (name: QuotaName) => number): Quota {
  return Object.fromEntries(NAMES.map((name) => [name, limitOf(name)])) as unknown as Quota
}
