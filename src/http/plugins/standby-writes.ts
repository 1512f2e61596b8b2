/**
 * A standby refuses changes with 503 for the whole request, since its copies must stay those of its primary. A client tries
 * again later. PouchDB would take 403 for an answer about its documents, and never send them again.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])
/** Calls with other methods that change nothing which a standby copies, by their routes. */
const HARMLESS: readonly RegExp[] = [
  // Queries with a body.
  /\/_(?:all_docs|design_docs|local_docs)(?:\/queries)?$/,
  /\/_view\/[^/]+(?:\/queries)?$/,
  /\/_(?:bulk_get|revs_diff|missing_revs|changes|find|explain)$/,
  /\/_(?:show|list)(?:\/|$)/,
  /^\/_dbs_info$/,
  // Logins.
  /^\/_session$/,
  // The server's own care of its files, and its own configuration.
  /^\/:db\/_(?:ensure_full_commit|compact|compact\/:ddoc|view_cleanup)$/,
  /^(?:\/_node\/:node)?\/_config(?:\/|$)/,
  /^\/_settee\/backups(?:\/:id)?$/,
  /^\/_settee\/check$/,
  /^\/_settee\/(?:databases\/:db\/)?alarms\/:alarm$/,
]
/** An update function may write, whatever the method. */
const WRITES_ALWAYS = /\/_update(?:\/|$)/
/** When a client may try again, in seconds. */
const RETRY_S = 10

/** Whether a standby serves a call, by its method and its route. */
export function isServedByStandby(method: string, route: string): boolean {
  if (READS.has(method)) return !WRITES_ALWAYS.test(route)
  return HARMLESS.some((pattern) => pattern.test(route))
}

/** Refuses a change on a standby. @throws standby */
export function refuseOnStandby(request: FastifyRequest, reply: FastifyReply): void {
  const { method, routeOptions, server, is404 } = request
  if (server.services.standby?.acceptsWrites !== false || is404) return
  if (isServedByStandby(method, routeOptions.url ?? '')) return
  reply.header('Retry-After', String(RETRY_S))
  throw new CouchError('standby')
}
