/** The methods of a database on its thread, over its open store, and the properties of each method. */

import { changesPage } from '../changes/filtered-page.ts'
import { readFilterBody } from '../changes/filters.ts'
import { holdsAccounts, holdsReplications, isListedByServerAdmins } from '../core/ids.ts'
import type { SecurityObject, Settings, Space, UserCtx } from '../core/types.ts'
import { refusedCouchapps, storeCouchapps } from '../couchapps/couchapps.ts'
import type { DisallowedContent } from '../documents/database.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import { policySandbox } from '../documents/document-policy.ts'
import { requireDatabaseAdmin, requireServerAdmin } from '../documents/security.ts'
import { storeDatabase } from '../documents/store-database.ts'
import { usersDatabase } from '../documents/users-database.ts'
import { DesignIndexes } from '../query/design-indexes.ts'
import { viewSignatures } from '../query/design-views.ts'
import { storeFind } from '../query/find.ts'
import { storeIndexes } from '../query/index-changes.ts'
import { IndexList } from '../query/index-list.ts'
import { storeIndexReport } from '../query/index-report.ts'
import type { Grow } from '../query/index-updater.ts'
import type { MangoIndex } from '../query/mango-index.ts'
import { openMangoIndexes, signatureOfIndex } from '../query/mango-rows.ts'
import { compileRegex } from '../query/regex.ts'
import type { SkippedDocument } from '../query/view-map.ts'
import { refusedViews, storeViews } from '../query/views.ts'
import { replicatorDatabase } from '../replication/requests/replicator-database.ts'
import type { SandboxClient } from '../sandbox/sandbox-client.ts'
import { LostUpdates } from '../storage/checkpoints.ts'
import type { VersionedStore } from '../storage/history-store.ts'
import type { IndexStores } from '../storage/index-store.ts'
import type { IndexGrowth } from './index-growth.ts'
import type { ServedDatabase, StreamMethod, ThreadEvent } from './thread-protocol.ts'

/** The parts of the thread that a database uses. */
interface ServingThread {
  readonly name: string
  readonly incarnation: number
  settings(): Settings
  space(): Space
  readonly functions: SandboxClient
  readonly indexes: IndexStores
  readonly growth: IndexGrowth
  startCompaction(): Promise<void>
  /** Another opener of the storage has deleted the database. */
  onDeleted(): void
  /** Sends an event to the HTTP thread. */
  sendEvent(event: ThreadEvent): void
}

/** @returns the methods that the HTTP thread calls by name (thread-protocol.ts) */
export async function serveDatabase(store: VersionedStore, thread: ServingThread): Promise<ServedDatabase> {
  const { name, incarnation, sendEvent } = thread
  const { policy } = thread.settings().rules
  const sandbox = policySandbox(policy, thread.functions.sandbox, name)
  const grow: Grow = (bytes, step) =>
    thread.settings().rules.hasQuotas ? thread.growth.run(incarnation, bytes, step) : step()
  const indexes = new DesignIndexes(store, thread.indexes, grow)
  const list = new IndexList(store)
  const functionContext = policy.designDocs ? { sandbox, name, incarnation } : null
  const onLost = () => sendEvent({ type: 'lost', incarnation })
  const options = {
    name,
    limits: () => thread.settings().limits,
    rules: () => thread.settings().rules,
    space: () => thread.space(),
    onSecured: (security: SecurityObject) => sendEvent({ type: 'secured', incarnation, security }),
    onMassDeletion: (found: MassDeletion) => sendEvent({ type: 'alarm', incarnation, found }),
    onLost,
    sandbox,
    incarnation,
    startCompaction: () => thread.startCompaction(),
    viewBytes: () => indexes.fileBytes(),
  }
  const onSkipped = oncePerView((ddoc, skipped) => sendEvent({ type: 'skipped', incarnation, ddoc, skipped }))
  const cleanUp = async () => {
    const used = await viewSignatures(store)
    for (const index of await list.read()) used.add(signatureOfIndex(index))
    await indexes.removeOthers(used)
    sendEvent({ type: 'indexed', incarnation })
  }
  const isUsers = holdsAccounts(name, thread.settings().rules.users.database)
  const documents = isUsers
    ? await usersDatabase(store, { ...options, compilePattern: compileRegex })
    : holdsReplications(name)
      ? replicatorDatabase(store, options)
      : storeDatabase(store, options)
  // Registered last: the initial contents of `_users` are not reported as a commit.
  store.onEvent((event) => {
    if (event.type === 'deleted') thread.onDeleted()
    else if (event.type === 'settings') sendEvent({ type: 'secured', incarnation, security: event.security })
    else sendEvent({ ...event, incarnation })
  })
  const views = policy.designDocs
    ? storeViews({ store, sandbox, incarnation, indexes, onSkipped, cleanUp })
    : refusedViews({ store, cleanUp })
  const database: ServedDatabase = {
    ...documents,
    ...views,
    ...(policy.designDocs
      ? storeCouchapps({ store, sandbox, incarnation, name, database: { ...documents, ...views } })
      : refusedCouchapps(store)),
    ...storeFind({
      store,
      name,
      rules: () => thread.settings().rules.find,
      indexes: list,
      openIndex: openMangoIndexes(indexes, onSkipped),
    }),
    countDisallowed: async () => withoutIndexDocuments(await documents.countDisallowed(), await list.read()),
    ...storeIndexReport({ store, indexes, runsFunctions: policy.designDocs }),
    ...storeIndexes({
      store,
      indexes: list,
      put: documents.put,
      cleanUp,
      fileBytes: () => indexes.fileBytes(),
    }),
    changes: (user, request) =>
      changesPage(store, user, request, functionContext).catch((error: unknown) => {
        if (error instanceof LostUpdates) onLost()
        throw error
      }),
    readFilterBody: async (_user, body, withText) => readFilterBody(body, withText),
  }
  if (isUsers) return servedUsers(database, () => database.security())
  return isListedByServerAdmins(name) ? listedByServerAdmins(database) : database
}

/** The maximum number of views that are remembered to have skipped a document. */
const MAX_REPORTED = 1000

type OnSkipped = (ddoc: string, skipped: SkippedDocument) => void

/** Reports the first document that a view skips: a function that fails often fails for each. */
function oncePerView(report: OnSkipped): OnSkipped {
  const reported = new Set<string>()
  return (ddoc, skipped) => {
    const view = `${ddoc} ${skipped.view}`
    if (reported.has(view) || reported.size >= MAX_REPORTED) return
    reported.add(view)
    report(ddoc, skipped)
  }
}

/** Indexes are allowed even where the policy refuses other design documents. */
function withoutIndexDocuments(found: DisallowedContent, indexes: readonly MangoIndex[]): DisallowedContent {
  return { ...found, designDocs: found.designDocs - new Set(indexes.map(({ ddoc }) => ddoc)).size }
}

/** The properties of a method. The compiler reports a method without a row. */
interface Method<M extends keyof ServedDatabase> {
  /** The kind of answer: `call` is one answer, `text` one answer with short bytes as texts, `stream` many chunks. */
  readonly kind: M extends StreamMethod ? 'stream' : 'call' | 'text'
  /**
   * Who may call the method in `_users` (protocol.md 11.4). `own rules`: the method checks its caller itself
   * (documents/users-database.ts), or shows nothing about users.
   */
  readonly users: 'own rules' | 'admins' | 'server admins'
  /**
   * `save`: writes one document, while a person or a device waits.
   * `scan`: reads many documents page by page, after other calls.
   * `long`: handles many documents without a pause.
   */
  readonly cost?: 'save' | 'scan' | 'long'
}

export const METHODS: { readonly [M in keyof ServedDatabase]: Method<M> } = {
  info: { kind: 'call', users: 'own rules' },
  partitionInfo: { kind: 'call', users: 'server admins', cost: 'scan' },
  checkPartition: { kind: 'call', users: 'own rules' },
  size: { kind: 'call', users: 'own rules' },
  conflicts: { kind: 'call', users: 'admins', cost: 'long' },
  brokenFunctions: { kind: 'call', users: 'server admins', cost: 'scan' },
  security: { kind: 'call', users: 'own rules' },
  countDisallowed: { kind: 'call', users: 'own rules' },
  damagedLeaves: { kind: 'call', users: 'own rules' },
  rememberTokens: { kind: 'call', users: 'own rules' },
  exportLines: { kind: 'stream', users: 'server admins', cost: 'scan' },
  setSecurity: { kind: 'call', users: 'own rules' },
  revsLimit: { kind: 'call', users: 'own rules' },
  setRevsLimit: { kind: 'call', users: 'admins' },
  copyLocals: { kind: 'call', users: 'server admins', cost: 'long' },
  compact: { kind: 'call', users: 'own rules' },
  purge: { kind: 'call', users: 'server admins' },
  giveUp: { kind: 'call', users: 'server admins', cost: 'long' },
  purgedInfos: { kind: 'call', users: 'admins' },
  purgedInfosLimit: { kind: 'call', users: 'server admins' },
  setPurgedInfosLimit: { kind: 'call', users: 'server admins' },
  history: { kind: 'call', users: 'admins' },
  overwritten: { kind: 'call', users: 'admins', cost: 'long' },
  version: { kind: 'stream', users: 'admins' },
  rewind: { kind: 'stream', users: 'admins' },
  open: { kind: 'text', users: 'own rules' },
  openRevs: { kind: 'stream', users: 'own rules' },
  openParts: { kind: 'call', users: 'own rules' },
  openRevsMixed: { kind: 'stream', users: 'own rules' },
  put: { kind: 'call', users: 'own rules', cost: 'save' },
  post: { kind: 'call', users: 'own rules', cost: 'save' },
  postForm: { kind: 'call', users: 'own rules' },
  remove: { kind: 'call', users: 'own rules', cost: 'save' },
  copy: { kind: 'call', users: 'own rules', cost: 'save' },
  bulkDocs: { kind: 'stream', users: 'own rules' },
  bulkGet: { kind: 'stream', users: 'own rules', cost: 'scan' },
  bulkGetMixed: { kind: 'stream', users: 'own rules', cost: 'scan' },
  revsDiff: { kind: 'text', users: 'admins', cost: 'long' },
  missingRevs: { kind: 'text', users: 'admins', cost: 'long' },
  allDocs: { kind: 'stream', users: 'server admins', cost: 'scan' },
  allDocsQueries: { kind: 'stream', users: 'server admins', cost: 'scan' },
  openAttachment: { kind: 'call', users: 'own rules' },
  // Reads only attachments that openAttachment has found.
  readAttachment: { kind: 'stream', users: 'own rules' },
  putAttachment: { kind: 'call', users: 'own rules', cost: 'save' },
  removeAttachment: { kind: 'call', users: 'own rules', cost: 'save' },
  view: { kind: 'stream', users: 'admins', cost: 'scan' },
  viewQueries: { kind: 'stream', users: 'admins', cost: 'scan' },
  viewInfo: { kind: 'call', users: 'admins' },
  compactViews: { kind: 'call', users: 'admins' },
  cleanUpViews: { kind: 'call', users: 'admins' },
  show: { kind: 'call', users: 'admins' },
  update: { kind: 'call', users: 'admins', cost: 'save' },
  list: { kind: 'stream', users: 'admins', cost: 'scan' },
  rewrite: { kind: 'call', users: 'admins' },
  find: { kind: 'stream', users: 'server admins', cost: 'scan' },
  explain: { kind: 'call', users: 'server admins' },
  indexes: { kind: 'call', users: 'admins' },
  indexReport: { kind: 'call', users: 'admins' },
  discardIndex: { kind: 'call', users: 'server admins' },
  createIndex: { kind: 'call', users: 'admins' },
  deleteIndex: { kind: 'call', users: 'admins' },
  deleteIndexes: { kind: 'call', users: 'admins' },
  indexUsage: { kind: 'call', users: 'own rules' },
  changes: { kind: 'call', users: 'server admins', cost: 'scan' },
  readFilterBody: { kind: 'call', users: 'own rules' },
}

/** Whether a call may take so long that finished answers must not wait for it. */
export function isLong(method: keyof ServedDatabase): boolean {
  const { kind, cost } = METHODS[method]
  return kind === 'stream' || cost === 'long'
}

type Call = (user: UserCtx, ...args: readonly unknown[]) => Promise<unknown>
type Stream = (user: UserCtx, ...args: readonly unknown[]) => AsyncIterable<Uint8Array>

/**
 * Restricts methods of `_users` to admins, as {@link METHODS} says.
 * @param database all or some of the methods
 * @param security reads the current security object
 */
export function servedUsers<Some extends Partial<ServedDatabase>>(
  database: Some,
  security: () => Promise<SecurityObject | null>,
): Some {
  const guarded = Object.entries(METHODS).flatMap(([name, { kind, users }]) => {
    const method = database[name as keyof ServedDatabase]
    if (method === undefined || users === 'own rules') return []
    const guard = async (user: UserCtx) => {
      if (users === 'server admins') requireServerAdmin(user)
      else requireDatabaseAdmin(user, await security())
    }
    const isStream = kind === 'stream'
    return [[name, isStream ? guardedStream(method as Stream, guard) : guardedCall(method as Call, guard)]]
  })
  return { ...database, ...(Object.fromEntries(guarded) as Partial<Some>) }
}

/** Restricts the lists of a database to server admins, but not those of its design and `_local` documents. */
function listedByServerAdmins(database: ServedDatabase): ServedDatabase {
  return {
    ...database,
    allDocs: (user, kind, ...query) => {
      if (kind === 'all') requireServerAdmin(user)
      return database.allDocs(user, kind, ...query)
    },
    allDocsQueries: (user, kind, ...queries) => {
      if (kind === 'all') requireServerAdmin(user)
      return database.allDocsQueries(user, kind, ...queries)
    },
    changes: async (user, request) => {
      requireServerAdmin(user)
      return database.changes(user, request)
    },
  }
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
