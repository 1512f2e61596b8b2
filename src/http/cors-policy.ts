/** What the configuration says about pages of other origins; protocol.md 13. */
import type { Config } from '../config/config.ts'
import { APP_ORIGINS } from '../core/app-origins.ts'

/** CouchDB's default (chttpd_cors.erl). */
const METHODS = 'CONNECT,COPY,DELETE,GET,HEAD,OPTIONS,POST,PUT,TRACE'
const MAX_AGE = '600'

/** CouchDB's, and what clients of ours may want to read beside them. */
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

/** What is allowed to pages of other origins on one host. */
export interface CorsPolicy {
  /** Text for Access-Control-Max-Age: seconds. */
  readonly maxAge: string
  /** Text for Access-Control-Allow-Methods. */
  readonly methods: string
  /** Text for Access-Control-Expose-Headers. */
  readonly exposed: string
  /** @param origin the header as it came; compared exactly, so that a port must be the same too */
  allows(origin: string): boolean
  /** Whether the origin's requests may carry cookies and credentials. */
  trusts(origin: string): boolean
  /** @param method case-sensitive */
  allowsMethod(method: string): boolean
  /** @param headers the text of Access-Control-Request-Headers */
  allowsHeaders(headers: string): boolean
}

/** The policies in effect, read anew after a change of the configuration. */
export class CorsPolicies {
  readonly #config: Config
  #isOn = false
  #common: CorsPolicy
  /** By the host's name, for those that have a section of their own. */
  #byHost: ReadonlyMap<string, CorsPolicy> = new Map()

  constructor(config: Config) {
    this.#config = config
    this.#common = readPolicy(config, SECTION)
    this.#read()
    config.onChange((section, key) => {
      if (section === SECTION || section.startsWith(HOST_PREFIX) || key === 'enable_cors') this.#read()
    })
  }

  /** Whether answers carry any headers of CORS. */
  get isOn(): boolean {
    return this.#isOn
  }

  /** Whether any host has a policy of its own. */
  get dependOnHost(): boolean {
    return this.#byHost.size > 0
  }

  /** @param host how the client named the server, with or without a port; it chooses `[cors:HOST]` */
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

/** Unset, it is on: unlike in CouchDB, where nobody's app works before it was found and set. */
function isEnabled(config: Config): boolean {
  const said = config.get('chttpd', 'enable_cors')
  return said === undefined || said === '' || said === 'true'
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
    // Where nothing is said: of the apps that are known to need it, and of no other page.
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
