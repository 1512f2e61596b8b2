/** Connections that speak no HTTP, or speak it too slowly. */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError, FastifyInstance } from 'fastify'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { Turns } from '../threads/turns.ts'
import { closeInStages, isEnding } from './lingering-close.ts'
import { corsLines } from './plugins/cors.ts'
import { notHttp, rawAnswer } from './raw-answer.ts'

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
  this.connections.refused(socket)
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
