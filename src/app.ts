import type { IncomingMessage, ServerResponse } from 'node:http'
import { type FastifyBaseLogger, type FastifyInstance, fastify, LogController } from 'fastify'
import type { Config } from './config/config.ts'
import { bodyFilesOf, uuidRulesOf } from './config/settings.ts'
import { AMPLE_SPACE } from './core/types.ts'
import { uuidMaker } from './core/uuids.ts'
import { admission } from './http/plugins/admission.ts'
import { authentication } from './http/plugins/authentication.ts'
import { methods, preferMinimal, requestId } from './http/plugins/couch-headers.ts'
import { cors } from './http/plugins/cross-origin.ts'
import { draining } from './http/plugins/draining.ts'
import { answerFrameworkError, errors } from './http/plugins/error-replies.ts'
import { metrics } from './http/plugins/request-metrics.ts'
import { revocation } from './http/plugins/revocation.ts'
import { parseQuery } from './http/request-params.ts'
import { registerPaths, validatorCompiler } from './http/route-table.ts'
import { accountRoutes } from './http/routes/account-routes.ts'
import { activeTaskRoutes } from './http/routes/active-task-routes.ts'
import { allDocsRoutes } from './http/routes/all-docs-routes.ts'
import { attachmentRoutes } from './http/routes/attachment-routes.ts'
import { backupRoutes, restoreRoutes, sizeRoutes, verifyRoutes } from './http/routes/backup-routes.ts'
import { bulkRoutes } from './http/routes/bulk-routes.ts'
import { changesRoutes, dbUpdatesRoutes } from './http/routes/changes-routes.ts'
import { checkRoutes } from './http/routes/check-routes.ts'
import { clusterSetupRoutes } from './http/routes/cluster-setup-routes.ts'
import { maintenanceRoutes } from './http/routes/compaction-routes.ts'
import { configRoutes } from './http/routes/config-routes.ts'
import { configurationRoutes } from './http/routes/configuration-routes.ts'
import { couchappRoutes } from './http/routes/couchapp-routes.ts'
import { databaseListRoutes } from './http/routes/database-list-routes.ts'
import { databaseRoutes } from './http/routes/database-routes.ts'
import { documentRoutes } from './http/routes/document-routes.ts'
import { findRoutes } from './http/routes/find-routes.ts'
import { indexRoutes } from './http/routes/index-routes.ts'
import { logRoutes } from './http/routes/log-routes.ts'
import { metricsRoutes, upRoutes } from './http/routes/metrics-routes.ts'
import { moveRoutes } from './http/routes/move-routes.ts'
import { partitionRoutes } from './http/routes/partition-routes.ts'
import { replicationRoutes } from './http/routes/replication-routes.ts'
import { serverRoutes } from './http/routes/server-routes.ts'
import { sessionRoutes } from './http/routes/session-routes.ts'
import { standbyRoutes } from './http/routes/standby-routes.ts'
import { alarmRoutes, timeMachineRoutes } from './http/routes/time-machine-routes.ts'
import { tokenRoutes } from './http/routes/token-routes.ts'
import { vaultRoutes } from './http/routes/vault-routes.ts'
import { viewRoutes } from './http/routes/view-routes.ts'
import type { Services } from './http/services.ts'
import { BodyMemory, LargeBodies, maxOpenFiles } from './http/transport/body-limits.ts'
import { deferContinue } from './http/transport/body-progress.ts'
import { bodyWindowMs } from './http/transport/body-reader.ts'
import { answerClientError, MAX_HEADER_BYTES } from './http/transport/client-errors.ts'
import { compression } from './http/transport/compression.ts'
import { ClientNetworks, clientOf, decorateAddress, trustedProxies } from './http/transport/connection.ts'
import { guardConnections } from './http/transport/connections.ts'
import { GuardedResponse } from './http/transport/page-policy.ts'
import { RequestTurns } from './http/transport/request-turns.ts'

const HEADERS_TIMEOUT_MS = 60_000
/** The interval of the check for slow heads, in milliseconds. */
const CHECK_MS = 5000
/** When CouchDB closes idle connections, in milliseconds; protocol.md 17. */
const KEEP_ALIVE_MS = 300_000
const MAX_FILES = maxOpenFiles()
/** An open database, its log, and the log's index. */
const FILES_OF_DATABASE = 3
/** Open files that are left to bodies, copies and functions. */
const OTHER_FILES = 2500
/** Connections that one network may always have: a household with ten devices, each with a browser's six. */
const MIN_NETWORK_SHARE = 64
/** Shorter than the time that a process has to end, so that the databases can close (cli/serve-command.ts). */
const CLOSE_GRACE_MS = 5000
/** Longer than a request from a proxy can be in flight, in milliseconds. */
const LINGER_MS = 500

export interface AppOptions {
  /** How long requests under way may take when the app closes, in milliseconds; then they are cut. Default: 5 s. */
  readonly closeGraceMs?: number | undefined
  /** How long the head of a request may take, in milliseconds. Default: 60 s. */
  readonly headTimeoutMs?: number | undefined
  /** How long a connection may be idle, in milliseconds. Default: 300 s. */
  readonly idleMs?: number | undefined
  /** The interval of the checks for stalled answers, in milliseconds; after five, they are cut. Default: 60 s. */
  readonly checkMs?: number | undefined
}

/**
 * Builds the HTTP layer: plugins, then routes. It does not listen, and does not close the services.
 * @returns the app; `listen` and `inject` make it ready
 */
export async function buildApp(services: Services, options: AppOptions = {}): Promise<FastifyInstance> {
  const trusts = trustedProxies(services.config)
  const app = makeServer(services, trusts, options)
  deferContinue(app.server)
  const { config } = services
  const networks = new ClientNetworks()
  const turns = new RequestTurns(
    {
      networks,
      anonymousRate: () => config.integer('settee', 'stranger_requests'),
      clientOf: (request) => clientOf(request, trusts),
    },
    app.routing,
  )
  app.decorate('turns', turns)
  app.server
    .removeAllListeners('request')
    .on('request', (request, response) => turns.handle(request, response))
  const connections = guardConnections(app.server, {
    maxOpen: () => maxOpen(config),
    maxOfNetwork: () =>
      Math.min(config.integer('settee', 'max_network_connections'), shareOf(maxOpen(config))),
    isProxy: trusts,
    networks,
    turns,
    bodyWindowMs: () => bodyWindowMs(config),
    graceMs: options.closeGraceMs ?? CLOSE_GRACE_MS,
    lingerMs: () => (app.draining.isOn ? LINGER_MS : 0),
    idleMs: options.idleMs,
    checkMs: options.checkMs,
    onCut: (count) =>
      services.logger.warn({ count }, 'connections were cut, since their requests had not ended in time'),
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
  const { space = () => AMPLE_SPACE, tmpDir } = services
  app.decorate('largeBodies', new LargeBodies())
  app.decorate('bodyFiles', services.bodyFiles ?? bodyFilesOf(config, space, tmpDir))
  app.setValidatorCompiler(validatorCompiler)
  for (const plugin of [draining, methods, metrics, cors, errors]) await app.register(plugin)
  for (const plugin of [authentication, revocation, admission]) await app.register(plugin)
  for (const plugin of [preferMinimal, compression]) await app.register(plugin)
  await registerRoutes(app)
  if (config.boolean('settee', 'console')) await registerConsole(app)
  return app
}

/** As many connections as are configured and leave files to others; at least half of the files. */
function maxOpen(config: Config): number {
  const others = OTHER_FILES + FILES_OF_DATABASE * config.integer('couchdb', 'max_dbs_open')
  const sockets = Math.max(64, Math.floor(MAX_FILES / 2), MAX_FILES - others)
  return Math.min(config.integer('settee', 'max_connections'), sockets)
}

/** How many of all connections one network may have. */
function shareOf(all: number): number {
  return Math.max(MIN_NETWORK_SHARE, Math.floor(all / 4))
}

function makeServer(
  services: Services,
  trusts: (address: string) => boolean,
  { headTimeoutMs = HEADERS_TIMEOUT_MS, idleMs = KEEP_ALIVE_MS }: AppOptions,
): FastifyInstance {
  return fastify({
    trustProxy: trusts,
    // Fastify would listen to each answer, to log its end. Log lines name their request, so that none needs a logger of its own.
    logController: new LogController({ disableRequestLogging: true }),
    childLoggerFactory: () => services.logger as FastifyBaseLogger,
    genReqId: requestId,
    rewriteUrl: (request) =>
      rewriteUrl(request, services.config.get('chttpd', 'decode_plus_to_space') !== 'false'),
    routerOptions: { maxParamLength: MAX_HEADER_BYTES, querystringParser: parseQuery },
    frameworkErrors: answerFrameworkError,
    clientErrorHandler: answerClientError,
    http: {
      ServerResponse: GuardedResponse as typeof ServerResponse,
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: headTimeoutMs,
      connectionsCheckingInterval: Math.min(CHECK_MS, headTimeoutMs),
      requireHostHeader: false,
    },
    // An upload may take any time as long as it goes on; watchProgress checks that.
    requestTimeout: 0,
    keepAliveTimeout: idleMs,
    forceCloseConnections: 'idle',
    // Fastify's own 503 has another format. While the app closes, requests are served as before.
    return503OnClosing: false,
  }) as unknown as FastifyInstance
}

async function registerRoutes(app: FastifyInstance): Promise<void> {
  registerPaths(app, serverRoutes)
  registerPaths(app, upRoutes)
  registerPaths(app, sessionRoutes)
  registerPaths(app, configRoutes)
  await app.register(configurationRoutes)
  await app.register(logRoutes)
  await app.register(accountRoutes)
  registerPaths(app, tokenRoutes)
  registerPaths(app, vaultRoutes)
  registerPaths(app, sizeRoutes)
  registerPaths(app, databaseListRoutes)
  registerPaths(app, restoreRoutes)
  registerPaths(app, verifyRoutes)
  registerPaths(app, standbyRoutes)
  registerPaths(app, clusterSetupRoutes)
  registerPaths(app, metricsRoutes)
  registerPaths(app, backupRoutes)
  registerPaths(app, checkRoutes)
  registerPaths(app, moveRoutes)
  registerPaths(app, alarmRoutes)
  registerPaths(app, timeMachineRoutes)
  registerPaths(app, replicationRoutes)
  registerPaths(app, databaseRoutes)
  registerPaths(app, activeTaskRoutes)
  registerPaths(app, maintenanceRoutes)
  registerPaths(app, bulkRoutes)
  registerPaths(app, allDocsRoutes)
  registerPaths(app, findRoutes)
  registerPaths(app, indexRoutes)
  registerPaths(app, viewRoutes)
  await app.register(couchappRoutes)
  registerPaths(app, partitionRoutes)
  await app.register(changesRoutes)
  await app.register(dbUpdatesRoutes)
  registerPaths(app, documentRoutes)
  registerPaths(app, attachmentRoutes)
}

/** Loaded here, since a server without the console needs none of its modules. */
async function registerConsole(app: FastifyInstance): Promise<void> {
  const { consoleRoutes } = await import('./http/routes/console-routes.ts')
  await app.register(consoleRoutes)
}

/** `http://host/path`, as a client of a proxy sends it. */
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/[^/?]*/i
/** A design document's id with an escaped slash, followed by a name. */
const ESCAPED_DESIGN = /^(\/[^/]+\/_design)%2[fF](?=[^/])/
const OVERRIDES = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'COPY'])

/**
 * Brings a request's address into the form of the route table (protocol.md 2.1, 17). Empty segments are removed, `+` in
 * the path is a space unless `chttpd/decode_plus_to_space` is off, and `_design%2Fx` becomes `_design/x`: CouchDB redirects
 * a GET of the former, but nano takes any redirect for an error (clients.md 1.5). The query is unchanged.
 */
export function rewriteUrl(request: IncomingMessage, isPlusSpace = true): string {
  overrideMethod(request)
  const url = (request.url ?? '/').replace(ABSOLUTE, '')
  const at = url.indexOf('?')
  const path = at === -1 ? url : url.slice(0, at)
  return rewritePath(isPlusSpace ? spaced(path) : path) + (at === -1 ? '' : url.slice(at))
}

function spaced(path: string): string {
  return path.includes('+') ? path.replaceAll('+', '%20') : path
}

function rewritePath(path: string): string {
  const single = path.includes('//') ? path.replace(/\/{2,}/g, '/') : path
  if (single === '') return '/'
  const bare = single.length > 1 && single.endsWith('/') ? single.slice(0, -1) : single
  return bare.includes('/_design%') ? bare.replace(ESCAPED_DESIGN, '$1/') : bare
}

/** For clients that can send only GET and POST (protocol.md 1.1). Applies to POST alone. */
function overrideMethod(request: IncomingMessage): void {
  const wanted = request.headers['x-http-method-override']
  if (request.method !== 'POST' || typeof wanted !== 'string' || !OVERRIDES.has(wanted)) return
  // The client has sent a POST, and waits for a body that a HEAD would not have.
  request.method = wanted === 'HEAD' ? 'GET' : wanted
}
