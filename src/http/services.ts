import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import type { Accounts } from '../auth/accounts.ts'
import type { CredentialChecker } from '../auth/credentials.ts'
import type { Policy } from '../auth/policy.ts'
import type { Tokens } from '../auth/tokens.ts'
import type { Backups } from '../backup/backups.ts'
import type { Config } from '../config/config.ts'
import type { LogTail } from '../config/log-tail.ts'
import type { HealthFact, Space, UserCtx } from '../core/types.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import type { DeviceHealing } from '../healing/device-healing.ts'
import type { Repairs } from '../healing/repairs.ts'
import type { Hosted } from '../hosted/hosted.ts'
import type { Alarms } from '../metrics/alarms.ts'
import type { Growth } from '../metrics/growth.ts'
import type { Collector } from '../metrics/metric.ts'
import type { Samples } from '../metrics/samples.ts'
import type { MoveRuns } from '../move/move-runs.ts'
import type { SealingKey } from '../replication/documents/sealing-key.ts'
import type { Replicator } from '../replication/replicator.ts'
import type { Scrub } from '../scrub/scrub.ts'
import type { Standby } from '../standby/standby.ts'
import type { Databases } from '../threads/databases.ts'
import type { Rewinds } from '../time-machine/rewinds.ts'
import type { VaultControl } from '../vaults/vault-control.ts'
import { pathParam } from './request-params.ts'
import type { BodyMemory, LargeBodies } from './transport/body-limits.ts'

/** The services that the HTTP layer uses. The composition root (server.ts) creates and closes them. */
export interface Services {
  readonly config: Config
  readonly accounts: Accounts
  readonly credentials: CredentialChecker
  readonly tokens: Tokens
  readonly databases: Databases
  readonly policy: Policy
  /** For the accounts' endpoints alone (routes/account-routes.ts); null in single mode. */
  readonly hosted: Hosted | null
  readonly alarms: Alarms
  readonly rewinds: Rewinds
  /** Absent: this server does not record how databases grow. */
  readonly growth?: Pick<Growth, 'of'>
  readonly replicator: Replicator
  readonly sealingKey: Pick<SealingKey, 'value'>
  /** Absent: this server is never a standby. */
  readonly standby?: Pick<Standby, 'acceptsWrites' | 'report' | 'followers'>
  /** Absent: no other server is moved to this one. */
  readonly moveRuns?: MoveRuns
  readonly logger: Logger
  /** The newest lines of the logger. */
  readonly log: LogTail
  /** settee's own version, from package.json. */
  readonly version: string
  /** Metrics of other parts of the server for `_prometheus`, beside those of plugins/request-metrics.ts. */
  readonly collectors?: readonly Collector[]
  /** The recent past of the server. */
  readonly samples: Pick<Samples, 'read'>
  /** Health checks of parts of the server; they never reject. */
  readonly health?: readonly (() => Promise<readonly HealthFact[]>)[]
  /** Absent: this server makes no backups. */
  readonly backups?: Backups
  /** Absent: this server does not check what it stores. */
  readonly scrub?: Scrub
  readonly repairs?: Repairs
  readonly healing?: Pick<DeviceHealing, 'damaged'>
  /** Vaults as server admins make them; absent: this server makes none. */
  readonly vaults?: VaultControl
  /** Vaults as another account makes them for itself. */
  ownVaults?(user: UserCtx): VaultControl
  /** The free space of the disk. Default: enough. */
  space?(): Space
  /** The room for bodies in files. By default these routes have it for themselves. */
  readonly bodyFiles?: BodyFiles
  /** An existing folder for bodies that are too large for memory. */
  readonly tmpDir: string
}

/** The handler of a route. It answers through the reply, or throws a CouchError. */
export type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>

declare module 'fastify' {
  interface FastifyInstance {
    services: Services
    /** The budget of this process for bodies in memory (architecture.md, "The path of a save"). */
    bodyMemory: BodyMemory
    /** Makes an id as configured in `[uuids]`. */
    newUuid(): string
    /** The budget of this process for bodies in files. */
    bodyFiles: BodyFiles
    largeBodies: LargeBodies
  }
}

/** @returns the account of a caller who sees only their own databases; null for all other callers */
export function tenantOf({ server, user }: FastifyRequest): string | null {
  return server.services.policy.tenantOf(user)
}

/** Whether the caller is the tenant who owns the database of the route. */
export async function isOwner(request: FastifyRequest): Promise<boolean> {
  const tenant = tenantOf(request)
  const db = pathParam(request, 'db')
  return tenant !== null && (await request.server.services.policy.ownerOf(db)) === tenant
}

/** Whether the caller may know of a database: a tenant of its own, everybody else of all. */
export async function isVisible(request: FastifyRequest, name: string): Promise<boolean> {
  const tenant = tenantOf(request)
  return tenant === null || (await request.server.services.policy.ownerOf(name)) === tenant
}

/** Names that one call reads. */
const PAGE = 1000

/** The names of a tenant's databases, in byte order. */
export async function namesOfTenant(request: FastifyRequest, tenant: string): Promise<string[]> {
  const { policy } = request.server.services
  const names: string[] = []
  for (let page: readonly string[] | undefined; page === undefined || page.length === PAGE; ) {
    const after = page?.at(-1)
    page = await policy.databasesOf(tenant, after === undefined ? {} : { after }, PAGE)
    names.push(...page)
  }
  return names
}
