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
import { METHODS } from './methods.ts'
import type { ServedDatabase, ThreadEvent } from './thread-protocol.ts'

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
