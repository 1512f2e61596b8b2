/** The object `req`, which functions of design documents get for a request; protocol.md 9.2. Pure. */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import type { DatabaseInfo } from './database.ts'
import { ADMIN_ONLY } from './security.ts'

/** The members of `req` that the HTTP thread knows, with CouchDB's names and in its order. */
export interface FunctionRequest {
  /** The information at the time of the request. */
  readonly info: DatabaseInfo
  readonly uuid: string
  /** The id of the document in the address; null without one. */
  readonly id: string | null
  readonly method: string
  /** The parts of the path, decoded. */
  readonly path: readonly string[]
  /** The path with its query, as the client sent it. */
  readonly rawPath: string
  readonly query: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  /** The JSON text of the body; undefined without a body. */
  readonly body: string | undefined
  readonly peer: string
  /** The fields of a form. */
  readonly form: Readonly<Record<string, string>>
}

/** The JSON text of the object `req`, without the members that {@link completeRequest} adds. */
export function packRequest(request: FunctionRequest): string {
  const { info, uuid, id, method, path, rawPath, query, headers, body, peer, form } = request
  const before = {
    info,
    uuid,
    id,
    method,
    requested_path: path,
    path,
    raw_path: rawPath,
    query,
    headers,
  }
  // CouchDB sends this string for a request without a body.
  const after = `"body":${body ?? '"undefined"'},${JSON.stringify({ peer, form, cookie: {} }).slice(1)}`
  return `${JSON.stringify(before).slice(0, -1)},${after}`
}

/** Adds the caller and the security object as of the time when the function runs. */
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
