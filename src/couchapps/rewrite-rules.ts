/** Rewrites by a list of rules: which rule matches a request, and the address that it leads to; protocol.md 9.6. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isJsonObject } from '../core/json.ts'
import { parseJson } from '../documents/body.ts'

/** A request for `_rewrite`. */
export interface RewriteRequest {
  readonly method: string
  /** The decoded segments after `_rewrite`. */
  readonly path: readonly string[]
  readonly query: readonly (readonly [name: string, text: string])[]
  /** The segments of the design document's address, encoded. */
  readonly base: readonly string[]
  /** Whether rewrites must stay in the database: `chttpd/secure_rewrites`. */
  readonly isSecure: boolean
}

/** A rule, as far as it has been checked. */
interface Rule {
  readonly method: unknown
  readonly from: readonly string[]
  readonly to: readonly string[]
  readonly query: Readonly<Record<string, unknown>>
  readonly formats: Readonly<Record<string, unknown>>
}

type Binding = readonly [name: string, value: unknown]

const MAX_RULES = 10_000
const ANY = '*'
/** Parameters whose values are JSON. */
const JSON_PARAMETERS = new Set(['key', 'startkey', 'start_key', 'endkey', 'end_key', 'keys'])
/** How many levels a rule may lead up. */
const MAX_UP = 2

/**
 * @returns the address of the first rule that matches
 * @throws not_found if none matches; rewrite_error for a rule that is not valid, even behind one that matches;
 *   insecure_rewrite_rule; invalid_json
 */
export async function rewriteByRules(rules: readonly unknown[], request: RewriteRequest): Promise<string> {
  if (rules.length > MAX_RULES) throw new CouchError('rewrite_error', `more than ${MAX_RULES} rules`)
  const yielder = new Yielder()
  const checked: Rule[] = []
  for (const rule of rules) {
    await yielder.yieldIfDue()
    if (isJsonObject(rule)) checked.push(readRule(rule, request.isSecure))
  }
  // As in CouchDB, a HEAD is a GET whose body is not sent.
  const method = request.method === 'HEAD' ? 'GET' : request.method
  const query = request.query.map(([name, text]): Binding => [name, queryValue(name, text)])
  for (const rule of checked) {
    await yielder.yieldIfDue()
    if (rule.method !== undefined && rule.method !== ANY && rule.method !== method) continue
    const match = bindPath(rule.from, request.path)
    if (match === null) continue
    const bindings = queryBindings(rule, [...match.bindings, ...query])
    return resolveAddress(request, addressOf(rule, bindings, match.rest))
  }
  throw new CouchError('not_found')
}

/** @throws rewrite_error, insecure_rewrite_rule */
function readRule({ method, from, to, query, formats }: Record<string, unknown>, isSecure: boolean): Rule {
  if (to === undefined) throw new CouchError('rewrite_error', 'invalid_rewrite_target')
  return {
    method,
    from: from === undefined ? [ANY] : segmentsOf(from, isSecure),
    to: segmentsOf(to, isSecure),
    query: isJsonObject(query) ? query : {},
    formats: isJsonObject(formats) ? formats : {},
  }
}

function segmentsOf(path: unknown, isSecure: boolean): string[] {
  if (typeof path !== 'string') throw new CouchError('rewrite_error', 'a path of a rule is not a string')
  const segments = path.split('/').filter((segment) => segment !== '')
  const up = segments.filter((segment) => segment === '..').length
  if (isSecure && up > MAX_UP) throw new CouchError('insecure_rewrite_rule')
  return segments
}

function queryValue(name: string, text: string): unknown {
  return JSON_PARAMETERS.has(name) ? parseJson(text) : text
}

/** @returns the bindings of the rule's variables, the last one first, and the segments for its final `*` */
function bindPath(
  from: readonly string[],
  path: readonly string[],
): { bindings: Binding[]; rest: readonly string[] } | null {
  const bindings: Binding[] = []
  for (const [at, pattern] of from.entries()) {
    if (pattern === ANY && at === from.length - 1) return { bindings, rest: path.slice(at) }
    const segment = path[at]
    if (segment === undefined) return null
    const variable = variableOf(pattern)
    if (variable !== null) bindings.unshift([variable, segment])
    else if (pattern !== segment) return null
  }
  return path.length === from.length ? { bindings, rest: [] } : null
}

function variableOf(pattern: string): string | null {
  if (pattern === ANY) return ANY
  return pattern.startsWith(':') ? pattern.slice(1) : null
}

/** The parameters of the new address: those of the request and of the path, then those of the rule. */
function queryBindings({ query, formats }: Rule, bindings: readonly Binding[]): Binding[] {
  const own = Object.entries(query).map(([name, value]): Binding => [name, filled(value, bindings, formats)])
  const names = new Set(own.map(([name]) => name))
  return [...bindings.filter(([name]) => !names.has(name)), ...own.reverse()]
}

/** A parameter of a rule with its variables replaced. */
function filled(value: unknown, bindings: readonly Binding[], formats: Rule['formats']): unknown {
  if (value === ANY) return boundValue(ANY, ANY, bindings, formats)
  const replace = (part: unknown): unknown =>
    typeof part === 'string' && part.startsWith(':')
      ? boundValue(part.slice(1), part, bindings, formats)
      : part
  return Array.isArray(value) ? value.map(replace) : replace(value)
}

function boundValue(
  name: string,
  preset: string,
  bindings: readonly Binding[],
  formats: Rule['formats'],
): unknown {
  const value = bindings.find(([bound]) => bound === name)?.[1] ?? preset
  if (typeof value !== 'string') return value
  const format = Object.hasOwn(formats, name) ? formats[name] : undefined
  if (format === 'int' && /^[+-]?\d+$/.test(value)) return Number(value)
  if (format === 'bool' && /^(?:true|false)$/i.test(value)) return value.toLowerCase() === 'true'
  return value
}

/** The address of a rule, relative to the design document. */
function addressOf({ to }: Rule, bindings: readonly Binding[], rest: readonly string[]): string {
  const segments: string[] = []
  for (const segment of to) {
    if (segment === ANY) {
      segments.push(...rest)
      break
    }
    const variable = variableOf(segment)
    const bound = bindings.find(([name]) => name === variable)
    segments.push(variable === null ? segment : bound === undefined ? 'undefined' : textOf(bound[1]))
  }
  const query = bindings.filter(([name]) => name !== ANY).map(queryPart)
  const path = segments.map(encode).join('/')
  return query.length === 0 ? path : `${path}?${query.reverse().join('&')}`
}

function queryPart([name, value]: Binding): string {
  return `${encode(name)}=${encode(JSON_PARAMETERS.has(name) ? JSON.stringify(value) : textOf(value))}`
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** @returns the text as a segment or a parameter, with `+` for a space as CouchDB encodes it */
export function encode(text: string): string {
  return encodeURIComponent(text)
    .replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll('%20', '+')
}

/**
 * Resolves an address, with `..` and `.`, from a design document's. A leading slash has no effect, as in CouchDB.
 * @throws insecure_rewrite_rule for an address outside of the database. Otherwise a link to `_rewrite` would let a
 *   database's admin send any request with the rights of the person who follows it
 */
export function resolveAddress(
  { base, isSecure }: Pick<RewriteRequest, 'base' | 'isSecure'>,
  address: string,
): string {
  const at = address.indexOf('?')
  const path = at === -1 ? address : address.slice(0, at)
  const segments: string[] = []
  for (const segment of [...base, ...path.split('/')]) {
    if (segment === '' || segment === '.') continue
    if (segment === '..' && segments.length > 0 && segments.at(-1) !== '..') segments.pop()
    else segments.push(segment)
  }
  if (isSecure && segments[0] !== base[0]) throw new CouchError('insecure_rewrite_rule')
  return `/${segments.join('/')}${at === -1 ? '' : address.slice(at)}`
}
