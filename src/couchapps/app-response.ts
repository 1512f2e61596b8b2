/** The answers of show, list and update functions, as the HTTP thread sends them; protocol.md 9.6. Pure. */
import { CouchError, ERRORS, type ErrorName } from '../core/errors.ts'
import { isJsonObject, isTooDeep } from '../core/json.ts'
import { THREW } from '../sandbox/messages.ts'

export interface AppHead {
  readonly status: number
  readonly headers: readonly (readonly [name: string, value: string])[]
}

export interface AppResponse extends AppHead {
  readonly body: Uint8Array
}

export const HTML = 'text/html; charset=utf-8'
const BINARY = 'application/binary'
const JSON_TYPE = 'application/json'

/** A header's name: RFC 9110 5.6.2. */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const TOO_DEEP = ERRORS.too_deep[2]
/** The server itself sets these. */
const FRAMING = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'trailer',
  'transfer-encoding',
  'upgrade',
])
const MAX_HEADERS = 100

/**
 * Headers with which an answer acts beyond itself: on the whole origin, where the console and other databases are (cookies,
 * sessions that the browser refreshes with requests of its own, stored data, service workers, TLS, reports, other origins'
 * access), or on a proxy in front of the server: nginx, Apache, LiteSpeed, Perlbal and those with edge-side includes would
 * send other content in its place, and Envoy would take the server for failed.
 */
const RESERVED = new RegExp(
  `^(?:${[
    'set-cookie2?',
    'set-login',
    '(?:sec|secure)-session-.*',
    'clear-site-data',
    'service-worker-allowed',
    'origin-agent-cluster',
    'strict-transport-security',
    'public-key-pins.*',
    'expect-ct',
    'alt-svc',
    'accept-ch.*',
    'critical-ch',
    'use-as-dictionary',
    'nel',
    'report-to',
    'reporting-endpoints',
    '.*-report-only',
    'attribution-reporting-.*',
    'access-control-.*',
    'timing-allow-origin',
    'x-permitted-cross-domain-policies',
    'x-xss-protection',
    'proxy-.*',
    'surrogate-.*',
    'edge-control',
    'x-accel-.*',
    'x-sendfile.*',
    'x-lighttpd-.*',
    'x-litespeed-.*',
    'x-reproxy-.*',
    'x-envoy-.*',
  ].join('|')})$`,
  'i',
)

/**
 * Reads the response object of a function.
 * @param status of a response without `code`
 * @throws external_response_error for a member or a value that cannot be sent
 */
export function readResponse(response: unknown, status = 200): AppResponse {
  if (!isJsonObject(response)) throw invalid('response', response)
  let body: Uint8Array = new Uint8Array()
  for (const [name, value] of Object.entries(response)) {
    if (name === 'body') body = Buffer.from(textOf(name, value))
    else if (name === 'base64') body = Buffer.from(textOf(name, value), 'base64')
  }
  const head = readHead(response, { status, type: typeOf(response) })
  const { json } = response
  if (isTooDeep(json)) throw new CouchError('external_response_error', TOO_DEEP)
  if (json === undefined) return { ...head, body }
  return { ...head, body: Buffer.from(`${JSON.stringify(json)}\n`) }
}

const TYPES: ReadonlyMap<string, string> = new Map([
  ['json', JSON_TYPE],
  ['body', HTML],
  ['base64', BINARY],
])

/** The type of a response whose headers have none: that of its last content. */
function typeOf(response: object): string {
  const types = Object.keys(response).flatMap((name) => TYPES.get(name) ?? [])
  return types.at(-1) ?? JSON_TYPE
}

/** Reads the head that a list function has given to `start`. @throws external_response_error */
export function readListHead(response: unknown): AppHead {
  return readHead(response ?? {}, { status: 200, type: typeOf(isJsonObject(response) ? response : {}) })
}

const MEMBERS = new Set(['code', 'stop', 'json', 'body', 'base64', 'headers'])

function readHead(response: unknown, preset: { status: number; type: string }): AppHead {
  if (!isJsonObject(response)) throw invalid('response', response)
  for (const [name, value] of Object.entries(response)) if (!MEMBERS.has(name)) throw invalid(name, value)
  const { headers = {} } = response
  const status = statusOf(response.code ?? preset.status)
  return { status, headers: readAnswerHeaders(headers, preset.type) }
}

/** Like CouchDB, accepts digits in a string, which apps use. @throws external_response_error */
function statusOf(code: unknown): number {
  const status = typeof code === 'string' && /^\d{3}$/.test(code) ? Number(code) : code
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 200 || status > 599)
    throw invalid('code', code)
  return status
}

/**
 * The headers of an answer, without those that a function may not set.
 * @param type of an answer whose headers have none
 * @throws external_response_error
 */
export function readAnswerHeaders(headers: unknown, type: string): [name: string, value: string][] {
  const read = readHeaders(headers).filter(([name]) => !RESERVED.test(name))
  const hasType = read.some(([name]) => name.toLowerCase() === 'content-type')
  return hasType ? read : [['Content-Type', type], ...read]
}

/** @throws external_response_error */
export function readHeaders(headers: unknown): [name: string, value: string][] {
  if (!isJsonObject(headers)) throw invalid('headers', headers)
  const entries = Object.entries(headers)
  if (entries.length > MAX_HEADERS) throw invalid('headers', `more than ${MAX_HEADERS}`)
  return entries.flatMap(([name, value]): [string, string][] => {
    const isText = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    if (!isText || !NAME.test(name) || !VALUE.test(String(value))) throw invalid(name, value)
    return FRAMING.has(name.toLowerCase()) ? [] : [[name, String(value)]]
  })
}

function textOf(name: string, value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  throw invalid(name, value)
}

function invalid(name: string, value: unknown): CouchError {
  const shown = JSON.stringify(value) ?? 'undefined'
  return new CouchError(
    'external_response_error',
    `Invalid data from external server: {"${name.slice(0, 100)}":${shown.slice(0, 200)}}`,
  )
}

/** The row of the error table with a name: the row of that code, or else the first one. */
function rowNamed(name: string): ErrorName | undefined {
  const rows = (Object.keys(ERRORS) as ErrorName[]).filter((code) => ERRORS[code][1] === name)
  return rows.find((code) => code === name) ?? rows[0]
}

/**
 * The answer to an error that a function has thrown: `["error", name, reason]`, as render-environment.ts reports it. A
 * name that is none of the server's has status 500.
 * @param thrown JSON text of `[name, reason]`
 */
export function thrownResponse(thrown: string): AppResponse | CouchError {
  const [given, reason] = JSON.parse(thrown) as [name: unknown, reason: unknown]
  const name = typeof given === 'string' ? given : JSON.stringify(given)
  const row = rowNamed(name)
  if (row !== undefined) return new CouchError(row, reason ?? undefined)
  return {
    status: 500,
    headers: [['Content-Type', JSON_TYPE]],
    body: Buffer.from(`${JSON.stringify({ error: name, reason })}\n`),
  }
}

/**
 * The answer to a function that threw.
 * @param result begins with {@link THREW}
 * @throws a row of the error table that the function has named
 */
export function thrownAnswer(result: string): AppResponse {
  const thrown = thrownResponse(result.slice(THREW.length))
  if (thrown instanceof CouchError) throw thrown
  return thrown
}
