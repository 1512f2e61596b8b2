/** HTTP/2 over connections that somebody else has accepted. */
import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2'
import type { FastifyInstance } from 'fastify'
import { holdContinue } from './continue.ts'
import { MAX_HEADER_BYTES } from './head-faults.ts'
import { STREAM_WINDOW, StreamRequest, StreamResponse } from './http2-messages.ts'
import { errorBody, KNOWN_METHODS, notHttp } from './raw-answer.ts'

/**
 * Requests that a connection may have under way: as many as a browser's windows have feeds, and few enough that their
 * answers fit in memory (RFC 9113 6.5.2 advises no fewer than a hundred).
 */
const MAX_STREAMS = 128
const CONNECTION_WINDOW = 1024 * 1024
/** Of a head that nghttp2 takes at all: those above {@link MAX_HEADER_BYTES} get an answer (head-faults.ts). */
const HEAD_LIST_BYTES = 2 * MAX_HEADER_BYTES
/** Twice as many as Node takes by HTTP/1: browsers send each cookie as one. */
const HEADERS = 2000
/**
 * Megabytes that answers of a connection may wait in. Node refuses new streams above it: a piece of 256 kB for each of
 * its streams must fit, or who takes many pictures at a time is refused the next.
 */
const SESSION_MB = 64

/**
 * Makes a server that hands its requests to the app. It listens nowhere: a connection is given to it as an event
 * `connection`. Whoever opens streams and cancels them at once, more than a thousand and then 33 a second, is cut off by
 * nghttp2 below (CVE-2023-44487); floods of other frames by Node, or by http2-floods.ts.
 */
export function makeHttp2Server(app: FastifyInstance): Http2Server {
  const answer = (request: StreamRequest, response: StreamResponse) => {
    if (KNOWN_METHODS.has(request.method)) app.turns.take(request as never, response as never)
    else refuseMethod(app, response)
  }
  const server = createServer(
    {
      settings: {
        maxConcurrentStreams: MAX_STREAMS,
        initialWindowSize: STREAM_WINDOW,
        maxHeaderListSize: HEAD_LIST_BYTES,
        enableConnectProtocol: false,
      },
      maxHeaderListPairs: HEADERS,
      maxSessionMemory: SESSION_MB,
      Http2ServerRequest: StreamRequest as never,
      Http2ServerResponse: StreamResponse as never,
    },
    answer as never,
  )
  holdContinue(server)
  server.on('session', (session) => prepare(app, session))
  return server
}

/** As HTTP/1 refuses them, whose parser takes no other (client-errors.ts). */
function refuseMethod({ requestTally }: FastifyInstance, response: StreamResponse): void {
  requestTally.invalid += 1
  const error = notHttp()
  const body = errorBody(error)
  const headers = { 'content-type': 'application/json', 'cache-control': 'must-revalidate' }
  response.answerInstead(error.status, { ...headers, 'content-length': body.length }, body)
}

function prepare(app: FastifyInstance, session: ServerHttp2Session): void {
  session.setLocalWindowSize(CONNECTION_WINDOW)
  app.connections.openedSession(session)
}
