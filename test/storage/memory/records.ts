/** Records in memory: several openers share one set of them, and learn of each other's changes. */
import { setImmediate as turn } from 'node:timers/promises'
import {
  type CatalogChange,
  changesOf,
  type RecordRange,
  type RecordWrite,
  type ServerRecord,
  type WatchedRecords,
} from '../../../src/storage/records.ts'

/** The state that openers share. */
export class SharedRecords {
  values = new Map<string, ServerRecord>()
  readonly openers = new Set<MemoryRecords>()
}

const byKey = (a: ServerRecord, b: ServerRecord) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))
const placeOf = (kind: string, key: string) => JSON.stringify([kind, key])

export class MemoryRecords implements WatchedRecords {
  readonly #shared: SharedRecords
  readonly #listeners = new Set<(change: CatalogChange) => void>()

  /** @param shared by default, records of its own */
  constructor(shared = new SharedRecords()) {
    this.#shared = shared
    shared.openers.add(this)
  }

  async readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    return keys.map((key) => this.#shared.values.get(placeOf(kind, key))?.value ?? null)
  }

  async listRecords(
    kind: string,
    { prefix = '', after }: RecordRange,
    limit: number,
  ): Promise<ServerRecord[]> {
    const isAfter = (key: string) => after === undefined || Buffer.from(key).compare(Buffer.from(after)) > 0
    return [...this.#shared.values.values()]
      .filter((record) => record.kind === kind && record.key.startsWith(prefix) && isAfter(record.key))
      .sort(byKey)
      .slice(0, limit)
  }

  async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    await turn()
    const values = new Map(this.#shared.values)
    for (const { kind, key, expected } of writes) {
      const present = values.get(placeOf(kind, key))?.value ?? null
      if (expected !== undefined && present !== expected) return false
    }
    for (const { kind, key, value } of writes) {
      if (value === null) values.delete(placeOf(kind, key))
      else values.set(placeOf(kind, key), { kind, key, value })
    }
    this.#shared.values = values
    for (const change of changesOf(writes)) this.tellAll(change)
    return true
  }

  watchCatalog(listener: (change: CatalogChange) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Tells this opener at once, and the others later. */
  tellAll(change: CatalogChange): void {
    this.tell(change)
    this.tellOthers(change)
  }

  tellOthers(change: CatalogChange): void {
    for (const other of this.#shared.openers) if (other !== this) setImmediate(() => other.tell(change))
  }

  tell(change: CatalogChange): void {
    for (const listener of this.#listeners) listener(change)
  }

  /** All records, in the order of their keys. For tests. */
  all(kind: string): ServerRecord[] {
    return [...this.#shared.values.values()].filter((record) => record.kind === kind).sort(byKey)
  }
}

/** Several openers of the same, empty records. */
export function sharedRecords(openers: number): MemoryRecords[] {
  const shared = new SharedRecords()
  return Array.from({ length: openers }, () => new MemoryRecords(shared))
}
