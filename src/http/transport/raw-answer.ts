/** Answers as bytes, for where no reply will carry them. */
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { finished } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { reduceHeaders } from '../plugins/couch-headers.ts'
import { StreamResponse } from './http2-messages.ts'

// An import of node:http reads all that it exports, and so loads Node's whole fetch: 2 MB.
const { METHODS, STATUS_CODES }: typeof import('node:http') = createRequire(import.meta.url)('node:http')

/** The methods that Node's parser of HTTP/1 knows. */
export const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS)

/** What is no request, whatever kept it from being one. */
export function notHttp(): CouchError {
  return new CouchError('bad_request', 'The request is not valid HTTP.')
}

/** The body of an error's answer; protocol.md 1.1. */
export function errorBody(error: CouchError): Buffer {
  return Buffer.from(`${JSON.stringify(error.toBody())}\n`)
}

/**
 * A whole answer, the last one of its connection.
 * @param lines header fields beside those that every such answer has
 * @param isBare the request was a HEAD
 */
export function rawAnswer(error: CouchError, lines: readonly string[], isBare = false): string {
  const body = errorBody(error).toString()
  return [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: must-revalidate',
    'Connection: close',
    ...lines,
    '',
    isBare ? '' : body,
  ].join('\r\n')
}

/** How long a client that was refused may go on sending before the connection is cut. */
const LINGER_MS = 2000

/**
 * Answers while the client is still sending a body that nobody will read, then closes the connection. Closing at
 * once would reset it, and the client would see the reset instead of the answer (RFC 9112 9.6), so the rest is
 * thrown away for a moment first.
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
  // The client is told to send no more, and the connection is for others, too (http2-messages.ts).
  if ((raw as object) instanceof StreamResponse) {
    raw.end(payload)
    return
  }
  raw.setHeader('Connection', 'close')
  raw.write(payload)
  await wholeOrLate(request)
  raw.end()
}

const ending = new WeakSet<Socket>()

/**
 * Ends a connection after its last answer, in the stages of RFC 9112 9.6: no more is written, what still comes is thrown
 * away, and it is closed when its client has closed it, or a moment later. Closing it at once while there is something
 * unread, such as requests behind the last one, would reset it, and take from the client what it has not read yet of all
 * answers before.
 */
export function closeInStages(socket: Socket): void {
  if (ending.has(socket) || socket.destroyed) return
  ending.add(socket)
  const cut = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(cut))
  // Node's server lets go of the socket when somebody else listens: what comes now must not be taken for requests.
  socket.on('data', throwAway)
  socket.removeAllListeners('data')
  socket.on('data', throwAway)
  socket.end()
  socket.resume()
}

/** Whether its last answer is given. */
export function isEnding(socket: Socket): boolean {
  return ending.has(socket)
}

function throwAway(): void {
  // It goes as it came.
}

function wholeOrLate(request: FastifyRequest): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, LINGER_MS)
    finished(request.raw, { writable: false }, () => {
      clearTimeout(timer)
      resolve()
    })
    request.raw.resume()
  })
}
