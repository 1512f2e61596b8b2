import type { OutgoingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type ByteText, bytesOfText, byteText, type Sendable } from '../core/bytes.ts'
import { DESIGN_PREFIX, isDesignId, isLocalId, LOCAL_PREFIX } from '../core/ids.ts'
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
import { hostOf, isSecure } from './transport/client-address.ts'
import { COMPRESSED_BYTES } from './transport/compression.ts'
import { addVary, openStream, type StreamHead, sendStream } from './transport/json-stream.ts'

/** Answers with a value as JSON and a newline; as bytes, or Fastify would name a charset (protocol.md 17). */
export function sendJson(reply: FastifyReply, status: number, value: unknown): FastifyReply {
  return sendBytes(reply, status, byteText(Buffer.from(`${JSON.stringify(value)}\n`)))
}

/** Answers with JSON that a database's thread has made. */
export function sendBytes(reply: FastifyReply, status: number, bytes: Sendable): FastifyReply {
  const { jsonp } = reply.request
  if (jsonp !== null) return sendScript(reply, status, jsonp, bytes)
  reply.code(status).type('application/json')
  if (typeof bytes !== 'string') return reply.send(bytes)
  if (!isSentUnchanged(reply.request, bytes)) return reply.send(bytesOfText(bytes))
  return sendAtOnce(reply, status, bytes)
}

function sendScript(reply: FastifyReply, status: number, callback: string, json: Sendable): FastifyReply {
  const bytes = typeof json === 'string' ? bytesOfText(json) : json
  return reply.code(status).type(JSONP_TYPE).send(asScript(callback, bytes))
}

/** Whether no hook changes the answer: compression, prefer-minimal, and Fastify's own for HEAD. */
function isSentUnchanged({ method, headers }: FastifyRequest, text: ByteText): boolean {
  if (method === 'HEAD' || headers.prefer !== undefined) return false
  return headers['accept-encoding'] === undefined || text.length < COMPRESSED_BYTES
}

/**
 * Sends past Fastify, with head and body in one string, which Node writes at once; bytes would be a list of two. Without
 * this, a GET took 7 to 16 % more CPU time in pairs of trials.
 */
function sendAtOnce(reply: FastifyReply, status: number, text: ByteText): FastifyReply {
  const { raw } = reply
  raw.writeHead(status, { ...(reply.getHeaders() as OutgoingHttpHeaders), 'content-length': text.length })
  reply.hijack()
  raw.end(text, 'latin1')
  return reply
}

/** What Node lets into a header; it throws at anything else, and nobody is answered. */
export const HEADER_TEXT = /^[\t\x20-\x7e\x80-\xff]+$/

/** What an ETag may hold between its quotes: RFC 9110 8.8.3. */
const ETAG = /^"[\x21\x23-\x7e\x80-\xff]*"$/

/** Sends the ETag, unless it cannot be one: a revision's id is any text that a replicating client has made. */
export function setEtag(reply: FastifyReply, etag: string): void {
  if (ETAG.test(etag)) reply.header('ETag', etag)
}

/**
 * Sends the ETag, and says whether the client has just that already (`If-None-Match`, protocol.md 3.1): then the
 * answer is 304 without a body.
 */
export function isKnownToClient(request: FastifyRequest, reply: FastifyReply, etag: string): boolean {
  setEtag(reply, etag)
  const known = request.headers['if-none-match']
  if (known === undefined) return false
  return known
    .split(/[\s,]+/)
    .some((each) => each === '*' || (each.startsWith('W/') ? each.slice(2) : each) === etag)
}

/** Without a length: one that it has is that of the document (RFC 9110 8.6), and Fastify would tell HEAD that it is 0. */
export function sendNotModified(reply: FastifyReply): FastifyReply {
  return reply.code(304).send(reply.request.method === 'HEAD' ? Readable.from([]) : undefined)
}

/** Answers with JSON that is made while it is sent; what `chunks` throws first becomes a proper answer. */
export function streamJson(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  chunks: AsyncIterable<Uint8Array>,
): Promise<void> {
  return sendStream(request, reply, { status, headers: { 'Content-Type': 'application/json' }, chunks })
}

/**
 * The absolute address of a thing, as the client named this server, or as a trusted proxy says that it did
 * (protocol.md 3.9).
 * @param segments of the path, not yet encoded
 */
export function absoluteUrl(request: FastifyRequest, ...segments: readonly string[]): string {
  return addressOfPath(request, `/${segments.map(encodeURIComponent).join('/')}`)
}

/** The same of a path that is encoded already, and begins with a slash. */
export function addressOfPath(request: FastifyRequest, path: string): string {
  const host = hostOf(request)
  return host === undefined ? path : `${isSecure(request) ? 'https' : 'http'}://${host}${path}`
}

/** The same for a document; the one slash of `_design/x` and `_local/x` stays a slash (protocol.md 2.2). */
export function documentUrl(request: FastifyRequest, database: string, id: string): string {
  const prefix = isDesignId(id) ? DESIGN_PREFIX : isLocalId(id) ? LOCAL_PREFIX : ''
  const segments = prefix === '' ? [id] : [prefix.slice(0, -1), id.slice(prefix.length)]
  return absoluteUrl(request, database, ...segments)
}

// Answers of several parts, and documents that carry the contents of their attachments.

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
