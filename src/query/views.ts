/** The views of design documents, protocol.md 9.3 and 9.5, on the thread that owns the database. */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isJsonObject } from '../core/json.ts'
import type { UserCtx } from '../core/types.ts'
import { QUERIES_SCHEMA, QUERY_SCHEMA } from '../documents/all-docs-query.ts'
import type { Body } from '../documents/database.ts'
import { requireJavascript } from '../documents/design-docs.ts'
import { renderDocument } from '../documents/render.ts'
import { bodyLength, bodyObject } from '../documents/request-body.ts'
import { requireMember } from '../documents/security.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import { type Compare, compareJson, compareRaw } from './collation.ts'
import {
  mapRows,
  offsetOf,
  reduceBuiltin,
  reduceByFunction,
  reducedRows,
  type Selection,
  select,
} from './view-answer.ts'
import { type ViewDefinition, ViewIndex, type ViewMemory } from './view-index.ts'
import { emptyRange, readViewQuery, reduces, type ViewQuery } from './view-query.ts'
import type { ViewRow } from './view-rows.ts'

/** The query parameters of an address, as text. */
export type Parameters = readonly (readonly [name: string, text: string])[]

/** The view methods of a database thread. */
export interface ViewSource {
  /**
   * The answer of a view query as JSON in chunks.
   * @param ddoc `_design/name`
   * @throws not_found, deleted; not_found with `missing_named_view`; query_parse_error; view_too_large; the errors of
   *   the sandbox
   */
  view(
    user: UserCtx,
    ddoc: string,
    view: string,
    parameters: Parameters,
    body: Body | null,
  ): AsyncIterable<Uint8Array>
  /** Several queries of one view in one body. */
  viewQueries(user: UserCtx, ddoc: string, view: string, body: Body): AsyncIterable<Uint8Array>
  /** The answer of `_info` of a design document, as JSON. */
  viewInfo(user: UserCtx, ddoc: string): Promise<Uint8Array>
}

interface ViewContext {
  readonly store: DatabaseStore
  readonly sandbox: Sandbox
  readonly incarnation: number
  readonly memory: ViewMemory
}

/** The parts of a design document that views need. */
interface DesignDoc {
  readonly id: string
  readonly rev: string
  readonly source: string
  readonly language: unknown
  readonly options: Readonly<Record<string, unknown>>
  readonly views: Readonly<Record<string, View>>
}

/** A member of `views`; only the types of `map` and `reduce` were checked when it was stored. */
interface View {
  readonly map: unknown
  readonly reduce?: unknown
  readonly options?: unknown
}

/** A view that can be queried. */
interface OpenView {
  readonly name: string
  readonly index: ViewIndex
  readonly order: Compare
  /** The name of a built-in function, or a function of the design document. */
  readonly reduce: string | UserFunction | undefined
}

/** The views of one open database. After it is closed, the caller removes its indexes ({@link ViewMemory.forget}). */
export function storeViews(context: ViewContext): ViewSource {
  const { store } = context
  return {
    view: async function* (user, ddoc, name, parameters, body) {
      requireMember(user, (await store.view()).security)
      const view = await openView(context, ddoc, name)
      const members = body === null || bodyLength(body) === 0 ? null : await bodyObject(body, QUERY_SCHEMA)
      if (members?.queries !== undefined) {
        throw new CouchError('bad_request', 'The `queries` parameter is no longer supported at this endpoint')
      }
      yield* answer(context, user, view, readViewQuery(parameters, members))
      yield Buffer.from('\n')
    },
    viewQueries: async function* (user, ddoc, name, body) {
      requireMember(user, (await store.view()).security)
      const view = await openView(context, ddoc, name)
      const yielder = new Yielder()
      const queries: ViewQuery[] = []
      for (const members of readQueries(await bodyObject(body, QUERIES_SCHEMA))) {
        await yielder.yieldIfDue()
        const query = readViewQuery([], members)
        checkQuery(view, query)
        queries.push(query)
      }
      let before = '{"results":[\r\n'
      for (const query of queries) {
        await yielder.yieldIfDue()
        yield Buffer.from(before)
        yield* answer(context, user, view, query)
        before = ',\r\n'
      }
      yield Buffer.from(queries.length === 0 ? '{"results":[\r\n\r\n]}\n' : '\r\n]}\n')
    },
    viewInfo: async (user, ddoc) => {
      requireMember(user, (await store.view()).security)
      return Buffer.from(`${JSON.stringify(await viewInfo(context, ddoc))}\n`)
    },
  }
}

function readQueries({ queries }: Readonly<Record<string, unknown>>): Record<string, unknown>[] {
  if (queries === undefined)
    throw new CouchError('bad_request', 'POST body must include `queries` parameter.')
  const isList = Array.isArray(queries) && queries.every(isJsonObject)
  if (!isList) throw new CouchError('bad_request', '`queries` member must be an array.')
  return queries as Record<string, unknown>[]
}

/** @throws not_found, deleted */
async function readDesignDoc(store: DatabaseStore, id: string): Promise<DesignDoc> {
  const [found] = await store.readDocs(
    [id],
    (doc) => {
      if (doc === null) throw new CouchError('not_found')
      if (doc.deleted) throw new CouchError('deleted')
      return { rev: doc.rev, source: renderDocument(doc, doc.rev) }
    },
    { body: true },
  )
  const { rev, source } = found as { rev: string; source: string }
  const members = JSON.parse(source) as Record<string, unknown>
  return {
    id,
    rev,
    source,
    language: members.language ?? 'javascript',
    options: isJsonObject(members.options) ? members.options : {},
    views: (isJsonObject(members.views) ? members.views : {}) as DesignDoc['views'],
  }
}

async function openView(context: ViewContext, id: string, name: string): Promise<OpenView> {
  const ddoc = await readDesignDoc(context.store, id)
  const view = Object.hasOwn(ddoc.views, name) ? ddoc.views[name] : undefined
  if (name === LIBRARY || typeof view?.map !== 'string')
    throw new CouchError('not_found', 'missing_named_view')
  requireJavascript(ddoc.language)
  const reduce = typeof view.reduce === 'string' && view.reduce !== '' ? view.reduce : undefined
  const isBuiltin = reduce?.startsWith('_')
  return {
    name,
    index: indexOf(context, ddoc),
    order: orderOf(view),
    reduce: reduce === undefined || isBuiltin ? reduce : functionOf(context, ddoc, [name, 'reduce']),
  }
}

/** The member of `views` that holds CommonJS modules, not a view. */
const LIBRARY = 'lib'

/** As in CouchDB, `collation` is an option of a view; among the options of the design document it has no effect. */
function orderOf({ options }: View): Compare {
  return isJsonObject(options) && options.collation === 'raw' ? compareRaw : compareJson
}

function functionOf(
  { incarnation }: ViewContext,
  { id, rev, source }: DesignDoc,
  path: readonly string[],
): UserFunction {
  return { database: incarnation, ddoc: id, rev, source, path: ['views', ...path] }
}

/** Identifies an index. Two design documents with the same views share one index. */
function signatureOf({ language, options, views }: DesignDoc): string {
  return createHash('md5')
    .update(JSON.stringify([language, options, views]))
    .digest('hex')
}

function indexOf(context: ViewContext, ddoc: DesignDoc): ViewIndex {
  const { store, sandbox, incarnation, memory } = context
  const make = () => {
    const definitions: ViewDefinition[] = Object.entries(ddoc.views)
      .filter(([name, view]) => name !== LIBRARY && typeof view?.map === 'string')
      .map(([name, view]) => ({
        name,
        map: functionOf(context, ddoc, [name, 'map']),
        order: orderOf(view),
      }))
    const { include_design: includeDesign, local_seq: localSeq } = ddoc.options
    const options = { includeDesign: includeDesign === true, localSeq: localSeq === true }
    return new ViewIndex(store, sandbox, definitions, options, () => memory.maxBytes)
  }
  return memory.use(store, `${incarnation} ${signatureOf(ddoc)}`, make)
}

/** Checks a query against its view. @returns whether the answer is reduced */
function checkQuery({ reduce, order }: OpenView, query: ViewQuery): boolean {
  const isReduced = reduces(query, reduce !== undefined)
  const { start, end, descending } = query
  if (start !== undefined && end !== undefined) {
    const compared = order(start.key, end.key)
    if (descending ? compared < 0 : compared > 0) throw emptyRange(descending)
  }
  return isReduced
}

/** One answer, without the final newline. */
async function* answer(
  context: ViewContext,
  user: UserCtx,
  view: OpenView,
  query: ViewQuery,
): AsyncGenerator<Uint8Array> {
  const isReduced = checkQuery(view, query)
  await bringUpToDate(context, view.index, query)
  const selection = await select(view.index.rows(view.name), query, view.order)
  const rows = isReduced
    ? reducedRows(selection, reducerOf(context, view))
    : mapRows(selection, query.includeDocs ? documentOf(context, user, query) : undefined)
  yield Buffer.from(`{${await envelope(context, view, selection, isReduced)}"rows":[\r\n`)
  let before = ''
  for await (const texts of rows) {
    yield Buffer.from(before + texts.join(',\r\n'))
    before = ',\r\n'
  }
  yield Buffer.from('\r\n]}')
}

async function bringUpToDate(
  { memory }: ViewContext,
  index: ViewIndex,
  { update }: ViewQuery,
): Promise<void> {
  if (update === 'never') return
  const refresh = index.refresh().finally(() => memory.trim())
  // No query waits for this refresh. If it fails, the next query reports the error.
  if (update === 'after') refresh.catch(() => undefined)
  else await refresh
}

async function envelope(
  { store }: ViewContext,
  { index }: OpenView,
  selection: Selection,
  isReduced: boolean,
): Promise<string> {
  const { rows, query } = selection
  const seq = query.updateSeq
    ? `"update_seq":${JSON.stringify(sequenceToken((await store.view()).epochs, index.seq))},`
    : ''
  if (isReduced || !query.sorted) return seq
  return `"total_rows":${rows.length},${seq}"offset":${offsetOf(selection)},`
}

function reducerOf(
  { sandbox }: ViewContext,
  { reduce, order }: OpenView,
): (groups: readonly (readonly ViewRow[])[]) => Promise<readonly string[]> {
  if (typeof reduce === 'string') return (groups) => reduceBuiltin(reduce, order, groups)
  return (groups) => reduceByFunction(sandbox, reduce as UserFunction, groups)
}

/** Reads the document of a row, or the one that its value links to; `null` if it is missing or deleted. */
function documentOf(
  { store }: ViewContext,
  user: UserCtx,
  query: ViewQuery,
): (row: ViewRow) => Promise<string> {
  const { conflicts, attachments, attEncodingInfo } = query
  return async (row) => {
    const link = linkOf(row)
    if (link === null) return 'null'
    const { id, rev } = link
    const [text] = await store.readDocs(
      [id],
      (doc, _id, view) => {
        requireMember(user, view.security)
        if (doc === null || (rev === undefined && doc.deleted)) return 'null'
        if (rev !== undefined && doc.body(rev) === null) return 'null'
        return renderDocument(doc, rev ?? doc.rev, { conflicts, attachments, attEncodingInfo })
      },
      { body: true, branches: conflicts, bytes: attachments },
    )
    return text as string
  }
}

interface Link {
  readonly id: string
  readonly rev: string | undefined
}

/**
 * The document that a row's value names with `_id`, `_rev` or both; by default the one that emitted the row.
 * @returns null if the value names none that could exist
 */
function linkOf({ id, valueText }: ViewRow): Link | null {
  if (!valueText.startsWith('{') || !/"_(?:id|rev)"/.test(valueText)) return { id, rev: undefined }
  const { _id: linked = id, _rev: rev } = JSON.parse(valueText) as Record<string, unknown>
  if (typeof linked !== 'string' || (rev !== undefined && typeof rev !== 'string')) return null
  return { id: linked, rev }
}

async function viewInfo(context: ViewContext, id: string): Promise<object> {
  const { store } = context
  const ddoc = await readDesignDoc(store, id)
  const index = indexOf(context, ddoc)
  const { updateSeq, purgeSeq } = await store.info()
  const pending = updateSeq - index.seq
  return {
    name: id.slice('_design/'.length),
    view_index: {
      signature: signatureOf(ddoc),
      language: ddoc.language,
      sizes: { file: 0, external: index.bytes, active: index.bytes },
      updater_running: index.isRefreshing,
      compact_running: false,
      waiting_commit: false,
      waiting_clients: 0,
      updates_pending: { minimum: pending, preferred: pending, total: pending },
      update_seq: index.seq,
      purge_seq: purgeSeq,
      collator_versions: [process.versions.icu ?? 'none'],
    },
  }
}

/**
 * The views of a server whose policy does not allow functions of design documents. Every call rejects with
 * hosted_function, or with unauthorized or forbidden if the caller may not read the database.
 */
export function refusedViews(store: DatabaseStore): ViewSource {
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
  }
}
