/** Who asks, in hosted mode: a tenant, or somebody who sees all. */
import type { FastifyRequest } from 'fastify'
import { isServerAdmin } from '../auth/access.ts'

/** @returns the account; null for server admins, whoever has not logged in, and in single mode */
export function tenantOf(request: FastifyRequest): string | null {
  const { hosted } = request.server.services
  const { user } = request
  if (hosted === null || user.name === null || isServerAdmin(user)) return null
  return hosted.tenants.isAdmin(user.name) ? null : user.name
}

/** Whether the caller is the tenant who owns the database of the route. */
export function isOwner(request: FastifyRequest): boolean {
  const tenant = tenantOf(request)
  const { db } = request.params as { db: string }
  return tenant !== null && request.server.services.hosted?.owners.ownerOf(db) === tenant
}

/**
 * Of some databases those that the caller may know of: a tenant its own, a server admin all.
 * @param names in any order, which is kept
 */
export function visibleTo(request: FastifyRequest, names: readonly string[]): readonly string[] {
  const tenant = tenantOf(request)
  if (tenant === null) return names
  const own = request.server.services.hosted?.owners.databasesOf(tenant)
  return own === undefined ? [] : names.filter((name) => own.has(name))
}
