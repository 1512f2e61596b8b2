/** A bounded cache of one kind's records, for state that every request asks for. */
import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import { readRecord, type WatchedRecords } from './records.ts'

interface RecordCacheOptions<Value> {
  readonly records: Pick<WatchedRecords, 'readRecords' | 'watchCatalog'>
  readonly kind: string
  /** The maximum number of values; the least recently used are forgotten first. */
  readonly max: number
  /** @param text null: there is no record */
  parse(text: string | null, key: string): Value
}

/** Values that are remembered until their record changes, on this node or another. */
export class RecordCache<Value extends object> {
  readonly #options: RecordCacheOptions<Value>
  readonly #values: LRUCache<string, Value>
  /** Reads under way. One that a change overtakes is removed, so that its value is not remembered. */
  readonly #reads = new Map<string, Promise<Value>>()
  readonly #unwatch: () => void

  constructor(options: RecordCacheOptions<Value>) {
    this.#options = options
    this.#values = new LRUCache(atMost(options.max))
    this.#unwatch = options.records.watchCatalog((change) => {
      if (change.type === 'any') this.#forgetAll()
      else if (change.type === 'records' && change.kind === options.kind) this.#forget(change.keys)
    })
  }

  /** @returns the value if it is known, so that a caller need not wait; undefined: use {@link get} */
  known(key: string): Value | undefined {
    return this.#values.get(key)
  }

  /**
   * Reads the record unless its value is known. Calls for one key share a read.
   * @throws as `readRecords`, and what `parse` throws; nothing is remembered then
   */
  get(key: string): Value | Promise<Value> {
    return this.#values.get(key) ?? this.#reads.get(key) ?? this.#read(key)
  }

  #read(key: string): Promise<Value> {
    const { records, kind, parse } = this.#options
    const reading = readRecord(records, kind, key).then((text) => {
      const value = parse(text, key)
      if (this.#reads.get(key) === reading) this.#values.set(key, value)
      return value
    })
    this.#reads.set(key, reading)
    const ended = () => {
      if (this.#reads.get(key) === reading) this.#reads.delete(key)
    }
    reading.then(ended, ended)
    return reading
  }

  #forget(keys: readonly string[]): void {
    for (const key of keys) {
      this.#values.delete(key)
      this.#reads.delete(key)
    }
  }

  #forgetAll(): void {
    this.#values.clear()
    this.#reads.clear()
  }

  /** Stops following the changes of records. */
  close(): void {
    this.#unwatch()
  }
}
