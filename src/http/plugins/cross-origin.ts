import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { isOpen } from '../../auth/admins.ts'
import type { Config } from '../../config/config.ts'
import { APP_ORIGINS } from '../../core/app-origins.ts'
import { CouchError } from '../../core/errors.ts'
import { absoluteUrl, HEADER_TEXT } from '../replies.ts'
import { hostOf } from '../transport/connection.ts'

declare module 'fastify' {
  interface FastifyInstance {
    cors: CorsPolicies
    /** Whether the app listens on this machine only. */
    isBoundHere(): boolean
  }
}

/**
 * CORS (protocol.md 13): headers that let pages of other origins read answers, and answers to preflights before
 * authentication. Why not @fastify/cors: docs/decisions/0018.
 */
export const cors = fp(
  async (app) => {
    app.decorate('cors', new CorsPolicies(app.services.config))
    app.decorate('isBoundHere', boundToLoopback(app))
  },
  { name: 'cors' },
)

/**
 * The origin of the page that sends the request; undefined: no page does. An empty `Origin` is not a page's, since browsers
 * send an origin or `null` (RFC 6454 7.1). LiveSync sends it from outside its page.
 */
export function pageOf({ headers }: Pick<FastifyRequest, 'headers'>): string | undefined {
  return headers.origin || undefined
}

/**
 * Sets the headers of CORS on the reply.
 * @returns whether the request is an allowed preflight, whose answer is complete
 */
export function setCorsHeaders(request: FastifyRequest, reply: FastifyReply): boolean {
  const { cors } = request.server
  if (!cors.isOn) return false
  reply.header('Vary', 'Origin')
  const origin = pageOf(request)
  if (origin === undefined) return false
  const policy = cors.of(cors.dependOnHost ? hostOf(request) : undefined)
  // With `*` the origin may be any text, and Node throws at text that is not a valid header value.
  if (!policy.allows(origin) || !HEADER_TEXT.test(origin)) return false
  if (isPreflight(request)) return allowPreflight(request, reply, policy, origin)
  reply.header('Access-Control-Expose-Headers', policy.exposed)
  allowOrigin(reply, policy, origin)
  return false
}

function isPreflight({ method, headers }: FastifyRequest): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined
}

/** A preflight for a method or header that is not allowed gets no headers, and the usual answer to OPTIONS. */
function allowPreflight(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  policy: CorsPolicy,
  origin: string,
): boolean {
  const asked = headers['access-control-request-headers']?.trim() ?? ''
  if (!policy.allowsMethod(headers['access-control-request-method'] as string)) return false
  if (!policy.allowsHeaders(asked)) return false
  allowOrigin(reply, policy, origin)
  reply.headers({
    'Access-Control-Allow-Methods': policy.methods,
    'Access-Control-Max-Age': policy.maxAge,
  })
  if (HEADER_TEXT.test(asked)) reply.header('Access-Control-Allow-Headers', asked)
  return true
}

/** The origin as it was sent, never `*`: PouchDB always sends credentials, and browsers then refuse `*`. */
function allowOrigin(reply: FastifyReply, policy: CorsPolicy, origin: string): void {
  reply.header('Access-Control-Allow-Origin', origin)
  if (policy.trusts(origin)) reply.header('Access-Control-Allow-Credentials', 'true')
}

/**
 * The same headers as lines, for answers to invalid HTTP.
 * @param head the bytes of the request that have arrived
 */
export function corsLines(cors: CorsPolicies, head: Buffer): string[] {
  if (!cors.isOn) return []
  const [, origin] = /\r\norigin:[ \t]*([\x21-\x7e]+)[ \t]*\r\n/i.exec(head.toString('latin1')) ?? []
  const policy = cors.of(undefined)
  if (origin === undefined || !policy.allows(origin)) return ['Vary: Origin']
  const trusted = policy.trusts(origin) ? ['Access-Control-Allow-Credentials: true'] : []
  return ['Vary: Origin', `Access-Control-Allow-Origin: ${origin}`, ...trusted]
}

/** CouchDB's default (chttpd_cors.erl). */
const METHODS = 'CONNECT,COPY,DELETE,GET,HEAD,OPTIONS,POST,PUT,TRACE'
const MAX_AGE = '600'

/** CouchDB's, and further headers that clients may want to read. */
const EXPOSED = [
  'content-type',
  'cache-control',
  'accept-ranges',
  'etag',
  'server',
  'x-couch-request-id',
  'x-couch-update-newrev',
  'x-couchdb-body-time',
  'content-range',
  'location',
  'retry-after',
  'www-authenticate',
].join(', ')

const SECTION = 'cors'
const HOST_PREFIX = `${SECTION}:`
const KNOWN_APPS: ReadonlySet<string> = new Set(APP_ORIGINS)

/** The rights of pages of other origins on one host; protocol.md 13. */
interface CorsPolicy {
  /** Value of Access-Control-Max-Age, in seconds. */
  readonly maxAge: string
  /** Value of Access-Control-Allow-Methods. */
  readonly methods: string
  /** Value of Access-Control-Expose-Headers. */
  readonly exposed: string
  /** @param origin the header as it was sent; it is compared exactly, with its port */
  allows(origin: string): boolean
  /** Whether the origin's requests may have cookies and credentials. */
  trusts(origin: string): boolean
  /** @param method case-sensitive */
  allowsMethod(method: string): boolean
  /** @param headers the value of Access-Control-Request-Headers */
  allowsHeaders(headers: string): boolean
}

/** The policies in effect, read again after each change of the configuration. */
class CorsPolicies {
  readonly #config: Config
  #isOn = false
  #common: CorsPolicy
  /** The policies of hosts with a section of their own, by name. */
  #byHost: ReadonlyMap<string, CorsPolicy> = new Map()

  constructor(config: Config) {
    this.#config = config
    this.#common = readPolicy(config, SECTION)
    this.#read()
    config.onChange((section, key) => {
      if (section === SECTION || section.startsWith(HOST_PREFIX) || key === 'enable_cors') this.#read()
    })
  }

  /** Whether answers have headers of CORS. */
  get isOn(): boolean {
    return this.#isOn
  }

  /** Whether any host has a policy of its own. */
  get dependOnHost(): boolean {
    return this.#byHost.size > 0
  }

  /** @param host the name by which the client called the server, with or without a port; it selects `[cors:HOST]` */
  of(host: string | undefined): CorsPolicy {
    if (host === undefined || !this.dependOnHost) return this.#common
    return this.#byHost.get(host.toLowerCase().replace(/:\d+$/, '')) ?? this.#common
  }

  #read(): void {
    this.#isOn = isEnabled(this.#config)
    this.#common = readPolicy(this.#config, SECTION)
    const sections = Object.keys(this.#config.all()).filter((name) => name.startsWith(HOST_PREFIX))
    this.#byHost = new Map(
      sections.map((name) => [name.slice(HOST_PREFIX.length).toLowerCase(), readPolicy(this.#config, name)]),
    )
  }
}

/** On by default, unlike in CouchDB, where no app works before it is set. */
function isEnabled(config: Config): boolean {
  const value = config.get('chttpd', 'enable_cors')
  return value === undefined || value === '' || value === 'true'
}

function readPolicy(config: Config, section: string): CorsPolicy {
  const value = (key: string) => config.get(section, key) ?? config.get(SECTION, key)
  const origins = new Set(listOf(value('origins')))
  const methods = listOf(value('methods') || METHODS)
  const headers = value('headers') ? new Set(listOf(value('headers')?.toLowerCase())) : null
  const credentials = value('credentials')
  return {
    maxAge: value('max_age') || MAX_AGE,
    methods: methods.join(', '),
    exposed: value('exposed_headers') || EXPOSED,
    allows: (origin) => origins.has(origin) || origins.has('*'),
    // By default only the apps that are known to need it.
    trusts: (origin) => (credentials ? credentials === 'true' : KNOWN_APPS.has(origin)),
    allowsMethod: (method) => methods.includes(method),
    allowsHeaders: (asked) =>
      headers === null || listOf(asked.toLowerCase()).every((name) => headers.has(name)),
  }
}

function listOf(text: string | undefined): string[] {
  return (text ?? '')
    .split(',')
    .map((each) => each.trim())
    .filter((each) => each !== '')
}

/** Methods that change nothing: RFC 9110 9.2.1. */
export const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const LOOPBACK_HOST = /^(?:(?:[\w-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\])\.?(?::\d*)?$/i
const LOOPBACK_ADDRESS = /^(?:127\.|::1$|::ffff:127\.)/
/** How many characters of the client's text a reason repeats. */
const SHOWN = 256

/**
 * Refuses forged requests of web pages before authentication. A request that no page sends (by curl, replicators, apps
 * with a native network) has no `Origin`, or an empty one, and passes.
 * @throws forbidden
 */
export function refuseForeignPage(request: FastifyRequest): void {
  const refusal = foreignHost(request) ?? foreignPage(request)
  if (refusal !== undefined) throw refusal
}

/** Whether the app listens on this machine only. Read from the sockets, since the configuration may have changed. */
function boundToLoopback(app: FastifyInstance): () => boolean {
  let answer: boolean | undefined
  return () => {
    if (answer !== undefined) return answer
    const addresses = app.addresses()
    if (addresses.length === 0) return false
    if (app.secure !== null) addresses.push(app.secure.address)
    answer = addresses.every((at) => typeof at === 'object' && LOOPBACK_ADDRESS.test(at.address))
    return answer
  }
}

/**
 * Prevents DNS rebinding: while there is no admin, a page whose host name resolves to 127.0.0.1 could use a server that
 * only this machine can reach, since the browser takes it for the page's own. Such a request has the page's host.
 */
function foreignHost(request: FastifyRequest): CouchError | undefined {
  const { host } = request.headers
  if (host === undefined || LOOPBACK_HOST.test(host) || !request.server.isBoundHere()) return undefined
  if (!isOpen(request.server.services.config)) return undefined
  return new CouchError(
    'forbidden',
    `While there is no admin, this server answers to localhost and 127.0.0.1 only, not to ${shown(host)}. ` +
      'Create one: PUT /_node/_local/_config/admins/{name}.',
  )
}

/** A page may send some requests with the user's cookies to any server, but it cannot hide its origin. */
function foreignPage(request: FastifyRequest): CouchError | undefined {
  const page = pageOf(request)
  if (page === undefined || SAFE_METHODS.has(request.method)) return undefined
  if (request.server.cors.of(hostOf(request)).allows(page) || isOwn(request, page)) return undefined
  return new CouchError(
    'forbidden',
    `Pages of ${shown(page)} may not change anything here: the origin is neither in cors/origins nor the server's own.`,
  )
}

/**
 * Whether the page has the server's own host and port, as the client named them. A page's `https` is accepted as well:
 * a proxy may end TLS without saying so.
 */
function isOwn(request: FastifyRequest, page: string): boolean {
  const own = absoluteUrl(request)
  const asked = originOf(page)
  if (asked === null) return false
  return asked === originOf(own) || asked === originOf(own.replace(/^http:/, 'https:'))
}

/** With the default port left out, as browsers do. */
function originOf(address: string): string | null {
  const { origin: found } = URL.canParse(address) ? new URL(address) : { origin: 'null' }
  return found === 'null' ? null : found
}

function shown(text: string): string {
  return text.slice(0, SHOWN)
}
