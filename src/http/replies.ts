import type { FastifyReply, FastifyRequest } from 'fastify'
import { bytesOfText, byteText, type Sendable } from '../core/bytes.ts'
import type { OpenOptions } from '../documents/database.ts'
import {
  filledPieces,
  newBoundary,
  type Piece,
  pieceChunks,
  piecesLength,
  relatedPieces,
} from '../documents/pieces.ts'
import { type MultipartType, wantsMultipart } from './header-values.ts'
import { databaseOf } from './plugins/access-rules.ts'
import { asScript, JSONP_TYPE } from './plugins/couch-headers.ts'
import { hostOf, isSecure } from './transport/connection.ts'
import { addVary, openStream, type StreamHead, sendStream } from './transport/json-stream.ts'
import { needsNoSandbox } from './transport/page-policy.ts'
import { isSentUnchanged, sendAtOnce } from './transport/short-answer.ts'

/** Answers with a value as JSON and a newline. Sent as bytes, since Fastify adds a charset to text (protocol.md 17). */
export function sendJson(reply: FastifyReply, status: number, value: unknown): FastifyReply {
  return sendBytes(reply, status, byteText(Buffer.from(`${JSON.stringify(value)}\n`)))
}

/** Answers with JSON that a database's thread has encoded. */
export function sendBytes(reply: FastifyReply, status: number, bytes: Sendable): FastifyReply {
  const { jsonp } = reply.request
  if (jsonp !== null) return sendScript(reply, status, jsonp, bytes)
  reply.code(status).type('application/json')
  needsNoSandbox(reply.raw)
  if (typeof bytes !== 'string') return reply.send(bytes)
  if (!isSentUnchanged(reply.request, bytes)) return reply.send(bytesOfText(bytes))
  return sendAtOnce(reply, status, bytes)
}

function sendScript(reply: FastifyReply, status: number, callback: string, json: Sendable): FastifyReply {
  const bytes = typeof json === 'string' ? bytesOfText(json) : json
  return reply.code(status).type(JSONP_TYPE).send(asScript(callback, bytes))
}

/** What Node accepts in a header. It throws at anything else, and the request gets no answer. */
export const HEADER_TEXT = /^[\t\x20-\x7e\x80-\xff]+$/

/** A valid ETag: RFC 9110 8.8.3. */
const ETAG = /^"[\x21\x23-\x7e\x80-\xff]*"$/

/** Sets the ETag if it is valid: a replicating client may use any text as a revision's id. */
export function setEtag(reply: FastifyReply, etag: string): void {
  if (ETAG.test(etag)) reply.header('ETag', etag)
}

/**
 * Sets the ETag.
 * @returns whether the client has this version already (`If-None-Match`, protocol.md 3.1), so that the answer is a 304
 */
export function isKnownToClient(request: FastifyRequest, reply: FastifyReply, etag: string): boolean {
  setEtag(reply, etag)
  const known = request.headers['if-none-match']
  if (known === undefined) return false
  return known.split(/[\s,]+/).some((each) => (each.startsWith('W/') ? each.slice(2) : each) === etag)
}

/** Sends the length 0, as CouchDB does. */
export function sendNotModified(reply: FastifyReply): FastifyReply {
  // Over HTTP/2, which CouchDB lacks, no length is sent: it would be that of the answer with 200 (RFC 9110 8.6).
  if (reply.request.raw.httpVersionMajor === 1) reply.header('Content-Length', 0)
  return reply.code(304).send()
}

/** Streams JSON. An error before the first chunk becomes a proper answer. */
export function streamJson(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  chunks: AsyncIterable<Uint8Array>,
): Promise<void> {
  return sendStream(request, reply, { status, type: 'application/json', chunks })
}

/**
 * The absolute address of a resource, with the host as the client or a trusted proxy named it (protocol.md 3.9).
 * @param segments of the path, not encoded; a slash in a segment is encoded, as in the `_design%2Fx` of CouchDB's `Location`
 */
export function absoluteUrl(request: FastifyRequest, ...segments: readonly string[]): string {
  return addressOfPath(request, `/${segments.map(escaped).join('/')}`)
}

/** As CouchDB escapes a segment: all but letters, digits and `_.-:`. */
function escaped(segment: string): string {
  return encodeURIComponent(segment)
    .replaceAll('%3A', ':')
    .replace(/[!'()*~]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
}

/** The same for an encoded path that begins with a slash. */
export function addressOfPath(request: FastifyRequest, path: string): string {
  const host = hostOf(request)
  return host === undefined ? path : `${isSecure(request) ? 'https' : 'http'}://${host}${path}`
}

/** The head of a multipart answer. */
export function multipartHead(type: MultipartType | 'multipart/byteranges', boundary: string): StreamHead {
  const status = type === 'multipart/byteranges' ? 206 : 200
  return { status, headers: { 'Content-Type': `${type}; boundary="${boundary}"` }, asIs: true }
}

/**
 * Answers with pieces. Contents of attachments are read from the request's database while they are sent.
 * @throws no_attachment if a content of the first chunk is gone
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

/** Answers with a document and the contents of its attachments: multipart/related (protocol.md 7.3), or JSON with base64. */
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
    return sendPieces(request, reply, { status: 200, type: 'application/json' }, filledPieces(opened))
  }
  const boundary = newBoundary()
  // Without the newline that ends a JSON answer.
  const pieces = relatedPieces(json.subarray(0, -1), parts, boundary)
  return sendPieces(request, reply, multipartHead('multipart/related', boundary), pieces)
}

/** Answers `open_revs`: multipart/mixed, or a JSON array (protocol.md 3.2). */
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
    const chunks = database.openRevs(request.user, id, revs, options)
    return streamJson(request, reply, 200, chunks)
  }
  const boundary = newBoundary()
  const chunks = database.openRevsMixed(request.user, id, revs, options, boundary)
  return sendStream(request, reply, { ...multipartHead('multipart/mixed', boundary), chunks })
}
