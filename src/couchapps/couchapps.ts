/** Shows, lists, updates and rewrites of design documents, on the thread that owns the database; protocol.md 9.6. */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { isJsonObject, isTooDeep } from '../core/json.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { AllDocsQuery, Body, Database } from '../documents/database.ts'
import { requireJavascript } from '../documents/design-docs.ts'
import { completeRequest } from '../documents/function-request.ts'
import { requireMember } from '../documents/security.ts'
import { type DesignDoc, readDesignDoc } from '../query/design-views.ts'
import type { Parameters, ViewSource } from '../query/views.ts'
import { type Sandbox, THREW, type UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { type AppResponse, readResponse, thrownAnswer } from './app-response.ts'
import { listAnswer } from './list-answer.ts'
import { readRows } from './list-rows.ts'
import { type Rewrite, readRewrite } from './rewrite-function.ts'
import { type RewriteRequest, rewriteByRules } from './rewrite-rules.ts'

/** The rows that a list function gets. */
export type ListedRows =
  | { readonly type: 'view'; readonly ddoc: string; readonly view: string; readonly parameters: Parameters }
  | { readonly type: 'all'; readonly query: AllDocsQuery }

export interface ShowAnswer extends AppResponse {
  /** The header's value with its quotes: it changes with the document, the function and the caller. Null for an error. */
  readonly etag: string | null
}

/**
 * The methods of a database thread. All throw not_found, deleted, unknown_query_language, the errors of the sandbox,
 * and what a function throws; external_response_error for a result that cannot be sent.
 */
export interface CouchappSource {
  /**
   * @param ddoc `_design/name`
   * @param docId null: the function gets no document
   * @param request the object `req`, packed by documents/function-request.ts
   * @param accept the request's header `Accept`
   */
  show(
    user: UserCtx,
    ddoc: string,
    name: string,
    docId: string | null,
    request: string,
    accept: string | undefined,
  ): Promise<ShowAnswer>
  /** Stores the document that the function returns, if it returns one. @throws as {@link Database.put} */
  update(
    user: UserCtx,
    ddoc: string,
    name: string,
    docId: string | null,
    request: string,
  ): Promise<AppResponse>
  /**
   * The answer in chunks: the JSON of its head (app-response.ts), then the body.
   * @param body the body of a POST to the view
   */
  list(
    user: UserCtx,
    ddoc: string,
    name: string,
    rows: ListedRows,
    request: string,
    body: Body | null,
  ): AsyncIterable<Uint8Array>
  /**
   * @param packed the object `req`, if a function must run
   * @throws rewrite_error, insecure_rewrite_rule; not_found if no rule matches
   */
  rewrite(user: UserCtx, ddoc: string, request: RewriteRequest, packed: string | null): Promise<Rewrite>
}

interface CouchappContext {
  readonly store: DatabaseStore
  readonly sandbox: Sandbox
  readonly incarnation: number
  readonly name: string
  readonly database: Pick<Database, 'open' | 'put' | 'allDocs'> & Pick<ViewSource, 'view'>
}

/** A function of a design document, and what it may see besides its arguments. */
interface OpenFunction {
  readonly fn: UserFunction
  /** The object `req` as JSON text. */
  readonly request: string
}

/** The couchapps of one open database. */
export function storeCouchapps(context: CouchappContext): CouchappSource {
  const { store, sandbox, database } = context
  return {
    show: async (user, ddoc, name, docId, packed, accept) => {
      const design = await openDesign(store, user, ddoc)
      const { fn, request } = openFunction(context, user, design, ['shows', name], packed)
      const doc = await documentText(database, user, docId)
      const etag = tagOf([fn.rev, doc, accept ?? null, user.roles])
      const result = await sandbox.render('show', fn, [doc, request])
      if (result.startsWith(THREW)) return { ...thrownAnswer(result), etag: null }
      const { response } = JSON.parse(result) as { response: unknown }
      return { ...readResponse(response), etag }
    },
    update: async (user, ddoc, name, docId, packed) => {
      const design = await openDesign(store, user, ddoc)
      const { fn, request } = openFunction(context, user, design, ['updates', name], packed)
      const doc = await documentText(database, user, docId)
      const result = await sandbox.render('update', fn, [doc, request])
      if (result.startsWith(THREW)) return thrownAnswer(result)
      const { doc: changed, response } = JSON.parse(result) as { doc: unknown; response: unknown }
      if (!isJsonObject(changed)) return readResponse(response)
      if (isTooDeep(changed)) throw new CouchError('too_deep')
      const answer = readResponse(response, 201)
      const { _id: id = '' } = changed
      if (typeof id !== 'string') throw new CouchError('illegal_docid', 'Document id must be a string')
      const saved = await database.put(user, id, { bytes: Buffer.from(JSON.stringify(changed)) }, {})
      const own = new Set(['x-couch-update-newrev', 'x-couch-id'])
      return {
        ...answer,
        headers: [
          ...answer.headers.filter(([header]) => !own.has(header.toLowerCase())),
          ['X-Couch-Update-NewRev', saved.rev],
          ['X-Couch-Id', encodeURIComponent(saved.id)],
        ],
      }
    },
    list: async function* (user, ddoc, name, listed, packed, body) {
      const design = await openDesign(store, user, ddoc)
      const { fn, request } = openFunction(context, user, design, ['lists', name], packed)
      const answer =
        listed.type === 'all'
          ? database.allDocs(user, 'all', listed.query, body)
          : database.view(user, listed.ddoc, listed.view, listed.parameters, body)
      const rows = await readRows(answer)
      yield* listAnswer(sandbox, fn, [rows.head, request], rows)
    },
    rewrite: async (user, ddoc, request, packed) => {
      const design = await openDesign(store, user, ddoc)
      const { rewrites } = JSON.parse(design.doc.source) as { rewrites?: unknown }
      if (Array.isArray(rewrites))
        return { type: 'request', address: await rewriteByRules(rewrites, request) }
      if (typeof rewrites !== 'string') throw new CouchError('no_rewrite')
      if (packed === null) return { type: 'function' }
      const open = openFunction(context, user, design, ['rewrites'], packed)
      const result = await sandbox.render('rewrite', open.fn, [open.request])
      if (result.startsWith(THREW)) return rewriteAnswer(thrownAnswer(result))
      const { target } = JSON.parse(result) as { target: unknown }
      if (target === null) throw new CouchError('no_rewrite')
      return readRewrite(target, request)
    },
  }
}

/** A design document, and the security object as of the time when it was read. */
interface OpenDesign {
  readonly doc: DesignDoc
  readonly security: SecurityObject | null
}

/** @throws not_found, deleted; unauthorized, forbidden */
async function openDesign(store: DatabaseStore, user: UserCtx, id: string): Promise<OpenDesign> {
  const { security } = await store.view()
  requireMember(user, security)
  return { doc: await readDesignDoc(store, id, (now) => requireMember(user, now)), security }
}

/** @throws unknown_query_language */
function openFunction(
  { incarnation, name }: CouchappContext,
  user: UserCtx,
  { doc: { id, rev, source, language }, security }: OpenDesign,
  path: readonly string[],
  packed: string,
): OpenFunction {
  requireJavascript(language)
  return {
    fn: { database: incarnation, ddoc: id, rev, source, path },
    request: completeRequest(packed, name, user, security),
  }
}

/** The JSON text of a document; `null` without one. */
async function documentText(
  database: Pick<Database, 'open'>,
  user: UserCtx,
  id: string | null,
): Promise<string> {
  if (id === null) return 'null'
  try {
    const { json } = await database.open(user, id, { conflicts: true, revs: true })
    return Buffer.from(json).toString('utf8').trimEnd()
  } catch (error) {
    if (error instanceof CouchError && (error.code === 'not_found' || error.code === 'deleted')) return 'null'
    throw error
  }
}

function tagOf(parts: readonly unknown[]): string {
  return `"${createHash('md5').update(JSON.stringify(parts)).digest('base64url')}"`
}

function rewriteAnswer({ status, headers, body }: AppResponse): Rewrite {
  return { type: 'answer', status, headers, body: Buffer.from(body).toString('utf8') }
}

/** The couchapps of a server whose policy does not allow functions. Every call rejects with hosted_function. */
export function refusedCouchapps(store: DatabaseStore): CouchappSource {
  const refuse = async (user: UserCtx): Promise<never> => {
    requireMember(user, (await store.view()).security)
    throw new CouchError('hosted_function')
  }
  return {
    show: refuse,
    update: refuse,
    // biome-ignore lint/correctness/useYield: it ends before there is anything to send
    list: async function* (user) {
      await refuse(user)
    },
    rewrite: refuse,
  }
}
