/**
 * A storage engine in memory, for tests. It honours the whole contract of src/storage/engine.ts with Maps and
 * sorted arrays: a commit is a draft of the database's state that takes the place of the committed one.
 *
 * What a callback is handed stops working when the callback returns, so that a test over this engine finds code
 * that keeps it.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { CouchError } from '../../src/core/errors.ts'
import type { Catalog, DatabaseEntry, ServerRecord } from '../../src/storage/catalog.ts'
import type { DatabaseStore, StorageEngine } from '../../src/storage/engine.ts'
import { emptyState } from '../storage/memory/state.ts'
import { type DatabaseRecord, MemoryStore, type Operate } from '../storage/memory/store.ts'
import { MemoryUpdates } from '../storage/memory/updates.ts'

export interface MemoryEngineOptions {
  /** Called before every operation of the engine; what it throws is a fault of the disk there. */
  readonly onOperation?: (operation: string) => void
  /** The time, in ms since 1970; by default the clock's. */
  readonly now?: () => number
}

interface ContentsCount {
  /** The contents that a database keeps, whether anything names them or not. */
  keptContents(database: string): { readonly blobs: number; readonly bytes: number }
}

/** Makes an empty engine. What was closed is found again when it is opened again from the same engine. */
export function memoryEngine(options: MemoryEngineOptions = {}): StorageEngine & ContentsCount {
  const operate = (operation: string) => {
    try {
      options.onOperation?.(operation)
    } catch (cause) {
      throw new CouchError('internal_server_error', undefined, { cause })
    }
  }
  return new MemoryEngine(operate, options.now ?? Date.now)
}

class MemoryEngine implements StorageEngine, ContentsCount {
  readonly capabilities = { durable: false, sharedWriters: false }
  readonly #operate: Operate
  readonly #now: () => number
  readonly #serverUuid = randomBytes(16).toString('hex')
  readonly #databases = new Map<string, DatabaseRecord>()
  readonly #stores = new Set<MemoryStore>()
  readonly #updates = new MemoryUpdates()
  #records = new Map<string, ServerRecord>()
  #lastIncarnation = 0
  #holder: string | null = null

  constructor(operate: Operate, now: () => number) {
    this.#operate = operate
    this.#now = now
  }

  async openCatalog(): Promise<Catalog> {
    await turn()
    if (this.#holder !== null) throw new Error(`The catalog is held by ${this.#holder}.`)
    this.#holder = `process ${process.pid}`
    this.#updates.reopen()
    return {
      serverUuid: this.#serverUuid,
      list: async () => {
        this.#operate('list databases')
        return [...this.#databases.values()].map(({ name, incarnation }) => ({ name, incarnation }))
      },
      create: (name) => this.#create(name),
      delete: (name) => this.#delete(name),
      noteUpdated: async (names) => {
        await turn()
        this.#operate('note updates')
        this.#updates.note(
          names.filter((name) => this.#databases.has(name)),
          'updated',
        )
      },
      readUpdates: async (range, limit) => {
        this.#operate('read updates')
        return this.#updates.read(range, limit)
      },
      readRecords: async (kind) => {
        this.#operate('read records')
        return [...this.#records.values()]
          .filter((record) => record.kind === kind)
          .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))
      },
      writeRecords: async (writes) => {
        await turn()
        this.#operate('write records')
        const records = new Map(this.#records)
        for (const { kind, key, value } of writes) {
          if (value === null) records.delete(JSON.stringify([kind, key]))
          else records.set(JSON.stringify([kind, key]), { kind, key, value })
        }
        this.#records = records
      },
    }
  }

  async #create(name: string): Promise<DatabaseEntry> {
    await turn()
    this.#operate('create database')
    if (this.#databases.has(name)) throw new CouchError('file_exists')
    const incarnation = ++this.#lastIncarnation
    const createdAt = Math.floor(Date.now() / 1000)
    this.#databases.set(name, { name, incarnation, createdAt, state: emptyState(), now: this.#now })
    this.#updates.note([name], 'created')
    return { name, incarnation }
  }

  async #delete(name: string): Promise<void> {
    await turn()
    this.#operate('delete database')
    if (!this.#databases.delete(name)) throw new CouchError('no_database')
    this.#updates.note([name], 'deleted')
  }

  keptContents(database: string): { blobs: number; bytes: number } {
    const state = this.#databases.get(database)?.state
    const pieces = [...(state?.blobs.values() ?? []), ...[...(state?.staged.values() ?? [])].flat()]
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
    return { blobs: (state?.blobs.size ?? 0) + (state?.staged.size ?? 0), bytes }
  }

  async openDatabase(name: string): Promise<DatabaseStore> {
    await turn()
    this.#operate('open database')
    const record = this.#databases.get(name)
    if (record === undefined) throw new CouchError('no_database')
    const store = new MemoryStore(record, this.#operate)
    this.#stores.add(store)
    return store
  }

  async close(): Promise<void> {
    await Promise.all([...this.#stores].map((store) => store.close()))
    this.#stores.clear()
    this.#holder = null
  }
}
