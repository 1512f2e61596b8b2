/** Calls about the server as a whole; protocol.md 4.4 and 15. */
import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { SYSTEM_USER } from '../../core/types.ts'
import { type NameRange, namesInRange } from '../../storage/catalog.ts'
import type { DatabaseHandle } from '../../threads/databases.ts'
import { COUCHDB_VERSION } from '../plugins/couch-headers.ts'
import { isKnownToClient, sendJson, sendNotModified, streamJson } from '../replies.ts'
import { count, jsonParam, type Query, queryOf, viewBoolean } from '../request-params.ts'
import { COUNT, type Path, type Schema, shape, VIEW_BOOLEAN } from '../route-table.ts'
import { isVisible, namesOfTenant, tenantOf } from '../services.ts'
import { LIST_BODY, readSmallJson } from '../transport/body-reader.ts'
import { isFromProxy } from '../transport/connection.ts'

const RANGE_QUERY: Schema = {
  type: 'object',
  properties: { descending: VIEW_BOOLEAN, inclusive_end: VIEW_BOOLEAN, limit: COUNT, skip: COUNT },
}

const NOT_POSITIVE = ['bad_request', 'count must be a positive integer'] as const
const COUNT_QUERY: Schema = {
  type: 'object',
  properties: { count: { type: 'string', pattern: '^[0-9]+$', refusal: NOT_POSITIVE } },
}

export const serverRoutes: readonly Path[] = [
  { url: '/', allow: 'GET,HEAD', access: 'public', methods: { GET: { handler: welcome } } },
  {
    url: '/_uuids',
    allow: 'GET',
    access: 'public',
    methods: { GET: { handler: uuids, query: COUNT_QUERY } },
  },
  {
    url: '/_settee/client',
    allow: 'GET,HEAD',
    access: 'public',
    methods: { GET: { handler: client } },
  },
  {
    url: '/_all_dbs',
    allow: 'GET,HEAD',
    access: 'tenant',
    methods: { GET: { handler: allDbs, query: RANGE_QUERY } },
  },
  {
    url: '/_dbs_info',
    allow: 'GET,HEAD,POST',
    access: 'tenant',
    methods: { GET: { handler: dbsInfo, query: RANGE_QUERY }, POST: { handler: dbsInfoOfKeys, json: true } },
  },
]

async function welcome(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { databases, version } = request.server.services
  return sendJson(reply, 200, {
    couchdb: 'Welcome',
    version: COUCHDB_VERSION,
    uuid: databases.serverUuid,
    features: ['partitioned'],
    vendor: { name: 'settee', version },
  })
}

/** What the server takes the caller for, so that people can check their proxy. */
async function client(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, {
    address: request.address,
    forwarded: request.headers['x-forwarded-for'] !== undefined,
    trusted: isFromProxy(request),
  })
}

async function uuids(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const wanted = count(queryOf(request), 'count') ?? 1
  if (wanted > request.server.services.config.integer('uuids', 'max_count')) {
    throw new CouchError('bad_request', 'count parameter too large')
  }
  const made = Array.from({ length: wanted }, request.server.newUuid)
  reply.headers({
    'Cache-Control': 'no-cache',
    Pragma: 'no-cache',
    Expires: 'Mon, 01 Jan 1990 00:00:00 GMT',
    ETag: digestTag(made),
  })
  return sendJson(reply, 200, { uuids: made })
}

/** Names of the longest list that gets an ETag, and is not streamed. */
const MAX_TAGGED = 10_000

async function allDbs(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const names = namesInQuery(request)
  const first: string[] = []
  for (let next = await names.next(); !next.done; next = await names.next()) {
    first.push(next.value)
    if (first.length > MAX_TAGGED) return streamJson(request, reply, 200, nameRows(first, names))
  }
  if (isKnownToClient(request, reply, digestTag(first))) return sendNotModified(reply)
  return sendJson(reply, 200, first)
}

async function* nameRows(first: readonly string[], rest: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  yield Buffer.from(JSON.stringify(first).slice(0, -1))
  let some: string[] = []
  for await (const name of rest) {
    some.push(name)
    if (some.length < MAX_TAGGED) continue
    yield Buffer.from(`,${JSON.stringify(some).slice(1, -1)}`)
    some = []
  }
  yield Buffer.from(some.length > 0 ? `,${JSON.stringify(some).slice(1)}\n` : ']\n')
}

async function dbsInfo(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return sendInfos(request, reply, namesInQuery(request), () => null)
}

const keysBody = shape<{ keys: readonly unknown[] }>({
  allOf: [
    { type: 'object', refusal: ['body_not_object', 'Request body must be a JSON object'] },
    { required: ['keys'], refusal: ['bad_request', '`keys` member must exist.'] },
  ],
  properties: {
    keys: { type: 'array', refusal: ['bad_request', '`keys` member must be an array.'] },
  },
})

/** CouchDB's `chttpd/max_db_number_for_dbs_info_req`, protocol.md 2.5. */
const MAX_KEYS = 100

async function dbsInfoOfKeys(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { keys } = keysBody(await readSmallJson(request, LIST_BODY))
  if (keys.length > MAX_KEYS) throw new CouchError('bad_request', 'too_many_keys')
  return sendInfos(request, reply, keys, (key) => ({ key, error: 'not_found' }))
}

/** Streams an array of rows, one database after the other. @param missing makes the row of a missing database, or of what is no name; null: none */
function sendInfos(
  request: FastifyRequest,
  reply: FastifyReply,
  names: Iterable<unknown> | AsyncIterable<unknown>,
  missing: (name: unknown) => unknown,
): Promise<void> {
  return streamJson(request, reply, 200, infoRows(request, names, missing))
}

async function* infoRows(
  request: FastifyRequest,
  names: Iterable<unknown> | AsyncIterable<unknown>,
  missing: (name: unknown) => unknown,
): AsyncGenerator<Uint8Array> {
  let before = '['
  for await (const name of names) {
    const row = await infoRow(request, name).catch((error: unknown) => {
      if (!(error instanceof CouchError)) throw error
      if (error.code === 'no_database') return missing(name)
      // A damaged file does not hide the other databases.
      if (error.status === 500) return { key: name, error: error.error }
      throw error
    })
    if (row === null) continue
    yield Buffer.from(`${before}${JSON.stringify(row)}`)
    before = ',\n'
  }
  yield Buffer.from(before === '[' ? '[]\n' : ']\n')
}

/** @throws no_database, also for a database that the caller may not see, and for what is no name */
async function infoRow(request: FastifyRequest, name: unknown): Promise<unknown> {
  if (typeof name !== 'string' || !(await isVisible(request, name))) throw new CouchError('no_database')
  const database: DatabaseHandle = await request.server.services.databases.get(name)
  // The caller may see it, even an owner who is no longer a member.
  return { key: name, info: await database.info(SYSTEM_USER) }
}

/** The names that the caller may see in the range of the query. */
async function* namesInQuery(request: FastifyRequest): AsyncGenerator<string, undefined> {
  const query = queryOf(request)
  const descending = viewBoolean(query, 'descending') ?? false
  const key = nameParam(query, 'key')
  const from = key ?? nameParam(query, 'startkey', 'start_key')
  const end = key ?? nameParam(query, 'endkey', 'end_key')
  const inclusive = viewBoolean(query, 'inclusive_end') ?? true
  let skip = count(query, 'skip') ?? 0
  let limit = count(query, 'limit') ?? Number.POSITIVE_INFINITY
  for await (const name of visibleNames(request, { descending, ...(from !== undefined && { from }) })) {
    // Names are ASCII, so JavaScript compares them by bytes.
    if (end !== undefined && (descending ? name < end : name > end)) return
    if (name === end && !inclusive) return
    if (skip-- > 0) continue
    if (limit-- <= 0) return
    yield name
  }
}

/** The databases of a tenant, or all. */
async function* visibleNames(request: FastifyRequest, range: NameRange): AsyncGenerator<string> {
  const tenant = tenantOf(request)
  if (tenant === null) yield* request.server.services.databases.allNames(range)
  else yield* namesInRange(await namesOfTenant(request, tenant), range, Number.POSITIVE_INFINITY)
}

function nameParam(query: Query, ...aliases: readonly string[]): string | undefined {
  const value = jsonParam(query, ...aliases)
  if (value === undefined || typeof value === 'string') return value
  throw new CouchError('query_parse_error', `\`${aliases.join('` or `')}\` must be a JSON string.`)
}

function digestTag(value: unknown): string {
  return `"${createHash('md5').update(JSON.stringify(value)).digest('hex')}"`
}
