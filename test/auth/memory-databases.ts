/** Databases over the engine in memory as the HTTP thread sees them, `_users` with its rules, and events. */
import { changesPage } from '../../src/changes/filtered-page.ts'
import type { ChangesSource } from '../../src/changes/page.ts'
import { CouchError } from '../../src/core/errors.ts'
import { USERS_DATABASE, userDocId } from '../../src/core/ids.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES, type SecurityObject } from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { usersDatabase } from '../../src/documents/users-database.ts'
import { compileRegex } from '../../src/query/regex.ts'
import type { CatalogChange, RecordRange, RecordWrite } from '../../src/storage/records.ts'
import type { DatabaseEvent, DatabaseHandle, Databases } from '../../src/threads/databases.ts'
import { ADMIN, body, type Json, parse } from '../documents/helpers.ts'
import { foundIn } from '../helpers/found-handles.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'

export interface MemoryDatabases {
  readonly databases: Databases
  /** How often a document of each id was read. */
  readonly opened: Map<string, number>
  /** Awaited before each reading of a document. */
  beforeOpen: () => Promise<void> | void
  /** Awaited before each page of a feed. */
  beforeChanges: () => Promise<void> | void
  emit(name: string, event: DatabaseEvent): void
  /** Writes a user's document over the one that is there, with these members beside the usual ones. */
  putUser(name: string, doc?: Record<string, unknown>): Promise<void>
  getUser(name: string): Promise<Json>
  removeUser(name: string): Promise<void>
}

/** Databases with an empty `_users`, open to everybody. */
export async function memoryDatabases(): Promise<MemoryDatabases> {
  const engine = memoryEngine()
  const catalog = await engine.openCatalog()
  const handles = new Map<string, DatabaseHandle>()
  const listeners = new Map<string, Set<(event: DatabaseEvent) => void>>()
  const updateListeners = new Set<() => void>()
  const sandbox = localSandbox()
  const emit = (name: string, event: DatabaseEvent) => {
    for (const listener of [...(listeners.get(name) ?? [])]) listener(event)
  }
  const tellUpdated = () => {
    for (const listener of updateListeners) listener()
  }

  const open = async (name: string, incarnation: number): Promise<DatabaseHandle> => {
    const store = await engine.openDatabase(name)
    const options = {
      name,
      limits: () => DEFAULT_LIMITS,
      rules: () => ({ ...DEFAULT_RULES, hashing: { iterations: 10, prf: 'sha256' } }),
      onSecured: (security: SecurityObject) => emit(name, { type: 'secured', security }),
      sandbox,
      incarnation,
      startCompaction: async () => {},
      compilePattern: compileRegex,
    }
    const database: Database =
      name === USERS_DATABASE ? await usersDatabase(store, options) : storeDatabase(store, options)
    const watchers = new Set<(event: DatabaseEvent) => void>()
    listeners.set(name, watchers)
    store.onEvent((event) => {
      if (event.type !== 'committed') return
      for (const watcher of [...watchers]) watcher({ type: 'committed', updateSeq: event.updateSeq })
    })
    return {
      ...database,
      open: async (...[user, id, asked]: Parameters<Database['open']>) => {
        world.opened.set(id, (world.opened.get(id) ?? 0) + 1)
        await world.beforeOpen()
        return database.open(user, id, asked)
      },
      changes: async (...[user, request]: Parameters<ChangesSource['changes']>) => {
        await world.beforeChanges()
        return changesPage(store, user, request, { sandbox, name, incarnation })
      },
      name,
      incarnation,
      securityCopy: () => database.security(),
      watch: (listener: (event: DatabaseEvent) => void) => {
        watchers.add(listener)
        return () => watchers.delete(listener)
      },
    } as unknown as DatabaseHandle
  }

  const databases = {
    ...foundIn(handles),
    create: async (name: string) => {
      if (handles.has(name)) throw new CouchError('file_exists')
      const { incarnation } = await catalog.create(name)
      handles.set(name, await open(name, incarnation))
      tellUpdated()
    },
    delete: async (name: string) => {
      if (!handles.delete(name)) throw new CouchError('no_database')
      emit(name, { type: 'closed' })
      await catalog.delete(name)
      tellUpdated()
    },
    usersDatabase: USERS_DATABASE,
    watchUpdates: (listener: () => void) => {
      updateListeners.add(listener)
      return () => updateListeners.delete(listener)
    },
    readRecords: (kind: string, keys: readonly string[]) => catalog.readRecords(kind, keys),
    listRecords: (kind: string, range: RecordRange, limit: number) => catalog.listRecords(kind, range, limit),
    writeRecords: (writes: readonly RecordWrite[]) => catalog.writeRecords(writes),
    watchCatalog: (listener: (change: CatalogChange) => void) => catalog.watch(listener),
  } as unknown as Databases

  const users = async () => (await databases.get(USERS_DATABASE)) as unknown as Database
  const revOf = async (name: string): Promise<string | undefined> => {
    const found = await (await users()).open(ADMIN, userDocId(name), {}).catch(() => null)
    return found === null ? undefined : parse(found.json)._rev
  }
  const world: MemoryDatabases = {
    databases,
    opened: new Map(),
    beforeOpen: () => {},
    beforeChanges: () => {},
    emit,
    putUser: async (name, doc = {}) => {
      const _rev = await revOf(name)
      const whole = { name, type: 'user', roles: [], ...(_rev && { _rev }), ...doc }
      await (await users()).put(ADMIN, userDocId(name), body(whole), {})
    },
    getUser: async (name) => parse((await (await users()).open(ADMIN, userDocId(name), {})).json),
    removeUser: async (name) => {
      await (await users()).remove(ADMIN, userDocId(name), await revOf(name))
    },
  }
  await databases.create(USERS_DATABASE)
  return world
}
