/**
 * A storage engine in memory, for tests. It implements the whole contract of src/storage/engine.ts with Maps and
 * sorted arrays: a commit replaces the database's state by a changed copy.
 *
 * The arguments of a callback stop working when it returns, so that tests find code that keeps them.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { CouchError } from '../../src/core/errors.ts'
import { checkServerUuid } from '../../src/core/ids.ts'
import type { Catalog, DatabaseEntry, DatabaseProperties, Replaced } from '../../src/storage/catalog.ts'
import { namesInRange } from '../../src/storage/catalog.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import type { CheckStep, OpenOptions, StorageEngine } from '../../src/storage/storage-engine.ts'
import type { RetainedVersions } from '../../src/storage/upkeep.ts'
import type { WithDocument } from '../storage/memory/document-scope.ts'
import { LOCAL, type Network } from '../storage/memory/network.ts'
import { MemoryOpener, type Mutant } from '../storage/memory/opener.ts'
import { MemoryRecords } from '../storage/memory/records.ts'
import { SharedMemory } from '../storage/memory/shared.ts'
import { wearOf } from '../storage/memory/sizes.ts'
import { begunAnew, emptyState } from '../storage/memory/state.ts'
import { MemoryStore, type Operate } from '../storage/memory/store.ts'
import { strictDocuments } from '../storage/memory/strict.ts'

export interface MemoryEngineOptions {
  /** Called before every operation of the engine. An error that it throws acts as a disk fault, unless it is ours. */
  readonly onOperation?: (operation: string) => void
  /** The time, in ms since 1970; by default, the system's. */
  readonly now?: () => number
  /** How documents are passed to callbacks; by default, only what is declared (memory/strict.ts). */
  readonly withDocument?: WithDocument
  /** What it shares with other openers; by default nothing. */
  readonly shared?: SharedMemory
  /** How it reaches the shared state; by default at once. */
  readonly network?: Network
  /** A fault that tests must find. */
  readonly mutant?: Mutant
}

interface TestControls {
  /** All attachment contents that a database stores, even unreferenced ones. */
  keptContents(database: string): { readonly blobs: number; readonly bytes: number }
  /** Ends the opener without any further message, as a kill of its process would. */
  die(): void
}

/** Makes an empty engine. A closed database can be reopened from the same engine. */
export function memoryEngine(options: MemoryEngineOptions = {}): StorageEngine & TestControls {
  const operate: Operate = (operation) => {
    try {
      options.onOperation?.(operation)
    } catch (cause) {
      throw cause instanceof CouchError
        ? cause
        : new CouchError('internal_server_error', undefined, { cause })
    }
  }
  return new MemoryEngine(operate, options)
}

class MemoryEngine implements StorageEngine, TestControls {
  readonly capabilities
  readonly copies = null
  readonly #operate: Operate
  readonly #now: () => number
  readonly #withDocument: WithDocument
  readonly #opener: MemoryOpener
  readonly #shared: SharedMemory
  readonly #stores = new Set<MemoryStore>()
  readonly #records: MemoryRecords

  constructor(operate: Operate, options: MemoryEngineOptions) {
    const { network = LOCAL, shared = new SharedMemory() } = options
    this.capabilities = { durable: false, sharedWriters: network.isShared }
    this.#operate = operate
    this.#now = options.now ?? Date.now
    this.#withDocument = options.withDocument ?? strictDocuments()
    this.#opener = new MemoryOpener(network, options.mutant)
    this.#shared = shared
    this.#records = new MemoryRecords(shared.records)
  }

  async openCatalog(): Promise<Catalog> {
    await turn()
    if (!this.capabilities.sharedWriters) {
      if (this.#shared.holder !== null) throw new Error(`The catalog is held by ${this.#shared.holder}.`)
      this.#shared.holder = `process ${process.pid}`
      this.#shared.updates.reopen()
    }
    const serverUuid = () => this.#shared.serverUuid
    return {
      get serverUuid() {
        return serverUuid()
      },
      folderUuid: this.#shared.folderUuid,
      adoptUuid: async (uuid) => {
        await turn()
        this.#operate('adopt uuid')
        checkServerUuid(uuid)
        this.#shared.serverUuid = uuid
      },
      find: async (name) => {
        this.#operate('find database')
        const incarnation = this.#shared.databases.get(name)?.incarnation
        const lastKnown = this.#shared.sequences.get(name)
        return incarnation === undefined ? null : { name, incarnation, ...(lastKnown && { lastKnown }) }
      },
      names: async (range, limit) => {
        this.#operate('list databases')
        return namesInRange([...this.#shared.databases.keys()].sort(), range, limit)
      },
      count: async () => this.#shared.databases.size,
      whenListed: async () => {},
      create: (name, properties) => this.#create(name, properties),
      delete: (name) => this.#delete(name),
      replace: (name, draft) => this.#replace(name, draft),
      discard: async () => {},
      noteUpdated: async (names, sequences = []) => {
        await turn()
        this.#operate('note updates')
        for (const { name, epoch, updateSeq } of sequences) {
          if (this.#shared.databases.has(name)) this.#shared.sequences.set(name, { epoch, updateSeq })
        }
        this.#shared.updates.note(
          names.filter((name) => this.#shared.databases.has(name)),
          'updated',
        )
        this.#records.tellOthers({ type: 'updates' })
      },
      readUpdates: async (range, limit) => {
        this.#operate('read updates')
        return this.#shared.updates.read(range, limit)
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

  async #create(
    name: string,
    { partitioned = false, shards = 1 }: DatabaseProperties = {},
  ): Promise<DatabaseEntry> {
    await turn()
    this.#operate('create database')
    if (this.#shared.databases.has(name)) throw new CouchError('file_exists')
    const createdAt = Math.floor(Date.now() / 1000)
    const state = { ...emptyState(), partitioned, shards }
    const { incarnation } = this.#shared.enter({ name, createdAt, state, now: this.#now })
    this.#shared.updates.note([name], 'created')
    this.#records.tellAll({ type: 'databases', names: [name] })
    return { name, incarnation }
  }

  async #delete(name: string): Promise<void> {
    await turn()
    this.#operate('delete database')
    if (!this.#shared.leave(name)) throw new CouchError('no_database')
    this.#shared.updates.note([name], 'deleted')
    this.#records.tellAll({ type: 'databases', names: [name] })
  }

  async #replace(name: string, draft: string | null): Promise<Replaced> {
    await turn()
    this.#operate('replace database')
    if (draft !== null) throw new CouchError('no_copies')
    const before = this.#shared.databases.get(name)
    if (before === undefined) throw new CouchError('no_database')
    const createdAt = later(before.createdAt)
    const state = begunAnew(before.state)
    const { incarnation } = this.#shared.enter({ name, createdAt, state, now: this.#now })
    this.#shared.updates.note([name], 'created')
    this.#records.tellAll({ type: 'databases', names: [name] })
    return { name, incarnation, kept: null }
  }

  keptContents(database: string): { blobs: number; bytes: number } {
    const state = this.#shared.databases.get(database)?.state
    const pieces = [...(state?.blobs.values() ?? []), ...[...(state?.staged.values() ?? [])].flat()]
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
    return { blobs: (state?.blobs.size ?? 0) + (state?.staged.size ?? 0), bytes }
  }

  async openDatabase(name: string, options: OpenOptions = {}): Promise<VersionedStore> {
    await turn()
    this.#operate('open database')
    const record = this.#shared.databases.get(name)
    const { incarnation = record?.incarnation } = options
    if (record === undefined || record.incarnation !== incarnation) throw new CouchError('no_database')
    const store = new MemoryStore(record, this.#operate, this.#withDocument, {
      ...options,
      opener: this.#opener,
    })
    this.#stores.add(store)
    return store
  }

  async retainedVersions(name: string): Promise<RetainedVersions> {
    await turn()
    this.#operate('kept bodies')
    const record = this.#shared.databases.get(name)
    if (record === undefined) throw new CouchError('no_database')
    const { oldestRetained, compactedAt } = wearOf(record.state)
    return { oldestRetained: oldestRetained, compactedAt }
  }

  /** Memory is not damaged. */
  async checkDatabase(): Promise<CheckStep> {
    return { next: null, share: 1, damage: null }
  }

  openIndexes(): never {
    throw new Error('the memory engine has no indexes')
  }

  async close(): Promise<void> {
    await Promise.all([...this.#stores].map((store) => store.close()))
    this.#stores.clear()
    this.#shared.holder = null
  }

  die(): void {
    this.#opener.die(this.#now())
    void this.close()
  }
}

/** The time in seconds since 1970, but later than the previous one. */
function later(createdAt: number): number {
  return Math.max(Math.floor(Date.now() / 1000), createdAt + 1)
}
