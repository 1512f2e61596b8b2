/** The folder of backups: lists them, and adds and removes them durably. */
import { appendFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises'
import { join, relative, sep } from 'node:path'
import { syncPath, writeAtomically } from '../core/durable-files.ts'
import { CouchError } from '../core/errors.ts'
import type { Damage } from '../storage/damage.ts'
import { type BackupManifest, backupId, isBackupId, readManifest, UNFINISHED } from './backup-format.ts'
import { readRegular } from './foreign-files.ts'

/** The damage that was found in a backup since it was made, one line for each. */
const DAMAGED_FILE = 'DAMAGED'
/** When all files were last read and compared on request; ISO 8601. */
const VERIFIED_FILE = 'VERIFIED'

/** A finished backup in the folder. */
export interface StoredBackup {
  readonly manifest: BackupManifest
  /** The damage that was found since, one line for each. */
  readonly damage: readonly string[]
  /** When it was last verified on request, in ms since 1970; null: not since it was made. */
  readonly verifiedAt: number | null
}

export class BackupFolder {
  readonly path: string
  /** The suffix of this server's unfinished backups: other servers may use the same folder. */
  readonly #suffix: string
  readonly #folderUuid: string
  /** A backup never changes, so each manifest is read once. */
  readonly #manifests = new Map<string, BackupManifest>()

  /** @param path absolute */
  constructor(path: string, folderUuid: string) {
    this.path = path
    this.#folderUuid = folderUuid
    this.#suffix = `.${folderUuid.slice(0, 8)}${UNFINISHED}`
  }

  /**
   * Makes sure that the folder exists.
   * @param mayCreate whether to create a missing folder; not in place of a disk that is not mounted
   * @throws bad_request, the file system's error
   */
  async prepare(mayCreate: boolean): Promise<void> {
    const found = await stat(this.path)
      .catch(nullIfMissing)
      .catch((cause: NodeJS.ErrnoException) => {
        throw unusable(this.path, cause)
      })
    if (found?.isDirectory()) return
    if (found !== null) throw new CouchError('bad_request', `${this.path} is a file.`)
    if (!mayCreate) {
      throw new CouchError(
        'bad_request',
        `The folder for backups ${this.path} does not exist: is its disk mounted?`,
      )
    }
    await mkdir(this.path, { mode: 0o700 }).catch((cause: NodeJS.ErrnoException) => {
      throw unusable(this.path, cause)
    })
    await syncPath(join(this.path, '..'))
  }

  /** Removes unfinished backups. */
  async removeUnfinished(): Promise<void> {
    for (const name of await this.#names()) {
      if (name.endsWith(this.#suffix)) await rm(join(this.path, name), { recursive: true, force: true })
    }
  }

  async #names(): Promise<string[]> {
    return (await readdir(this.path).catch(nullIfMissing)) ?? []
  }

  /** The backups of this server, newest first, without unreadable ones. */
  async list(): Promise<StoredBackup[]> {
    const stored: StoredBackup[] = []
    for (const id of (await this.#names()).filter(isBackupId)) {
      const found = await this.find(id)
      if (found !== null) stored.push(found)
    }
    return stored.sort((a, b) => (a.manifest.begun_at < b.manifest.begun_at ? 1 : -1))
  }

  /** A backup of this server by its id; null if it does not exist. */
  async find(id: string): Promise<StoredBackup | null> {
    if (!isBackupId(id)) return null
    const manifest = await this.#manifest(id)
    if (manifest?.server_uuid !== this.#folderUuid) return null
    const text = await noteIn(join(this.path, id, DAMAGED_FILE))
    const verifiedAt = Date.parse((await noteIn(join(this.path, id, VERIFIED_FILE))).trim())
    return {
      manifest,
      damage: text.split('\n').filter((line) => line !== ''),
      verifiedAt: Number.isNaN(verifiedAt) ? null : verifiedAt,
    }
  }

  async #manifest(id: string): Promise<BackupManifest | null> {
    try {
      const manifest = this.#manifests.get(id) ?? (await readManifest(join(this.path, id)))
      // The backup may have been removed by hand.
      await stat(join(this.path, id))
      if (manifest.id !== id) return null
      // Others' are not kept in memory.
      if (manifest.server_uuid === this.#folderUuid) this.#manifests.set(id, manifest)
      return manifest
    } catch {
      this.#manifests.delete(id)
      return null
    }
  }

  /** An unused id for a new backup. @param time its start, in ms since 1970 */
  async freeId(time: number): Promise<string> {
    const names = new Set(await this.#names())
    for (let nth = 1; ; nth++) {
      const id = backupId(time, nth)
      if (!names.has(id) && !names.has(id + this.#suffix)) return id
    }
  }

  /** Creates the folder of an unfinished backup, whose name is no backup id. @returns the folder's path */
  async begin(id: string): Promise<string> {
    const path = join(this.path, id + this.#suffix)
    await mkdir(path, { mode: 0o700 }).catch((cause: NodeJS.ErrnoException) => {
      throw cause.code === 'ENOSPC' ? cause : unusable(this.path, cause)
    })
    return path
  }

  /** Gives a finished backup its id. Its files must be durable. */
  async publish(id: string, manifest: BackupManifest): Promise<void> {
    await rename(join(this.path, id + this.#suffix), join(this.path, id))
    await syncPath(this.path)
    this.#manifests.set(id, manifest)
  }

  /** Removes an unfinished backup. */
  async abandon(id: string): Promise<void> {
    await rm(join(this.path, id + this.#suffix), { recursive: true, force: true })
  }

  /** Removes a backup. It loses its id before any of its files is removed. @throws the file system's error */
  async remove(id: string): Promise<void> {
    const renamed = join(this.path, `${id}.gone${this.#suffix}`)
    await rename(join(this.path, id), renamed)
    await syncPath(this.path)
    this.#manifests.delete(id)
    await rm(renamed, { recursive: true, force: true })
  }

  /** Records damage to a backup, which is not relied on from then on. */
  async markDamaged(id: string, line: string): Promise<void> {
    await appendFile(join(this.path, id, DAMAGED_FILE), `${line}\n`, { mode: 0o600 })
  }

  /**
   * Records that all files of a backup were compared with their checksums, and which of them differ. This replaces the
   * damage that was known before: a disk that failed for a moment may have been the reason.
   * @param time in ms since 1970
   */
  async noteVerified(id: string, time: number, damage: readonly string[]): Promise<void> {
    const damaged = join(this.path, id, DAMAGED_FILE)
    if (damage.length === 0) await rm(damaged, { force: true })
    else await writeAtomically(damaged, damage.map((line) => `${line}\n`).join(''))
    await writeAtomically(join(this.path, id, VERIFIED_FILE), `${new Date(time).toISOString()}\n`)
  }
}

/** The most bytes of a note in a backup. */
const MAX_NOTE = 1024 * 1024

/** @returns empty if there is none, or it cannot be read */
async function noteIn(path: string): Promise<string> {
  return readRegular(path, MAX_NOTE).then(String, () => '')
}

/** Folders of the data folder that settee uses and cleans up. */
const USED_FOLDERS: ReadonlySet<string> = new Set([
  'databases',
  'tmp',
  'control',
  'replaced',
  'before-upgrade',
])

/**
 * Refuses a folder below the data folder that has another use.
 * @param path absolute
 * @throws bad_request
 */
export function refuseUsedFolder(path: string, dataDir: string): void {
  const [first = ''] = relative(dataDir, path).split(sep)
  if (first !== '' && !USED_FOLDERS.has(first)) return
  throw new CouchError(
    'bad_request',
    `${path} is used by settee in the data folder; backups need a folder of their own.`,
  )
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'its parent folder does not exist',
  EACCES: 'settee has no permission to write there',
  EPERM: 'settee has no permission to write there',
  EROFS: 'the disk is read-only',
  ENOTDIR: 'a part of its path is a file',
}

function unusable(path: string, cause: NodeJS.ErrnoException): CouchError {
  const reason = REASONS[cause.code ?? ''] ?? cause.code ?? cause.message
  return new CouchError('bad_request', `The folder for backups ${path} cannot be used: ${reason}.`, { cause })
}

function nullIfMissing(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null
  throw error
}

/** A row of the list of backups. */
export interface BackupSummary {
  readonly id: string
  /** ISO 8601. */
  readonly begun_at: string
  readonly ended_at: string
  /** Seconds since it started. */
  readonly age: number
  readonly reason: BackupManifest['reason']
  readonly is_whole: boolean
  /** Whether no damage was found since the backup was made. */
  readonly verified: boolean
  /** When all its files were last verified: when it was made, or on request since; ISO 8601. */
  readonly verified_at: string
  readonly databases: number
  readonly left_out: BackupManifest['left_out']
  /** The databases with damaged rows, which their copies have, too. */
  readonly damaged: readonly ({ readonly name: string } & Damage)[]
  /** Bytes of all its files. */
  readonly bytes: number
  /** Bytes of the files that it shares with no earlier backup. */
  readonly new_bytes: number
  /** The damage that was found since, one line for each. */
  readonly damage: readonly string[]
}

/** @param now ms since 1970 */
export function summaryOf({ manifest, damage, verifiedAt }: StoredBackup, now: number): BackupSummary {
  const { id, begun_at, ended_at, reason, is_whole, databases, left_out } = manifest
  const shared = databases.reduce((sum, { bytes, same_as }) => sum + (same_as === null ? 0 : bytes), 0)
  const bytes = bytesOf(manifest)
  return {
    id,
    begun_at,
    ended_at,
    age: Math.max(0, Math.floor((now - Date.parse(begun_at)) / 1000)),
    reason,
    is_whole,
    verified: damage.length === 0,
    verified_at: verifiedAt === null ? ended_at : new Date(verifiedAt).toISOString(),
    databases: databases.length,
    left_out,
    damaged: damagedOf(manifest),
    bytes,
    new_bytes: bytes - shared,
    damage,
  }
}

/** The databases whose copies have damaged rows, as their databases had. */
export function damagedOf({ databases }: BackupManifest): readonly ({ readonly name: string } & Damage)[] {
  return databases.flatMap(({ name, damage }) => (damage === undefined ? [] : [{ name, ...damage }]))
}

/** What is said of the newest backup if rows of a database are damaged. */
export function damagedReason({ name, count }: { readonly name: string } & Damage): string {
  const parts = count === 1 ? '1 part is' : `${count} parts are`
  return `In the database ${name}, and so in the last backup, ${parts} damaged. GET /_settee/backups says which.`
}

/** Bytes of all files of a backup. */
export function bytesOf({ server, config, databases }: BackupManifest): number {
  return databases.reduce((sum, { bytes }) => sum + bytes, server.bytes + (config?.bytes ?? 0))
}

/** Whether a backup has no known damage. */
export function isSound({ damage }: StoredBackup): boolean {
  return damage.length === 0
}
