/** Makes one backup (docs/decisions/0023). */
import { createHash } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { syncPath, writeDurably } from '../core/durable-files.ts'
import { CouchError } from '../core/errors.ts'
import { databaseFileName } from '../core/ids.ts'
import { type Copier, type CopyOutcome, DamagedCopy, type KnownCopy } from '../threads/copies.ts'
import type { BackupFolder, StoredBackup } from './backup-folder.ts'
import {
  type BackedUpDatabase,
  type BackupFile,
  type BackupManifest,
  CONFIG_FILE,
  MANIFEST_FILE,
  SERVER_FILE,
  SUMS_FILE,
} from './backup-format.ts'

const DATABASES_FOLDER = 'databases'

interface BackupPlan {
  readonly folder: BackupFolder
  readonly id: string
  readonly dataDir: string
  readonly folderUuid: string
  /** settee's version. */
  readonly version: string
  readonly reason: BackupManifest['reason']
  readonly names: readonly string[]
  readonly isWhole: boolean
  /** The previous backup, whose files are linked where nothing has changed. */
  readonly previous: StoredBackup | null
  /** Bytes to keep free on the disk; null: the default. */
  readonly floor: number | null
}

interface BackupTools {
  readonly copier: Copier
  copyCatalog(path: string): Promise<void>
  /** ms since 1970. */
  now(): number
  onProgress(progress: BackupProgress): void
}

/** The progress of a backup. */
export interface BackupProgress {
  readonly id: string
  /** The database that is being copied; null: all are copied. */
  readonly database: string | null
  readonly databases_done: number
  readonly databases_total: number
  /** The percentage of the whole backup. */
  readonly percent: number
}

export interface BackupOutcome {
  readonly manifest: BackupManifest
  /** Databases that are left out because they, or their copies, are damaged. */
  readonly damaged: readonly { readonly database: string; readonly reason: string }[]
  /** The damage that was found in the previous backup. */
  readonly previousDamage: readonly string[]
}

/**
 * Makes a backup.
 * @throws insufficient_storage, unavailable, internal_server_error, the file system's error; no files are left then
 */
export async function makeBackup(plan: BackupPlan, tools: BackupTools): Promise<BackupOutcome> {
  const { folder, id } = plan
  try {
    const builder = new BackupBuilder(plan, tools, await folder.begin(id))
    await builder.copyDatabases()
    const made = await builder.finish()
    await folder.publish(id, made.manifest)
    return made
  } catch (error) {
    await folder.abandon(id).catch(() => undefined)
    throw error
  }
}

class BackupBuilder {
  readonly #plan: BackupPlan
  readonly #tools: BackupTools
  readonly #path: string
  readonly #begunAt: string
  readonly #databases: BackedUpDatabase[] = []
  readonly #leftOut: { readonly name: string; readonly reason: string }[] = []
  readonly #damaged: { readonly database: string; readonly reason: string }[] = []
  readonly #previousDamage: string[] = []
  readonly #known: ReadonlyMap<string, BackedUpDatabase>

  constructor(plan: BackupPlan, tools: BackupTools, path: string) {
    this.#plan = plan
    this.#tools = tools
    this.#path = path
    this.#begunAt = this.#now()
    const { previous } = plan
    const known = previous === null || previous.damage.length > 0 ? [] : previous.manifest.databases
    this.#known = new Map(known.map((database) => [database.name, database]))
  }

  #now(): string {
    return new Date(this.#tools.now()).toISOString()
  }

  #reportProgress(database: string | null, done: number, percent: number): void {
    const { id, names } = this.#plan
    const total = names.length
    // The last percent is for the steps after the databases.
    const all = database === null ? 99 : Math.floor((99 * (done + percent / 100)) / Math.max(total, 1))
    const progress = { id, database, databases_done: done, databases_total: total, percent: all }
    this.#tools.onProgress(progress)
  }

  async copyDatabases(): Promise<void> {
    await mkdir(join(this.#path, DATABASES_FOLDER), { mode: 0o700 })
    for (const [at, name] of this.#plan.names.entries()) {
      this.#reportProgress(name, at, 0)
      await this.#copyDatabase(name, (percent) => this.#reportProgress(name, at, percent))
    }
  }

  async #copyDatabase(name: string, onPercent: (percent: number) => void): Promise<void> {
    const file = `${DATABASES_FOLDER}/${databaseFileName(name)}.sqlite`
    const copiedAt = this.#now()
    try {
      const { floor } = this.#plan
      const job = { database: name, target: join(this.#path, file), known: this.#knownCopy(name), floor }
      const copy = await this.#tools.copier.copy(job, ({ percent }) => onPercent(percent))
      this.#databases.push(this.#row(name, file, copiedAt, copy))
      if (copy.knownFault !== null) this.#previousDamage.push(`${file}: ${copy.knownFault}`)
    } catch (error) {
      this.#leaveOut(name, error)
    }
  }

  #knownCopy(name: string): KnownCopy | null {
    const { previous, folder } = this.#plan
    const known = this.#known.get(name)
    if (known === undefined || previous === null) return null
    const { bytes, sha256, source: fingerprint, damage = null } = known
    return {
      path: join(folder.path, previous.manifest.id, known.file),
      bytes,
      sha256,
      fingerprint,
      facts: factsOf(known),
      damage,
    }
  }

  #row(name: string, file: string, copiedAt: string, copy: CopyOutcome): BackedUpDatabase {
    const { facts, bytes, sha256, incarnation, damage } = copy
    const known = this.#known.get(name)
    return {
      name,
      file,
      bytes,
      sha256,
      incarnation,
      schema_version: facts.schemaVersion,
      created_at: facts.createdAt,
      update_seq: facts.updateSeq,
      purge_seq: facts.purgeSeq,
      doc_count: facts.docCount,
      doc_del_count: facts.deletedCount,
      local_count: facts.localCount,
      attachment_bytes: facts.attachmentBytes,
      digest: facts.digest,
      copied_at: copiedAt,
      same_as: copy.isSame ? (known?.same_as ?? this.#plan.previous?.manifest.id ?? null) : null,
      source: copy.fingerprint,
      ...(damage !== null && { damage }),
    }
  }

  /** Records that a database is damaged or deleted, so that the backup goes on with the others. */
  #leaveOut(name: string, error: unknown): void {
    if (error instanceof DamagedCopy) {
      this.#damaged.push({ database: name, reason: error.message })
      this.#leftOut.push({ name, reason: `damaged: ${error.message}` })
    } else if (error instanceof CouchError && error.code === 'no_database') {
      this.#leftOut.push({ name, reason: 'deleted or replaced during the backup' })
    } else throw error
  }

  /** Copies the server's data after the databases, so that it has the owner of each copied database. */
  async finish(): Promise<BackupOutcome> {
    this.#reportProgress(null, this.#plan.names.length, 0)
    const server = await this.#copyServer()
    const config = await this.#copyConfig()
    const manifest = this.#manifest(server, config)
    const text = `${JSON.stringify(manifest, null, 1)}\n`
    await writeDurably(join(this.#path, SUMS_FILE), sumsOf(manifest, text))
    await writeDurably(join(this.#path, MANIFEST_FILE), text)
    await syncPath(join(this.#path, DATABASES_FOLDER))
    await syncPath(this.#path)
    return { manifest, damaged: this.#damaged, previousDamage: this.#previousDamage }
  }

  async #copyServer(): Promise<BackupFile> {
    const path = join(this.#path, SERVER_FILE)
    await this.#tools.copyCatalog(path)
    return { file: SERVER_FILE, ...(await this.#tools.copier.checkCatalog(path, this.#plan.folderUuid)) }
  }

  async #copyConfig(): Promise<BackupFile | null> {
    const bytes = await readFile(join(this.#plan.dataDir, CONFIG_FILE)).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return null
        throw error
      },
    )
    if (bytes === null) return null
    await writeDurably(join(this.#path, CONFIG_FILE), bytes)
    return { file: CONFIG_FILE, bytes: bytes.length, sha256: sha256(bytes) }
  }

  #manifest(server: BackupFile, config: BackupFile | null): BackupManifest {
    const { id, version, folderUuid, reason, isWhole } = this.#plan
    return {
      format: 'settee-backup',
      format_version: 1,
      id,
      settee: version,
      server_uuid: folderUuid,
      begun_at: this.#begunAt,
      ended_at: this.#now(),
      reason,
      is_whole: isWhole,
      verified: true,
      server,
      config,
      databases: this.#databases,
      left_out: this.#leftOut,
    }
  }
}

function factsOf(known: BackedUpDatabase): KnownCopy['facts'] {
  return {
    schemaVersion: known.schema_version,
    createdAt: known.created_at,
    updateSeq: known.update_seq,
    purgeSeq: known.purge_seq,
    docCount: known.doc_count,
    deletedCount: known.doc_del_count,
    localCount: known.local_count,
    attachmentBytes: known.attachment_bytes,
    digest: known.digest,
  }
}

/** In the format of `sha256sum --check`, unescaped: the file names have no backslash and no line feed. */
function sumsOf({ server, config, databases }: BackupManifest, manifestText: string): string {
  const files: Pick<BackupFile, 'file' | 'sha256'>[] = [
    { file: MANIFEST_FILE, sha256: sha256(manifestText) },
    server,
    ...(config === null ? [] : [config]),
    ...databases,
  ]
  return files.map(({ file, sha256 }) => `${sha256}  ${file}\n`).join('')
}

function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex')
}
