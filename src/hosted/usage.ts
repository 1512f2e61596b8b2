/**
 * What databases that accounts own take. A database is looked at about a second after it was written to or compacted,
 * so that one that rests costs nothing; what was found is kept on record, so that a start opens none.
 */

import { HOUSE } from '../auth/users-feed.ts'
import type { Clock } from '../changes/clock.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { Allowance } from '../core/types.ts'
import type { Databases } from '../threads/databases.ts'
import type { Owners, RecordStore } from './owners.ts'
import type { Quota } from './quota.ts'

const KIND = 'usage'
const LOOK_MS = 1000
const NOTE_MS = 10_000
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

export interface UsageOptions {
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
  readonly #toLookAt = new Set<string>()
  /** What has been written at the most to databases that were not looked at since. */
  readonly #written = new Map<string, Size>()
  readonly #toNote = new Set<string>()
  #cancelLook: (() => void) | null = null
  #cancelNote: (() => void) | null = null
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
    this.#toLookAt.delete(name)
    this.#written.delete(name)
    this.#forgetSum(name)
    if (this.#sizes.delete(name)) this.#note(name)
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
      for (const name of this.#options.owners.databasesOf(account)) sum = plus(sum, this.of(name))
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
    this.#written.set(name, plus(this.#written.get(name) ?? NOTHING, most))
  }

  /** What has been written to a database at the most since it was looked at; null: nothing. */
  unseen(name: string): Size | null {
    return this.#written.get(name) ?? null
  }

  /** Looks at some databases now; never rejects. */
  async lookAtAll(names: readonly string[]): Promise<void> {
    for (const name of names) this.#toLookAt.add(name)
    await this.#look()
  }

  /** Looks at what was written to and not looked at since. */
  async settle(): Promise<void> {
    await this.#look()
  }

  #changed(name: string): void {
    if (this.#isClosed) return
    this.#toLookAt.add(name)
    this.#cancelLook ??= this.#options.clock.after(LOOK_MS, () => {
      this.#cancelLook = null
      void this.#look()
    })
  }

  /** One look after the other; never rejects. */
  #look(): Promise<unknown> {
    this.#work = this.#work.then(async () => {
      const names = [...this.#toLookAt]
      this.#toLookAt.clear()
      const looking = Array.from({ length: AT_ONCE }, async () => {
        for (let name = names.pop(); name !== undefined; name = names.pop()) await this.#lookAt(name)
      })
      await Promise.all(looking)
    })
    return this.#work
  }

  async #lookAt(name: string): Promise<void> {
    const written = this.#written.get(name)
    try {
      const { sizes, doc_count } = await this.#options.databases.get(name).info(HOUSE)
      if (!this.#watches.has(name)) return
      // What was written meanwhile is looked at again.
      if (this.#written.get(name) === written) this.#written.delete(name)
      const before = this.#sizes.get(name)
      if (before?.bytes === sizes.active && before.documents === doc_count) return
      this.#sizes.set(name, { bytes: sizes.active, documents: doc_count })
      this.#forgetSum(name)
      this.#note(name)
    } catch {
      // It is gone, or its thread has died: its next write brings it back.
    }
  }

  #forgetSum(name: string): void {
    const account = this.#options.owners.recordOf(name)?.account
    if (account !== undefined) this.#sums.delete(account)
  }

  #note(name: string): void {
    this.#toNote.add(name)
    if (this.#isClosed) return
    this.#cancelNote ??= this.#options.clock.after(NOTE_MS, () => {
      this.#cancelNote = null
      this.#work = this.#work.then(() => this.#writeNotes())
    })
  }

  async #writeNotes(): Promise<void> {
    const names = [...this.#toNote]
    this.#toNote.clear()
    for (let at = 0; at < names.length; at += BATCH) {
      const batch = names.slice(at, at + BATCH)
      const writes = batch.map((key) => ({ kind: KIND, key, value: written(this.#sizes.get(key)) }))
      await this.#options.store.writeRecords(writes).catch((fault: unknown) => {
        this.#options.onFault(fault)
        for (const name of batch) this.#note(name)
      })
    }
  }

  /** Stops looking, and notes what is known. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelLook?.()
    this.#cancelNote?.()
    for (const unwatch of this.#watches.values()) unwatch()
    await this.#work
    await this.#writeNotes()
  }
}

function plus(a: Size, b: Size): Size {
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
