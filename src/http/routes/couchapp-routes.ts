/** Shows, lists, updates and rewrites of design documents; protocol.md 9.6. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { KeyedMutex, Limiter } from '../../core/concurrency.ts'
import { CouchError, type ErrorName } from '../../core/errors.ts'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import { addressKey } from '../../core/network.ts'
import type { AppHead, AppResponse } from '../../couchapps/app-response.ts'
import type { ListedRows } from '../../couchapps/couchapps.ts'
import type { Rewrite } from '../../couchapps/rewrite-function.ts'
import type { RewriteRequest } from '../../couchapps/rewrite-rules.ts'
import { addressQuery } from '../../documents/all-docs-query.ts'
import { bytesOf } from '../../documents/body-collector.ts'
import type { Body } from '../../documents/database.ts'
import { functionRequest, pathOf } from '../function-requests.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { isKnownToClient, sendNotModified } from '../replies.ts'
import { mediaType, pathParam, pathParams, queryOf, requireJsonType } from '../request-params.ts'
import { type Path, registerPaths } from '../route-table.ts'
import type { Handler } from '../services.ts'
import { withOptionalBody } from '../transport/body-reader.ts'
import { addVary, sendStream } from '../transport/json-stream.ts'
import { useConfiguredPolicy } from '../transport/page-policy.ts'

const DESIGN = '/:db/_design/:ddoc'
const ANY = 'COPY,DELETE,GET,HEAD,POST,PUT'
const NOT_READING = 'COPY,DELETE,POST,PUT'
/** The largest body that a function gets, in bytes. It becomes a JSON string in one turn. */
const MAX_BODY = 1_048_576
/** Each list occupies a sandbox thread while its client reads. */
const MAX_LISTS = 2
const MAX_WAITING_LISTS = 256
/** After this time, in milliseconds, and then at the same interval, a list is cut if others wait for its place. */
const LIST_MS = 300_000

/** The routes of shows, lists, updates and rewrites. The lists of all databases take turns. */
export async function couchappRoutes(app: FastifyInstance): Promise<void> {
  registerPaths(app, couchappPaths(listHandler()))
}

function couchappPaths(list: Handler): readonly Path[] {
  return [
    path(`${DESIGN}/_show/:fn`, show),
    path(`${DESIGN}/_show/:fn/*`, show),
    path(`${DESIGN}/_show`, invalidPath('show_error')),
    path(`${DESIGN}/_update/:fn`, update),
    path(`${DESIGN}/_update/:fn/*`, update),
    path(`${DESIGN}/_update`, invalidPath('update_error')),
    path(`${DESIGN}/_rewrite`, rewrite),
    path(`${DESIGN}/_rewrite/*`, rewrite),
    listPath(`${DESIGN}/_list/:fn/:view`, list),
    listPath(`${DESIGN}/_list/:fn/:other/:view`, list),
    listPath(`${DESIGN}/_list`, invalidPath('list_error')),
    listPath(`${DESIGN}/_list/:fn`, invalidPath('list_error')),
    listPath(`${DESIGN}/_list/:fn/:other/:view/*`, invalidPath('list_error')),
  ]
}

/** A path that all methods lead to; the functions decide. */
function path(url: string, handler: Handler): Path {
  const method = { handler: enabled(handler) }
  return {
    url,
    allow: ANY,
    access: 'member',
    methods: { GET: method, POST: method, PUT: method, DELETE: method, COPY: method },
  }
}

function listPath(url: string, handler: Handler): Path {
  const method = { handler: enabled(handler) }
  return {
    url,
    allow: 'GET,POST,HEAD',
    access: 'member',
    methods: { GET: method, POST: { ...method, json: true } },
  }
}

function enabled(handler: Handler): Handler {
  return async (request, reply) => {
    if (!request.server.services.config.boolean('settee', 'couchapps')) throw new CouchError('no_couchapps')
    try {
      return await handler(request, reply)
    } catch (error) {
      // Update functions refuse GET, and any function may throw this error.
      const isRefused = error instanceof CouchError && error.code === 'method_not_allowed'
      if (isRefused) reply.header('Allow', NOT_READING)
      throw error
    }
  }
}

function invalidPath(error: ErrorName): Handler {
  return async () => {
    throw new CouchError(error)
  }
}

function designOf(request: FastifyRequest): string {
  return DESIGN_PREFIX + pathParam(request, 'ddoc')
}

/** The rest of the path as an id, whose slashes need not be encoded; null without one. */
function docIdOf(request: FastifyRequest): string | null {
  const { '*': rest } = pathParams(request)
  return rest === undefined || rest === '' ? null : rest
}

async function show(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const docId = docIdOf(request)
  const packed = await packedRequest(request, docId)
  const { accept } = request.headers
  const database = databaseOf(request)
  const answer = await database.show(
    request.user,
    designOf(request),
    pathParam(request, 'fn'),
    docId,
    packed,
    accept,
  )
  if (answer.etag === null) return sendResponse(reply, answer)
  const isKnown = isKnownToClient(request, reply, answer.etag)
  addVary(reply, 'Accept')
  // A browser gives the page that it has the headers of a 304: RFC 9111 3.2.
  useConfiguredPolicy(reply, 'showlist')
  if (isKnown) return sendNotModified(reply)
  const headers = answer.headers.filter(([name]) => !/^(?:etag|vary)$/i.test(name))
  return sendResponse(reply, { ...answer, headers })
}

async function update(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const docId = docIdOf(request)
  const packed = await packedRequest(request, docId)
  const database = databaseOf(request)
  const answer = await database.update(
    request.user,
    designOf(request),
    pathParam(request, 'fn'),
    docId,
    packed,
  )
  return sendResponse(reply, answer)
}

/** Reads the body for `req.body` and `req.form`. */
function packedRequest(request: FastifyRequest, docId: string | null): Promise<string> {
  return withTextBody(request, (text) =>
    functionRequest(request, {
      id: docId,
      body: text === null ? undefined : JSON.stringify(text),
      form: text === null ? {} : formOf(request, text),
    }),
  )
}

function withTextBody<T>(request: FastifyRequest, use: (text: string | null) => Promise<T>): Promise<T> {
  return withBoundedBody(request, async (body) => {
    if (body !== null) return use(await textOf(body))
    return use(request.headers['content-length'] === undefined ? null : '')
  })
}

function withBoundedBody<T>(request: FastifyRequest, use: (body: Body | null) => Promise<T>): Promise<T> {
  return withOptionalBody(request, { bytes: MAX_BODY, key: 'the largest body that a function gets' }, use)
}

async function textOf(body: Body): Promise<string> {
  return Buffer.from(await bytesOf(body)).toString('utf8')
}

const FORM = 'application/x-www-form-urlencoded'

function formOf(request: FastifyRequest, text: string): Record<string, string> {
  const isForm = (request.method === 'POST' || request.method === 'PUT') && mediaType(request) === FORM
  return isForm ? Object.fromEntries(new URLSearchParams(text)) : {}
}

function sendResponse(reply: FastifyReply, { status, headers, body }: AppResponse): FastifyReply {
  useConfiguredPolicy(reply, 'showlist')
  for (const [name, value] of headers) reply.header(name, value)
  return reply.code(status).send(body)
}

/** Runs a few lists at once, and one for each caller, since a client that reads slowly holds its place. */
function listHandler(): Handler {
  const callers = new KeyedMutex()
  // `waiting` bounds those that wait.
  const lists = new Limiter(MAX_LISTS, Number.POSITIVE_INFINITY)
  let waiting = 0
  const run = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    waiting -= 1
    const check = setInterval(() => waiting > 0 && reply.raw.destroy(), LIST_MS)
    try {
      await sendList(request, reply)
    } finally {
      clearInterval(check)
    }
  }
  return async (request, reply) => {
    if (waiting >= MAX_WAITING_LISTS) throw new CouchError('unavailable')
    const caller = request.user.name ?? addressKey(request.address)
    waiting += 1
    return callers.run(caller, () => lists.run(() => run(request, reply), caller))
  }
}

async function sendList(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  if (reply.raw.destroyed) return
  if (request.method !== 'POST') return sendRows(request, reply, null, undefined)
  await requireJsonType(request)
  return withBoundedBody(request, async (body) =>
    sendRows(request, reply, body, body === null ? undefined : await textOf(body)),
  )
}

/** @param json the body's text, which is parsed where the rows are read */
async function sendRows(
  request: FastifyRequest,
  reply: FastifyReply,
  body: Body | null,
  json: string | undefined,
): Promise<void> {
  const packed = await functionRequest(request, { body: json })
  const rows = listedRows(request)
  const name = pathParam(request, 'fn')
  const answer = databaseOf(request).list(request.user, designOf(request), name, rows, packed, body)
  const chunks = answer[Symbol.asyncIterator]()
  const { value } = await chunks.next()
  const head = JSON.parse(Buffer.from(value as Uint8Array).toString('utf8')) as AppHead
  useConfiguredPolicy(reply, 'showlist')
  await sendStream(request, reply, {
    status: head.status,
    headers: Object.fromEntries(head.headers),
    chunks: { [Symbol.asyncIterator]: () => chunks },
  })
}

function listedRows(request: FastifyRequest): ListedRows {
  const { other } = pathParams(request)
  const view = pathParam(request, 'view')
  if (view === '_all_docs')
    return { type: 'all', query: addressQuery(Object.entries(queryOf(request)), true) }
  const ddoc = other === undefined ? designOf(request) : DESIGN_PREFIX + other
  return { type: 'view', ddoc, view, parameters: Object.entries(queryOf(request)) }
}

async function rewrite(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const { checkRewrites } = await rewrittenRequests()
  checkRewrites(request)
  const rules = rewriteRequest(request)
  const database = databaseOf(request)
  const rewritten = await database.rewrite(request.user, designOf(request), rules, null)
  if (rewritten.type !== 'function') return serve(request, reply, rewritten, null)
  return withTextBody(request, async (text) => {
    const packed = await functionRequest(request, { body: text === null ? undefined : JSON.stringify(text) })
    return serve(request, reply, await database.rewrite(request.user, designOf(request), rules, packed), text)
  })
}

/** Loaded at the first rewrite: it loads node:http. */
function rewrittenRequests(): Promise<typeof import('../transport/rewritten-request.ts')> {
  return import('../transport/rewritten-request.ts')
}

function rewriteRequest(request: FastifyRequest): RewriteRequest {
  const [path = ''] = request.url.split('?', 1)
  return {
    method: request.method,
    path: pathOf(path).slice(4),
    query: Object.entries(queryOf(request)),
    base: path.split('/').slice(1, 4),
    isSecure: request.server.services.config.boolean('chttpd', 'secure_rewrites'),
  }
}

/** @param text the request's body, if it was read */
async function serve(
  request: FastifyRequest,
  reply: FastifyReply,
  rewritten: Rewrite,
  text: string | null,
): Promise<unknown> {
  if (rewritten.type === 'answer') {
    const { status, headers, body } = rewritten
    return sendResponse(reply, { status, headers, body: Buffer.from(body ?? text ?? '') })
  }
  if (rewritten.type === 'function') throw new Error('a rewrite has not run its function')
  const { body = text, ...parts } = rewritten
  const { serveRewritten } = await rewrittenRequests()
  serveRewritten(request, reply, body === null ? parts : { ...parts, body: Buffer.from(body) })
  return reply
}
