/** Answers to connections that do not speak HTTP, or speak it too slowly. */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError, FastifyInstance } from 'fastify'
import { CouchError, type ErrorName } from '../../core/errors.ts'
import { FairQueue } from '../../threads/fair-queue.ts'
import { corsLines } from '../plugins/cross-origin.ts'
import { ALL_METHODS, wrongMethod } from '../route-table.ts'
import { closeInStages, isEnding, notHttp, rawAnswer } from './raw-answer.ts'

/** Node's codes for requests that its parser refuses. */
const ROWS: Readonly<Record<string, ErrorName>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Node's answer under way on a socket; null between requests. */
interface PendingAnswer {
  readonly headersSent: boolean
  readonly req: IncomingMessage
  once(event: 'finish', listener: () => void): void
}

/** The sockets that have their answer: Node emits the error again for each further packet. */
const answered = new WeakSet<Socket>()

/** Spreads ends over turns of the event loop: a network that fails breaks hundreds of connections at once, at 0.1 ms each. */
const ends = new FairQueue<() => void>((end) => end())

/** Answers once, and ends the connection, now or a few turns later. Fastify calls it with the app as `this`. */
export function answerClientError(this: FastifyInstance, error: ConnectionError, socket: Socket): void {
  if (answered.has(socket) || isEnding(socket)) return
  answered.add(socket)
  this.connections.onInvalidRequest(socket)
  // A connection that was opened ahead, without any request, gets no answer.
  const hasRequest = error.code !== 'ECONNRESET' && socket.bytesRead > 0
  ends.add('', () => {
    endInTurn(socket, hasRequest ? answerTo(error, this.cors) : '')
  })
  ends.run()
}

/**
 * Ends the connection after the answers to its earlier, valid requests. Without them the client could not know whether
 * those requests had been carried out.
 */
function endInTurn(socket: Socket, answer: string): void {
  const { _httpMessage: pending } = socket as Socket & { _httpMessage?: PendingAnswer | null }
  if (pending?.req.complete && socket.writable) {
    socket.pause()
    // Node's own listener is older, so that the next answer comes first.
    pending.once('finish', () => endInTurn(socket, answer))
    return
  }
  // As Node does (_http_server.js): a second answer must not be mixed into one that has begun.
  if (answer === '' || !socket.writable || pending?.headersSent) {
    socket.destroy()
    return
  }
  socket.write(answer)
  closeInStages(socket)
}

/** Of what is looked at, in bytes. */
const MAX_LINE = 8 * 1024
const MAX_METHOD = 32
/** The first line of a request whose method Node does not know. */
const REQUEST_LINE = /^[A-Z]{1,32} \/\S* HTTP\/1\.[01]\r?\n/

function answerTo(error: ConnectionError, cors: FastifyInstance['cors']): string {
  const packet = lastPacket(error)
  const lines = corsLines(cors, packet)
  const row = ROWS[error.code]
  if (row !== undefined) return rawAnswer(new CouchError(row), lines)
  if (error.code !== 'HPE_INVALID_METHOD' || !REQUEST_LINE.test(wrongLine(error, packet))) {
    return rawAnswer(notHttp(), lines)
  }
  return rawAnswer(wrongMethod(ALL_METHODS), [`Allow: ${ALL_METHODS}`, ...lines])
}

/** The line at whose method the parser stopped; earlier requests of the packet are valid. */
function wrongLine({ bytesParsed = 0 }: { readonly bytesParsed?: number }, packet: Buffer): string {
  let start = bytesParsed
  while (start > 0 && bytesParsed - start < MAX_METHOD && isCapital(packet[start - 1])) start--
  return packet.toString('latin1', start, start + MAX_LINE)
}

function isCapital(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x41 && byte <= 0x5a
}

/** The last packet that the parser was given; all of a short head. */
function lastPacket({ rawPacket }: { rawPacket?: unknown }): Buffer {
  return Buffer.isBuffer(rawPacket) ? rawPacket : Buffer.alloc(0)
}

/** The largest head of a request, including its address. */
export const MAX_HEADER_BYTES = 64 * 1024
