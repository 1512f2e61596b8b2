/** The backups of a server: made on schedule or on request, one at a time; listed, and removed when newer ones replace them. */
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { Databases } from '../threads/databases.ts'
import {
  BackupFolder,
  type BackupSummary,
  bytesOf,
  isSound,
  refuseUsedFolder,
  type StoredBackup,
  summaryOf,
} from './backup-folder.ts'
import type { BackupManifest } from './backup-format.ts'
import {
  BackupSchedule,
  backupSettings,
  surplusBackups,
  type WallClock,
  wallClock,
} from './backup-schedule.ts'
import { type BackupProgress, type MadeBackup, makeBackup } from './make-backup.ts'

interface BackupsOptions {
  readonly config: Config
  readonly databases: Pick<Databases, 'copies' | 'names' | 'serverUuid'>
  readonly dataDir: string
  /** settee's own. */
  readonly version: string
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  readonly clock?: WallClock
}

interface BackupOrder {
  /** Some databases by name; null: all. */
  readonly databases: readonly string[] | null
  /** Another folder than the configuration's, absolute; it is no part of the schedule, and nothing in it is removed. */
  readonly to: string | null
  readonly reason: BackupManifest['reason']
  /** Whoever asked for it does not wait any more: it is broken off. */
  readonly gone?: AbortSignal | undefined
}

/** A backup that is being made. */
export interface BackupTask extends BackupProgress {
  /** ms since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** A backup in progress. */
interface BegunBackup {
  readonly id: string
  /** The path of the finished backup. */
  readonly path: string
  /** Rejects if the backup fails; the caller must handle this. */
  readonly made: Promise<MadeBackup>
}

/** A failure; times in ms since 1970. */
interface BackupFailure {
  readonly time: number
  /** What is wrong, without paths of what is in the databases. */
  readonly reason: string
}

/** What has come of backups so far, in this process and by what is in the folder. */
export interface BackupState {
  /** The newest whole one that is good. */
  readonly last: BackupSummary | null
  /** ms between two; 0: none are made by themselves. */
  readonly interval: number
  /** The last that failed, or lacks a database; null: none has since the last that is good. */
  readonly failure: BackupFailure | null
  /** Failed, or lacking a database, since the process began. */
  readonly failures: number
  readonly isRunning: boolean
  /** When the process began, in ms since 1970. */
  readonly startedAt: number
  readonly now: number
}

export class Backups {
  readonly #options: BackupsOptions
  readonly #clock: WallClock
  readonly #startedAt: number
  #folder: BackupFolder | undefined
  #task: BackupTask | null = null
  /** Ends the one that is being made, whatever it is at. */
  #abort: (() => Promise<void>) | undefined
  #running: Promise<unknown> | undefined
  #failure: BackupFailure | null = null
  #failures = 0
  #schedule: BackupSchedule | undefined
  #isOver = false

  constructor(options: BackupsOptions) {
    this.#options = options
    this.#clock = options.clock ?? wallClock
    this.#startedAt = this.#clock.now()
  }

  /** Follows the configuration's schedule from now on. */
  startSchedule(): void {
    const schedule = new BackupSchedule({
      clock: this.#clock,
      facts: async () => {
        const { last, interval, failure } = await this.state()
        const begun = last === null ? null : Date.parse(last.begun_at)
        return { interval, last: begun, failed: failure?.time ?? null, startedAt: this.#startedAt }
      },
      make: async () => {
        await this.#running?.catch(() => undefined)
        const order: BackupOrder = { databases: null, to: null, reason: 'schedule' }
        await this.start(order)
          .then(
            ({ made }) => made,
            (error: unknown) => this.#failed(error),
          )
          .catch(() => undefined)
      },
    })
    this.#schedule = schedule
    this.#options.config.onChange((section) => {
      if (section === 'settee') schedule.look()
    })
  }

  #settings() {
    return backupSettings(this.#options.config, this.#options.dataDir)
  }

  /** The configuration's folder. */
  #own(): BackupFolder {
    const { folder: path } = this.#settings()
    if (this.#folder?.path !== path) {
      this.#folder = new BackupFolder(path, this.#options.databases.serverUuid)
    }
    return this.#folder
  }

  /** Newest first. */
  async list(): Promise<BackupSummary[]> {
    return (await this.#own().list()).map((stored) => summaryOf(stored, this.#clock.now()))
  }

  /** @throws not_found */
  async find(id: string): Promise<StoredBackup> {
    const found = await this.#own().find(id)
    if (found === null) throw new CouchError('not_found', 'There is no such backup.')
    return found
  }

  /** @throws not_found, the file system's error */
  async remove(id: string): Promise<void> {
    await this.find(id)
    await this.#own().remove(id)
    this.#options.logger.info({ backup: id }, 'removed a backup on request')
  }

  /** How far the one is that is being made; null: none is. */
  get task(): BackupTask | null {
    return this.#task
  }

  async state(): Promise<BackupState> {
    const now = this.#clock.now()
    const last = (await this.#own().list()).find((stored) => stored.manifest.is_whole && isSound(stored))
    return {
      last: last === undefined ? null : summaryOf(last, now),
      interval: this.#settings().interval,
      failure: this.#failure,
      failures: this.#failures,
      isRunning: this.#running !== undefined,
      startedAt: this.#startedAt,
      now,
    }
  }

  /**
   * Begins a backup.
   * @throws conflict when one is being made; not_found for a name that no database has; bad_request for the folder;
   *   unavailable when the server stops, or its engine makes no copies; the file system's error
   */
  async start(order: BackupOrder, onProgress?: (progress: BackupProgress) => void): Promise<BegunBackup> {
    const { copies } = this.#options.databases
    if (copies === null || this.#isOver) throw new CouchError('unavailable')
    if (this.#running !== undefined) throw new CouchError('conflict', 'Another backup is being made.')
    const begun = this.#begin(order, onProgress)
    const running = begun
      .then(({ made }) => made)
      .finally(() => {
        this.#running = undefined
        this.#task = null
      })
    this.#running = running
    running.catch(() => undefined)
    const { id, path } = await begun
    return { id, path, made: running }
  }

  async #begin(order: BackupOrder, onProgress?: (progress: BackupProgress) => void): Promise<BegunBackup> {
    const names = this.#namesOf(order)
    const { mayMake } = this.#settings()
    const folder = order.to === null ? this.#own() : this.#other(order.to)
    refuseUsedFolder(folder.path, this.#options.dataDir)
    await folder.prepare(order.to === null ? mayMake : true)
    await folder.removeUnfinished()
    const startedAt = this.#clock.now()
    const id = await folder.freeId(startedAt)
    const none = { database: null, databases_done: 0, databases_total: names.length, percent: 0 }
    this.#task = { id, ...none, startedAt, updatedAt: startedAt }
    return { id, path: join(folder.path, id), made: this.#make(id, folder, order, names, onProgress) }
  }

  #other(path: string): BackupFolder {
    return new BackupFolder(path, this.#options.databases.serverUuid)
  }

  /** @throws not_found */
  #namesOf({ databases }: BackupOrder): readonly string[] {
    const all = this.#options.databases.names()
    if (databases === null) return all
    const known = new Set(all)
    const missing = databases.find((name) => !known.has(name))
    if (missing !== undefined) throw new CouchError('not_found', `There is no database ${missing}.`)
    return [...new Set(databases)].sort()
  }

  async #make(
    id: string,
    folder: BackupFolder,
    order: BackupOrder,
    names: readonly string[],
    onProgress?: (progress: BackupProgress) => void,
  ): Promise<MadeBackup> {
    const { databases, dataDir, version, logger } = this.#options
    const copies = databases.copies as NonNullable<typeof databases.copies>
    const stored = await folder.list()
    const previous = stored.find(({ manifest, damage }) => manifest.is_whole && damage.length === 0) ?? null
    const copier = copies.start()
    this.#abort = () => copier.close()
    const startedAt = this.#clock.now()
    const isBrokenOff = () => this.#isOver || order.gone?.aborted === true
    const leave = () => void copier.close()
    order.gone?.addEventListener('abort', leave)
    try {
      if (isBrokenOff()) throw new CouchError('unavailable')
      const { serverUuid } = databases
      const { floor } = this.#settings()
      const { reason, databases: named } = order
      const made = await makeBackup(
        { folder, id, dataDir, serverUuid, version, reason, names, isWhole: named === null, previous, floor },
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
      await this.#made(made, folder, previous)
      if (order.to === null) await this.#clearOut(folder)
      return made
    } catch (error) {
      if (!isBrokenOff()) this.#failed(error)
      else logger.info({ backup: id }, 'cancelled a backup: the server is stopping, or the caller has gone')
      throw error
    } finally {
      order.gone?.removeEventListener('abort', leave)
      this.#abort = undefined
      await copier.close()
    }
  }

  async #made(made: MadeBackup, folder: BackupFolder, previous: StoredBackup | null): Promise<void> {
    const { logger } = this.#options
    const { manifest, damaged, previousDamage } = made
    for (const line of previousDamage) {
      logger.error({ backup: previous?.manifest.id, damage: line }, 'a file of a backup is damaged')
      if (previous !== null) await folder.markDamaged(previous.manifest.id, line).catch(() => undefined)
    }
    for (const { database, reason } of damaged) {
      logger.error({ database, reason }, 'could not back up a database: the database or its copy is damaged')
    }
    const [first] = damaged
    if (first !== undefined) {
      const others = damaged.length === 1 ? '' : ` and ${damaged.length - 1} more`
      this.#note(`The last backup does not contain the database ${first.database}${others}: ${first.reason}`)
    } else if (manifest.is_whole) this.#failure = null
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

  #failed(error: unknown): void {
    const fault = asCouchError(error)
    // A refusal says what to do; of a fault the log has more.
    const isTold = fault.status < 500 || fault.code === 'insufficient_storage' || fault.code === 'unavailable'
    this.#note(`The last backup failed: ${isTold ? fault.message : messageOf(error)}`)
    this.#options.logger.error({ err: fault.cause ?? fault }, 'a backup failed')
  }

  #note(reason: string): void {
    this.#failures += 1
    this.#failure = { time: this.#clock.now(), reason }
  }

  /** What no rule keeps any longer goes. */
  async #clearOut(folder: BackupFolder): Promise<void> {
    const { logger, databases } = this.#options
    const aged = (await folder.list()).map((stored) => ({
      id: stored.manifest.id,
      time: Date.parse(stored.manifest.begun_at),
      isWhole: stored.manifest.is_whole,
      isSound: isSound(stored),
      databases: stored.manifest.databases.map(({ name }) => name),
    }))
    for (const id of surplusBackups(aged, this.#settings().retention, databases.names())) {
      try {
        await folder.remove(id)
        logger.info({ backup: id }, 'removed a backup that newer ones replace')
      } catch (err) {
        logger.warn({ err, backup: id }, 'cannot remove a backup that newer ones replace')
      }
    }
  }

  /** Breaks off what is being made. */
  async close(): Promise<void> {
    this.#isOver = true
    await this.#abort?.()
    await this.#running?.catch(() => undefined)
    await this.#schedule?.close()
  }
}

function messageOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  return code === undefined ? 'see the log.' : `${code}; see the log.`
}
