/** Connections that speak no HTTP, or speak it too slowly. */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError, FastifyInstance } from 'fastify'
import { CouchError, type ErrorName } from '../core/errors.ts'
import { corsLines } from './plugins/cors.ts'
import { rawAnswer } from './raw-answer.ts'

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

/** Answers once, and ends the connection. Fastify calls it on the app. */
export function answerClientError(this: FastifyInstance, error: ConnectionError, socket: Socket): void {
  const { _httpMessage: begun } = socket as Socket & { _httpMessage?: Begun | null }
  if (begun && !begun.headersSent && begun.req.complete && socket.writable) {
    // What is wrong stands behind a request that was in order, and is to have its answer.
    socket.pause()
    begun.once('finish', () => socket.destroySoon())
    return
  }
  // A connection that was opened ahead, and on which nothing was asked, is closed without a word.
  const isAsked = error.code !== 'ECONNRESET' && socket.bytesRead > 0
  // Node's own rule (_http_server.js): a second answer must not be mixed into one that has begun.
  if (isAsked && socket.writable && !begun?.headersSent) {
    socket.write(rawAnswer(errorOf(error), corsLines(this.cors, lastPacket(error))))
  }
  socket.destroy()
}

function errorOf({ code }: ConnectionError): CouchError {
  const row = ROWS[code]
  return row === undefined
    ? new CouchError('bad_request', 'The request is not valid HTTP.')
    : new CouchError(row)
}

/** What the parser was given last: of a short head all of it. */
function lastPacket({ rawPacket }: { rawPacket?: unknown }): Buffer {
  return Buffer.isBuffer(rawPacket) ? rawPacket : Buffer.alloc(0)
}
