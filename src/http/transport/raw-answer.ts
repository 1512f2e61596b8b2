/** Answers as bytes, where Fastify's reply cannot send them, and orderly ends of connections. */
import type { ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { finished } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { reduceHeaders } from '../plugins/couch-headers.ts'
import { StreamResponse } from './http2-messages.ts'

// `import` reads all exports of node:http, which loads Node's fetch: 2 MB.
const { METHODS, STATUS_CODES }: typeof import('node:http') = createRequire(import.meta.url)('node:http')

/** The methods that Node's parser for HTTP/1 accepts. */
export const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS)

export function notHttp(): CouchError {
  return new CouchError('bad_request', 'The request is not valid HTTP.')
}

/** The body of an error's answer; protocol.md 1.1. */
export function errorBody(error: CouchError): Buffer {
  return Buffer.from(`${JSON.stringify(error.toBody())}\n`)
}

/**
 * A complete answer, the last one of its connection.
 * @param lines further header fields
 * @param isBare true for a HEAD: without the body
 */
export function rawAnswer(error: CouchError, lines: readonly string[], isBare = false): string {
  const body = errorBody(error).toString()
  return [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: must-revalidate',
    'X-Content-Type-Options: nosniff',
    'Connection: close',
    ...lines,
    '',
    isBare ? '' : body,
  ].join('\r\n')
}

/**
 * Breaks an answer off, of which a part may have been sent: the client must not take that for the whole. Where the answer ends with
 * its connection, as over HTTP/1.0, only a reset shows the difference (RFC 9112 8).
 */
export function breakOff(answer: ServerResponse): void {
  const isOfStream = (answer as object) instanceof StreamResponse
  const { socket } = answer
  // TLS has an end mark of its own, which is missing then.
  if (isOfStream || answer.chunkedEncoding || socket === null || 'encrypted' in socket) answer.destroy()
  else socket.resetAndDestroy()
}

/** How long a refused client may go on sending before the connection is cut, in milliseconds. */
const LINGER_MS = 2000

/**
 * Answers while the client is still sending a body, then closes the connection. Closing at once would reset it, and the
 * client would see the reset instead of the answer (RFC 9112 9.6). So the rest is discarded for a moment first.
 */
export async function answerAndClose(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: Buffer,
): Promise<void> {
  reduceHeaders(request, reply)
  reply.hijack()
  const { raw } = reply
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) raw.setHeader(name, value)
  }
  raw.setHeader('Content-Length', payload.length)
  // The client is asked to stop, and the connection has other streams (http2-messages.ts).
  if ((raw as object) instanceof StreamResponse) {
    raw.end(payload)
    return
  }
  raw.setHeader('Connection', 'close')
  raw.write(payload)
  await bodyEndOrTimeout(request)
  raw.end()
}

const ending = new WeakSet<Socket>()

/**
 * Ends a connection after its last answer in the stages of RFC 9112 9.6: the server stops writing, discards what still
 * arrives, and closes the connection when the client has closed it or a moment later. Closing at once with unread data,
 * such as further requests, would reset the connection, and the client would lose answers that it has not read yet.
 */
export function closeInStages(socket: Socket): void {
  if (ending.has(socket) || socket.destroyed) return
  ending.add(socket)
  const cut = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(cut))
  // Node's server releases a socket that has another listener, so that it parses no further requests.
  socket.on('data', discardData)
  socket.removeAllListeners('data')
  socket.on('data', discardData)
  socket.end()
  socket.resume()
}

/** @returns whether the connection has had its last answer */
export function isEnding(socket: Socket): boolean {
  return ending.has(socket)
}

function discardData(): void {
  // The bytes are ignored.
}

function bodyEndOrTimeout(request: FastifyRequest): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, LINGER_MS)
    finished(request.raw, { writable: false }, () => {
      clearTimeout(timer)
      resolve()
    })
    request.raw.resume()
  })
}
