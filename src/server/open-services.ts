/** Opens the services of a server in order: databases, policy and accounts, backups and alarms, the control socket. */
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Accounts } from '../auth/accounts.ts'
import { adminAccounts } from '../auth/admins.ts'
import { CredentialChecker } from '../auth/credentials.ts'
import { HashUpgrades } from '../auth/hash-upgrades.ts'
import { PerUserDatabases, type PerUserOptions } from '../auth/peruser.ts'
import { defaultPolicy } from '../auth/policy.ts'
import { tokenLimitsOf } from '../auth/token-record.ts'
import { Tokens } from '../auth/tokens.ts'
import { combinedAccounts, usersAccounts } from '../auth/users.ts'
import { backupCollector, backupFact } from '../backup/backup-health.ts'
import { Backups } from '../backup/backups.ts'
import { replacedFiles } from '../backup/copy-place.ts'
import { backupsFolder, localRestoreControl } from '../backup/restore.ts'
import { serverCopies, startedFromCopy } from '../backup/server-copies.ts'
import { SpaceCures } from '../backup/space-cures.ts'
import { startSweeping, startUpgradeCopyCleanup } from '../backup/upgrade-copies.ts'
import type { Config } from '../config/config.ts'
import { freeSpaceFloor, hashingOf, settingsOf } from '../config/settings.ts'
import { StartError } from '../config/start-error.ts'
import { setteeVersion } from '../config/version.ts'
import { localControlCommands } from '../control/control-commands.ts'
import { serveControl } from '../control/control-server.ts'
import { CouchError } from '../core/errors.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { DeviceHealing } from '../healing/device-healing.ts'
import { Repairs } from '../healing/repairs.ts'
import { type Hosted, openHosted } from '../hosted/hosted.ts'
import type { Services } from '../http/services.ts'
import { Alarms, incarnationsIn } from '../metrics/alarms.ts'
import { tenantCollector } from '../metrics/database-metrics.ts'
import { Growth } from '../metrics/growth.ts'
import { SpaceWatch } from '../metrics/space-watch.ts'
import { MoveRuns } from '../move/move-runs.ts'
import { type MoveServices, Moves } from '../move/moves.ts'
import { SealingKey } from '../replication/documents/sealing-key.ts'
import { Replicator, type ReplicatorOptions } from '../replication/replicator.ts'
import { Scrub } from '../scrub/scrub.ts'
import { scrubCollector, scrubFact } from '../scrub/scrub-health.ts'
import type { Standby } from '../standby/standby.ts'
import type { Claims, Duty } from '../threads/claims.ts'
import type { Databases, OwnedDatabases, ServerDatabasesOptions } from '../threads/databases.ts'
import { openServerDatabases } from '../threads/open-databases.ts'
import { startKeptBodyCleanup } from '../time-machine/kept-bodies.ts'
import { Rewinds } from '../time-machine/rewinds.ts'
import type { OperatorControls } from './operator-controls.ts'
import type { ServerContext } from './server-context.ts'
import { openLockout } from './shared-services.ts'

/** Sections with settings of database threads. */
const SETTINGS_SECTIONS: ReadonlySet<string> = new Set([
  'attachments',
  'chttpd_auth',
  'couch_httpd_auth',
  'couchdb',
  'mango',
  'purge',
  'settee',
  'uuids',
])

interface OpenDatabasesOptions
  extends Pick<ServerDatabasesOptions, 'threadEntry' | 'sandboxEntry' | 'threads' | 'onMassDeletion'> {
  /** The disk of the data folder is full and must be checked now. */
  onFull(): void
}

/**
 * Opens the databases; shutdown closes them.
 * @returns them, the key of credentials in `_replicator`, and what restores damaged documents
 * @throws StartError if another settee uses the folder, or a newer one has changed its files
 */
export async function openDatabases(
  context: ServerContext,
  options: OpenDatabasesOptions,
): Promise<{
  readonly databases: OwnedDatabases
  readonly sealingKey: SealingKey
  readonly healing: DeviceHealing
}> {
  const { location, config, logger, shutdown, dataDir } = context
  const healing = new DeviceHealing({ logger })
  const databases = await openServerDatabases({
    location,
    serverCopies: () => serverCopies(dataDir, backupsFolder(config)),
    onServerCopy: (copy, fault) => logger.error({ err: fault }, startedFromCopy(copy)),
    onServerFault: (fault) =>
      logger.error(
        { err: fault },
        'server.sqlite is damaged; restart settee, which then starts from the newest copy of it',
      ),
    settings: settingsOf(config, null),
    maxOpen: config.integer('couchdb', 'max_dbs_open'),
    ...options,
    onFault: (fault) => logger.error({ err: fault }, 'a thread died; another one takes its place'),
    onWentBack: (database) =>
      logger.warn(
        { database },
        'a database went back to an earlier state; its devices will compare their documents again',
      ),
    onCompactionFault: (database, fault) =>
      logger.error({ err: fault, database }, 'a compaction failed; the next one continues where it ended'),
    onDatabaseFault: (database, fault) =>
      logger.error(
        { err: fault, database },
        'the file of a database is damaged; other databases are not affected',
      ),
    onDamagedLeaf: (database) => healing.note(database),
    onRestored: (database, leaves, rest) =>
      logger.info({ database, leaves, rest }, 'damaged documents were sent again, and are whole'),
    onSkippedDocument: (database, ddoc, { view, id, reason }) =>
      logger.warn(
        { database, ddoc, view, id, reason },
        'a view has skipped a document, and may skip others, which are not reported',
      ),
  }).catch((error: unknown) => {
    if (error instanceof Error && !('code' in error)) throw new StartError(error.message, { cause: error })
    throw error
  })
  // Feeds end with the databases' `closed` event. The connections can close after that.
  shutdown.add(() => databases.close())
  shutdown.add(() => healing.close())
  const sealingKey = await SealingKey.open(databases, (error) => {
    // On a full disk an admin must still be able to start the server and free space.
    logger.error({ err: error }, 'cannot write a key for the credentials of replications')
  })
  const applySettings = () => databases.setSettings(settingsOf(config, sealingKey.value))
  applySettings()
  sealingKey.onChange(applySettings)
  config.onChange((section) => {
    if (SETTINGS_SECTIONS.has(section)) applySettings()
  })
  return { databases, sealingKey, healing }
}

/** Watches the free space on the disk, and removes what has expired. @returns the watch */
export async function maintainDatabases(
  context: ServerContext,
  databases: OwnedDatabases,
  upkeep: Duty,
): Promise<SpaceWatch> {
  const { dataDir, location, config, logger, shutdown } = context
  const isStore = location.kind === 'postgres'
  shutdown.add(startKeptBodyCleanup(databases, upkeep, logger))
  const disk = await SpaceWatch.start({
    dataDir,
    holds: isStore ? 'temporary files' : 'databases',
    logger,
    floor: () => freeSpaceFloor(config),
    // A full disk of temporary files keeps nothing from a store.
    onChange: (space) => (isStore ? undefined : databases.setSpace(space)),
  })
  shutdown.add(() => disk.close())
  if (!isStore) removeOldFiles(context)
  return disk
}

/** Removes copies from before upgrades, and replaced files. */
function removeOldFiles({ dataDir, config, logger, shutdown }: ServerContext): void {
  shutdown.add(startUpgradeCopyCleanup({ dataDir, config, logger }))
  const days = () => config.integer('settee', 'replaced_days')
  const stopSweeping = startSweeping(dataDir, days, (fault) =>
    logger.warn({ err: fault }, 'could not remove files that restores have replaced'),
  )
  shutdown.add(async () => stopSweeping())
}

/** Empties `data/tmp`, which holds request bodies while they are served. At a start, files there are left from a crash. */
export async function emptyTmpDir(dataDir: string): Promise<string> {
  const tmpDir = join(dataDir, 'tmp')
  await mkdir(tmpDir, { recursive: true, mode: 0o700 })
  for (const left of await readdir(tmpDir)) await rm(join(tmpDir, left), { recursive: true, force: true })
  return tmpDir
}

type AuthServices = Pick<Services, 'accounts' | 'credentials' | 'tokens' | 'policy' | 'hosted'>

interface AuthParts extends Pick<OpenUsersOptions, 'standby' | 'duty'> {
  readonly upkeep: Duty
  readonly claims: Claims
}

/** Opens the policy, accounts and device tokens; shutdown closes them before the databases. */
export async function openAuthServices(
  context: ServerContext,
  databases: Databases,
  { standby, duty, upkeep, claims }: AuthParts,
): Promise<AuthServices> {
  const { config, logger, shutdown } = context
  const deleteTokens = (account: string) => tokens.revokeAll(account)
  const hosted = await hostedMode(context, { databases, claims, deleteTokens })
  const policy = hosted?.policy ?? defaultPolicy(config, databases)
  const users = await openUsers({ config, databases, registry: policy.databases, standby, duty, logger })
  shutdown.add(() => users.close())
  const accounts = policy.accounts(users.accounts)
  const credentials = new CredentialChecker(accounts, {
    lockout: openLockout(context, databases),
    onVerified: (account, password) => users.upgrades.consider(account, password),
  })
  const tokens: Tokens = new Tokens({
    records: databases,
    accounts,
    duty: upkeep,
    limits: () => tokenLimitsOf(config),
    onFault: (fault) =>
      logger.error({ err: fault }, 'device tokens: a record is damaged, or could not be written'),
  })
  shutdown.add(() => tokens.close())
  void hosted?.resume()
  return { accounts, credentials, tokens, policy, hosted }
}

/** @returns null in single mode */
async function hostedMode(
  { config, logger, shutdown }: ServerContext,
  options: Pick<Parameters<typeof openHosted>[0], 'databases' | 'claims' | 'deleteTokens'>,
): Promise<Hosted | null> {
  if (!config.isHosted) return null
  const onFault = (fault: unknown) =>
    logger.error({ err: fault }, 'work for a tenant failed; it will be tried again')
  const hosted = await openHosted({ config, ...options, onFault })
  shutdown.add(() => hosted.close())
  return hosted
}

/** Opens the replicator; shutdown stops its jobs before the databases close. */
export function openReplicator(
  { config, logger, shutdown }: ServerContext,
  options: Omit<ReplicatorOptions, 'config' | 'logger'>,
): Replicator {
  const replicator = new Replicator({ config, logger, ...options })
  shutdown.add(() => replicator.close())
  return replicator
}

type BackupServices = Pick<Services, 'alarms' | 'rewinds' | 'growth' | 'collectors' | 'health'> & {
  readonly backups: Backups
  readonly scrub: Scrub
  readonly repairs: Repairs
  readonly cures: SpaceCures
}

interface BackupParts {
  readonly disk: SpaceWatch
  readonly claims: Claims
  readonly upkeep: Duty
  readonly authServices: AuthServices
  readonly files: BodyFiles
}

/**
 * Opens alarms, backups, the scrub, the time machine and the record of growth; shutdown closes them. The schedules of
 * backups and of the scrub are not started yet.
 */
export async function openBackupServices(
  { dataDir, config, logger, shutdown }: ServerContext,
  databases: Databases,
  { disk, claims, upkeep, authServices: { hosted }, files }: BackupParts,
): Promise<BackupServices> {
  const alarms = new Alarms({
    records: databases,
    logger,
    incarnationOf: incarnationsIn(databases),
    keepsVersions: () => config.integer('settee', 'keep_days') > 0,
  })
  shutdown.add(() => alarms.close())
  const growth = await Growth.open({ databases, duty: upkeep, logger })
  shutdown.add(() => growth.close())
  const backups = new Backups({ config, databases, dataDir, version: setteeVersion(), logger })
  shutdown.add(() => backups.close())
  const repairs = new Repairs({ databases, places: [backups, replacedFiles(dataDir)], files, logger })
  const scrub = new Scrub({ config, databases, repairs, claims, logger })
  repairs.onRepaired = (database) => scrub.checkAgain(database)
  shutdown.add(() => scrub.close())
  shutdown.add(() => repairs.close())
  const monitored = [backupCollector(backups), scrubCollector(scrub)]
  const collectors = [...monitored, ...(hosted === null ? [] : [tenantCollector(hosted)])]
  const health = [
    () => disk.health(),
    async () => [backupFact(await backups.state())],
    async () => [scrubFact(await scrub.state())],
    () => alarms.health(),
  ]
  const rewinds = new Rewinds(databases, claims)
  const cures = new SpaceCures({ dataDir, config, databases, backups })
  disk.adviseBy(() => cures.advice())
  return { alarms, rewinds, growth, backups, scrub, repairs, cures, collectors, health }
}

/** Moves of other servers to this one. {@link serveCommands} ends them. */
export function openMoves(
  { dataDir, config, logger }: ServerContext,
  { databases, files, claims }: Pick<MoveServices, 'databases' | 'files' | 'claims'>,
): { readonly moves: Moves; readonly moveRuns: MoveRuns } {
  const moves = new Moves({ config, databases, dataDir, files, claims })
  return { moves, moveRuns: new MoveRuns(moves, logger) }
}

/** Serves commands of this machine through the control socket, until shutdown. */
export async function serveCommands(
  { dataDir, config, logger, shutdown }: ServerContext,
  {
    databases,
    policy,
    tmpDir,
    backups,
    scrub,
    repairs,
    cures,
    rewinds,
    moves,
    moveRuns,
    standby,
    operator,
    vaults,
  }: Omit<Services, 'vaults' | 'ownVaults'> &
    BackupServices &
    ReturnType<typeof openMoves> &
    OperatorControls & { readonly standby: Standby },
): Promise<void> {
  const ending = new AbortController()
  const controls = localControlCommands({
    databases,
    tmpDir,
    backups,
    cures,
    scrub,
    repairs,
    rewinds,
    moves,
    standby,
    operator,
    vaults,
    ending: ending.signal,
    restorer: localRestoreControl(policy.databases, () => backupsFolder(config)),
  })
  shutdown.add(await serveControl({ dataDir, controls, logger }))
  // First stops the work that commands wait for, since the socket closes when all of them are answered.
  shutdown.add(async () => {
    ending.abort()
    rewinds.close()
    moves.close()
    await Promise.all([moveRuns.close(), backups.close(), scrub.close(), repairs.close()])
  })
}

interface OpenedUsers {
  readonly accounts: Accounts
  readonly upgrades: HashUpgrades
  /** Call it before the databases are closed. */
  close(): Promise<void>
}

interface OpenUsersOptions {
  readonly config: Config
  readonly databases: Databases
  /** Makes and deletes users' own databases. */
  readonly registry: PerUserOptions['registry']
  readonly duty: Duty
  readonly standby: Standby
  readonly logger: Pick<Logger, 'error' | 'warn'>
}

/**
 * Makes `_users` if it is missing, follows it, and runs `couch_peruser`.
 * @throws the error that keeps `_users` from being made, except for a full disk
 */
async function openUsers({
  config,
  databases,
  registry,
  standby,
  duty,
  logger,
}: OpenUsersOptions): Promise<OpenedUsers> {
  await databases.create(databases.usersDatabase).catch((error: unknown) => {
    // On a full disk an admin must still be able to start the server and free space.
    const code = error instanceof CouchError ? error.code : null
    if (code === 'insufficient_storage')
      logger.error({ err: error }, 'cannot create the database of accounts')
    else if (code !== 'file_exists') throw error
  })
  const hashing = () => hashingOf(config)
  const users = usersAccounts(databases, { hashing })
  const upgrades = new HashUpgrades({
    databases,
    isOn: () => standby.acceptsWrites && config.boolean('chttpd_auth', 'upgrade_hash_on_auth'),
    hashing,
    onFault: (fault) => logger.warn({ err: fault }, 'could not replace the weak password hash of a user'),
  })
  const perUser = new PerUserDatabases({
    databases,
    registry,
    config,
    duty,
    onFault: (fault, user) =>
      logger.warn({ err: fault, user }, 'couch_peruser failed for a user, or for now'),
  })
  perUser.start()
  const unfollow = config.onChange((_section, key) => {
    if (key === 'authentication_db') users.follow()
  })
  return {
    accounts: combinedAccounts(adminAccounts(config), users),
    upgrades,
    close: async () => {
      unfollow()
      users.close()
      await perUser.close()
    },
  }
}
