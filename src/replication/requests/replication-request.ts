/** A replication as `POST /_replicate` or a document of `_replicator` asks for it; protocol.md 14.1. Pure. */
import { CouchError } from '../../core/errors.ts'
import { isJsonObject } from '../../core/json.ts'

/** A sequence of the source's feed, as the source sent it. */
export type Position = string | number

/** Which documents a replication copies; at most one of the members. */
export interface ReplicationFilter {
  readonly docIds?: readonly string[]
  readonly selector?: Readonly<Record<string, unknown>>
  /** `design/filter` or `_view`, and its parameters. */
  readonly filter?: string
  readonly queryParams?: Readonly<Record<string, QueryValue>>
}

/** A parameter's value as it was given, from which ids are computed. A request has its text. */
type QueryValue = string | number | boolean | null

/** The texts of a filter's parameters, as in a URL. */
export function textParams(params: Readonly<Record<string, QueryValue>> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(params).map(([name, value]) => [name, String(value)]))
}

/** A database of another server. */
export interface RemoteEndpoint {
  readonly type: 'remote'
  /** Without credentials. Its path ends with a slash, unless there is a query. */
  readonly url: string
  /** As they were given, Basic credentials aside; in the order of CouchDB's ids. */
  readonly headers: Readonly<Record<string, string>>
  /** The user of Basic authentication as it was given, for ids; null without one. */
  readonly user: string | null
  /** The header `authorization` of every request; null: it is among `headers`, or there is none. */
  readonly authorization: string | null
  /** The URL for people: the password is hidden. */
  readonly shown: string
}

/** A database of this server. */
export interface LocalEndpoint {
  readonly type: 'local'
  readonly name: string
}

export type ReplicationEndpoint = RemoteEndpoint | LocalEndpoint

/** How a replication works. */
export interface ReplicationOptions {
  readonly isContinuous: boolean
  readonly createsTarget: boolean
  readonly createTargetParams: Readonly<Record<string, string>>
  readonly filter: ReplicationFilter
  readonly isWinningRevsOnly: boolean
  readonly sinceSeq: Position | undefined
  readonly usesCheckpoints: boolean
  /** In ms. */
  readonly checkpointInterval: number
  readonly usesBulkGet: boolean
  /** Changes in one batch. */
  readonly batchSize: number
  /** Batches at once. */
  readonly batches: number
  /** In ms. */
  readonly timeout: number
  /** Further tries of each step. */
  readonly retries: number
  readonly sourceProxy: string | undefined
  readonly targetProxy: string | undefined
}

/** The defaults of section `[replicator]`. */
export interface ReplicationDefaults {
  readonly usesCheckpoints: boolean
  readonly checkpointInterval: number
  readonly usesBulkGet: boolean
  readonly batchSize: number
  readonly batches: number
  readonly timeout: number
  readonly retries: number
}

/** @returns the defaults of section `[replicator]` */
export function replicationDefaults(config: DefaultsSource): ReplicationDefaults {
  return {
    usesCheckpoints: config.boolean('replicator', 'use_checkpoints'),
    checkpointInterval: config.integer('replicator', 'checkpoint_interval'),
    usesBulkGet: config.boolean('replicator', 'use_bulk_get'),
    batchSize: config.integer('replicator', 'worker_batch_size'),
    batches: config.integer('replicator', 'worker_processes'),
    timeout: config.integer('replicator', 'connection_timeout'),
    retries: config.integer('replicator', 'retries_per_request'),
  }
}

interface DefaultsSource {
  boolean(section: string, key: string): boolean
  integer(section: string, key: string): number
}

export interface ReplicationRequest {
  readonly source: ReplicationEndpoint
  readonly target: ReplicationEndpoint
  readonly options: ReplicationOptions
}

/** Ends a replication: by its id, or, with `id` null, the one with the same members. */
export interface CancelRequest {
  readonly id: string | null
}

type Body = Readonly<Record<string, unknown>>

const MAX_DOC_IDS = 10_000
/** The longest selector, in characters of JSON: it is part of the replication's id, which is computed in one step. */
const MAX_SELECTOR = 32 * 1024
const MAX_HEADERS = 100
/** The bounds of numbers: one caller must not make this server hold more. */
const BOUNDS = {
  worker_batch_size: [1, 2000],
  worker_processes: [1, 16],
  connection_timeout: [1000, 600_000],
  retries_per_request: [0, 50],
  checkpoint_interval: [100, 3_600_000],
} as const

/** @returns null unless the body asks to cancel @throws bad_request */
export function readCancel(body: Body): CancelRequest | null {
  if (!flag(body, 'cancel', false)) return null
  const id = body.id ?? body._local_id ?? body.replication_id
  if (id === undefined) return { id: null }
  if (typeof id !== 'string') throw badRequest('parameter `id` must be a string')
  // A plus in an address becomes a space.
  return { id: id.replaceAll(' ', '+') }
}

/**
 * Reads a request. A selector is not checked here, since this runs on the HTTP thread.
 * @throws bad_request, invalid_replication, in CouchDB's words where it has them
 */
export function readReplication(body: Body, defaults: ReplicationDefaults): ReplicationRequest {
  const options = readOptions(body, defaults)
  return { source: endpoint(body.source, 'source'), target: endpoint(body.target, 'target'), options }
}

function readOptions(body: Body, defaults: ReplicationDefaults): ReplicationOptions {
  const [sourceProxy, targetProxy] = proxies(body)
  return {
    isContinuous: flag(body, 'continuous', false),
    createsTarget: flag(body, 'create_target', false),
    createTargetParams: targetParams(body.create_target_params),
    filter: readFilter(body),
    isWinningRevsOnly: flag(body, 'winning_revs_only', false),
    sinceSeq: sinceSeq(body.since_seq),
    usesCheckpoints: flag(body, 'use_checkpoints', defaults.usesCheckpoints),
    checkpointInterval: count(body, 'checkpoint_interval', defaults.checkpointInterval),
    usesBulkGet: flag(body, 'use_bulk_get', defaults.usesBulkGet),
    batchSize: count(body, 'worker_batch_size', defaults.batchSize),
    batches: count(body, 'worker_processes', defaults.batches),
    timeout: count(body, 'connection_timeout', defaults.timeout),
    retries: count(body, 'retries_per_request', defaults.retries),
    sourceProxy,
    targetProxy,
  }
}

function readFilter(body: Body): ReplicationFilter {
  const docIds = body.doc_ids ?? undefined
  const { filter, selector, query_params: queryParams } = body
  if ([docIds, filter, selector].filter((each) => each !== undefined).length > 1) {
    throw badRequest('`doc_ids`,`filter`,`selector` are mutually exclusive')
  }
  if (docIds !== undefined) return { docIds: readDocIds(docIds) }
  if (selector !== undefined) {
    if (!isJsonObject(selector)) throw badRequest('parameter `selector` must be a JSON object')
    if (JSON.stringify(selector).length > MAX_SELECTOR) {
      throw badRequest(`parameter \`selector\` has more than ${MAX_SELECTOR} characters`)
    }
    return { selector }
  }
  if (queryParams !== undefined && !isJsonObject(queryParams)) {
    throw badRequest('parameter `query_params` must be an object')
  }
  const params = Object.entries(queryParams ?? {}).map(([name, value]): [string, QueryValue] => {
    if (typeof value === 'object' && value !== null) {
      throw badRequest(`${name} value must be a string, a number, a boolean or null.`)
    }
    return [name, value as QueryValue]
  })
  if (filter === undefined) return {}
  if (typeof filter !== 'string') throw badRequest('parameter `filter` must be a string')
  checkFilterName(filter, queryParams?.view)
  return { filter, queryParams: Object.fromEntries(params) }
}

function checkFilterName(filter: string, view: unknown): void {
  if (filter === '_view') {
    if (typeof view === 'string' && /^[^/]+\/[^/]+$/.test(view)) return
    throw badRequest('Invalid `view` parameter.')
  }
  if (filter === '_design' || /^[^_/][^/]*\/./.test(filter)) return
  throw badRequest('Invalid filter. Must match `ddocname/filtername`.')
}

function readDocIds(value: unknown): readonly string[] {
  if (!Array.isArray(value)) throw badRequest('parameter `doc_ids` must be an array')
  if (value.length > MAX_DOC_IDS) throw badRequest(`parameter \`doc_ids\` has more than ${MAX_DOC_IDS} ids`)
  const ids = value.map((id: unknown) => {
    if (typeof id !== 'string') throw badRequest('parameter `doc_ids` must be an array of strings')
    return unescaped(id)
  })
  return [...new Set(ids)].sort()
}

function sinceSeq(value: unknown): Position | undefined {
  if (value === undefined || typeof value === 'string' || typeof value === 'number') return value
  throw badRequest('parameter `since_seq` must be a string or a number')
}

function targetParams(value: unknown): Record<string, string> {
  if (value === undefined) return {}
  if (!isJsonObject(value)) throw badRequest('parameter `create_target_params` must be a JSON object')
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, String(each)]))
}

function proxies(body: Body): readonly [string | undefined, string | undefined] {
  const { proxy, source_proxy: source, target_proxy: target } = body
  for (const [name, value] of [
    ['source_proxy', source],
    ['target_proxy', target],
  ] as const) {
    if (proxy !== undefined && value !== undefined) {
      throw badRequest(`\`proxy\` is mutually exclusive with \`${name}\``)
    }
  }
  return [proxyUrl(source ?? proxy), proxyUrl(target ?? proxy)]
}

function proxyUrl(value: unknown): string | undefined {
  if (value === undefined || value === '') return undefined
  if (typeof value === 'string' && /^https?:\/\//.test(value) && URL.canParse(value)) return value
  throw invalidUrl('proxy')
}

function endpoint(value: unknown, role: 'source' | 'target'): ReplicationEndpoint {
  if (value === undefined) throw badRequest('Missing replicator database')
  if (typeof value === 'string') return textEndpoint(value, role)
  if (!isJsonObject(value) || typeof value.url !== 'string') throw invalidUrl('endpoint')
  const { headers = {}, auth = {} } = value
  if (!isJsonObject(headers)) throw badRequest(`\`headers\` of the ${role} must be a JSON object`)
  if (!isJsonObject(auth)) throw badRequest(`\`auth\` of the ${role} must be a JSON object`)
  return remote(value.url, headers, auth, role)
}

function textEndpoint(text: string, role: 'source' | 'target'): ReplicationEndpoint {
  if (text.includes('://')) return remote(text, {}, {}, role)
  const name = unescaped(text).replace(/^\//, '')
  // No database has such a name; it is an address without its scheme, perhaps with a password.
  if (name === '' || /[:@]/.test(name)) throw invalidUrl('endpoint')
  return { type: 'local', name }
}

/**
 * The root of another server.
 * @param text its address, with credentials if it needs them
 * @throws invalid_replication
 */
export function readServer(text: string): RemoteEndpoint {
  return remoteAddress(text, {}, {}, 'source')
}

function remote(
  text: string,
  given: Readonly<Record<string, unknown>>,
  auth: Readonly<Record<string, unknown>>,
  role: 'source' | 'target',
): RemoteEndpoint {
  const endpoint = remoteAddress(text, given, auth, role)
  if (new URL(endpoint.url).pathname === '/') throw invalidUrl('endpoint')
  return endpoint
}

function remoteAddress(
  text: string,
  given: Readonly<Record<string, unknown>>,
  auth: Readonly<Record<string, unknown>>,
  role: 'source' | 'target',
): RemoteEndpoint {
  if (!/^https?:\/\/[^/]/i.test(text) || !URL.canParse(text)) throw invalidUrl('endpoint')
  const url = new URL(text)
  const { username, password } = url
  url.username = ''
  url.password = ''
  url.hash = ''
  if (!url.pathname.endsWith('/') && url.search === '') url.pathname += '/'
  const { headers, basic } = readHeaders(given, role)
  const named = username === '' ? null : ([username, password] as const)
  const credentials = basicOf(auth, role) ?? named?.map(unescaped) ?? basic
  const [user = null] = basicOf(auth, role) ?? named ?? basic ?? []
  const encoded = credentials === null ? null : Buffer.from(credentials.join(':')).toString('base64')
  const authorization = encoded === null ? null : `Basic ${encoded}`
  const shown = `${url.origin}${url.pathname}`
  return { type: 'remote', url: url.href, headers, user, authorization, shown }
}

/** Headers of the connection, which a replication sets itself. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const OWN_HEADERS = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
])

interface GivenHeaders {
  readonly headers: Readonly<Record<string, string>>
  /** The user and the password of Basic credentials. */
  readonly basic: readonly [string, string] | null
}

function readHeaders(given: Readonly<Record<string, unknown>>, role: string): GivenHeaders {
  const names = Object.keys(given)
  // couch_replicator_utils sorts by lower case when it looks into an authorization.
  const isFolded = names.some((name) => name.toLowerCase() === 'authorization')
  const folded = (name: string) => (isFolded ? name.toLowerCase() : name)
  const entries = Object.entries(given).sort(([a], [b]) => (folded(a) < folded(b) ? -1 : 1))
  if (entries.length > MAX_HEADERS) throw badRequest(`the ${role} has more than ${MAX_HEADERS} headers`)
  const headers: Record<string, string> = {}
  let basic: readonly [string, string] | null = null
  for (const [name, value] of entries) {
    const known = name.toLowerCase()
    const isValid = HEADER_NAME.test(name) && typeof value === 'string' && HEADER_VALUE.test(value)
    if (!isValid || OWN_HEADERS.has(known)) throw badRequest(`a header of the ${role} is not valid`)
    const encoded = known === 'authorization' ? /^basic +(\S+)\s*$/i.exec(value)?.[1] : undefined
    if (encoded === undefined) headers[name] = value
    else basic = splitCredentials(Buffer.from(encoded, 'base64').toString())
  }
  return { headers, basic }
}

function splitCredentials(text: string): readonly [string, string] | null {
  const at = text.indexOf(':')
  return at === -1 ? null : [text.slice(0, at), text.slice(at + 1)]
}

function basicOf(auth: Readonly<Record<string, unknown>>, role: string): [string, string] | null {
  const { basic } = auth
  if (basic === undefined) return null
  if (isJsonObject(basic) && typeof basic.username === 'string' && typeof basic.password === 'string') {
    return [basic.username, basic.password]
  }
  throw badRequest(`\`auth.basic\` of the ${role} needs a username and a password`)
}

function flag(body: Body, name: string, otherwise: boolean): boolean {
  const value = body[name]
  if (value === undefined) return otherwise
  if (typeof value === 'boolean') return value
  throw badRequest(`parameter \`${name}\` must be a boolean`)
}

function count(body: Body, name: keyof typeof BOUNDS, otherwise: number): number {
  const value = body[name]
  const [least, most] = BOUNDS[name]
  const number = value === undefined ? otherwise : Number(value)
  if (!Number.isInteger(number)) throw badRequest(`parameter \`${name}\` must be an integer`)
  return Math.min(Math.max(number, least), most)
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function invalidUrl(what: 'endpoint' | 'proxy'): CouchError {
  return new CouchError('invalid_replication', `${what} has an invalid url`)
}

function badRequest(reason: string): CouchError {
  return new CouchError('bad_request', reason)
}
