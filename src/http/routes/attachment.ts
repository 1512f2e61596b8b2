/** Attachments on their own addresses; protocol.md 7.4. Reading them, so far: writing comes through documents. */
import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { isLocalId } from '../../core/ids.ts'
import { idOf } from '../document-params.ts'
import { queryOf, textParam } from '../query-params.ts'
import { isKnownToClient, sendNotModified } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf } from '../services.ts'

export const attachmentRoutes: readonly Path[] = [
  {
    url: '/:db/:docid/*',
    allow: 'GET,HEAD',
    access: 'member',
    methods: { GET: { handler: getAttachment, compress: false } },
  },
  {
    url: '/:db/_design/:ddoc/*',
    allow: 'GET,HEAD',
    access: 'member',
    methods: { GET: { handler: getAttachment, compress: false } },
  },
  // Calls of a design document, like `_view`: what there is of them stands in the table with its full path.
  {
    url: '/:db/_design/:ddoc/_*',
    allow: 'GET,HEAD',
    access: 'member',
    methods: {
      GET: { handler: refuseUnknown },
      POST: { handler: refuseUnknown },
      PUT: { handler: refuseUnknown },
      DELETE: { handler: refuseUnknown },
    },
  },
]

/** What Node lets into a header; the type comes from whoever wrote the attachment. */
const HEADER_TEXT = /^[\x20-\x7e\x80-\xff]+$/

async function getAttachment(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const id = idOf(request)
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  const { '*': name } = request.params as { '*': string }
  const database = databaseOf(request)
  const rev = textParam(queryOf(request), 'rev')
  const found = await database.openAttachment(request.user, id, name, rev)
  reply.headers({ 'Accept-Ranges': 'none', 'Content-Security-Policy': 'sandbox' })
  if (isKnownToClient(request, reply, `"${found.digest.replace(/^md5-/, '')}"`)) return sendNotModified(reply)
  reply.headers({
    'Content-Type': HEADER_TEXT.test(found.type) ? found.type : 'application/octet-stream',
    'Content-Length': String(found.length),
  })
  const wanted = request.method === 'HEAD' ? 0 : found.length
  return reply.send(Readable.from(database.readAttachment(found.blob, 0, wanted), { objectMode: false }))
}

async function refuseUnknown(): Promise<never> {
  throw new CouchError('not_found')
}
