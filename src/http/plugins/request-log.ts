import { pathParams } from '../request-params.ts'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { CouchError } from '../../core/errors.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Bytes the connection had written before this request. */
    bytesBefore: number
  }
}

/**
 * One line a request at level debug: id, method, path, database, account, address, status, milliseconds, bytes. The query
 * and the headers stay out, since they may hold what is nobody's business.
 */
export const requestLog = fp(
  async (app) => {
    app.decorateRequest('bytesBefore', 0)
    app.addHook('onRequest', (request, _reply, done) => {
      request.bytesBefore = request.raw.socket.bytesWritten
      done()
    })
    app.addHook('onResponse', (request, reply, done) => {
      logRequest(request, reply)
      done()
    })
  },
  { name: 'request-log' },
)

/**
 * What may be said of a request at every level: ids of documents and names of attachments are in paths, credentials in
 * queries, and so neither is here.
 */
export function factsOf(request: FastifyRequest): Record<string, unknown> {
  return {
    id: request.id,
    method: request.method,
    route: request.routeOptions.url,
    database: pathParams(request).db,
  }
}

/** What may be said of an error: reasons repeat what was sent, or what a user's function has thrown. */
export function causeOf(error: CouchError): Record<string, unknown> {
  const { cause, code } = error
  return { err: cause === undefined ? { code } : cause }
}

/** How loudly the log tells of a fault that has become an answer. */
export function levelOf({ code, cause }: CouchError): 'debug' | 'warn' | 'error' {
  // Told once of the file or the disk (server.ts, metrics/space-watch.ts), not of each request that meets it.
  if (code === 'damaged_file' || code === 'disk_fault') return 'debug'
  if (code === 'insufficient_storage' && cause === undefined) return 'debug'
  // That there is more to do than can be done is no fault.
  return code === 'unavailable' && cause === undefined ? 'warn' : 'error'
}

function logRequest(request: FastifyRequest, reply: FastifyReply): void {
  const { logger } = request.server.services
  if (!logger.isLevelEnabled('debug')) return
  const [path] = request.url.split('?', 1)
  logger.debug(
    {
      id: request.id,
      method: request.method,
      path,
      database: pathParams(request).db,
      account: request.user?.name,
      address: request.address,
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      bytes: request.raw.socket.bytesWritten - request.bytesBefore,
    },
    'request',
  )
}
