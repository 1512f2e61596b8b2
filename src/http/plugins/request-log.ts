/** Logs requests, and says what of a request and of its error may be logged. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { CouchError } from '../../core/errors.ts'
import { pathParams } from '../request-params.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Bytes the connection had written before this request. */
    bytesBefore: number
  }
}

/**
 * The facts of a request that may be logged at every level: without its path, which holds ids of documents and names of
 * attachments, and its query, which may hold credentials.
 */
export function factsOf(request: FastifyRequest): Record<string, unknown> {
  return {
    id: request.id,
    method: request.method,
    route: request.routeOptions.url,
    database: pathParams(request).db,
  }
}

/** The loggable part of an error: its reason may repeat sent data, or the message of a user's function. */
export function causeOf(error: CouchError): Record<string, unknown> {
  const { cause, code } = error
  return { err: cause === undefined ? { code } : cause }
}

/** The log level for an error that was answered. */
export function levelOf({ code, cause }: CouchError): 'debug' | 'warn' | 'error' {
  // Logged once for the file or the disk (server.ts, metrics/space-watch.ts), not for each request.
  if (code === 'damaged_file' || code === 'disk_fault') return 'debug'
  if (code === 'insufficient_storage' && cause === undefined) return 'debug'
  // Every request fails with it until the store is back.
  if (code === 'store_unavailable') return 'warn'
  // The fault of the other server, or of its address.
  if (code === 'replication_failed' || code === 'replication_no_database') return 'warn'
  // An overload is no fault.
  return code === 'unavailable' && cause === undefined ? 'warn' : 'error'
}

/**
 * Logs one line for a request that is over, at level debug: id, method, path, database, account, address, status, milliseconds,
 * bytes. The query and the headers are left out, since they may hold secrets.
 * @param ms how long it took
 */
export function logRequest(request: FastifyRequest, reply: FastifyReply, ms: number): void {
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
      ms: Math.round(ms),
      bytes: request.raw.socket.bytesWritten - request.bytesBefore,
    },
    'request',
  )
}
