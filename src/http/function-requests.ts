/** The requests that functions of design documents see; protocol.md 9.2. */
import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { newUuid } from '../core/ids.ts'
import { parseJson } from '../documents/body.ts'
import { packRequest } from '../documents/function-request.ts'
import { databaseOf } from './plugins/access-rules.ts'
import { type Query, queryOf } from './request-params.ts'

/** Parameters that functions get as JSON values. */
const JSON_PARAMETERS = new Set(['startkey', 'endkey', 'key', 'descending'])
/** Headers that functions do not get; `userCtx` names the caller. */
const SECRET_HEADERS = new Set(['authorization', 'cookie'])

/** What only some requests have. */
interface RequestContent {
  readonly id?: string | null
  /** JSON text of the body. */
  readonly body?: string | undefined
  readonly form?: Readonly<Record<string, string>>
  /** How a parameter is read that is a JSON value. */
  readonly json?: (text: string) => unknown
}

/**
 * The object `req` as JSON text. The database's thread adds the caller and the security object.
 * @throws invalid_json, too_deep for a parameter that is read as JSON
 */
export async function functionRequest(
  request: FastifyRequest,
  { id = null, body, form = {}, json = parseJson }: RequestContent,
): Promise<string> {
  return packRequest({
    info: await databaseOf(request).info(request.user),
    uuid: newUuid(),
    id,
    // As in CouchDB, a HEAD is a GET whose body is not sent.
    method: request.method === 'HEAD' ? 'GET' : request.method,
    path: pathOf(request.url),
    rawPath: request.originalUrl,
    query: queryValues(queryOf(request), json),
    headers: shownHeaders(request),
    body,
    peer: request.address,
    form,
  })
}

/** The segments of an address, decoded. */
export function pathOf(url: string): string[] {
  const [path = ''] = url.split('?', 1)
  const parts = path.split('/').filter((part) => part !== '')
  return parts.map((part) => decodeURIComponent(part))
}

function queryValues(query: Query, json: (text: string) => unknown): Record<string, unknown> {
  const values = Object.entries(query).map(([name, text]): [string, unknown] => [
    name,
    JSON_PARAMETERS.has(name) ? json(text) : text,
  ])
  return Object.fromEntries(values)
}

/** A parameter of a filter, which few send as JSON: what is no JSON stays a text. @throws too_deep */
export function jsonOrText(text: string): unknown {
  try {
    return parseJson(text)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'invalid_json') return text
    throw error
  }
}

/** Names are capitalized as in CouchDB, for example `User-Agent`. */
function shownHeaders({ headers }: FastifyRequest): Record<string, string> {
  const shown = Object.entries(headers).filter(([name]) => !SECRET_HEADERS.has(name))
  return Object.fromEntries(shown.map(([name, value]) => [capitalized(name), String(value ?? '')]))
}

function capitalized(name: string): string {
  return name.replace(/(?:^|-)[a-z]/g, (start) => start.toUpperCase())
}
