/** Calls about one document; protocol.md 3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { isDesignId, isLocalId } from '../../core/ids.ts'
import type { SavedDocument } from '../../documents/database.ts'
import { mayBeBuiltInDesign } from '../../documents/document-policy.ts'
import { parseRev } from '../../revisions/rev.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import {
  absoluteUrl,
  isKnownToClient,
  sendBytes,
  sendJson,
  sendNotModified,
  sendRevisions,
  sendWithContents,
  setEtag,
} from '../replies.ts'
import {
  copyTarget,
  idOf,
  mediaType,
  multipartBoundary,
  openOptions,
  openRevsParam,
  parentRev,
  pathParam,
  type Query,
  queryOf,
} from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { inTurn, requestSizeLimit, withBody } from '../transport/body-reader.ts'
import { hostOf } from '../transport/connection.ts'

const METHODS: Path['methods'] = {
  GET: { handler: getDocument },
  PUT: { handler: putDocument },
  DELETE: { handler: deleteDocument },
  COPY: { handler: copyDocument },
  POST: { handler: postForm },
}
const ALLOW = 'DELETE,GET,HEAD,POST,PUT,COPY'

/** `/:db/:docid` matches `_local%2Fx` as well; app.ts rewrites `_design%2Fx`. */
export const documentRoutes: readonly Path[] = [
  {
    url: '/:db/:docid',
    allow: ALLOW,
    access: 'member',
    methods: METHODS,
  },
  {
    url: '/:db/_design/:ddoc',
    allow: ALLOW,
    access: 'member',
    methods: {
      ...METHODS,
      PUT: { handler: putDocument, access: 'db admin' },
      POST: { handler: postForm, access: 'db admin' },
      DELETE: { handler: deleteDocument, access: 'db admin' },
    },
  },
  { url: '/:db/_local/:local', allow: ALLOW, access: 'member', methods: METHODS },
  { url: '/:db/_local/:local/*', allow: 'GET,HEAD', access: 'member', methods: allMethods(refuseAttachment) },
]

function allMethods(handler: () => Promise<never>): Path['methods'] {
  return { GET: { handler }, PUT: { handler }, POST: { handler }, DELETE: { handler }, COPY: { handler } }
}

async function getDocument(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const query = queryOf(request)
  const id = idOf(request)
  const revs = openRevsParam(query)
  const options = openOptions(query)
  if (revs !== undefined && options.rev !== undefined) parseRev(options.rev)
  if (revs !== undefined) return sendRevisions(request, reply, id, revs, options)
  if (options.attachments || options.attsSince) return sendWithContents(request, reply, id, options)
  const { etag, json } = await databaseOf(request).open(request.user, id, options)
  if (etag !== null && isKnownToClient(request, reply, etag)) return sendNotModified(reply)
  return sendBytes(reply, 200, json)
}

async function putDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = idOf(request)
  refuseDesign(request, id)
  const query = queryOf(request)
  const options = {
    ...parentRev(request),
    ...(query.new_edits === 'false' && { newEdits: false }),
    ...(mediaType(request) === 'multipart/related' && { boundary: multipartBoundary(request) }),
  }
  const put = withBody(request, requestSizeLimit(request), (body) =>
    databaseOf(request).put(request.user, id, body, options),
  )
  if (isBatch(query)) return sendBatch(reply, id, put)
  const saved = await put
  return sendSaved(request, reply, saved.deleted ? 200 : 201, saved)
}

async function deleteDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { rev } = parentRev(request)
  const id = idOf(request)
  const saved = await databaseOf(request).remove(request.user, id, rev)
  setEtag(reply, `"${saved.rev}"`)
  return sendJson(reply, 200, { ok: true, id: saved.id, rev: saved.rev })
}

async function copyDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const target = copyTarget(request.headers)
  const { rev } = parentRev(request)
  const source = { id: idOf(request), ...(rev !== undefined && { rev }) }
  const largest = request.server.services.config.bytes('couchdb', 'max_document_size')
  const saved = await inTurn(request, largest, () => databaseOf(request).copy(request.user, source, target))
  return sendSaved(request, reply, 201, saved)
}

/**
 * CouchDB's upload form for browsers, protocol.md 3.7. Clients know its first error as the answer of a server without a
 * call.
 */
async function postForm(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = idOf(request)
  if (id.startsWith('_') && !isDesignId(id) && !isLocalId(id)) throw new CouchError('not_found')
  requireOwnReferer(request)
  if (mediaType(request) !== 'multipart/form-data') {
    throw new CouchError('bad_content_type', 'Content-Type must be multipart/form-data')
  }
  refuseDesign(request, id)
  const options = { ...parentRev(request), boundary: multipartBoundary(request) }
  const { rev } = await withBody(request, requestSizeLimit(request), (body) =>
    databaseOf(request).postForm(request.user, id, body, options),
  )
  setEtag(reply, `"${rev}"`)
  return sendJson(reply, 201, { ok: true, id, rev })
}

/** Refuses what the address shows, before the body is read. The database's thread checks again (document-policy.ts). */
function refuseDesign(request: FastifyRequest, id: string): void {
  if (request.server.services.policy.documents.designDocs || !isDesignId(id)) return
  if (!mayBeBuiltInDesign(databaseOf(request).name, id)) throw new CouchError('hosted_design')
}

/** Any page can send a form, so only those of this server may. */
function requireOwnReferer(request: FastifyRequest): void {
  const { referer } = request.headers
  if (referer === undefined) throw new CouchError('bad_request', 'Referer header required.')
  const host = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(referer)?.[1] ?? ''
  if (host.toLowerCase() !== hostOf(request)?.toLowerCase()) {
    throw new CouchError('bad_request', 'Referer header must match host.')
  }
}

async function refuseAttachment(): Promise<never> {
  throw new CouchError('bad_request', '_local documents do not accept attachments.')
}

function isBatch(query: Query): boolean {
  return query.batch === 'ok'
}

/**
 * Answers `batch=ok` (protocol.md 3.3) after the write, so that nothing is lost. A conflict is no error: CouchDB answers
 * before it could find one.
 */
async function sendBatch(
  reply: FastifyReply,
  id: string,
  write: Promise<SavedDocument>,
): Promise<FastifyReply> {
  await write.catch((error: unknown) => {
    if (!(error instanceof CouchError && error.code === 'conflict')) throw error
  })
  return sendJson(reply, 202, { ok: true, id })
}

function sendSaved(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  { id, rev }: SavedDocument,
): FastifyReply {
  const db = pathParam(request, 'db')
  setEtag(reply, `"${rev}"`)
  reply.header('Location', absoluteUrl(request, db, id))
  return sendJson(reply, status, { ok: true, id, rev })
}
