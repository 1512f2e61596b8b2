/** The composition root: opens configuration, databases, accounts and the HTTP layer, listens, and shuts down. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { reloadConfig } from './auth/admins.ts'
import { openConfig } from './config/config.ts'
import { prepareDataFolder, restrictPermissions } from './config/data-folder.ts'
import { LogTail } from './config/log-tail.ts'
import { makeLogger } from './config/logger.ts'
import { bodyFilesOf, drainMs } from './config/settings.ts'
import type { ConfigFlags } from './config/sources.ts'
import { setteeVersion } from './config/version.ts'
import { reportDisallowed } from './hosted/disallowed-report.ts'
import type { Device } from './metrics/alarms.ts'
import { replicationCollector } from './metrics/replication-metrics.ts'
import type { SpaceWatch } from './metrics/space-watch.ts'
import { shareCollationTable } from './query/collation/collation-table.ts'
import type { Replicator } from './replication/replicator.ts'
import { listen, listenSecurely, readyLine, warnIfOpen } from './server/listening.ts'
import { openLocation } from './server/node-store.ts'
import {
  emptyTmpDir,
  maintainDatabases,
  openAuthServices,
  openBackupServices,
  openDatabases,
  openMoves,
  openReplicator,
  serveCommands,
} from './server/open-services.ts'
import { operatorControls } from './server/operator-controls.ts'
import { openSamples, startSampling } from './server/sampling.ts'
import { type ServerContext, Shutdown } from './server/server-context.ts'
import { openClaims, prepareSettings, upkeepDuty, writingDuty } from './server/shared-services.ts'
import { openStandby, standbyMonitoring, startStandby } from './server/standby-services.ts'
import type { Duty } from './threads/claims.ts'
import type { ServerDatabasesOptions } from './threads/databases.ts'

interface ServerOptions {
  /** The data folder; it is made if it is missing. */
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly flags: ConfigFlags
  /** The file that a database thread runs. Default: settee's own. */
  readonly threadEntry?: URL
  /** The file that a sandbox thread runs. Default: settee's own. */
  readonly sandboxEntry?: URL
  /** Threads for users' databases. Default: by the configuration. For tests, since each takes a quarter of a second to start. */
  readonly threads?: number
  /** Time for requests to finish when the server closes, in ms. Default 5000. */
  readonly closeGraceMs?: number
  /** Interval of checks for new certificate files, in ms. Default 5000. */
  readonly tlsLookMs?: number
  /** Ends a start that waits for its store. */
  readonly ending?: AbortSignal
  /** How long a start waits for its store, in ms. Default 60 s. */
  readonly storeWaitMs?: number
}

export interface RunningServer {
  /** Its URL, with a slash at the end. */
  readonly url: string
  /** Its URL with TLS, with a slash at the end; null without TLS. */
  readonly secureUrl: string | null
  /**
   * Stops accepting, ends feeds, lets requests finish until their time is over, and releases the data folder. Idempotent.
   */
  close(): Promise<void>
  /** Reloads the configuration, as `_config/_reload` does, and logs the result. */
  reload(): Promise<void>
  /** Logs an uncaught error, after which the process should end. */
  fatal(fault: unknown): void
}

/**
 * Starts a server.
 * @throws StartError, or an error of the operating system, if it cannot start; the reason of `ending`
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { dataDir, env, flags, ending, storeWaitMs } = options
  await prepareDataFolder(dataDir)
  await restrictPermissions(dataDir)
  const shutdown = new Shutdown()
  try {
    const config = await openConfig({ dataDir, env, flags })
    const log = new LogTail()
    const tty = process.stdout.isTTY === true
    const { logger, close: closeLog } = makeLogger(config, { tty, tail: log })
    shutdown.add(closeLog)
    const { location, threads } = await openLocation({
      dataDir,
      config,
      logger,
      shutdown,
      ending,
      storeWaitMs,
    })
    const context = { dataDir, location, env, config, logger, shutdown }
    const app = await compose({ threads, ...options }, context, log)
    // TLS first, so that the list of addresses is complete when the app listens (http/plugins/cross-origin.ts).
    const secure = await listenSecurely(app, config, options.tlsLookMs)
    const url = await listen(app, config)
    warnIfOpen(config, logger, [url, secure?.url ?? url])
    // reloadConfig has logged an error.
    const reload = async () => {
      await reloadConfig(config, logger).catch(() => undefined)
      await secure?.reload()
    }
    const fatal = (fault: unknown) => logger.fatal({ err: fault }, 'uncaught error in settee')
    const secureUrl = secure?.url ?? null
    if (secureUrl !== null) logger.info(readyLine(secureUrl.replace(/\/$/, '')))
    return { url, secureUrl, close: () => shutdown.close(), reload, fatal }
  } catch (error) {
    await shutdown.close().catch(() => undefined)
    throw error
  }
}

/** @returns the HTTP layer with all services; it does not listen yet */
async function compose(
  options: ServerOptions & { readonly threads: number },
  context: ServerContext,
  log: LogTail,
): Promise<FastifyInstance> {
  const { config, logger, shutdown, dataDir } = context
  const later: {
    disk?: SpaceWatch
    app?: FastifyInstance
    onMassDeletion?: ServerDatabasesOptions['onMassDeletion']
  } = {}
  // Threads get the table when they start.
  shareCollationTable()
  const opening = openDatabases(context, {
    threadEntry: options.threadEntry,
    threads: options.threads,
    sandboxEntry: options.sandboxEntry,
    onFull: () => later.disk?.check(),
    onMassDeletion: (database, deletion) => later.onMassDeletion?.(database, deletion),
  })
  // Half of the start is loading code, so the HTTP layer loads while a thread opens the data folder.
  const loading = import('./app.ts')
  const { databases, sealingKey, healing } = await opening
  await prepareSettings(context, databases)
  const claims = openClaims(context, databases)
  const upkeep = upkeepDuty(claims)
  const disk = await maintainDatabases(context, databases, upkeep)
  later.disk = disk
  const tmpDir = await emptyTmpDir(dataDir)
  const standby = await openStandby(context, databases)
  const writing = writingDuty(upkeep, standby)
  const authServices = await openAuthServices(context, databases, { standby, duty: writing, upkeep, claims })
  const files = bodyFilesOf(config, () => disk.space, tmpDir)
  const parts = { disk, claims, upkeep, authServices, files }
  const backupServices = await openBackupServices(context, databases, parts)
  const others = {
    // Devices do not write to a standby: it has its documents from its primary.
    async treatAsRestored(name: string): Promise<void> {
      if (!standby.restore(name)) await authServices.policy.databases.treatAsRestored(name)
    },
  }
  healing.start(others, backupServices.repairs, () => standby.followers.list(Date.now()).length > 0)
  const base = { config, databases, logger, log, version: setteeVersion(), tmpDir, bodyFiles: files }
  const replicator = openReplicator(context, { databases, ...authServices, sealingKey, files })
  const monitoring = standbyMonitoring(context, standby, backupServices)
  const sampleFile = await openSamples(context)
  const services = {
    ...base,
    ...authServices,
    ...backupServices,
    ...monitoring,
    ...openMoves(context, { databases, files, claims }),
    collectors: [...(monitoring.collectors ?? []), replicationCollector(replicator)],
    replicator,
    sealingKey,
    standby,
    healing,
    samples: sampleFile.samples,
    ...operatorControls(context, databases, authServices, () => later.app),
  }
  const { buildApp } = await loading
  const app = await buildApp(services, { closeGraceMs: options.closeGraceMs })
  later.app = app
  later.onMassDeletion = (entry, deletion) =>
    backupServices.alarms.raise(entry, deletion, writingDevice(app, entry.name, deletion.account))
  shutdown.add(async () => {
    databases.endFeeds()
    await Promise.all([app.close(), app.secure?.close()])
  })
  if (config.isHosted) shutdown.add(reportDisallowed(databases, logger, claims))
  await startStandby(context, standby, { ...services, sealingKey, files })
  await serveCommands(context, services)
  startSampling(context, { file: sampleFile, app, databases, disk })
  backupServices.backups.startSchedule()
  backupServices.scrub.startSchedule(upkeep)
  runDocuments(replicator, writing)
  shutdown.add(() => app.draining.begin(drainMs(config)))
  return app
}

/** One node runs them. The documents of a standby are those of its primary, which runs them. */
function runDocuments({ documents }: Replicator, duty: Duty): void {
  const follow = () => (duty.isHeld ? documents.start() : documents.stop())
  duty.onChange(follow)
  follow()
}

// The device that is writing to a database, for an alarm.

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const MAX_CLIENT = 100

/**
 * Finds the device whose request is writing to a database for an account. The database thread reports the write before
 * the request is answered.
 * @returns the newest of several; null if there is none
 */
function writingDevice(app: FastifyInstance, database: string, account: string | null): Device | null {
  const request = app.activeRequests.requests().findLast((each) => writes(each, database, account))
  if (request === undefined) return null
  return {
    token: request.identity.tokenName,
    client: (request.headers['user-agent'] ?? '').slice(0, MAX_CLIENT),
    address: request.address,
  }
}

function writes(request: FastifyRequest, database: string, account: string | null): boolean {
  return request.database?.name === database && request.user.name === account && !READS.has(request.method)
}
