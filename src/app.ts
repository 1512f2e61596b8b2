import { type FastifyInstance, fastify, LogController } from 'fastify'
import type { Config } from './config/config.ts'
import { uuidRulesOf } from './config/settings.ts'
import { AMPLE_SPACE } from './core/space.ts'
import { uuidMaker } from './core/uuids.ts'
import { bodyWindowMs } from './http/body.ts'
import { BodyFiles } from './http/body-files.ts'
import { BodyMemory } from './http/body-memory.ts'
import { clientOf, decorateAddress, trustedProxies } from './http/client-address.ts'
import { answerClientError } from './http/client-errors.ts'
import { ClientNetworks } from './http/client-networks.ts'
import { tendConnections } from './http/connections.ts'
import { holdContinue } from './http/continue.ts'
import { MAX_HEADER_BYTES } from './http/head-faults.ts'
import { LargeBodies } from './http/large-bodies.ts'
import { maxOpenFiles } from './http/open-files.ts'
import { access } from './http/plugins/access.ts'
import { authentication } from './http/plugins/authentication.ts'
import { compression } from './http/plugins/compression.ts'
import { cors } from './http/plugins/cors.ts'
import { couchHeaders, requestId } from './http/plugins/couch-headers.ts'
import { answerFrameworkError, errors } from './http/plugins/errors.ts'
import { jsonp } from './http/plugins/jsonp.ts'
import { methods } from './http/plugins/methods.ts'
import { metrics } from './http/plugins/metrics.ts'
import { origin } from './http/plugins/origin.ts'
import { preferMinimal } from './http/plugins/prefer-minimal.ts'
import { requestLog } from './http/plugins/request-log.ts'
import { tenancy } from './http/plugins/tenancy.ts'
import { tokenUse } from './http/plugins/token-use.ts'
import { withdrawal } from './http/plugins/withdrawal.ts'
import { parseQuery } from './http/query-params.ts'
import { RequestTurns } from './http/request-turns.ts'
import { rewriteUrl } from './http/rewrite-url.ts'
import { registerPaths } from './http/route-table.ts'
import { accountRoutes } from './http/routes/accounts.ts'
import { alarmRoutes } from './http/routes/alarms.ts'
import { allDocsRoutes } from './http/routes/all-docs.ts'
import { attachmentRoutes } from './http/routes/attachment.ts'
import { backupRoutes } from './http/routes/backups.ts'
import { bulkRoutes } from './http/routes/bulk.ts'
import { changesRoutes } from './http/routes/changes.ts'
import { clusterSetupRoutes } from './http/routes/cluster-setup.ts'
import { configRoutes } from './http/routes/config.ts'
import { databaseRoutes } from './http/routes/database.ts'
import { dbUpdatesRoutes } from './http/routes/db-updates.ts'
import { documentRoutes } from './http/routes/document.ts'
import { findRoutes } from './http/routes/find.ts'
import { maintenanceRoutes } from './http/routes/maintenance.ts'
import { metricsRoutes } from './http/routes/metrics.ts'
import { serverRoutes } from './http/routes/server.ts'
import { sessionRoutes } from './http/routes/session.ts'
import { restoreRoutes } from './http/routes/settee-restore.ts'
import { sizeRoutes } from './http/routes/settee-size.ts'
import { tokenRoutes } from './http/routes/settee-tokens.ts'
import { timeMachineRoutes } from './http/routes/time-machine.ts'
import { upRoutes } from './http/routes/up.ts'
import { viewRoutes } from './http/routes/views.ts'
import type { Services } from './http/services.ts'
import { validatorCompiler } from './http/shapes.ts'

const HEADERS_TIMEOUT_MS = 60_000
/** How often slow heads are looked for. */
const CHECK_MS = 5000
/** As CouchDB closes idle connections; protocol.md 17. */
const KEEP_ALIVE_MS = 300_000
/** Databases need files, too. */
const MAX_SOCKETS = Math.max(64, Math.floor(maxOpenFiles() / 2))
/** What one network may always have: a household with ten devices, each with a browser's six connections. */
const MIN_SHARE = 64
/** Leaves the databases their part of the time that a process has to end in (cli/lifecycle.ts). */
const CLOSE_GRACE_MS = 5000

export interface AppOptions {
  /** How long requests under way may take when the app closes, in milliseconds; then they are cut. Default 5 s. */
  readonly closeGraceMs?: number | undefined
  /** How long the head of a request may take, in milliseconds. Default 60 s. */
  readonly headTimeoutMs?: number | undefined
  /** How long a connection may be idle, in milliseconds. Default 300 s. */
  readonly idleMs?: number | undefined
  /** How often answers that are not taken are looked for, in milliseconds; after five times as long they are cut. Default 60 s. */
  readonly lookMs?: number | undefined
}

/**
 * Builds the HTTP layer: plugins, then routes. It listens nowhere, and closes nothing of the services.
 * @returns the app; `listen` and `inject` make it ready
 */
export async function buildApp(services: Services, options: AppOptions = {}): Promise<FastifyInstance> {
  const trusts = trustedProxies(services.config)
  const app = makeServer(services, trusts, options)
  holdContinue(app.server)
  const { config } = services
  const networks = new ClientNetworks()
  const turns = new RequestTurns(
    {
      networks,
      strangerRate: () => config.integer('settee', 'stranger_requests'),
      clientOf: (request) => clientOf(request, trusts),
    },
    app.routing,
  )
  app.decorate('turns', turns)
  app.server.removeAllListeners('request').on('request', (request, response) => turns.take(request, response))
  const connections = tendConnections(app.server, {
    maxOpen: () => maxOpen(config),
    maxOfNetwork: () =>
      Math.min(config.integer('settee', 'max_network_connections'), shareOf(maxOpen(config))),
    isProxy: trusts,
    networks,
    turns,
    bodyWindowMs: () => bodyWindowMs(config),
    graceMs: options.closeGraceMs ?? CLOSE_GRACE_MS,
    idleMs: options.idleMs,
    lookMs: options.lookMs,
    onCut: (count) =>
      services.logger.warn({ count }, 'connections were cut: their requests had not ended in time'),
  })
  app.decorate('connections', connections)
  app.decorate('secure', null)
  app.decorate('services', services)
  app.decorate('paths', [])
  app.decorate(
    'newUuid',
    uuidMaker(() => uuidRulesOf(config), 0),
  )
  decorateAddress(app, trusts)
  app.decorate('bodyMemory', new BodyMemory(() => services.config.integer('settee', 'body_memory')))
  const { space = () => AMPLE_SPACE } = services
  app.decorate('largeBodies', new LargeBodies())
  app.decorate('bodyFiles', new BodyFiles(space, () => config.integer('settee', 'body_disk_share') / 100))
  app.setValidatorCompiler(validatorCompiler)
  for (const plugin of [methods, metrics, couchHeaders, requestLog, cors, errors, jsonp, origin]) {
    await app.register(plugin)
  }
  for (const plugin of [authentication, tokenUse, tenancy, access, withdrawal]) {
    await app.register(plugin)
  }
  for (const plugin of [preferMinimal, compression]) await app.register(plugin)
  await registerRoutes(app)
  return app
}

function maxOpen(config: Config): number {
  return Math.min(config.integer('settee', 'max_connections'), MAX_SOCKETS)
}

/** Of all connections, what one network may have. */
function shareOf(all: number): number {
  return Math.max(MIN_SHARE, Math.floor(all / 4))
}

function makeServer(
  services: Services,
  trusts: (address: string) => boolean,
  { headTimeoutMs = HEADERS_TIMEOUT_MS, idleMs = KEEP_ALIVE_MS }: AppOptions,
): FastifyInstance {
  return fastify({
    trustProxy: trusts,
    loggerInstance: services.logger,
    logController: new LogController({ disableRequestLogging: true }),
    // What is logged of a request names it; a logger for each would be made for nothing.
    childLoggerFactory: (logger) => logger,
    genReqId: requestId,
    rewriteUrl: (request) =>
      rewriteUrl(request, services.config.get('chttpd', 'decode_plus_to_space') !== 'false'),
    routerOptions: { maxParamLength: MAX_HEADER_BYTES, querystringParser: parseQuery },
    frameworkErrors: answerFrameworkError,
    clientErrorHandler: answerClientError,
    http: {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: headTimeoutMs,
      connectionsCheckingInterval: Math.min(CHECK_MS, headTimeoutMs),
      requireHostHeader: false,
    },
    // An upload may take as long as it takes, if it goes on: slow-body.ts watches over it.
    requestTimeout: 0,
    keepAliveTimeout: idleMs,
    forceCloseConnections: 'idle',
    // Its answer is not of the shape of ours; while the app closes, what comes is served or refused as ever.
    return503OnClosing: false,
  }) as unknown as FastifyInstance
}

async function registerRoutes(app: FastifyInstance): Promise<void> {
  registerPaths(app, serverRoutes)
  registerPaths(app, upRoutes)
  registerPaths(app, sessionRoutes)
  registerPaths(app, configRoutes)
  await app.register(accountRoutes)
  registerPaths(app, tokenRoutes)
  registerPaths(app, sizeRoutes)
  registerPaths(app, restoreRoutes)
  registerPaths(app, clusterSetupRoutes)
  registerPaths(app, metricsRoutes)
  registerPaths(app, backupRoutes)
  registerPaths(app, alarmRoutes)
  registerPaths(app, timeMachineRoutes)
  registerPaths(app, databaseRoutes)
  registerPaths(app, maintenanceRoutes)
  registerPaths(app, bulkRoutes)
  registerPaths(app, allDocsRoutes)
  registerPaths(app, findRoutes)
  registerPaths(app, viewRoutes)
  await app.register(changesRoutes)
  await app.register(dbUpdatesRoutes)
  registerPaths(app, documentRoutes)
  registerPaths(app, attachmentRoutes)
}
