/** The backups of a server: makes them on schedule or on request, one at a time, and removes superseded ones. */
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import { Schedule, type WallClock, wallClock } from '../core/schedule.ts'
import type { Copies } from '../threads/copies.ts'
import type { Databases } from '../threads/databases.ts'
import {
  BackupFolder,
  type BackupSummary,
  bytesOf,
  damagedOf,
  damagedReason,
  isSound,
  refuseUsedFolder,
  type StoredBackup,
  summaryOf,
} from './backup-folder.ts'
import type { BackupManifest } from './backup-format.ts'
import { backupSettings, surplusBackups } from './backup-schedule.ts'
import { type CopyPlace, isPlainCopy, MAX_COPIES, type StoredCopy } from './copy-place.ts'
import { pathIn } from './foreign-files.ts'
import { type BackupOutcome, type BackupProgress, makeBackup } from './make-backup.ts'
import { Verifications } from './verification.ts'

interface BackupsOptions {
  readonly config: Config
  readonly databases: Pick<Databases, 'copies' | 'has' | 'allNames' | 'folderUuid'>
  readonly dataDir: string
  /** settee's version. */
  readonly version: string
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  readonly clock?: WallClock
}

interface BackupJob {
  /** Some databases by name; null: all. */
  readonly databases: readonly string[] | null
  /** The absolute path of another folder than the configured one. No backups in it are removed. */
  readonly to: string | null
  readonly reason: BackupManifest['reason']
  /** Cancels the backup, because the caller has disconnected. */
  readonly signal?: AbortSignal | undefined
}

/** A job whose databases are there. */
type NamedBackupJob = BackupJob & { readonly names: readonly string[]; readonly copies: Copies }

/** The progress of the backup under way, for `_active_tasks`. */
export interface BackupTask extends BackupProgress {
  /** ms since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** A backup that has begun. */
interface StartedBackup {
  readonly id: string
  /** The path of the finished backup. */
  readonly path: string
  /** Rejects if the backup fails; the caller must handle this. */
  readonly outcome: Promise<BackupOutcome>
}

/** A failure; times in ms since 1970. */
interface BackupFailure {
  readonly time: number
  /** The reason, without anything from inside the databases. */
  readonly reason: string
}

/** The state of backups, from this process and from the folder. */
export interface BackupState {
  /** False: the storage engine has no files, so backups are a task of its store. */
  readonly isSupported: boolean
  /** The newest whole backup without damage. */
  readonly last: BackupSummary | null
  /** ms between two backups; 0: no schedule, or not {@link isSupported}. */
  readonly interval: number
  /** The last backup that failed or lacks a database; null: a complete one was made since. */
  readonly failure: BackupFailure | null
  /** How many backups failed or lack a database since the process started. */
  readonly failures: number
  readonly isRunning: boolean
  /** When the process started, in ms since 1970. */
  readonly startedAt: number
  readonly now: number
}

/** Which backups are kept: those of the rule in the settings, or the least that restores each database. */
export type Keeping = 'rule' | 'least'

export class Backups implements CopyPlace {
  readonly #options: BackupsOptions
  readonly #clock: WallClock
  readonly #startedAt: number
  readonly verifications: Verifications
  #folder: BackupFolder | undefined
  #task: BackupTask | null = null
  /** Aborts the backup under way. */
  #abort: (() => Promise<void>) | undefined
  #running: Promise<unknown> | undefined
  #failure: BackupFailure | null = null
  #failures = 0
  #schedule: Schedule | undefined
  #isClosed = false

  constructor(options: BackupsOptions) {
    this.#options = options
    this.#clock = options.clock ?? wallClock
    this.#startedAt = this.#clock.now()
    this.verifications = new Verifications({
      folder: () => this.#configuredFolder(),
      now: () => this.#clock.now(),
      logger: options.logger,
    })
  }

  /** Follows the configuration's schedule from now on, if this server makes backups. */
  startSchedule(): void {
    if (!this.isSupported) return
    const schedule = new Schedule({
      clock: this.#clock,
      facts: async () => {
        const { last, interval, failure } = await this.state()
        const begun = last === null ? null : Date.parse(last.begun_at)
        return { interval, last: begun, failed: failure?.time ?? null, startedAt: this.#startedAt }
      },
      make: async () => {
        await this.#running?.catch(() => undefined)
        const job: BackupJob = { databases: null, to: null, reason: 'schedule' }
        await this.start(job)
          .then(
            ({ outcome }) => outcome,
            (error: unknown) => this.#noteFailure(error),
          )
          .catch(() => undefined)
      },
    })
    this.#schedule = schedule
    this.#options.config.onChange((section) => {
      if (section === 'settee') schedule.check()
    })
  }

  #settings() {
    return backupSettings(this.#options.config, this.#options.dataDir)
  }

  /** The configured folder. */
  #configuredFolder(): BackupFolder {
    const { folder: path } = this.#settings()
    if (this.#folder?.path !== path) {
      this.#folder = new BackupFolder(path, this.#options.databases.folderUuid)
    }
    return this.#folder
  }

  /** Newest first. */
  async list(): Promise<BackupSummary[]> {
    return (await this.#configuredFolder().list()).map((stored) => summaryOf(stored, this.#clock.now()))
  }

  /** @throws not_found */
  async find(id: string): Promise<StoredBackup> {
    const found = await this.#configuredFolder().find(id)
    if (found === null) throw new CouchError('not_found', 'There is no such backup.')
    return found
  }

  /**
   * The copies of a database in the configured folder, the newest first; each file once, `MAX_COPIES` at most. A copy may have
   * damage of its own: each row has its checksum.
   */
  async copiesOf(database: string): Promise<readonly StoredCopy[]> {
    const folder = this.#configuredFolder()
    const found = new Map<string, StoredCopy>()
    for (const { manifest } of await folder.list()) {
      const row = manifest.databases.find(({ name }) => name === database)
      if (row === undefined || found.has(row.sha256)) continue
      const path = await pathIn(join(folder.path, manifest.id), row.file).catch(() => null)
      if (path === null || !(await isPlainCopy(path))) continue
      found.set(row.sha256, { path, name: `the backup ${manifest.id}` })
      if (found.size === MAX_COPIES) break
    }
    return [...found.values()]
  }

  /** @throws not_found, the file system's error */
  async remove(id: string): Promise<void> {
    await this.find(id)
    await this.#configuredFolder().remove(id)
    this.#options.logger.info({ backup: id }, 'removed a backup on request')
  }

  /** The backup under way; null: none. */
  get task(): BackupTask | null {
    return this.#task
  }

  /** Whether this server makes backups; otherwise they are a task of the store. */
  get isSupported(): boolean {
    return this.#options.databases.copies !== null
  }

  async state(): Promise<BackupState> {
    const { isSupported } = this
    const now = this.#clock.now()
    const last = (await this.#configuredFolder().list()).find(
      (stored) => stored.manifest.is_whole && isSound(stored),
    )
    return {
      last: last === undefined ? null : summaryOf(last, now),
      isSupported,
      interval: isSupported ? this.#settings().interval : 0,
      failure: this.#failure,
      failures: this.#failures,
      isRunning: this.#running !== undefined,
      startedAt: this.#startedAt,
      now,
    }
  }

  /**
   * Begins a backup.
   * @throws conflict while another backup is being made; not_found for an unknown database; bad_request for the folder;
   *   unavailable when the server is stopping; no_copies when its engine has no files; the file system's error
   */
  async start(job: BackupJob, onProgress?: (progress: BackupProgress) => void): Promise<StartedBackup> {
    const { copies } = this.#options.databases
    if (copies === null) throw new CouchError('no_copies')
    this.#requireFree()
    // A call that names an unknown database must not count as a backup.
    const names = await this.#namesOf(job)
    this.#requireFree()
    const begun = this.#begin({ ...job, names, copies }, onProgress)
    const running = begun
      .then(({ outcome }) => outcome)
      .finally(() => {
        this.#running = undefined
        this.#task = null
      })
    this.#running = running
    running.catch(() => undefined)
    const { id, path } = await begun
    return { id, path, outcome: running }
  }

  /** @throws conflict, unavailable */
  #requireFree(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
    if (this.#running !== undefined) throw new CouchError('conflict', 'Another backup is being made.')
  }

  async #begin(job: NamedBackupJob, onProgress?: (progress: BackupProgress) => void): Promise<StartedBackup> {
    const { names } = job
    const { mayCreate } = this.#settings()
    const folder = job.to === null ? this.#configuredFolder() : this.#folderAt(job.to)
    refuseUsedFolder(folder.path, this.#options.dataDir)
    await folder.prepare(job.to === null ? mayCreate : true)
    await folder.removeUnfinished()
    const startedAt = this.#clock.now()
    const id = await folder.freeId(startedAt)
    const none = { database: null, databases_done: 0, databases_total: names.length, percent: 0 }
    this.#task = { id, ...none, startedAt, updatedAt: startedAt }
    return {
      id,
      path: join(folder.path, id),
      outcome: this.#makeBackup(id, folder, job, onProgress),
    }
  }

  #folderAt(path: string): BackupFolder {
    return new BackupFolder(path, this.#options.databases.folderUuid)
  }

  /** @throws not_found */
  async #namesOf({ databases }: BackupJob): Promise<readonly string[]> {
    const known = this.#options.databases
    if (databases === null) return Array.fromAsync(known.allNames())
    for (const name of databases) {
      if (!(await known.has(name))) throw new CouchError('not_found', `There is no database ${name}.`)
    }
    return [...new Set(databases)].sort()
  }

  async #makeBackup(
    id: string,
    folder: BackupFolder,
    job: NamedBackupJob,
    onProgress?: (progress: BackupProgress) => void,
  ): Promise<BackupOutcome> {
    const { databases, dataDir, version, logger } = this.#options
    const { names, copies } = job
    const stored = await folder.list()
    const previous = stored.find(({ manifest, damage }) => manifest.is_whole && damage.length === 0) ?? null
    const copier = copies.start()
    this.#abort = () => copier.close()
    const startedAt = this.#clock.now()
    const isCancelled = () => this.#isClosed || job.signal?.aborted === true
    const cancel = () => void copier.close()
    job.signal?.addEventListener('abort', cancel)
    try {
      if (isCancelled()) throw new CouchError('unavailable')
      const { folderUuid } = databases
      const { floor } = this.#settings()
      const { reason, databases: named } = job
      const made = await makeBackup(
        { folder, id, dataDir, folderUuid, version, reason, names, isWhole: named === null, previous, floor },
        {
          copier,
          copyCatalog: (path) => copies.copyCatalog(path),
          now: () => this.#clock.now(),
          onProgress: (progress) => {
            this.#task = { ...progress, startedAt, updatedAt: this.#clock.now() }
            onProgress?.(progress)
          },
        },
      )
      await this.#report(made, folder, previous)
      if (job.to === null) await this.#removeSurplus(folder, 'rule')
      return made
    } catch (error) {
      if (!isCancelled()) this.#noteFailure(error)
      else
        logger.info(
          { backup: id },
          'cancelled a backup: the server is stopping, or the caller has disconnected',
        )
      throw error
    } finally {
      job.signal?.removeEventListener('abort', cancel)
      this.#abort = undefined
      await copier.close()
    }
  }

  async #report(made: BackupOutcome, folder: BackupFolder, previous: StoredBackup | null): Promise<void> {
    const { logger } = this.#options
    const { manifest, damaged, previousDamage } = made
    for (const line of previousDamage) {
      logger.error({ backup: previous?.manifest.id, damage: line }, 'a file of a backup is damaged')
      if (previous !== null) await folder.markDamaged(previous.manifest.id, line).catch(() => undefined)
    }
    for (const { database, reason } of damaged) {
      logger.error({ database, reason }, 'could not back up a database: the database or its copy is damaged')
    }
    const unsound = damagedOf(manifest)
    for (const { name, ...damage } of unsound)
      logger.error(
        { database: name, damage },
        'parts of a database are damaged, and so they are in its backup',
      )
    const [first] = damaged
    const [firstUnsound] = unsound
    if (first !== undefined) {
      const others = damaged.length === 1 ? '' : ` and ${damaged.length - 1} more`
      this.#setFailure(
        `The last backup does not contain the database ${first.database}${others}: ${first.reason}`,
      )
    } else if (firstUnsound !== undefined) this.#setFailure(damagedReason(firstUnsound))
    else if (manifest.is_whole) this.#failure = null
    const { id, databases, left_out: leftOut } = manifest
    const seconds = (Date.parse(manifest.ended_at) - Date.parse(manifest.begun_at)) / 1000
    const counts = {
      databases: databases.length,
      left_out: leftOut.length,
      bytes: bytesOf(manifest),
      seconds,
    }
    logger.info({ backup: id, folder: folder.path, ...counts }, 'made and verified a backup')
  }

  #noteFailure(error: unknown): void {
    const fault = asCouchError(error)
    // The message of a refusal says what to do. The details of other faults are in the log.
    const hasAdvice =
      fault.status < 500 || fault.code === 'insufficient_storage' || fault.code === 'unavailable'
    this.#setFailure(`The last backup failed: ${hasAdvice ? fault.message : messageOf(error)}`)
    this.#options.logger.error({ err: fault.cause ?? fault }, 'a backup failed')
  }

  #setFailure(reason: string): void {
    this.#failures += 1
    this.#failure = { time: this.#clock.now(), reason }
  }

  /**
   * The backups that can be removed: never the newest whole one, nor the newest of a database that has no damage.
   * @returns their ids and their folders
   */
  async surplus(
    keeping: Keeping,
    folder = this.#configuredFolder(),
  ): Promise<{ readonly ids: readonly string[]; readonly paths: readonly string[] }> {
    const aged = (await folder.list()).map((stored) => ({
      id: stored.manifest.id,
      time: Date.parse(stored.manifest.begun_at),
      isWhole: stored.manifest.is_whole,
      isSound: isSound(stored),
      databases: stored.manifest.databases.flatMap(({ name, damage }) => (damage === undefined ? name : [])),
    }))
    const retention = keeping === 'rule' ? this.#settings().retention : { daily: 0, weekly: 0 }
    const ids = surplusBackups(aged, retention, await Array.fromAsync(this.#options.databases.allNames()))
    return { ids, paths: ids.map((id) => join(folder.path, id)) }
  }

  /** Removes them. @throws conflict while a backup is being made, unavailable */
  async removeSurplus(keeping: Keeping): Promise<void> {
    this.#requireFree()
    await this.#removeSurplus(this.#configuredFolder(), keeping)
  }

  async #removeSurplus(folder: BackupFolder, keeping: Keeping): Promise<void> {
    const { logger } = this.#options
    for (const id of (await this.surplus(keeping, folder)).ids) {
      try {
        await folder.remove(id)
        logger.info({ backup: id }, 'removed a backup that newer ones replace')
      } catch (err) {
        logger.warn({ err, backup: id }, 'cannot remove a backup that newer ones replace')
      }
    }
  }

  /** Cancels the backup under way, and ends the schedule. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.verifications.close()
    await this.#abort?.()
    await this.#running?.catch(() => undefined)
    await this.#schedule?.close()
  }
}

function messageOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  return code === undefined ? 'see the log.' : `${code}; see the log.`
}
