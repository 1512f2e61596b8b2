/** Connections that speak no HTTP, or speak it too slowly. */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { CouchError, type ErrorName } from '../../core/errors.ts'
import { Turns } from '../../threads/turns.ts'
import { corsLines } from '../plugins/cross-origin.ts'
import { BAD_QUERY } from '../query-params.ts'
import { exceededLimit } from './connections.ts'
import { closeInStages, isEnding, notHttp, rawAnswer } from './raw-answer.ts'

/** What Node calls what is wrong with a request that was never made one. */
const ROWS: Readonly<Record<string, ErrorName>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** What Node keeps of the answer that is under way; null between requests. */
interface Begun {
  readonly headersSent: boolean
  readonly req: IncomingMessage
  once(event: 'finish', listener: () => void): void
}

/** Node tells of what is wrong again with each packet that comes after. */
const told = new WeakSet<Socket>()

/** When a network goes, hundreds of connections break in one turn of the event loop; the end of each takes 0.1 ms. */
const ends = new Turns<() => void>((end) => end())

/** Answers once, and ends the connection, now or a few turns later. Fastify calls it on the app. */
export function answerClientError(this: FastifyInstance, error: ConnectionError, socket: Socket): void {
  if (told.has(socket) || isEnding(socket)) return
  told.add(socket)
  // A connection that was opened ahead, and on which nothing was asked, is closed without a word.
  this.connections.onInvalidRequest(socket)
  const isAsked = error.code !== 'ECONNRESET' && socket.bytesRead > 0
  ends.add('', () => {
    endInTurn(socket, isAsked ? rawAnswer(errorOf(error), corsLines(this.cors, lastPacket(error))) : '')
  })
  ends.run()
}

/**
 * Ends the connection after the answers to the requests that were in order before: a client would take what it has of
 * them for a failure, and cannot know what became of those that it has not.
 */
function endInTurn(socket: Socket, answer: string): void {
  const { _httpMessage: begun } = socket as Socket & { _httpMessage?: Begun | null }
  if (begun?.req.complete && socket.writable) {
    socket.pause()
    // Node has the next answer take its turn first: it listens since the request came.
    begun.once('finish', () => endInTurn(socket, answer))
    return
  }
  // Node's own rule (_http_server.js): a second answer must not be mixed into one that has begun.
  if (answer === '' || !socket.writable || begun?.headersSent) {
    socket.destroy()
    return
  }
  socket.write(answer)
  closeInStages(socket)
}

function errorOf({ code }: ConnectionError): CouchError {
  const row = ROWS[code]
  return row === undefined ? notHttp() : new CouchError(row)
}

/** What the parser was given last: of a short head all of it. */
function lastPacket({ rawPacket }: { rawPacket?: unknown }): Buffer {
  return Buffer.isBuffer(rawPacket) ? rawPacket : Buffer.alloc(0)
}

// What is wrong with a request before anybody looks at what it asks for.

/** Of the head of one request, its address included. */
export const MAX_HEADER_BYTES = 64 * 1024

/**
 * Looks at the connection and the head of a request, and says on the reply when the connection is to be closed.
 * @returns what the request is refused with
 */
export function faultOfRequest(request: FastifyRequest, reply: FastifyReply): CouchError | undefined {
  const { raw, headers } = request
  // Nothing here is upgraded, but Node's parser throws away what comes after such a request.
  if (headers.upgrade !== undefined && /\bupgrade\b/i.test(headers.connection ?? '')) {
    reply.header('Connection', 'close')
  }
  const limit = exceededLimit(raw.socket)
  if (limit !== null) {
    reply.header('Connection', 'close')
    // A server that is busy is healthy: `_up` is answered.
    if (request.routeOptions.config.credentials !== 'ignored') return tooMany(reply, limit)
  }
  return faultOfHead(request)
}

function tooMany(reply: FastifyReply, limit: string): CouchError {
  reply.header('Retry-After', '5')
  return new CouchError('unavailable', `There are too many connections (${limit}); try again.`)
}

/** Node is told not to look for Host (app.ts), since its answer to who forgets it is not of our shape. */
function faultOfHead({ query, headers, raw, server, originalUrl }: FastifyRequest): CouchError | undefined {
  // Of HTTP/1 Node's parser counts (client-errors.ts).
  if (raw.httpVersion === '2.0' && isTooLong(raw.rawHeaders)) return new CouchError('headers_too_large')
  if (originalUrl.length > server.services.config.bytes('chttpd', 'max_uri_length')) {
    return new CouchError('uri_too_long')
  }
  if (query === BAD_QUERY) return new CouchError('invalid_url')
  if (headers.host === undefined && raw.httpVersion !== '1.0') {
    return new CouchError('bad_request', 'The header Host is missing.')
  }
  // What stands before us may have looked at either: RFC 9113 8.3.1.
  if (raw.httpVersion === '2.0' && (headers[':authority'] ?? headers.host) !== headers.host) {
    return new CouchError('bad_request', 'The header Host differs from :authority.')
  }
  if (hasTwoHosts(raw.rawHeaders)) return new CouchError('bad_request', 'The header Host is there twice.')
  const coding = headers['transfer-encoding']
  if (coding !== undefined && coding !== 'chunked' && coding.toLowerCase() !== 'chunked') {
    return new CouchError('bad_request', 'The only Transfer-Encoding that is understood is chunked.')
  }
  return undefined
}

function isTooLong(headers: readonly string[]): boolean {
  let length = 0
  for (const text of headers) length += text.length
  return length > MAX_HEADER_BYTES
}

/** A proxy in front may have taken the other one for it: RFC 9112 3.2. */
function hasTwoHosts(headers: readonly string[]): boolean {
  let count = 0
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at]!
    if (name.length === 4 && name.toLowerCase() === 'host') count += 1
  }
  return count > 1
}
