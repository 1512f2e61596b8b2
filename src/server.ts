/** The composition root: configuration, databases, accounts, the HTTP layer; listening; and the way down. */
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { isOpen, prepareAdmins, requireAdminIfHosted } from './auth/admins.ts'
import { CredentialChecker } from './auth/credentials.ts'
import { loginGuard } from './auth/login-guard.ts'
import { openUsers } from './auth/open-users.ts'
import { reloadConfig } from './auth/reload.ts'
import { tokenLimitsOf } from './auth/token-limits.ts'
import { runningTokenMaker } from './auth/token-maker.ts'
import { openTokens, type Tokens } from './auth/tokens.ts'
import { type Config, openConfig } from './config/config.ts'
import { prepareDataFolder } from './config/data-folder.ts'
import { makeLogger } from './config/logger.ts'
import { freeSpaceFloor, settingsOf } from './config/settings.ts'
import type { ConfigFlags } from './config/sources.ts'
import { StartError } from './config/start-error.ts'
import { isTlsEnabled } from './config/tls-files.ts'
import { setteeVersion } from './config/version.ts'
import { type Hosted, openHosted } from './hosted/hosted.ts'
import { perUserDatabases } from './hosted/per-user-databases.ts'
import { tellStoredBefore } from './hosted/stored-before.ts'
import { tenantAccounts } from './hosted/tenant-accounts.ts'
import type { SecureListener } from './http/secure-listener.ts'
import { writingDevice } from './http/writing-device.ts'
import { incarnationsIn, openAlarms } from './maintenance/alarms.ts'
import { Backups } from './maintenance/backup/backups.ts'
import { backupFact } from './maintenance/backup/health.ts'
import { serveControl } from './maintenance/control-server.ts'
import { localControls } from './maintenance/controls.ts'
import { tendKeptBodies } from './maintenance/kept-bodies.ts'
import { backupCollector } from './maintenance/metrics/backup-metrics.ts'
import { tenantCollector } from './maintenance/metrics/tenant-metrics.ts'
import { keepSwept } from './maintenance/replaced.ts'
import { backupsFolder, localRestorer } from './maintenance/restore.ts'
import { Rewinds } from './maintenance/rewinds.ts'
import { SpaceWatch } from './maintenance/space-watch.ts'
import { tendUpgradeCopies } from './maintenance/upgrade-copies.ts'
import type { Databases } from './threads/databases.ts'
import { openServerDatabases } from './threads/server-databases.ts'
import type { ServerDatabasesOptions } from './threads/server-databases-options.ts'

export interface ServerOptions {
  /** The data folder; made if it is not there. */
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly flags: ConfigFlags
  /** The file that a database thread runs; by default the one that comes with settee. */
  readonly threadEntry?: URL
  /** The file that a thread for design documents' functions runs; by default the one that comes with settee. */
  readonly sandboxEntry?: URL
  /** How long requests under way may take when the server closes, in milliseconds. Default 5 s. */
  readonly closeGraceMs?: number
  /** How often the certificate's files are looked at, in milliseconds. Default 5 s. */
  readonly tlsLookMs?: number
}

export interface RunningServer {
  /** Where it listens, with a slash at the end. */
  readonly url: string
  /** Where it speaks TLS itself, with a slash at the end; null: nowhere. */
  readonly secureUrl: string | null
  /**
   * Stops accepting, ends feeds, finishes what is under way or cuts it when its time is over, lets the data folder go.
   * Idempotent.
   */
  close(): Promise<void>
  /** Reads the configuration anew, as `_config/_reload` does; the log says how that went. */
  reload(): Promise<void>
  /** Tells the log of a fault that nobody has caught, after which the process had better end. */
  fatal(fault: unknown): void
}

/**
 * Starts a server.
 * @throws StartError, or an error of the operating system, when it cannot
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { dataDir, env, flags } = options
  await prepareDataFolder(dataDir)
  const undo: (() => Promise<unknown>)[] = []
  const close = once(async () => {
    for (const step of undo.reverse()) await step()
  })
  try {
    const config = await openConfig({ dataDir, env, flags })
    const { logger, close: closeLog } = makeLogger(config, { tty: process.stdout.isTTY === true })
    undo.push(closeLog)
    for (const warning of await prepareAdmins(config, env)) logger.warn(warning)
    requireAdminIfHosted(config)
    const app = await composed(options, config, logger, undo)
    // First, so that who asks where the app listens is told of all places (http/plugins/origin.ts).
    const secure = await listenSecurely(app, config, options.tlsLookMs)
    const url = await listen(app, config)
    warnIfOpen(config, logger, [url, secure?.url ?? url])
    // The log has been told of an error.
    const reload = async () => {
      await reloadConfig(config, logger).catch(() => undefined)
      await secure?.reload()
    }
    const fatal = (fault: unknown) => logger.fatal({ err: fault }, 'a fault of settee that nobody has caught')
    const secureUrl = secure?.url ?? null
    if (secureUrl !== null) logger.info(readyLine(secureUrl.replace(/\/$/, '')))
    return { url, secureUrl, close, reload, fatal }
  } catch (error) {
    await close().catch(() => undefined)
    throw error
  }
}

/** Sections whose keys database threads are told of. */
const SETTINGS_SECTIONS: ReadonlySet<string> = new Set(['chttpd_auth', 'couchdb', 'purge', 'settee'])

async function composed(
  { dataDir, env, threadEntry, sandboxEntry, closeGraceMs }: ServerOptions,
  config: Config,
  logger: Logger,
  undo: (() => Promise<unknown>)[],
): Promise<FastifyInstance> {
  const found: { onMassDeletion?: ServerDatabasesOptions['onMassDeletion'] } = {}
  let disk: SpaceWatch | undefined
  const opening = openServerDatabases({
    dataDir,
    settings: settingsOf(config),
    maxOpen: config.integer('couchdb', 'max_dbs_open'),
    threadEntry,
    sandboxEntry,
    onFault: (fault) => logger.error({ err: fault }, 'a thread has died; another takes its place'),
    onMassDeletion: (database, deletion) => found.onMassDeletion?.(database, deletion),
    onPutBack: (database) =>
      logger.warn({ database }, 'the file of a database was put back by hand: its devices compare anew'),
    onCompactionFault: (database, fault) =>
      logger.error({ err: fault, database }, 'a compaction has failed; the next begins where it ended'),
    onDatabaseFault: (database, fault) =>
      logger.error({ err: fault, database }, 'the file of a database is not as it should be; others go on'),
    onFull: () => disk?.look(),
  }).catch((error: unknown) => {
    if (error instanceof Error && !('code' in error)) throw new StartError(error.message, { cause: error })
    throw error
  })
  // Of the start half is loading: the HTTP layer's is done while a thread opens the data folder.
  const loading = import('./app.ts')
  const databases = await opening
  // Feeds end with the databases' `gone`, and only then can the connections that carry them close.
  undo.push(() => databases.close())
  config.onChange((section) => {
    if (SETTINGS_SECTIONS.has(section)) databases.setSettings(settingsOf(config))
  })
  undo.push(tendUpgradeCopies({ dataDir, config, logger }))
  undo.push(tendKeptBodies(databases, logger))
  disk = await SpaceWatch.start({
    dataDir,
    logger,
    floor: () => freeSpaceFloor(config),
    onChange: (space) => databases.setSpace(space),
  })
  const watch = disk
  undo.push(() => watch.close())
  const tmpDir = await emptyTmpDir(dataDir)
  const days = () => config.integer('settee', 'replaced_days')
  const onSweepFault = (fault: unknown) =>
    logger.warn({ err: fault }, 'what restores have replaced could not be removed in time')
  undo.push(async () => stopSweeping())
  const stopSweeping = keepSwept(dataDir, days, onSweepFault)
  const hosted = await hostedMode(config, databases, logger, (account) => revokeTokens(tokens, account))
  if (hosted !== null) undo.push(() => hosted.close())
  const perUser = hosted === null ? databases : perUserDatabases(databases, hosted.databases, config)
  const users = await openUsers({ config, databases, perUser, logger })
  undo.push(() => users.close())
  const accounts = hosted === null ? users.accounts : tenantAccounts(users.accounts, hosted.tenants)
  const credentials = new CredentialChecker(accounts, {
    lockout: loginGuard(config, logger),
    onVerified: (account, password) => users.upgrades.consider(account, password),
  })
  const tokens: Tokens = await openTokens({
    records: databases,
    accounts,
    limits: () => tokenLimitsOf(config),
    onFault: (fault) => logger.error({ err: fault }, 'device tokens are not as they should be'),
  })
  undo.push(() => tokens.close())
  void hosted?.resume()
  const version = setteeVersion()
  const alarms = await openAlarms({
    records: databases,
    logger,
    incarnationOf: incarnationsIn(databases),
    keepsVersions: () => config.integer('settee', 'keep_days') > 0,
  })
  undo.push(() => alarms.close())
  const rewinds = new Rewinds(databases)
  const made = { config, accounts, credentials, tokens, databases, hosted, alarms, rewinds }
  const backups = new Backups({ config, databases, dataDir, version, logger })
  undo.push(() => backups.close())
  const collectors = [backupCollector(backups), ...(hosted === null ? [] : [tenantCollector(hosted)])]
  const health = [
    () => watch.health(),
    async () => [backupFact(await backups.state())],
    () => alarms.health(),
  ]
  const space = () => watch.space
  const services = { ...made, collectors, health, backups, logger, version, tmpDir, space }
  const { buildApp } = await loading
  const app = await buildApp(services, { closeGraceMs })
  found.onMassDeletion = (entry, deletion) =>
    alarms.raise(entry, deletion, writingDevice(app, entry.name, deletion.account))
  undo.push(async () => {
    databases.endFeeds()
    await Promise.all([app.close(), app.secure?.close()])
  })
  if (config.isHosted) undo.push(tellStoredBefore(databases, logger))
  const revokeAll = (account: string) => tokens.revokeAll(account)
  const ending = new AbortController()
  const restorer = localRestorer(hosted?.databases ?? databases, () => backupsFolder(config))
  const lasting = { tmpDir, ending: ending.signal, restorer, backups, rewinds }
  const vaults = {
    tokenMaker: runningTokenMaker(tokens),
    createDatabase: (name: string, account: string) =>
      hosted === null ? databases.create(name) : hosted.databases.create(name, account),
    adminNames: async () => Object.keys(config.section('admins')).sort(),
    listening: () => {
      const url = urlOf(app)
      return url === null ? null : { url, secureUrl: app.secure?.url ?? null }
    },
    ownerOf: (name: string) => hosted?.owners.ownerOf(name),
  }
  const controls = localControls({ config, databases, env, revokeTokens: revokeAll, ...lasting, ...vaults })
  undo.push(await serveControl({ dataDir, controls, logger }))
  // What a command waits for is broken off first: the socket closes when all of it has been answered.
  undo.push(async () => {
    ending.abort()
    rewinds.close()
    await backups.close()
  })
  backups.startSchedule()
  return app
}

/** Tenants, in hosted mode. */
async function hostedMode(
  config: Config,
  databases: Databases,
  logger: Logger,
  deleteTokens: (account: string) => Promise<number>,
): Promise<Hosted | null> {
  if (!config.isHosted) return null
  const onFault = (fault: unknown) =>
    logger.error({ err: fault }, 'work for a tenant has failed, and is tried again')
  return openHosted({ config, databases, deleteTokens, onFault })
}

/** @returns how many there were */
async function revokeTokens(tokens: Tokens, account: string): Promise<number> {
  const { length } = tokens.list(account)
  await tokens.revokeAll(account)
  return length
}

/** `data/tmp` holds request bodies while they are served; what stands there at a start is left from a crash. */
async function emptyTmpDir(dataDir: string): Promise<string> {
  const tmpDir = join(dataDir, 'tmp')
  await mkdir(tmpDir, { recursive: true, mode: 0o700 })
  for (const left of await readdir(tmpDir)) await rm(join(tmpDir, left), { recursive: true, force: true })
  return tmpDir
}

/** @returns null where settee is not to speak TLS */
async function listenSecurely(
  app: FastifyInstance,
  config: Config,
  lookMs?: number,
): Promise<SecureListener | null> {
  if (!isTlsEnabled(config)) return null
  const host = config.get('settee', 'tls_bind_address') || config.get('chttpd', 'bind_address')
  const module = await import('./http/secure-listener.ts')
  const port = config.integer('ssl', 'port')
  return module.listenSecurely(app, { host: host ?? '127.0.0.1', port, lookMs })
}

async function listen(app: FastifyInstance, config: Config): Promise<string> {
  const port = config.integer('chttpd', 'port')
  const host = config.get('chttpd', 'bind_address') ?? '127.0.0.1'
  await app.listen({ port, host, listenTextResolver: readyLine })
  const url = urlOf(app)
  if (url === null) throw new Error('settee listens on no port')
  return url
}

/** Where it listens, with a slash at the end; null before it does. */
function urlOf(app: FastifyInstance): string | null {
  const address = app.server.address()
  if (address === null || typeof address === 'string') return null
  const shown = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `http://${shown}:${address.port}/`
}

/** Fastify logs it once it listens, for each address that it can be reached at. */
function readyLine(address: string): string {
  return `settee ${setteeVersion()} is ready at ${address}/`
}

const LOOPBACK = /^(?:127\.|localhost$|\[?::1\]?$)/

/** Said at every start, and again with what to type where others can reach the server. */
function warnIfOpen(config: Config, logger: Logger, urls: readonly string[]): void {
  if (!isOpen(config)) return
  logger.warn('no admin is configured: everybody who reaches this server may read and change everything')
  const url = urls.find((each) => !LOOPBACK.test(new URL(each).hostname))
  if (url === undefined) return
  const { hostname } = new URL(url)
  logger.warn(
    `this server listens beyond this machine (${hostname}) without an admin; make one now: ` +
      `curl -X PUT ${url}_node/_local/_config/admins/anna -d '"a long password"'`,
  )
}

function once(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined
  return () => {
    done ??= work()
    return done
  }
}
