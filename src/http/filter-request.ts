/** A request as filter functions see it, protocol.md 9.2: what is known of it on the HTTP thread. */
import type { FastifyRequest } from 'fastify'
import { type KnownRequest, packRequest } from '../changes/filter-request.ts'
import { newUuid } from '../core/ids.ts'
import { parseJson } from '../documents/body.ts'
import type { DatabaseInfo } from '../documents/database.ts'
import { type Query, queryOf } from './query-params.ts'

/** Parameters that functions see as JSON values. */
const JSON_PARAMETERS = new Set(['startkey', 'endkey', 'key', 'descending'])
/** What says who asks is told by `userCtx` alone. */
const SECRET_HEADERS = new Set(['authorization', 'cookie'])

/**
 * The object `req` as JSON text, but for who asks and the security object, which the database's thread adds.
 * @param info of the database, now
 * @param body JSON text of the request's body; undefined without one
 * @throws invalid_json for one of the parameters that are read as JSON
 */
export function filterRequest(request: FastifyRequest, info: DatabaseInfo, body: string | undefined): string {
  const known: KnownRequest = {
    info,
    uuid: newUuid(),
    method: request.method,
    path: pathOf(request.url),
    rawPath: request.originalUrl,
    query: queryValues(queryOf(request)),
    headers: headersOf(request),
    body,
    peer: request.address,
  }
  return packRequest(known)
}

function pathOf(url: string): string[] {
  const [path = ''] = url.split('?', 1)
  const parts = path.split('/').filter((part) => part !== '')
  return parts.map((part) => decodeURIComponent(part))
}

function queryValues(query: Query): Record<string, unknown> {
  const values = Object.entries(query).map(([name, text]): [string, unknown] => [
    name,
    JSON_PARAMETERS.has(name) ? parseJson(text) : text,
  ])
  return Object.fromEntries(values)
}

/** Names are written as CouchDB writes them, `User-Agent` for one, however they were sent. */
function headersOf({ headers }: FastifyRequest): Record<string, string> {
  const shown = Object.entries(headers).filter(([name]) => !SECRET_HEADERS.has(name))
  return Object.fromEntries(shown.map(([name, value]) => [capitalized(name), String(value ?? '')]))
}

function capitalized(name: string): string {
  return name.replace(/(?:^|-)[a-z]/g, (start) => start.toUpperCase())
}
