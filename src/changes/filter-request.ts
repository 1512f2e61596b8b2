/** The object `req` that filter functions see, protocol.md 9.2: JSON text, made on two threads. */

import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { DatabaseInfo } from '../documents/database.ts'
import { ADMIN_ONLY } from '../documents/security.ts'

/** What the HTTP thread knows of a request; members as CouchDB has them, in its order. */
export interface KnownRequest {
  /** Of the moment when the request came. */
  readonly info: DatabaseInfo
  readonly uuid: string
  readonly method: string
  /** The path's parts, decoded. */
  readonly path: readonly string[]
  /** The path with its query, as it was sent. */
  readonly rawPath: string
  readonly query: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  /** JSON text of the body; undefined without one. */
  readonly body: string | undefined
  readonly peer: string
}

/** JSON text of the object but for the members that {@link completeRequest} adds. */
export function packRequest(known: KnownRequest): string {
  const { info, uuid, method, path, rawPath, query, headers, body, peer } = known
  const before = {
    info,
    uuid,
    id: null,
    method,
    requested_path: path,
    path,
    raw_path: rawPath,
    query,
    headers,
  }
  // CouchDB's word for a request without a body.
  const after = `"body":${body ?? '"undefined"'},${JSON.stringify({ peer, form: {}, cookie: {} }).slice(1)}`
  return `${JSON.stringify(before).slice(0, -1)},${after}`
}

/** The whole object: who asks, and the security object, are those of the turn in which the function is run. */
export function completeRequest(
  packed: string,
  database: string,
  user: UserCtx,
  security: SecurityObject | null,
): string {
  const userCtx = { db: database, name: user.name, roles: user.roles }
  const rest = JSON.stringify({ userCtx, secObj: security ?? ADMIN_ONLY })
  return `${packed.slice(0, -1)},${rest.slice(1)}`
}
