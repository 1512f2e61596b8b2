/** CouchDB's reading of the query string; protocol.md 17. */
import type { FastifyRequest } from 'fastify'
import { parseJson } from '../documents/body.ts'
import type { Schema } from './shapes.ts'

/** The parameters, decoded; of a repeated one the last. */
export type Query = Readonly<Record<string, string>>

/** Stands for a query string with a bad escape, until plugins/errors.ts can refuse it. */
export const BAD_QUERY: Query = Object.freeze(Object.create(null) as Record<string, string>)

/** `true` or `false` in any case, as the parameters of views and their kin. */
export const VIEW_BOOLEAN: Schema = {
  type: 'string',
  pattern: '^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$',
  refusal: ['query_parse_error', 'Invalid boolean parameter: "%"'],
}

/** A whole number that is not negative, as `limit` and `skip`. */
export const COUNT: Schema = {
  allOf: [
    {
      type: 'string',
      pattern: '^-?[0-9]+$',
      refusal: ['query_parse_error', 'Invalid value for integer: "%"'],
    },
    {
      type: 'string',
      pattern: '^[0-9]',
      refusal: ['query_parse_error', 'Invalid value for positive integer: "%"'],
    },
  ],
}

/**
 * Parses a query string; `+` is a space. For Fastify's router option `querystringParser`.
 * @returns {@link BAD_QUERY} when an escape is broken or holds no UTF-8
 */
export function parseQuery(text: string): Query {
  const query = Object.create(null) as Record<string, string>
  if (text === '') return query
  try {
    for (const pair of text.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = equals === -1 ? pair : pair.slice(0, equals)
      query[decode(name)] = equals === -1 ? '' : decode(pair.slice(equals + 1))
    }
    return query
  } catch {
    return BAD_QUERY
  }
}

function decode(text: string): string {
  return decodeURIComponent(text.replaceAll('+', ' '))
}

/** The request's parameters. */
export function queryOf(request: FastifyRequest): Query {
  return request.query as Query
}

/** A parameter as it came; undefined when it is not given. */
export function textParam(query: Query, name: string): string | undefined {
  return query[name]
}

/** A switch of document reads: only the exact text `true` turns it on. */
export function isOn(query: Query, name: string): boolean {
  return query[name] === 'true'
}

/** A switch of views and their kin, of the shape {@link VIEW_BOOLEAN}; undefined when it is not given. */
export function viewBoolean(query: Query, name: string): boolean | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : text.toLowerCase() === 'true'
}

/** A parameter of the shape {@link COUNT}; undefined when it is not given. */
export function count(query: Query, name: string): number | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : Number(text)
}

/**
 * A parameter that is JSON text, under the first of its names that is given; undefined without any.
 * @throws invalid_json, too_deep
 */
export function jsonParam(query: Query, ...names: readonly string[]): unknown {
  const name = names.find((each) => textParam(query, each) !== undefined)
  if (name === undefined) return undefined
  return parseJson(query[name] ?? '')
}

/** Stands for this server while a path is taken apart. */
const HERE = 'http://here.invalid'

/**
 * @returns a path of this server, encoded, its query and fragment included; null for what leads elsewhere: another
 *   scheme or host, also in the forms that browsers read as one (`//host`, `/\host`)
 */
export function localPath(text: string): string | null {
  if (!text.startsWith('/') || /^\/[/\\]/.test(text) || !URL.canParse(text, HERE)) return null
  const { origin, pathname, search, hash } = new URL(text, HERE)
  // Dot segments are gone by now, and may have left slashes at the beginning.
  return origin === HERE && !pathname.startsWith('//') ? pathname + search + hash : null
}
