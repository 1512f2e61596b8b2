/** The handlers in `chttpd/authentication_handlers`; protocol.md 11.2. */
import { isIP } from 'node:net'
import { StartError } from './start-error.ts'

/** CouchDB's names, as `GET /_session` lists them. */
export type HandlerName = 'cookie' | 'default' | 'proxy' | 'jwt'

/** CouchDB's own default: session cookies, then Basic. */
export const DEFAULT_HANDLERS: readonly HandlerName[] = ['cookie', 'default']

/** `chttpd_auth` since CouchDB 2, `couch_httpd_auth` in older ini files. */
const HANDLER =
  /^\{\s*(?:chttpd_auth|couch_httpd_auth)\s*,\s*(cookie|default|proxy|jwt)_authentication_handler\s*\}$/

/**
 * Reads CouchDB's text form, `{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}`.
 * @returns the handlers in order; null if the text is not such a list
 */
export function parseHandlers(text: string): readonly HandlerName[] | null {
  const names: HandlerName[] = []
  for (const item of text.split(/(?<=\})\s*,/)) {
    const name = HANDLER.exec(item.trim())?.[1] as HandlerName | undefined
    if (name === undefined || names.includes(name)) return null
    names.push(name)
  }
  return names
}

/** @returns the error of a value, in words that follow the key's name; null if there is none */
export function problemOfHandlers(text: string): string | null {
  if (parseHandlers(text) !== null) return null
  return 'must be a list like {chttpd_auth, cookie_authentication_handler}, of the handlers cookie, default, proxy and jwt, each once'
}

// Conditions for proxy authentication; protocol.md 11.2, docs/proxy.md.

type Get = (section: string, key: string) => string | undefined

/**
 * With this handler, a trusted peer can name any account with any role. Peers on this machine cannot be trusted as such: a
 * proxy may pass on its clients' headers.
 * @param get the values that are about to take effect
 * @returns the error, as a sentence; null if there is none
 */
export function problemOfProxyAuth(get: Get): string | null {
  const handlers = parseHandlers(get('chttpd', 'authentication_handlers') ?? '') ?? []
  if (!handlers.includes('proxy')) return null
  // Without a secret no signature is valid, so nobody has access.
  if (get('chttpd_auth', 'proxy_use_secret') === 'true') return null
  if ((get('settee', 'trusted_proxies') ?? '').trim() !== '') return null
  return (
    'Proxy authentication (chttpd/authentication_handlers) needs either settee/trusted_proxies or ' +
    'chttpd_auth/proxy_use_secret = true with a chttpd_auth/secret: without them, anybody who reaches this server ' +
    'through a proxy could become an admin with two headers.'
  )
}

/** @throws StartError */
export function requireSafeProxyAuth(get: Get): void {
  const problem = problemOfProxyAuth(get)
  if (problem !== null) throw new StartError(problem)
}

// Trusted proxies: `settee/trusted_proxies`.

/** `@fastify/proxy-addr`'s names for well-known ranges. */
const RANGES = new Set(['loopback', 'linklocal', 'uniquelocal'])

/**
 * Reads a comma list of addresses, ranges (`10.0.0.0/8`) and the words loopback, linklocal and uniquelocal.
 * @returns its members, an empty list for an empty text; null if one of them is invalid
 */
export function parseProxies(text: string): readonly string[] | null {
  if (text.trim() === '') return []
  const proxies = text.split(',').map((each) => each.trim())
  return proxies.every((each) => RANGES.has(each) || isRange(each)) ? proxies : null
}

function isRange(text: string): boolean {
  const [address = '', prefix, ...more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more.length > 0 || address.includes('%')) return false
  if (prefix === undefined) return true
  // A prefix of 0 would trust everybody.
  return /^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128)
}

/** @returns the error of a value, in words that follow the key's name; null if there is none */
export function problemOfProxies(text: string): string | null {
  if (parseProxies(text) !== null) return null
  return 'must be a comma list of addresses, ranges like 10.0.0.0/8, or the words loopback, linklocal and uniquelocal'
}

// Required claims of JSON web tokens: `jwt_auth/required_claims`; protocol.md 11.5.

export interface RequiredClaim {
  readonly name: string
  /** The required value; undefined: any. */
  readonly value?: string
}

const CLAIM = /^([A-Za-z_][\w.-]*)$/
const PAIR = /^\{\s*([A-Za-z_][\w.-]*)\s*,\s*"([^"]*)"\s*\}$/

/**
 * Reads CouchDB's text form, `exp, {iss, "https://id.example"}`.
 * @returns the claims; null if the text is not such a list
 */
export function parseClaims(text: string): readonly RequiredClaim[] | null {
  const claims: RequiredClaim[] = []
  for (const item of text.split(/,(?![^{]*\})/)) {
    if (item.trim() === '') continue
    const [, single] = CLAIM.exec(item.trim()) ?? []
    const [, name, value] = PAIR.exec(item.trim()) ?? []
    if (single !== undefined) claims.push({ name: single })
    else if (name !== undefined && value !== undefined) claims.push({ name, value })
    else return null
  }
  return claims
}

/** @returns the error of a value, in words that follow the key's name; null if there is none */
export function problemOfClaims(text: string): string | null {
  return parseClaims(text) === null ? 'must be a list like exp, {iss, "https://id.example"}' : null
}
