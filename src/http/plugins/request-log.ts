import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'

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

function logRequest(request: FastifyRequest, reply: FastifyReply): void {
  const { logger } = request.server.services
  if (!logger.isLevelEnabled('debug')) return
  const [path] = request.url.split('?', 1)
  logger.debug(
    {
      id: request.id,
      method: request.method,
      path,
      database: (request.params as { db?: string } | undefined)?.db,
      account: request.user?.name,
      address: request.address,
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      bytes: request.raw.socket.bytesWritten - request.bytesBefore,
    },
    'request',
  )
}
