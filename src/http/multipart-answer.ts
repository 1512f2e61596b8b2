/** Answers of several parts, and documents that carry the contents of their attachments. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { OpenOptions } from '../documents/database.ts'
import { filledPieces, newBoundary, relatedPieces } from '../documents/parts.ts'
import { type Piece, pieceChunks, piecesLength } from '../documents/pieces.ts'
import { type MultipartType, wantsMultipart } from './accept.ts'
import { addVary, openStream, type StreamHead, sendStream } from './json-stream.ts'
import { isKnownToClient, sendBytes, sendNotModified } from './replies.ts'
import { databaseOf } from './services.ts'

/** The head of a multipart answer. */
export function multipartHead(type: MultipartType | 'multipart/byteranges', boundary: string): StreamHead {
  const status = type === 'multipart/byteranges' ? 206 : 200
  return { status, headers: { 'Content-Type': `${type}; boundary="${boundary}"` }, asIs: true }
}

/**
 * Answers with pieces, whose contents are read from the request's database while they are sent.
 * @throws no_attachment when a content that the first chunk needs is gone
 */
export async function sendPieces(
  request: FastifyRequest,
  reply: FastifyReply,
  head: StreamHead,
  pieces: readonly Piece[],
): Promise<void> {
  const headers = { ...head.headers, 'Content-Length': String(piecesLength(pieces)) }
  if (request.method === 'HEAD') {
    openStream(request, reply, { ...head, headers })
    return
  }
  const database = databaseOf(request)
  const chunks = pieceChunks(pieces, (content, start, end) => database.readAttachment(content, start, end))
  await sendStream(request, reply, { ...head, headers, chunks })
}

/** GET of a document with the contents of attachments: multipart/related (protocol.md 7.3), or JSON with base64. */
export async function sendWithContents(
  request: FastifyRequest,
  reply: FastifyReply,
  id: string,
  options: OpenOptions,
): Promise<unknown> {
  addVary(reply, 'Accept')
  const form = wantsMultipart(request.headers.accept, 'multipart/related') ? 'follows' : 'data'
  const opened = await databaseOf(request).openParts(request.user, id, options, form)
  const { etag, json, parts } = opened
  if (etag !== null && isKnownToClient(request, reply, etag)) return sendNotModified(reply)
  if (parts.length === 0) return sendBytes(reply, 200, json)
  if (form === 'data') {
    const head = { status: 200, headers: { 'Content-Type': 'application/json' } }
    return sendPieces(request, reply, head, filledPieces(opened))
  }
  const boundary = newBoundary()
  // The newline that ends a JSON answer is no part of the document.
  const pieces = relatedPieces(json.subarray(0, -1), parts, boundary)
  return sendPieces(request, reply, multipartHead('multipart/related', boundary), pieces)
}

/** `open_revs`: multipart/mixed, or a JSON array (protocol.md 3.2). */
export async function sendRevisions(
  request: FastifyRequest,
  reply: FastifyReply,
  id: string,
  revs: readonly unknown[] | 'all',
  options: OpenOptions,
): Promise<void> {
  addVary(reply, 'Accept')
  const database = databaseOf(request)
  if (!wantsMultipart(request.headers.accept, 'multipart/mixed')) {
    const head = { status: 200, headers: { 'Content-Type': 'application/json' } }
    const chunks = database.openRevs(request.user, id, revs, options)
    return sendStream(request, reply, { ...head, chunks })
  }
  const boundary = newBoundary()
  const chunks = database.openRevsMixed(request.user, id, revs, options, boundary)
  return sendStream(request, reply, { ...multipartHead('multipart/mixed', boundary), chunks })
}
