/** Opens the databases of a data folder, logs their faults, and cleans up after them. */
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { startSweeping, startUpgradeCopyCleanup } from '../backup/upgrade-copies.ts'
import { freeSpaceFloor, settingsOf } from '../config/settings.ts'
import { StartError } from '../config/start-error.ts'
import { SpaceWatch } from '../metrics/space-watch.ts'
import type { OwnedDatabases, ServerDatabasesOptions } from '../threads/databases.ts'
import { openServerDatabases } from '../threads/server-databases.ts'
import { startKeptBodyCleanup } from '../time-machine/kept-bodies.ts'
import type { ServerContext } from './server-context.ts'

/** Sections with settings of database threads. */
const SETTINGS_SECTIONS: ReadonlySet<string> = new Set([
  'attachments',
  'chttpd_auth',
  'couchdb',
  'mango',
  'purge',
  'settee',
  'uuids',
])

interface OpenDatabasesOptions
  extends Pick<ServerDatabasesOptions, 'threadEntry' | 'sandboxEntry' | 'onMassDeletion'> {
  /** The disk of the data folder is full and must be checked now. */
  onFull(): void
}

/**
 * Opens the databases; shutdown closes them.
 * @throws StartError if another settee uses the folder, or a newer one has changed its files
 */
export async function openDatabases(
  context: ServerContext,
  options: OpenDatabasesOptions,
): Promise<OwnedDatabases> {
  const { dataDir, config, logger, shutdown } = context
  const databases = await openServerDatabases({
    dataDir,
    settings: settingsOf(config),
    maxOpen: config.integer('couchdb', 'max_dbs_open'),
    ...options,
    onFault: (fault) => logger.error({ err: fault }, 'a thread died; another one takes its place'),
    onPutBack: (database) =>
      logger.warn(
        { database },
        'the file of a database was put back by hand; its devices will compare their documents again',
      ),
    onCompactionFault: (database, fault) =>
      logger.error({ err: fault, database }, 'a compaction failed; the next one continues where it ended'),
    onDatabaseFault: (database, fault) =>
      logger.error(
        { err: fault, database },
        'the file of a database is damaged; other databases are not affected',
      ),
  }).catch((error: unknown) => {
    if (error instanceof Error && !('code' in error)) throw new StartError(error.message, { cause: error })
    throw error
  })
  // Feeds end with the databases' `gone` event. The connections can close after that.
  shutdown.add(() => databases.close())
  config.onChange((section) => {
    if (SETTINGS_SECTIONS.has(section)) databases.setSettings(settingsOf(config))
  })
  return databases
}

/** Watches the free space on the disk, and removes expired files. @returns the watch */
export async function maintainDatabases(
  context: ServerContext,
  databases: OwnedDatabases,
): Promise<SpaceWatch> {
  const { dataDir, config, logger, shutdown } = context
  shutdown.add(startUpgradeCopyCleanup({ dataDir, config, logger }))
  shutdown.add(startKeptBodyCleanup(databases, logger))
  const disk = await SpaceWatch.start({
    dataDir,
    logger,
    floor: () => freeSpaceFloor(config),
    onChange: (space) => databases.setSpace(space),
  })
  shutdown.add(() => disk.close())
  const days = () => config.integer('settee', 'replaced_days')
  const stopSweeping = startSweeping(dataDir, days, (fault) =>
    logger.warn({ err: fault }, 'could not remove files that restores have replaced'),
  )
  shutdown.add(async () => stopSweeping())
  return disk
}

/** Empties `data/tmp`, which holds request bodies while they are served. At a start, files there are left from a crash. */
export async function emptyTmpDir(dataDir: string): Promise<string> {
  const tmpDir = join(dataDir, 'tmp')
  await mkdir(tmpDir, { recursive: true, mode: 0o700 })
  for (const left of await readdir(tmpDir)) await rm(join(tmpDir, left), { recursive: true, force: true })
  return tmpDir
}
