/**
 * Locks of the lockout as records, so that a client that is locked out by one node is locked out by all. Below the
 * threshold each node counts for itself: with n nodes, a client has n times as many tries.
 */
import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import { jsonObjectIn } from '../core/json.ts'
import { RecordSweep } from '../storage/record-sweep.ts'
import { allRecords, type ServerRecord, type WatchedRecords } from '../storage/records.ts'

const KIND = 'lockout'
/** Locks of one node at the same time that others learn of; further ones stay its own. */
const MAX_LOCKS = 1000
/** Locks in one write, and records that are read at once. */
const BATCH = 500

interface SharedLocksOptions {
  readonly records: WatchedRecords
  /** Takes a lock of another node. @param ms for which it lasts */
  lock(name: string, ms: number): void
  /** Called if locks cannot be read or written. */
  onFault(fault: unknown): void
  /** The time, in ms since 1970; for tests. */
  readonly now?: () => number
}

export class SharedLocks {
  readonly #options: SharedLocksOptions
  readonly #now: () => number
  readonly #sweep: RecordSweep
  readonly #unwatch: () => void
  /** Locks that this node has published and that last. */
  readonly #own = new LRUCache<string, true>({ ...atMost(MAX_LOCKS), ttl: 1 })
  /** The locks that are not written yet, and when they end, in ms since 1970. */
  readonly #unwritten = new Map<string, number>()
  #writing: Promise<void> | null = null
  #reading: Promise<unknown> = Promise.resolve()

  constructor(options: SharedLocksOptions) {
    this.#options = options
    this.#now = options.now ?? Date.now
    const { records, onFault } = options
    const isExpired = (value: string) => untilIn(value) < this.#now()
    this.#sweep = new RecordSweep({ records, kind: KIND, isExpired, onFault })
    this.#unwatch = records.watchCatalog((change) => {
      if (change.type === 'any') this.#read(() => this.#readAll())
      else if (change.type === 'records' && change.kind === KIND) {
        const others = change.keys.filter((key) => !this.#own.has(key))
        if (others.length > 0) this.#read(() => this.#readSome(others))
      }
    })
    this.#read(() => this.#readAll())
  }

  /** Tells the other nodes of a lock. @param ms for which it lasts */
  publish(name: string, ms: number): void {
    if (this.#own.size >= MAX_LOCKS) this.#own.purgeStale()
    if (this.#own.size >= MAX_LOCKS) return
    this.#own.set(name, true, { ttl: ms })
    this.#unwritten.set(name, this.#now() + ms)
    this.#writing ??= this.#write().finally(() => {
      this.#writing = null
    })
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const { records, onFault } = this.#options
    while (this.#unwritten.size > 0) {
      const batch = [...this.#unwritten].slice(0, BATCH)
      for (const [name] of batch) this.#unwritten.delete(name)
      const writes = batch.map(([key, until]) => ({ kind: KIND, key, value: JSON.stringify({ until }) }))
      await records.writeRecords(writes).catch(onFault)
      this.#sweep.step()
    }
  }

  #read(work: () => Promise<void>): void {
    this.#reading = this.#reading.then(work).catch(this.#options.onFault)
  }

  async #readAll(): Promise<void> {
    for await (const record of allRecords(this.#options.records, KIND)) this.#take(record)
  }

  async #readSome(keys: readonly string[]): Promise<void> {
    for (let at = 0; at < keys.length; at += BATCH) {
      const some = keys.slice(at, at + BATCH)
      const values = await this.#options.records.readRecords(KIND, some)
      for (const [index, key] of some.entries()) this.#take({ key, value: values[index] ?? '' })
    }
  }

  #take({ key, value }: Pick<ServerRecord, 'key' | 'value'>): void {
    const left = untilIn(value) - this.#now()
    if (left > 0) this.#options.lock(key, left)
  }

  /** Call it before the databases are closed. */
  async close(): Promise<void> {
    this.#unwatch()
    await this.#writing
    await this.#reading
    await this.#sweep.close()
  }
}

/** @returns 0 for none, or for a record that this version does not understand */
function untilIn(value: string): number {
  const { until } = jsonObjectIn(value) ?? {}
  return typeof until === 'number' ? until : 0
}
