import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyRequest } from 'fastify'
import { isServerAdmin, requireMetricsReader, requireServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import { checkDatabaseName, holdsAccounts, isListedByServerAdmins } from '../../core/ids.ts'
import type { SecurityObject, UserCtx } from '../../core/types.ts'
import {
  databaseRole,
  requireDatabaseAdmin,
  requireMaintainer,
  requireMember,
} from '../../documents/security.ts'
import type { DatabaseHandle } from '../../threads/databases.ts'
import { pathParam } from '../request-params.ts'
import { isOwner, tenantOf } from '../services.ts'

const SERVER_PATH = /^_[a-z_]+$/

declare module 'fastify' {
  interface FastifyRequest {
    /** The database of the route, where there is one; read it with {@link databaseOf}. */
    database: DatabaseHandle | null
  }
}

/** The database of a route under `/:db` whose rule is about a database: {@link checkAccess} has opened it. */
export function databaseOf(request: FastifyRequest): DatabaseHandle {
  if (request.database === null) throw new Error(`No database on ${request.routeOptions.url}`)
  return request.database
}

/**
 * Checks the caller against the rule of the matched route (protocol.md 1.4, 11.4), and finds the route's database. For
 * databases this is an early refusal only: the thread that owns the database checks again in the turn that reads or writes.
 * @returns no promise if nothing had to be waited for
 * @throws unauthorized, not_server_admin, forbidden, no_database, not_found
 */
export function checkAccess(request: FastifyRequest): Promise<void> | undefined {
  if (request.is404) return undefined
  const { user } = request
  // A route that forgot its rule is closed.
  const { access = 'server admin', anonymousError } = request.routeOptions.config
  switch (access) {
    case 'public':
      return undefined
    case 'user':
      if (user.name !== null || isServerAdmin(user)) return undefined
      if (anonymousError !== undefined) throw new CouchError(anonymousError)
      throw new CouchError('unauthorized', 'You are not an authenticated user')
    case 'metrics':
      requireMetricsReader(user)
      return undefined
    case 'server admin':
      requireServerAdmin(user)
      return undefined
    case 'tenant':
      requireTenant(request)
      return undefined
    case 'owner':
      return requireOwner(request)
    case 'member':
      return enterDatabase(request, requireMember)
    case 'lister':
      if (isListedByServerAdmins(pathParam(request, 'db'))) requireServerAdmin(user)
      return enterDatabase(request, requireMember)
    case 'db admin':
      return enterDatabase(request, requireDatabaseAdmin)
    case 'db admin or owner':
      return enterAsOwner(request)
    case 'maintainer':
      return enterDatabase(request, requireMaintainer)
  }
}

/** @throws not_server_admin in single mode, which has no tenants; unauthorized in hosted mode, where any account may call */
function requireTenant(request: FastifyRequest): void {
  if (tenantOf(request) !== null || isServerAdmin(request.user)) return
  if (request.server.services.config.isHosted)
    throw new CouchError('unauthorized', 'Authentication required.')
  requireServerAdmin(request.user)
}

/** @throws not_server_admin, unauthorized, no_database, forbidden */
async function requireOwner(request: FastifyRequest): Promise<void> {
  if (tenantOf(request) === null) {
    requireTenant(request)
    return
  }
  if (await isOwner(request)) {
    await namedDatabase(request)
    return
  }
  await visibleDatabase(request, () => {
    throw new CouchError('forbidden', 'You are not the owner of this database.')
  })
}

/** @throws as {@link checkAccess} */
async function enterAsOwner(request: FastifyRequest): Promise<void> {
  await enterDatabase(request, (await isOwner(request)) ? () => undefined : requireDatabaseAdmin)
}

type RequireRole = (...asked: Parameters<typeof requireMember>) => void

function enterDatabase(request: FastifyRequest, requireRole: RequireRole): Promise<void> | undefined {
  const db = pathParam(request, 'db')
  if (db.startsWith('_') && !isLegalName(db)) refuseServerPath(request, db)
  const { usersDatabase } = request.server.services.databases
  if (holdsAccounts(db, usersDatabase) && request.identity.token !== null) refuseToken(request.user)
  request.database = openDatabase(request, db, requireRole)
  return request.database === null ? enterSlowly(request, requireRole) : undefined
}

/** @returns null if the database or its rights are not known, or the caller may lack a right */
function openDatabase(
  { user, server }: FastifyRequest,
  db: string,
  requireRole: RequireRole,
): DatabaseHandle | null {
  const database = server.services.databases.cached(db)
  if (database === undefined || isServerAdmin(user)) return database ?? null
  const security = database.securityCopy()
  if (security instanceof Promise) {
    // It is asked for again, and waited for.
    security.catch(() => undefined)
    return null
  }
  try {
    requireRole(user, security)
    return database
  } catch {
    return null
  }
}

async function enterSlowly(request: FastifyRequest, requireRole: RequireRole): Promise<void> {
  const isAdmin = isServerAdmin(request.user)
  request.database = await (isAdmin ? namedDatabase(request) : visibleDatabase(request, requireRole))
}

/** @throws no_database */
function namedDatabase(request: FastifyRequest): Promise<DatabaseHandle> {
  const db = pathParam(request, 'db')
  return request.server.services.databases.get(db)
}

/**
 * The least time of a refusal, in milliseconds. Otherwise its time would show whether the database exists: reading the
 * rights of a closed database takes a few milliseconds.
 */
const REFUSAL_MS = 20

/**
 * The database of the route for a caller who is not a server admin. A database's name may show that an account exists
 * (`userdb-...`), so anonymous callers get the same answer whether it exists or not. So do tenants about others' databases.
 * @throws unauthorized, forbidden, no_database
 */
async function visibleDatabase(request: FastifyRequest, requireRole: RequireRole): Promise<DatabaseHandle> {
  const began = performance.now()
  try {
    const { database, security } = await securedDatabase(request)
    if (database !== null && (hasRole(request, security) || (await maySeeDatabase(request)))) {
      requireRole(request.user, security)
      return database
    }
    if (request.user.name === null) requireMember(request.user, null)
    // The cause marks it as a refusal for revocation.ts.
    const refusal = database === null ? {} : { cause: new CouchError('forbidden') }
    throw new CouchError('no_database', undefined, refusal)
  } catch (error) {
    if (request.user.name === null || tenantOf(request) !== null) {
      await sleep(Math.max(0, began + REFUSAL_MS - performance.now()))
    }
    throw error
  }
}

/** @returns the database of the route with its rights; null: there is none */
async function securedDatabase(
  request: FastifyRequest,
): Promise<{ readonly database: DatabaseHandle | null; readonly security: SecurityObject | null }> {
  const { databases } = request.server.services
  const name = pathParam(request, 'db')
  const database = databases.cached(name) ?? (await databaseOrNull(request))
  if (database === null) return { database, security: null }
  try {
    return { database, security: await database.securityCopy() }
  } catch (error) {
    const isGone = error instanceof CouchError && error.code === 'no_database'
    // It may have a new incarnation, or another node may have made another of its name.
    if (!isGone || !(await databases.has(name))) throw error
    const successor = await namedDatabase(request)
    return { database: successor, security: await securityOf(successor) }
  }
}

/** @throws unavailable where the database is there, but gets a new incarnation just now */
async function securityOf(database: DatabaseHandle): Promise<SecurityObject | null> {
  try {
    return await database.securityCopy()
  } catch (error) {
    if (!(error instanceof CouchError) || error.code !== 'no_database') throw error
    throw new CouchError('unavailable', undefined, { cause: error })
  }
}

async function databaseOrNull(request: FastifyRequest): Promise<DatabaseHandle | null> {
  try {
    return await namedDatabase(request)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    throw error
  }
}

function hasRole(request: FastifyRequest, security: SecurityObject | null): boolean {
  return databaseRole(request.user, security) !== 'none'
}

/** Whether a caller without a role may know that the database exists. In single mode all accounts may, as in CouchDB. */
async function maySeeDatabase(request: FastifyRequest): Promise<boolean> {
  if (request.user.name === null) return false
  return tenantOf(request) === null || pathParam(request, 'db').startsWith('_') || isOwner(request)
}

/**
 * The finder of a lost phone must not get into the account: `_users` would show the hash of its password, and allow to
 * change it.
 */
function refuseToken(user: UserCtx): void {
  if (!isServerAdmin(user)) throw new CouchError('forbidden', 'A device token gives no access to _users.')
}

/** An unknown /_name and paths below it belong to the server, not to a database (protocol.md 11.4, 17). */
function refuseServerPath(request: FastifyRequest, name: string): never {
  requireServerAdmin(request.user)
  const isKnown = SERVER_PATH.test(name) && request.server.hasRoute({ method: 'GET', url: `/${name}` })
  throw new CouchError(isKnown ? 'not_found' : 'no_database')
}

function isLegalName(name: string): boolean {
  try {
    checkDatabaseName(name)
    return true
  } catch {
    return false
  }
}
