import type { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'

/** The CouchDB whose behaviour is kept; clients look for it in the header `Server` (clients.md R1). */
export const COUCHDB_VERSION = '3.5.0'

const REQUEST_ID = /^[A-Za-z0-9_-]{1,36}$/
const FIVE_HEX_DIGITS = 2 ** 20

/** The headers of every answer; protocol.md 1.1. (`Date` is Node's.) */
export const couchHeaders = fp(
  async (app) => {
    app.decorateRequest('tellBodyTime')
    app.addHook('onRequest', (request, reply, done) => {
      setCouchHeaders(request, reply)
      done()
    })
  },
  { name: 'couch-headers' },
)

/** Sets them on one reply; the hook does not reach requests that no route was looked for. */
export function setCouchHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.headers({
    Server: `settee/${request.server.services.version} CouchDB/${COUCHDB_VERSION}`,
    'Cache-Control': 'must-revalidate',
    'X-Couch-Request-ID': request.id,
    'X-CouchDB-Body-Time': '0',
  })
  request.tellBodyTime = (ms) => {
    reply.header('X-CouchDB-Body-Time', String(ms))
  }
}

/** The id of a request: the client's own where it is a proper one, else ten hex digits (protocol.md 1.1). */
export function requestId(request: IncomingMessage): string {
  const sent = request.headers['x-couch-request-id']
  if (typeof sent === 'string' && REQUEST_ID.test(sent)) return sent
  return fiveHexDigits() + fiveHexDigits()
}

/** Of a small integer, which V8 writes five times as fast as a number of forty bits. */
function fiveHexDigits(): string {
  const number = FIVE_HEX_DIGITS + Math.floor(Math.random() * FIVE_HEX_DIGITS)
  return number.toString(16).slice(1)
}
