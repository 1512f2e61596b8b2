/** Writing attachments on their own addresses; protocol.md 7.4. The paths stand in attachment.ts. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { isLocalId } from '../../core/ids.ts'
import { checkAttachmentName, readEncoding } from '../../documents/incoming-attachments.ts'
import { requestSizeLimit, type SizeLimit, withRawBody } from '../body.ts'
import { idOf, parentRev } from '../document-params.ts'
import { documentUrl, sendJson, setEtag } from '../replies.ts'
import { databaseOf } from '../services.ts'

export async function putAttachment(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { id, name } = addressed(request)
  // Before the body is read: it may be large.
  checkAttachmentName(name)
  if (request.server.services.config.isHosted) throw new CouchError('hosted_attachment')
  const options = {
    type: request.headers['content-type'] || 'application/octet-stream',
    encoding: readEncoding(request.headers['content-encoding'] ?? 'identity'),
    ...parentOf(request),
  }
  const saved = await withRawBody(request, attachmentSizeLimit(request, name), (body) =>
    databaseOf(request).putAttachment(request.user, id, name, body, options),
  )
  const { db } = request.params as { db: string }
  const path = name.split('/').map(encodeURIComponent).join('/')
  setEtag(reply, `"${saved.rev}"`)
  reply.header('Location', `${documentUrl(request, db, id)}/${path}`)
  return sendJson(reply, 201, { ok: true, id, rev: saved.rev })
}

export async function deleteAttachment(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { id, name } = addressed(request)
  const { rev } = parentOf(request)
  const saved = await databaseOf(request).removeAttachment(request.user, id, name, rev)
  return sendJson(reply, 200, { ok: true, id, rev: saved.rev })
}

function addressed(request: FastifyRequest): { id: string; name: string } {
  const id = idOf(request)
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  const { '*': name } = request.params as { '*': string }
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
