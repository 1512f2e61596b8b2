/** The databases as a person wants to see them: a paged list, one of them, its growth, its conflicts; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ANONYMOUS, isServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import { type SecurityList, type SecurityObject, SYSTEM_USER } from '../../core/types.ts'
import { databaseRole } from '../../documents/security.ts'
import type { NameRange } from '../../storage/catalog.ts'
import type { DatabaseHandle } from '../../threads/databases.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, sendJson } from '../replies.ts'
import { pageLimit, queryOf, textParam } from '../request-params.ts'
import { COUNT, type Path, type Schema } from '../route-table.ts'
import { tenantOf } from '../services.ts'

const LIST_QUERY: Schema = { type: 'object', properties: { limit: COUNT } }
const PAGE = 50
const MAX_PAGE = 200
/** Databases that one page looks at for an account: it may have to open each to read who has access. */
const MAX_EXAMINED = 200
/** Databases that are asked at once. */
const AT_ONCE = 8
const CONFLICTS_PAGE = 100
const MAX_CONFLICTS_PAGE = 1000

export const databaseListRoutes: readonly Path[] = [
  {
    url: '/_settee/databases',
    allow: 'GET,HEAD',
    access: 'user',
    methods: { GET: { handler: listDatabases, query: LIST_QUERY } },
  },
  {
    url: '/_settee/databases/:db',
    allow: 'GET,HEAD',
    access: 'member',
    methods: { GET: { handler: oneDatabase } },
  },
  {
    url: '/_settee/databases/:db/growth',
    allow: 'GET,HEAD',
    access: 'member',
    methods: { GET: { handler: growth } },
  },
  {
    url: '/_settee/databases/:db/conflicts',
    allow: 'GET,HEAD',
    access: 'member',
    methods: { GET: { handler: conflicts, query: LIST_QUERY } },
  },
]

/** A page in the order of the names. It may have fewer rows than the limit, since it looks at a bounded number. */
async function listDatabases(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const query = queryOf(request)
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  const prefix = textParam(query, 'prefix') ?? ''
  const after = textParam(query, 'after')
  const names = await namesFor(request, { prefix, ...(after !== undefined && { after }) })
  const rows: object[] = []
  let at = 0
  while (rows.length < limit && at < Math.min(names.length, MAX_EXAMINED)) {
    const some = names.slice(at, Math.min(at + Math.min(AT_ONCE, limit - rows.length), MAX_EXAMINED))
    at += some.length
    const found = await Promise.all(some.map((name) => rowOrFault(request, name)))
    rows.push(...found.filter((row) => row !== null))
  }
  return sendJson(reply, 200, { databases: rows, next: at < names.length ? names[at - 1] : null })
}

/** The names to look through, in order, and one more: those of a tenant, or all. */
async function namesFor(request: FastifyRequest, range: NameRange): Promise<readonly string[]> {
  const { databases, policy } = request.server.services
  const tenant = tenantOf(request)
  const most = MAX_EXAMINED + 1
  return tenant === null ? databases.names(range, most) : policy.databasesOf(tenant, range, most)
}

/** @returns null for a database that the caller has no access to, or that has just been deleted */
async function rowOrFault(request: FastifyRequest, name: string): Promise<object | null> {
  try {
    const database = await request.server.services.databases.get(name)
    if (!(await mayEnter(request, database))) return null
    return await rowOf(request, database)
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    if (error.code === 'no_database') return null
    // A damaged file does not hide the other databases. Only server admins learn that it exists.
    if (!isServerAdmin(request.user)) return null
    return { name, error: error.error, reason: error.message }
  }
}

async function mayEnter(request: FastifyRequest, database: DatabaseHandle): Promise<boolean> {
  const { user } = request
  // A tenant's names are those of its own databases.
  if (isServerAdmin(user) || tenantOf(request) !== null) return true
  return databaseRole(user, await database.securityCopy()) !== 'none'
}

async function rowOf(request: FastifyRequest, database: DatabaseHandle): Promise<object> {
  const { hosted } = request.server.services
  const { name } = database
  const [info, security] = await Promise.all([database.info(SYSTEM_USER), database.securityCopy()])
  const owner = (await hosted?.owners.ownerOf(name)) ?? null
  return {
    name,
    doc_count: info.doc_count,
    doc_del_count: info.doc_del_count,
    sizes: info.sizes,
    update_seq: info.update_seq,
    partitioned: info.props.partitioned === true,
    compact_running: info.compact_running,
    access: accessOf(security),
    role: databaseRole(request.user, security),
    ...(hosted !== null && { owner }),
  }
}

/** Who has access: everyone without a login, the members, or only admins. */
function accessOf(security: SecurityObject | null): 'everyone' | 'members' | 'admins' {
  if (databaseRole(ANONYMOUS, security) !== 'none') return 'everyone'
  const { names = [], roles = [] }: SecurityList = security?.members ?? security?.readers ?? {}
  return names.length > 0 || roles.some((role) => role !== '_admin') ? 'members' : 'admins'
}

async function oneDatabase(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, await rowOf(request, databaseOf(request)))
}

async function growth(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const database = databaseOf(request)
  const days = (await request.server.services.growth?.of(database)) ?? []
  return sendJson(reply, 200, { database: database.name, days })
}

async function conflicts(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const query = queryOf(request)
  const limit = pageLimit(query, CONFLICTS_PAGE, MAX_CONFLICTS_PAGE)
  const bookmark = textParam(query, 'bookmark')
  const page = { limit, ...(bookmark !== undefined && { bookmark }) }
  return sendBytes(reply, 200, await databaseOf(request).conflicts(request.user, page))
}
