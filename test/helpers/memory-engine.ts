/**
 * A storage engine in memory, for tests. It implements the whole contract of src/storage/engine.ts with Maps and
 * sorted arrays: a commit replaces the database's state by a changed copy.
 *
 * The arguments of a callback stop working when it returns, so that tests find code that keeps them.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { CouchError } from '../../src/core/errors.ts'
import { checkServerUuid } from '../../src/core/ids.ts'
import type { Catalog, DatabaseEntry, DatabaseProperties, Replaced } from '../../src/storage/catalog.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import type { LastKnownSequence } from '../../src/storage/sequence.ts'
import type { OpenOptions, StorageEngine } from '../../src/storage/storage-engine.ts'
import type { RetainedVersions } from '../../src/storage/upkeep.ts'
import { type Lend, lend } from '../storage/memory/lending.ts'
import { MemoryRecords } from '../storage/memory/records.ts'
import { wearOf } from '../storage/memory/sizes.ts'
import { begunAnew, emptyState } from '../storage/memory/state.ts'
import { type DatabaseRecord, MemoryStore, type Operate } from '../storage/memory/store.ts'
import { MemoryUpdates } from '../storage/memory/updates.ts'

export interface MemoryEngineOptions {
  /** Called before every operation of the engine. An error that it throws acts as a disk fault. */
  readonly onOperation?: (operation: string) => void
  /** The time, in ms since 1970; by default, the system's. */
  readonly now?: () => number
  /** How documents are lent to callbacks: `strictLending` lends only what is declared. */
  readonly lend?: Lend
}

interface ContentsCount {
  /** All attachment contents that a database stores, even unreferenced ones. */
  keptContents(database: string): { readonly blobs: number; readonly bytes: number }
}

/** Makes an empty engine. A closed database can be reopened from the same engine. */
export function memoryEngine(options: MemoryEngineOptions = {}): StorageEngine & ContentsCount {
  const operate: Operate = (operation) => {
    try {
      options.onOperation?.(operation)
    } catch (cause) {
      throw new CouchError('internal_server_error', undefined, { cause })
    }
  }
  return new MemoryEngine(operate, options.now ?? Date.now, options.lend ?? lend)
}

class MemoryEngine implements StorageEngine, ContentsCount {
  readonly capabilities = { durable: false, sharedWriters: false }
  readonly copies = null
  readonly #operate: Operate
  readonly #now: () => number
  readonly #lend: Lend
  readonly #folderUuid = randomBytes(16).toString('hex')
  #serverUuid = this.#folderUuid
  readonly #databases = new Map<string, DatabaseRecord>()
  readonly #stores = new Set<MemoryStore>()
  readonly #updates = new MemoryUpdates()
  readonly #sequences = new Map<string, LastKnownSequence>()
  readonly #records = new MemoryRecords()
  #lastIncarnation = 0
  #holder: string | null = null

  constructor(operate: Operate, now: () => number, lendBy: Lend) {
    this.#operate = operate
    this.#now = now
    this.#lend = lendBy
  }

  async openCatalog(): Promise<Catalog> {
    await turn()
    if (this.#holder !== null) throw new Error(`The catalog is held by ${this.#holder}.`)
    this.#holder = `process ${process.pid}`
    this.#updates.reopen()
    const serverUuid = () => this.#serverUuid
    return {
      get serverUuid() {
        return serverUuid()
      },
      folderUuid: this.#folderUuid,
      adoptUuid: async (uuid) => {
        await turn()
        this.#operate('adopt uuid')
        checkServerUuid(uuid)
        this.#serverUuid = uuid
      },
      list: async () => {
        this.#operate('list databases')
        return [...this.#databases.values()].map(({ name, incarnation }) => {
          const lastKnown = this.#sequences.get(name)
          return { name, incarnation, ...(lastKnown && { lastKnown }) }
        })
      },
      create: (name, properties) => this.#create(name, properties),
      delete: (name) => this.#delete(name),
      replace: (name, draft) => this.#replace(name, draft),
      discard: async () => {},
      noteUpdated: async (names, sequences = []) => {
        await turn()
        this.#operate('note updates')
        for (const { name, epoch, updateSeq } of sequences) {
          if (this.#databases.has(name)) this.#sequences.set(name, { epoch, updateSeq })
        }
        this.#updates.note(
          names.filter((name) => this.#databases.has(name)),
          'updated',
        )
      },
      readUpdates: async (range, limit) => {
        this.#operate('read updates')
        return this.#updates.read(range, limit)
      },
      readRecords: async (kind, keys) => {
        this.#operate('read records')
        return this.#records.readRecords(kind, keys)
      },
      listRecords: async (kind, range, limit) => {
        this.#operate('list records')
        return this.#records.listRecords(kind, range, limit)
      },
      writeRecords: async (writes) => {
        this.#operate('write records')
        return this.#records.writeRecords(writes)
      },
      watch: (listener) => this.#records.watchCatalog(listener),
    }
  }

  async #create(name: string, { partitioned = false }: DatabaseProperties = {}): Promise<DatabaseEntry> {
    await turn()
    this.#operate('create database')
    if (this.#databases.has(name)) throw new CouchError('file_exists')
    const incarnation = ++this.#lastIncarnation
    const createdAt = Math.floor(Date.now() / 1000)
    const state = { ...emptyState(), partitioned }
    this.#databases.set(name, { name, incarnation, createdAt, state, now: this.#now })
    this.#sequences.delete(name)
    this.#updates.note([name], 'created')
    this.#records.tell({ type: 'databases', names: [name] })
    return { name, incarnation }
  }

  async #delete(name: string): Promise<void> {
    await turn()
    this.#operate('delete database')
    if (!this.#databases.delete(name)) throw new CouchError('no_database')
    this.#sequences.delete(name)
    this.#updates.note([name], 'deleted')
    this.#records.tell({ type: 'databases', names: [name] })
  }

  async #replace(name: string, draft: string | null): Promise<Replaced> {
    await turn()
    this.#operate('replace database')
    if (draft !== null) throw new CouchError('no_copies')
    const before = this.#databases.get(name)
    if (before === undefined) throw new CouchError('no_database')
    const incarnation = ++this.#lastIncarnation
    const createdAt = later(before.createdAt)
    this.#databases.set(name, { ...before, incarnation, createdAt, state: begunAnew(before.state) })
    this.#sequences.delete(name)
    this.#updates.note([name], 'created')
    this.#records.tell({ type: 'databases', names: [name] })
    return { name, incarnation, kept: null }
  }

  keptContents(database: string): { blobs: number; bytes: number } {
    const state = this.#databases.get(database)?.state
    const pieces = [...(state?.blobs.values() ?? []), ...[...(state?.staged.values() ?? [])].flat()]
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
    return { blobs: (state?.blobs.size ?? 0) + (state?.staged.size ?? 0), bytes }
  }

  async openDatabase(name: string, options: OpenOptions = {}): Promise<VersionedStore> {
    await turn()
    this.#operate('open database')
    const record = this.#databases.get(name)
    const { incarnation = record?.incarnation } = options
    if (record === undefined || record.incarnation !== incarnation) throw new CouchError('no_database')
    const store = new MemoryStore(record, this.#operate, this.#lend, options)
    this.#stores.add(store)
    return store
  }

  async retainedVersions(name: string): Promise<RetainedVersions> {
    await turn()
    this.#operate('kept bodies')
    const record = this.#databases.get(name)
    if (record === undefined) throw new CouchError('no_database')
    const { oldestRetained, compactedAt } = wearOf(record.state)
    return { oldestRetained: oldestRetained, compactedAt }
  }

  openIndexes(): never {
    throw new Error('the memory engine has no indexes')
  }

  async close(): Promise<void> {
    await Promise.all([...this.#stores].map((store) => store.close()))
    this.#stores.clear()
    this.#holder = null
  }
}

/** The time in seconds since 1970, but later than the previous one. */
function later(createdAt: number): number {
  return Math.max(Math.floor(Date.now() / 1000), createdAt + 1)
}
