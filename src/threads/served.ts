/** A database over its open store, as its thread serves it. */
import { readFilterBody } from '../changes/filters.ts'
import { changesPage } from '../changes/page.ts'
import { holdsAccounts } from '../core/ids.ts'
import type { SecurityObject, Settings, Space, UserCtx } from '../core/types.ts'
import { policySandbox } from '../documents/document-policy.ts'
import { requireDatabaseAdmin, requireServerAdmin } from '../documents/security.ts'
import { storeDatabase } from '../documents/store-database.ts'
import type { MassDeletion } from '../documents/time-machine/time-machine-calls.ts'
import { usersDatabase } from '../documents/users-database.ts'
import { storeFind } from '../query/find.ts'
import { Budget, compileRegex } from '../query/regex.ts'
import type { ViewMemory } from '../query/view-index.ts'
import { refusedViews, storeViews } from '../query/views.ts'
import type { SandboxClient } from '../sandbox/sandbox-client.ts'
import type { Catalog } from '../storage/catalog.ts'
import type { RememberingStore } from '../storage/history-store.ts'
import type { StorageEngine } from '../storage/storage-engine.ts'
import { type CatalogAct, METHODS, type Reply, type ServedDatabase } from './wire.ts'

/** What of its thread a database is served with. */
interface Served {
  readonly name: string
  readonly incarnation: number
  settings(): Settings
  space(): Space
  readonly functions: SandboxClient
  readonly views: ViewMemory
  startCompaction(): void
  /** Tells the HTTP thread. */
  tell(reply: Reply): void
}

/** @returns what is asked of it, by the names of wire.ts */
export async function served(store: RememberingStore, around: Served): Promise<ServedDatabase> {
  const { name, incarnation, views, tell } = around
  const { policy } = around.settings().rules
  const sandbox = policySandbox(policy, around.functions.sandbox, name)
  const house = policy.designDocs ? { sandbox, name, incarnation } : null
  const options = {
    name,
    limits: () => around.settings().limits,
    rules: () => around.settings().rules,
    space: () => around.space(),
    onSecured: (security: SecurityObject) => tell({ type: 'secured', incarnation, security }),
    onMassDeletion: (found: MassDeletion) => tell({ type: 'alarm', incarnation, found }),
    sandbox,
    incarnation,
    startCompaction: () => around.startCompaction(),
    viewBytes: () => views.bytesOf(store),
  }
  const isUsers = holdsAccounts(name, around.settings().rules.users.database)
  const documents = isUsers
    ? await usersDatabase(store, { ...options, compilePattern })
    : storeDatabase(store, options)
  // What `_users` is made with is no news of it: nothing is told of before now.
  store.onCommit((updateSeq, epoch) => tell({ type: 'committed', incarnation, updateSeq, epoch }))
  const database: ServedDatabase = {
    ...documents,
    ...(policy.designDocs ? storeViews({ store, sandbox, incarnation, memory: views }) : refusedViews(store)),
    ...storeFind(store, name, () => around.settings().rules.find),
    changes: (user, request) => changesPage(store, user, request, house),
    readFilterBody: async (_user, body, withText) => readFilterBody(body, withText),
  }
  return isUsers ? servedUsers(database, () => database.security()) : database
}

/** A test of a pattern that holds the thread for a bounded time, however long the text. */
function compilePattern(pattern: string): (text: string) => boolean {
  return compileRegex(pattern, new Budget().spend)
}

// `_users` as a database thread serves it: what is about more than single documents is for admins; protocol.md 11.4.

/** Who may call a method; `itself`: it has rules of its own (documents/users-database.ts), or shows nothing of users. */
type Callers = 'itself' | 'admins' | 'server admins'

/** A method that nobody has thought about would not compile. */
const CALLERS: Readonly<Record<keyof ServedDatabase, Callers>> = {
  info: 'itself',
  size: 'itself',
  security: 'itself',
  countDisallowed: 'itself',
  exportLines: 'server admins',
  setSecurity: 'itself',
  revsLimit: 'itself',
  setRevsLimit: 'admins',
  compact: 'itself',
  purge: 'server admins',
  purgedInfos: 'admins',
  purgedInfosLimit: 'server admins',
  setPurgedInfosLimit: 'server admins',
  history: 'admins',
  overwritten: 'admins',
  version: 'admins',
  rewind: 'admins',
  open: 'itself',
  openRevs: 'itself',
  openParts: 'itself',
  openRevsMixed: 'itself',
  put: 'itself',
  post: 'itself',
  postForm: 'itself',
  remove: 'itself',
  copy: 'itself',
  bulkDocs: 'itself',
  bulkGet: 'itself',
  bulkGetMixed: 'itself',
  revsDiff: 'admins',
  missingRevs: 'admins',
  allDocs: 'server admins',
  allDocsQueries: 'server admins',
  openAttachment: 'itself',
  // Of what openAttachment has found.
  readAttachment: 'itself',
  putAttachment: 'itself',
  removeAttachment: 'itself',
  view: 'admins',
  viewQueries: 'admins',
  viewInfo: 'admins',
  find: 'server admins',
  explain: 'server admins',
  indexes: 'admins',
  changes: 'server admins',
  readFilterBody: 'itself',
}

type Call = (user: UserCtx, ...args: readonly unknown[]) => Promise<unknown>
type Stream = (user: UserCtx, ...args: readonly unknown[]) => AsyncIterable<Uint8Array>

/**
 * Keeps methods of `_users` for admins.
 * @param database all or some of the methods
 * @param security reads the security object as it stands
 */
export function servedUsers<Some extends Partial<ServedDatabase>>(
  database: Some,
  security: () => Promise<SecurityObject | null>,
): Some {
  const check = async (callers: Callers, user: UserCtx) => {
    if (callers === 'server admins') requireServerAdmin(user)
    else requireDatabaseAdmin(user, await security())
  }
  const guarded = Object.entries(CALLERS).flatMap(([name, callers]) => {
    const method = database[name as keyof ServedDatabase]
    if (method === undefined || callers === 'itself') return []
    const guard = (user: UserCtx) => check(callers, user)
    const isStream = METHODS[name as keyof ServedDatabase] === 'stream'
    return [[name, isStream ? guardedStream(method as Stream, guard) : guardedCall(method as Call, guard)]]
  })
  return { ...database, ...(Object.fromEntries(guarded) as Partial<Some>) }
}

function guardedCall(call: Call, guard: (user: UserCtx) => Promise<void>): Call {
  return async (user, ...args) => {
    await guard(user)
    return call(user, ...args)
  }
}

function guardedStream(stream: Stream, guard: (user: UserCtx) => Promise<void>): Stream {
  return async function* (user, ...args) {
    await guard(user)
    yield* stream(user, ...args)
  }
}

// How the calls of a database go together on its thread: what takes long, what is waited for, what can wait.

type Method = keyof ServedDatabase

const LONG_CALLS: ReadonlySet<Method> = new Set(['revsDiff', 'missingRevs', 'overwritten'])

const SAVES: ReadonlySet<Method> = new Set([
  'put',
  'post',
  'remove',
  'copy',
  'putAttachment',
  'removeAttachment',
])

const SCANS: ReadonlySet<Method> = new Set([
  'changes',
  'allDocs',
  'allDocsQueries',
  'bulkGet',
  'bulkGetMixed',
  'exportLines',
  'view',
  'viewQueries',
  'find',
])

/** Whether a call is about many documents, and so may take longer than a message waits for others. */
export function isLong(method: Method): boolean {
  return METHODS[method] === 'stream' || LONG_CALLS.has(method)
}

/** Whether a call writes one document: a person, or a device that has just changed something, waits for it. */
export function isSave(method: Method): boolean {
  return SAVES.has(method)
}

/** Whether a call reads much, page by page: whoever asks for one page reads on for a while, and lets others go first. */
export function isScan(method: Method): boolean {
  return SCANS.has(method)
}

// The catalog on the thread that holds it.

export class CatalogHost {
  readonly #engine: Pick<StorageEngine, 'openCatalog'>
  #catalog: Promise<Catalog> | undefined

  constructor(engine: Pick<StorageEngine, 'openCatalog'>) {
    this.#engine = engine
  }

  /** Does what is asked of it; opens it first where that was not done yet. @throws as the methods of Catalog */
  async act(act: CatalogAct): Promise<unknown> {
    const catalog = await this.#open(act.act === 'open' ? act.serverFile : undefined)
    if (act.act === 'create') return catalog.create(act.name)
    if (act.act === 'delete') return catalog.delete(act.name)
    if (act.act === 'replace') return catalog.replace(act.name, act.draft)
    if (act.act === 'discard') return catalog.discard(act.name, act.draft)
    if (act.act === 'noteUpdated') return catalog.noteUpdated(act.names, act.marks)
    if (act.act === 'readUpdates') return catalog.readUpdates(act.range, act.limit)
    if (act.act === 'readRecords') return catalog.readRecords(act.kind)
    if (act.act === 'writeRecords') return catalog.writeRecords(act.writes)
    if (act.act === 'copy') return catalog.copyTo(act.path)
    return { serverUuid: catalog.serverUuid, databases: await catalog.list() }
  }

  #open(serverFile?: string): Promise<Catalog> {
    this.#catalog ??= this.#engine.openCatalog(serverFile).catch((error: unknown) => {
      this.#catalog = undefined
      throw error
    })
    return this.#catalog
  }
}
