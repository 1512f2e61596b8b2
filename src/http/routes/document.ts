/** Calls about one document; protocol.md 3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import type { SavedDocument } from '../../documents/database.ts'
import { requestSizeLimit, withBody } from '../body.ts'
import { mediaType } from '../content-type.ts'
import { copyTarget, idOf, openOptions, openRevsParam, parentRev } from '../document-params.ts'
import { type Query, queryOf } from '../query-params.ts'
import {
  documentUrl,
  isKnownToClient,
  sendBytes,
  sendJson,
  sendNotModified,
  setEtag,
  streamJson,
} from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf } from '../services.ts'

const METHODS: Path['methods'] = {
  GET: { handler: getDocument },
  PUT: { handler: putDocument },
  DELETE: { handler: deleteDocument },
  COPY: { handler: copyDocument },
}

/**
 * `/:db/:docid` takes `_design%2Fx` and `_local%2Fx` as well, and answers: CouchDB redirects a GET of the former,
 * but nano takes any redirect for an error (clients.md 1.5).
 */
export const documentRoutes: readonly Path[] = [
  {
    url: '/:db/:docid',
    allow: 'DELETE,GET,HEAD,POST,PUT,COPY',
    access: 'member',
    methods: { ...METHODS, POST: { handler: postForm } },
  },
  {
    url: '/:db/_design/:ddoc',
    allow: 'DELETE,GET,HEAD,PUT,COPY',
    access: 'member',
    methods: {
      ...METHODS,
      PUT: { handler: putDocument, access: 'db admin' },
      DELETE: { handler: deleteDocument, access: 'db admin' },
    },
  },
  { url: '/:db/_local/:local', allow: 'DELETE,GET,HEAD,PUT,COPY', access: 'member', methods: METHODS },
  { url: '/:db/_local/:local/*', allow: 'GET,HEAD', access: 'member', methods: allMethods(refuseAttachment) },
]

function allMethods(handler: () => Promise<never>): Path['methods'] {
  return { GET: { handler }, PUT: { handler }, POST: { handler }, DELETE: { handler }, COPY: { handler } }
}

async function getDocument(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const query = queryOf(request)
  const revs = openRevsParam(query)
  const database = databaseOf(request)
  const options = openOptions(query)
  if (revs !== undefined) {
    return streamJson(request, reply, 200, database.openRevs(request.user, idOf(request), revs, options))
  }
  const { etag, json } = await database.open(request.user, idOf(request), options)
  if (etag !== null && isKnownToClient(request, reply, etag)) return sendNotModified(reply)
  return sendBytes(reply, 200, json)
}

async function putDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  if (mediaType(request) === 'multipart/related') throw new CouchError('bad_content_type')
  const id = idOf(request)
  const query = queryOf(request)
  const options = { ...parentRev(request), ...(query.new_edits === 'false' && { newEdits: false }) }
  const saved = await withBody(request, requestSizeLimit(request), (body) =>
    databaseOf(request).put(request.user, id, body, options),
  )
  if (isBatch(query)) return sendBatch(reply, saved)
  return sendSaved(request, reply, saved.deleted ? 200 : 201, saved)
}

async function deleteDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { rev } = parentRev(request)
  const saved = await databaseOf(request).remove(request.user, idOf(request), rev)
  if (isBatch(queryOf(request))) return sendBatch(reply, saved)
  setEtag(reply, `"${saved.rev}"`)
  return sendJson(reply, 200, { ok: true, id: saved.id, rev: saved.rev })
}

async function copyDocument(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const target = copyTarget(request.headers)
  const { rev } = parentRev(request)
  const source = { id: idOf(request), ...(rev !== undefined && { rev }) }
  const saved = await databaseOf(request).copy(request.user, source, target)
  return sendSaved(request, reply, 201, saved)
}

/**
 * CouchDB's upload form for browsers is not offered. Its first refusal is kept, since clients know it as the
 * answer of a server that lacks a call (protocol.md 3.7).
 */
async function postForm(request: FastifyRequest): Promise<never> {
  if ((request.params as { docid: string }).docid.startsWith('_')) throw new CouchError('not_found')
  if (request.headers.referer === undefined) throw new CouchError('bad_request', 'Referer header required.')
  throw new CouchError('bad_content_type', 'Form uploads are not supported: PUT the document as JSON.')
}

async function refuseAttachment(): Promise<never> {
  throw new CouchError('bad_request', '_local documents do not accept attachments.')
}

function isBatch(query: Query): boolean {
  return query.batch === 'ok'
}

/** It is written all the same: an answer before the write could only lose something. */
function sendBatch(reply: FastifyReply, { id }: SavedDocument): FastifyReply {
  return sendJson(reply, 202, { ok: true, id })
}

function sendSaved(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  { id, rev }: SavedDocument,
): FastifyReply {
  const { db } = request.params as { db: string }
  setEtag(reply, `"${rev}"`)
  reply.header('Location', documentUrl(request, db, id))
  return sendJson(reply, status, { ok: true, id, rev })
}
