/** Verifies a backup on request: reads every file, and compares it with the checksum of when it was made. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Logger } from 'pino'
import { CouchError } from '../core/errors.ts'
import type { BackupFolder, StoredBackup } from './backup-folder.ts'
import { type BackupFile, MANIFEST_FILE, SUMS_FILE } from './backup-format.ts'
import { pathIn, readRegular } from './foreign-files.ts'
import { checkFile } from './restore.ts'

/** The progress of the verification under way; times in ms since 1970. */
export interface VerificationTask {
  /** The backup's id. */
  readonly id: string
  readonly filesDone: number
  readonly filesTotal: number
  /** Of the bytes of all files. */
  readonly percent: number
  readonly startedAt: number
  readonly updatedAt: number
}

interface VerificationsOptions {
  /** The configured folder of the backups. */
  folder(): BackupFolder
  /** ms since 1970. */
  now(): number
  readonly logger: Pick<Logger, 'info' | 'error'>
}

/** The backup is gone, or the server stops. */
class Cancelled extends Error {}

/** One verification at a time, of one file at a time. */
export class Verifications {
  readonly #options: VerificationsOptions
  #task: VerificationTask | null = null
  #running: Promise<void> | undefined
  #isClosed = false

  constructor(options: VerificationsOptions) {
    this.#options = options
  }

  /** The verification under way; null: none. */
  get task(): VerificationTask | null {
    return this.#task
  }

  /**
   * Begins to verify a backup. Its result is noted in the backup's folder.
   * @throws not_found; conflict while another verification is under way; unavailable when the server is stopping
   */
  async start(id: string): Promise<void> {
    const folder = this.#options.folder()
    const stored = await folder.find(id)
    if (stored === null) throw new CouchError('not_found', 'There is no such backup.')
    if (this.#isClosed) throw new CouchError('unavailable')
    if (this.#running !== undefined) throw new CouchError('conflict', 'Another backup is being verified.')
    const now = this.#options.now()
    const filesTotal = filesOf(stored).length + 1
    this.#task = { id, filesDone: 0, filesTotal, percent: 0, startedAt: now, updatedAt: now }
    this.#running = this.#verify(folder, stored).finally(() => {
      this.#task = null
      this.#running = undefined
    })
  }

  /** Never rejects. */
  async #verify(folder: BackupFolder, stored: StoredBackup): Promise<void> {
    const { logger } = this.#options
    const { id } = stored.manifest
    try {
      const damage = await this.#damageOf(folder, stored)
      await folder.noteVerified(id, this.#options.now(), damage)
      if (damage.length === 0) logger.info({ backup: id }, 'verified a backup on request')
      for (const line of damage) logger.error({ backup: id, damage: line }, 'a file of a backup is damaged')
    } catch (error) {
      if (!(error instanceof Cancelled)) logger.error({ err: error, backup: id }, 'could not verify a backup')
    }
  }

  /** @returns one line for each file that is not as it was made */
  async #damageOf(folder: BackupFolder, stored: StoredBackup): Promise<string[]> {
    const path = join(folder.path, stored.manifest.id)
    const files = filesOf(stored)
    const total = files.reduce((sum, { bytes }) => sum + bytes, 1)
    const damage = await damageOfManifest(path)
    let done = 0
    for (const [at, file] of files.entries()) {
      await this.#refuseIfOver(folder, stored.manifest.id)
      try {
        await checkFile(await pathIn(path, file.file), file, (count) => {
          if (this.#isClosed) throw new Cancelled()
          done += count
          this.#report(at + 1, Math.min(99, Math.floor((100 * done) / total)))
        })
      } catch (error) {
        if (!(error instanceof CouchError)) throw error
        if (error.cause instanceof Cancelled) throw error.cause
        await this.#refuseIfOver(folder, stored.manifest.id)
        damage.push(`${file.file}: ${reasonOf(error)}`)
      }
    }
    return damage
  }

  #report(filesDone: number, percent: number): void {
    if (this.#task === null) return
    this.#task = { ...this.#task, filesDone, percent, updatedAt: this.#options.now() }
  }

  /** A backup that was deleted meanwhile is not damaged. @throws Cancelled */
  async #refuseIfOver(folder: BackupFolder, id: string): Promise<void> {
    if (this.#isClosed || (await folder.find(id)) === null) throw new Cancelled()
  }

  /** Cancels the verification under way. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running
  }
}

function filesOf({ manifest: { server, config, databases } }: StoredBackup): readonly BackupFile[] {
  return [server, ...(config === null ? [] : [config]), ...databases]
}

/** The most bytes of a manifest, and of the checksums, which are fewer. */
const MAX_SUMS = 128 * 1024 * 1024

/** The manifest has the checksums of the other files, and SHA256SUMS has that of the manifest. */
async function damageOfManifest(path: string): Promise<string[]> {
  try {
    const manifest = await readRegular(join(path, MANIFEST_FILE), MAX_SUMS)
    const sums = String(await readRegular(join(path, SUMS_FILE), MAX_SUMS))
    const digest = createHash('sha256').update(manifest).digest('hex')
    if (sums.startsWith(`${digest}  ${MANIFEST_FILE}\n`)) return []
    return [`${MANIFEST_FILE}: does not match ${SUMS_FILE}`]
  } catch (error) {
    return [`${SUMS_FILE}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`]
  }
}

/** Without the path, which is in front of the line. */
function reasonOf({ cause }: CouchError): string {
  const { code } = (cause ?? {}) as NodeJS.ErrnoException
  if (code === 'ENOENT') return 'is missing'
  return code === undefined ? 'does not have the content that was verified' : `cannot be read (${code})`
}
