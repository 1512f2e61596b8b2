/** The views of design documents, protocol.md 9.3 and 9.5, on the thread that owns the database. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { QUERIES_SCHEMA, QUERY_SCHEMA, readQueries, readQuery } from '../documents/all-docs-query.ts'
import type { Body } from '../documents/database.ts'
import { requireJavascript } from '../documents/design-docs.ts'
import { readParameters } from '../documents/list-parameters.ts'
import { ChunkBuffer } from '../documents/pieces.ts'
import { bodyLength, bodyObject } from '../documents/request-body.ts'
import { requireMaintainer, requireMember } from '../documents/security.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import { COLLATION_VERSION } from './collation/collation-table.ts'
import { compareJson, compareRaw } from './collation.ts'
import type { DesignIndexes } from './design-indexes.ts'
import {
  type DesignDoc,
  definitionsOf,
  JAVASCRIPT,
  LIBRARY,
  orderOf,
  readDesignDoc,
  signatureOfViews,
} from './design-views.ts'
import { seqOf } from './index-reader.ts'
import type { IndexUpdater } from './index-updater.ts'
import { linkedDocuments } from './view-documents.ts'
import { builtinGroups, functionGroups, reducedRows } from './view-groups.ts'
import { type SkippedDocument, type ViewDefinition, viewRows } from './view-map.ts'
import { checkScope, emptyRange, readViewQuery, reduces, type ViewQuery, viewQuery } from './view-query.ts'
import { mapRows, openRows, type Selection, select, type ViewRows } from './view-rows.ts'

/** The query parameters of an address, as text. */
export type Parameters = readonly (readonly [name: string, text: string])[]

/** The view methods of a database thread. */
export interface ViewSource {
  /**
   * The answer of a view query as JSON in chunks.
   * @param ddoc `_design/name`
   * @throws not_found, deleted; not_found with `missing_named_view`; query_parse_error; key_too_long; the errors of
   *   the sandbox
   */
  view(
    user: UserCtx,
    ddoc: string,
    view: string,
    parameters: Parameters,
    body: Body | null,
  ): AsyncIterable<Uint8Array>
  /** Several queries of one view in one body. @param parameters what the queries do not say themselves */
  viewQueries(
    user: UserCtx,
    ddoc: string,
    view: string,
    body: Body,
    parameters: Parameters,
  ): AsyncIterable<Uint8Array>
  /** The answer of `_info` of a design document, as JSON. */
  viewInfo(user: UserCtx, ddoc: string): Promise<Uint8Array>
  /** Gives free space of a design document's indexes back to the file system. @throws not_found, deleted */
  compactViews(user: UserCtx, ddoc: string): Promise<void>
  /** Removes the indexes that no design document uses. */
  cleanUpViews(user: UserCtx): Promise<void>
}

interface ViewContext {
  readonly store: DatabaseStore
  readonly sandbox: Sandbox
  readonly incarnation: number
  readonly indexes: DesignIndexes
  readonly onSkipped: (ddoc: string, skipped: SkippedDocument) => void
  /** Removes the indexes that no design document uses. */
  cleanUp(): Promise<void>
}

/** A view that can be queried. */
interface OpenView extends ViewRows {
  readonly partitioned: boolean
  readonly signature: string
  readonly updater: IndexUpdater
  /** The name of a built-in function, or a function of the design document. */
  readonly reduce: string | UserFunction | undefined
}

/** The views of one open database. */
export function storeViews(context: ViewContext): ViewSource {
  const { store } = context
  return {
    view: async function* (user, ddoc, name, parameters, body) {
      const view = await openView(context, user, ddoc, name)
      const members = body === null || bodyLength(body) === 0 ? null : await bodyObject(body, QUERY_SCHEMA)
      if (members?.queries !== undefined) {
        throw new CouchError('bad_request', 'The `queries` parameter is no longer supported at this endpoint')
      }
      const chunk = new ChunkBuffer()
      yield* answer(context, user, view, readViewQuery(parameters, members), chunk)
      chunk.add('\n')
      yield chunk.take()
    },
    viewQueries: async function* (user, ddoc, name, body, parameters) {
      const view = await openView(context, user, ddoc, name)
      const yielder = new Yielder()
      const defaults = readParameters(parameters, 'text')
      const queries: ViewQuery[] = []
      for (const members of readQueries(await bodyObject(body, QUERIES_SCHEMA))) {
        await yielder.yieldIfDue()
        const query = viewQuery(readQuery(members, defaults))
        checkQuery(view, query)
        queries.push(query)
      }
      const chunk = new ChunkBuffer()
      chunk.add('{"results":[\r\n')
      for (const [at, query] of queries.entries()) {
        await yielder.yieldIfDue()
        if (at > 0) chunk.add(',\r\n')
        yield* answer(context, user, view, query, chunk)
      }
      chunk.add('\r\n]}\n')
      yield chunk.take()
    },
    viewInfo: async (user, ddoc) => {
      return Buffer.from(`${JSON.stringify(await viewInfo(context, user, ddoc))}\n`)
    },
    compactViews: async (user, ddoc) => {
      const design = await readDesignDoc(store, ddoc, (security) => requireMaintainer(user, security))
      if (design.language === JAVASCRIPT) await openIndex(context, design).updater.index.compact()
    },
    cleanUpViews: async (user) => {
      requireMaintainer(user, (await store.view()).security)
      await context.cleanUp()
    },
  }
}

async function openView(context: ViewContext, user: UserCtx, id: string, name: string): Promise<OpenView> {
  const ddoc = await readDesignDoc(context.store, id, (security) => requireMember(user, security))
  const view = Object.hasOwn(ddoc.views, name) ? ddoc.views[name] : undefined
  if (name === LIBRARY || typeof view?.map !== 'string')
    throw new CouchError('not_found', 'missing_named_view')
  requireJavascript(ddoc.language)
  const reduce = typeof view.reduce === 'string' && view.reduce !== '' ? view.reduce : undefined
  const isBuiltin = reduce?.startsWith('_')
  const { signature, updater, definitions } = openIndex(context, ddoc)
  return {
    partitioned: ddoc.partitioned,
    signature,
    updater,
    store: updater.index,
    index: definitions.findIndex((definition) => definition.name === name),
    order: orderOf(view),
    reduce: reduce === undefined || isBuiltin ? reduce : functionOf(context, ddoc, [name, 'reduce']),
  }
}

function functionOf(
  { incarnation }: ViewContext,
  { id, rev, source }: DesignDoc,
  path: readonly string[],
): UserFunction {
  return { database: incarnation, ddoc: id, rev, source, path: ['views', ...path] }
}

interface OpenIndex {
  readonly signature: string
  readonly updater: IndexUpdater
  readonly definitions: readonly ViewDefinition[]
}

function openIndex(context: ViewContext, ddoc: DesignDoc): OpenIndex {
  const { sandbox, indexes, onSkipped } = context
  const { options, id } = ddoc
  const definitions = definitionsOf(ddoc)
  const signature = signatureOfViews(ddoc)
  const updater = indexes.use(signature, () =>
    viewRows({
      sandbox,
      maps: functionOf(context, ddoc, []),
      views: definitions,
      includeDesign: options.include_design === true,
      localSeq: options.local_seq === true,
      partitioned: ddoc.partitioned,
      onSkipped: (skipped) => onSkipped(id, skipped),
    }),
  )
  return { signature, updater, definitions }
}

/** Checks a query against its view. @returns whether the answer is reduced */
function checkQuery({ reduce, order, partitioned }: OpenView, query: ViewQuery): boolean {
  const isReduced = reduces(query, reduce !== undefined)
  checkScope(query, partitioned)
  const { start, end, descending } = query
  if (start !== undefined && end !== undefined) {
    const compared = (order === 'raw' ? compareRaw : compareJson)(start.key, end.key)
    if (descending ? compared < 0 : compared > 0) throw emptyRange(descending)
  }
  return isReduced
}

/**
 * One answer, without the final newline.
 * @param chunk the text to send first; after the last row, it holds the unsent rest
 */
async function* answer(
  context: ViewContext,
  user: UserCtx,
  view: OpenView,
  query: ViewQuery,
  chunk: ChunkBuffer,
): AsyncGenerator<Uint8Array> {
  const isReduced = checkQuery(view, query)
  await bringUpToDate(context, view, query)
  const selection = await select(view, query)
  const { head, rows } = isReduced
    ? {
        head: await updateSeq(context, view, query),
        rows: reducedRows(selection, reducerOf(context, view)),
      }
    : await mapAnswer(context, user, selection)
  chunk.add(`{${head}"rows":[\r\n`)
  let before = ''
  for await (const texts of rows) {
    chunk.add(before + texts.join(',\r\n'))
    if (chunk.isLarge) yield chunk.take()
    before = ',\r\n'
  }
  chunk.add('\r\n]}')
}

/** The members before the rows of a map answer, and the rows in batches. */
async function mapAnswer(
  context: ViewContext,
  user: UserCtx,
  selection: Selection,
): Promise<{ readonly head: string; readonly rows: AsyncIterable<readonly string[]> }> {
  const { query } = selection
  const { counts, pages } = await openRows(selection, query.sorted)
  const docsOf = query.includeDocs ? linkedDocuments(context.store, user, query) : undefined
  const rows = mapRows(pages, query.limit, docsOf)
  const seq = await updateSeq(context, selection, query, counts?.seq)
  if (counts === null) return { head: seq, rows }
  return { head: `"total_rows":${counts.total},${seq}"offset":${counts.offset},`, rows }
}

/** The member `update_seq`, if the query asks for it. @param known what the index includes */
async function updateSeq(
  { store }: ViewContext,
  view: ViewRows,
  query: ViewQuery,
  known?: number,
): Promise<string> {
  if (!query.updateSeq) return ''
  const seq = known ?? seqOf((await view.store.status()).position)
  return `"update_seq":${JSON.stringify(sequenceToken((await store.view()).epochs, seq))},`
}

async function bringUpToDate(
  { indexes }: ViewContext,
  { signature, updater }: OpenView,
  { update }: ViewQuery,
): Promise<void> {
  if (update === 'never') return
  const updated = indexes.update(signature, updater)
  // No query waits for this update. If it fails, the next query reports the error.
  if (update === 'after') updated.catch(() => undefined)
  else await updated
}

function reducerOf({ sandbox }: ViewContext, view: OpenView) {
  const { reduce } = view
  return typeof reduce === 'string'
    ? builtinGroups(view, reduce)
    : functionGroups(view, sandbox, reduce as UserFunction)
}

async function viewInfo(context: ViewContext, user: UserCtx, id: string): Promise<object> {
  const { store } = context
  const ddoc = await readDesignDoc(store, id, (security) => requireMember(user, security))
  const { signature, updater } = openIndex(context, ddoc)
  const { updateSeq } = await store.view()
  const { seq = 0, purgeSeq = 0 } = (await updater.index.status()).position ?? {}
  const { file, active } = await updater.index.sizes()
  const pending = Math.max(0, updateSeq - seq)
  return {
    name: id.slice('_design/'.length),
    view_index: {
      signature,
      language: ddoc.language,
      sizes: { file, external: active, active },
      updater_running: updater.isRunning,
      compact_running: false,
      waiting_commit: false,
      waiting_clients: 0,
      updates_pending: { minimum: pending, preferred: pending, total: pending },
      update_seq: seq,
      purge_seq: purgeSeq,
      collator_versions: [COLLATION_VERSION],
    },
  }
}

/**
 * The views of a server whose policy does not allow functions of design documents. Every call rejects with
 * hosted_function, or with unauthorized or forbidden if the caller may not read the database.
 */
export function refusedViews({ store, cleanUp }: Pick<ViewContext, 'store' | 'cleanUp'>): ViewSource {
  const refuse = async (user: UserCtx): Promise<never> => {
    requireMember(user, (await store.view()).security)
    throw new CouchError('hosted_function')
  }
  return {
    // biome-ignore lint/correctness/useYield: it ends before there is anything to send
    view: async function* (user) {
      await refuse(user)
    },
    // biome-ignore lint/correctness/useYield: it ends before there is anything to send
    viewQueries: async function* (user) {
      await refuse(user)
    },
    viewInfo: refuse,
    compactViews: async (user, ddoc) => {
      // Its indexes are those of `_index`.
      await readDesignDoc(store, ddoc, (security) => requireMaintainer(user, security))
    },
    cleanUpViews: async (user) => {
      requireMaintainer(user, (await store.view()).security)
      await cleanUp()
    },
  }
}
