/** Attachments at their own addresses; protocol.md 7.4. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { isLocalId } from '../../core/ids.ts'
import type { AttachmentAnswer } from '../../documents/database.ts'
import { checkAttachmentName, readEncoding } from '../../documents/incoming-attachments.ts'
import { newBoundary } from '../../documents/pieces.ts'
import { contentRange, isRangeOf, rangePieces, readRanges } from '../header-values.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import {
  absoluteUrl,
  HEADER_TEXT,
  isKnownToClient,
  multipartHead,
  sendJson,
  sendNotModified,
  sendPieces,
  setEtag,
} from '../replies.ts'
import { idOf, parentRev, pathParam, queryOf, textParam } from '../request-params.ts'
import type { Path } from '../route-table.ts'
import { requestSizeLimit, type SizeLimit, withRawBody } from '../transport/body-reader.ts'
import { chooseEncoding } from '../transport/compression.ts'
import { addVary, type StreamHead } from '../transport/json-stream.ts'
import { useConfiguredPolicy } from '../transport/page-policy.ts'

export const attachmentRoutes: readonly Path[] = [
  {
    url: '/:db/:docid/*',
    allow: 'DELETE,GET,HEAD,PUT',
    access: 'member',
    methods: {
      GET: { handler: getAttachment, compress: false },
      PUT: { handler: putAttachment },
      DELETE: { handler: deleteAttachment },
    },
  },
  {
    url: '/:db/_design/:ddoc/*',
    allow: 'DELETE,GET,HEAD,PUT',
    access: 'member',
    methods: {
      GET: { handler: getAttachment, compress: false },
      PUT: { handler: putAttachment, access: 'db admin' },
      DELETE: { handler: deleteAttachment, access: 'db admin' },
    },
  },
  // Other calls of a design document. Those that settee has, such as `_view`, have paths of their own.
  {
    url: '/:db/_design/:ddoc/_*',
    allow: 'GET,HEAD',
    access: 'member',
    methods: {
      GET: { handler: refuseUnknown },
      POST: { handler: refuseUnknown },
      PUT: { handler: refuseUnknown },
      DELETE: { handler: refuseUnknown },
      COPY: { handler: refuseUnknown },
    },
  },
]

async function getAttachment(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const id = idOf(request)
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  const name = pathParam(request, '*')
  const rev = textParam(queryOf(request), 'rev')
  const content = await databaseOf(request).openAttachment(request.user, id, name, rev)
  const etag = `"${content.digest.replace(/^md5-/, '')}"`
  const isPlain = content.encoding === null
  useConfiguredPolicy(reply, 'attachments')
  if (!isPlain) addVary(reply, 'Accept-Encoding')
  if (isKnownToClient(request, reply, etag)) return sendNotModified(reply)
  reply.header('Accept-Ranges', isPlain ? 'bytes' : 'none')
  // The type is whatever the attachment's writer has sent.
  const type = HEADER_TEXT.test(content.type) ? content.type : 'application/octet-stream'
  if (isPlain) return sendRanges(request, reply, content, type, etag)
  return sendCoded(request, reply, content, type)
}

/** Sends a content that is stored without encoding, whole or in ranges. */
async function sendRanges(
  request: FastifyRequest,
  reply: FastifyReply,
  content: AttachmentAnswer,
  type: string,
  etag: string,
): Promise<void> {
  const { range: asked, 'if-range': ifRange } = request.headers
  const ranges = isRangeOf(ifRange, etag) ? readRanges(asked, content.length) : 'whole'
  if (ranges === 'unsatisfiable') {
    reply.header('Content-Range', `bytes */${content.length}`)
    throw new CouchError('range')
  }
  if (ranges === 'whole') {
    return sendPieces(request, reply, wholeHead(type), [{ content, form: 'stored' }])
  }
  const [range] = ranges
  if (range !== undefined && ranges.length === 1) {
    const headers = { 'Content-Type': type, 'Content-Range': contentRange(range, content.length) }
    const head = { status: 206, headers, asIs: true }
    return sendPieces(request, reply, head, [{ content, form: 'stored', range }])
  }
  const boundary = newBoundary()
  const pieces = rangePieces(content, type, ranges, boundary)
  return sendPieces(request, reply, multipartHead('multipart/byteranges', boundary), pieces)
}

/** Sends a content that is stored as gzip. It is inflated for clients that do not accept gzip. */
async function sendCoded(
  request: FastifyRequest,
  reply: FastifyReply,
  content: AttachmentAnswer,
  type: string,
): Promise<void> {
  const takesGzip = chooseEncoding(request.headers['accept-encoding'], true) === 'gzip'
  if (takesGzip) reply.header('Content-Encoding', 'gzip')
  return sendPieces(request, reply, wholeHead(type), [{ content, form: takesGzip ? 'stored' : 'decoded' }])
}

function wholeHead(type: string): StreamHead {
  return { status: 200, headers: { 'Content-Type': type }, asIs: true }
}

async function refuseUnknown(): Promise<never> {
  throw new CouchError('not_found')
}

async function putAttachment(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { id, name } = addressed(request)
  // Checked before the body is read, which may be large.
  checkAttachmentName(name)
  if (!request.server.services.policy.documents.attachments) throw new CouchError('hosted_attachment')
  const options = {
    type: request.headers['content-type'] || 'application/octet-stream',
    encoding: readEncoding(request.headers['content-encoding'] ?? 'identity'),
    ...parentOf(request),
  }
  const saved = await withRawBody(request, attachmentSizeLimit(request, name), (body) =>
    databaseOf(request).putAttachment(request.user, id, name, body, options),
  )
  const db = pathParam(request, 'db')
  setEtag(reply, `"${saved.rev}"`)
  reply.header('Location', absoluteUrl(request, db, id, name))
  return sendJson(reply, 201, { ok: true, id, rev: saved.rev })
}

async function deleteAttachment(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { id, name } = addressed(request)
  const { rev } = parentOf(request)
  const saved = await databaseOf(request).removeAttachment(request.user, id, name, rev)
  return sendJson(reply, 200, { ok: true, id, rev: saved.rev })
}

function addressed(request: FastifyRequest): { id: string; name: string } {
  const id = idOf(request)
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  const name = pathParam(request, '*')
  return { id, name }
}

function parentOf(request: FastifyRequest): { rev?: string } {
  const { rev } = parentRev(request)
  return rev === undefined ? {} : { rev }
}

/** The smaller of `couchdb/max_attachment_size` and the limit of all requests. */
function attachmentSizeLimit(request: FastifyRequest, name: string): SizeLimit {
  const whole = requestSizeLimit(request)
  const bytes = request.server.services.config.bytes('couchdb', 'max_attachment_size')
  if (bytes > whole.bytes) return whole
  return {
    bytes,
    key: 'couchdb/max_attachment_size',
    refusal: () => new CouchError('attachment_too_large', name),
  }
}
