/**
 * Restores databases in a way that syncing devices notice, so that they send again what the backup lacks
 * (docs/decisions/0024). All files are checked before any is replaced, and replaced files are kept.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join } from 'node:path'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName, databaseOfFileName } from '../core/ids.ts'
import type { Databases, PreparedRestore } from '../threads/databases.ts'
import { type BackupFile, type BackupManifest, isBackupId, readManifest } from './backup-format.ts'
import { openRegular, pathIn } from './foreign-files.ts'

interface RestoreRequest {
  /** A backup's id, or the absolute path of its folder or of a single file of a database. */
  readonly backup: string
  /** Names of databases; null: all databases of the backup. */
  readonly databases: readonly string[] | null
  /** A new name for the only database; null: its own. */
  readonly as: string | null
}

interface RestoredDatabase {
  readonly database: string
  /** Its name in the backup. */
  readonly from: string
  readonly doc_count: number
  readonly update_seq: number
  /** Where the replaced database is kept; null: none was replaced. */
  readonly kept: string | null
}

export interface RestoreOutcome {
  readonly backup: string
  readonly restored: readonly RestoredDatabase[]
  /** Existing databases that the backup lacks; they are unchanged. */
  readonly untouched: readonly string[]
}

export interface RestoreProgress {
  readonly step: 'check' | 'prepare' | 'replace'
  readonly database: string
  /** Of `total` bytes of all databases. */
  readonly done: number
  readonly total: number
}

export interface RestoreControl {
  /**
   * Restores databases from a backup, or creates new databases from it.
   * @param signal aborts when the caller has disconnected; this cancels the restore before the first replacement
   * @throws not_found, bad_request, illegal_database_name; file_exists for a new name that is taken. If some databases
   *   were already restored, the error names them
   */
  restore(
    argument: RestoreRequest,
    onProgress?: (progress: RestoreProgress) => void,
    signal?: AbortSignal,
  ): Promise<RestoreOutcome>
  /**
   * Makes devices notice that database files were restored by hand; null: all databases.
   * @throws no_database
   */
  adopt(argument: {
    readonly databases: readonly string[] | null
  }): Promise<{ readonly adopted: readonly string[] }>
}

/** The databases to restore into, which keep their owners ({@link Policy.databases}). */
type RestoreTarget = Pick<Databases, 'has' | 'allNames' | 'prepareRestore' | 'treatAsRestored'>

/** The folder of the backups: `settee/backup_folder`, or `backups` in the data folder. */
export function backupsFolder(config: Pick<Config, 'get' | 'path'>): string {
  return config.get('settee', 'backup_folder') || join(dirname(config.path), 'backups')
}

/** @param backups the folder of the backups */
export function localRestoreControl(databases: RestoreTarget, backups: () => string): RestoreControl {
  return {
    async restore(argument, onProgress = () => undefined, signal?: AbortSignal) {
      const source = await findSource(argument.backup, backups())
      const wanted = chooseCopies(source, argument)
      if (argument.as !== null && (await databases.has(argument.as))) {
        throw new CouchError('file_exists', `The database ${argument.as} exists already.`)
      }
      const names = await Array.fromAsync(databases.allNames())
      const restored = await restoreAll(databases, wanted, new RestoreMeter(wanted, onProgress), signal)
      const isWhole = argument.databases === null && source.whole !== null
      const inBackup = new Set([...source.copies.map(({ name }) => name), ...wanted.map(({ as }) => as)])
      return {
        backup: source.id,
        restored,
        untouched: isWhole ? names.filter((name) => !inBackup.has(name)) : [],
      }
    },

    async adopt({ databases: named }) {
      const adopted = named ?? (await Array.fromAsync(databases.allNames()))
      for (const name of adopted) checkDatabaseName(name)
      for (const name of adopted) await databases.treatAsRestored(name)
      return { adopted }
    },
  }
}

interface CopyToRestore extends Copy {
  readonly as: string
}

/** @throws not_found, bad_request, illegal_database_name */
function chooseCopies(
  { id, copies, whole }: RestoreSource,
  { databases, as }: RestoreRequest,
): CopyToRestore[] {
  const [only] = copies
  // A single file is restored under the new name, or else under the name of the database.
  if (whole === null && only !== undefined && databases?.length === 1)
    return [copyUnder(only, as ?? databases[0])]
  const missing = databases?.find((name) => !copies.some((copy) => copy.name === name))
  if (missing !== undefined) throw new CouchError('not_found', `The backup ${id} has no database ${missing}.`)
  const some = databases === null ? copies : copies.filter(({ name }) => databases.includes(name))
  if (as !== null && some.length !== 1) {
    throw new CouchError('bad_request', 'A new name needs exactly one database; name it.')
  }
  if (some.length === 0) throw new CouchError('not_found', `The backup ${id} has no database.`)
  return some.map((copy) => copyUnder(copy, as))
}

function copyUnder(copy: Copy, as: string | null | undefined): CopyToRestore {
  const name = as ?? copy.name
  checkDatabaseName(name)
  return { ...copy, as: name }
}

/** The progress of a restore, which reads each file twice: for its checksum, and to prepare it. */
class RestoreMeter {
  readonly #onProgress: (progress: RestoreProgress) => void
  readonly #total: number
  #done = 0

  constructor(wanted: readonly CopyToRestore[], onProgress: (progress: RestoreProgress) => void) {
    this.#onProgress = onProgress
    this.#total = 2 * wanted.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  add(step: RestoreProgress['step'], database: string, bytes: number): void {
    this.#done += bytes
    this.#onProgress({ step, database, done: this.#done, total: this.#total })
  }
}

async function restoreAll(
  databases: RestoreTarget,
  wanted: readonly CopyToRestore[],
  meter: RestoreMeter,
  signal: AbortSignal | undefined,
): Promise<RestoredDatabase[]> {
  const refuseIfCancelled = () => {
    if (signal?.aborted)
      throw new CouchError('unavailable', 'The caller has disconnected; nothing has changed.')
  }
  for (const copy of wanted) {
    refuseIfCancelled()
    await check(copy, meter)
  }
  const prepared: PreparedRestore[] = []
  try {
    for (const { as, path, bytes } of wanted) {
      meter.add('prepare', as, 0)
      prepared.push(await databases.prepareRestore(as, path))
      meter.add('prepare', as, bytes)
      refuseIfCancelled()
    }
    return await replaceAll(wanted, prepared, meter)
  } finally {
    for (const one of prepared) await one.discard()
  }
}

async function check({ path, bytes, sha256, as }: CopyToRestore, meter: RestoreMeter): Promise<void> {
  if (sha256 === null) return meter.add('check', as, bytes)
  // SQLite would read it as a part of the file, though no checksum knows it.
  if (existsSync(`${path}-wal`)) {
    throw new CouchError('bad_request', `${path} has a log beside it, which is not of the backup.`)
  }
  await checkFile(path, { bytes, sha256 }, (count) => meter.add('check', as, count))
}

async function replaceAll(
  wanted: readonly CopyToRestore[],
  prepared: readonly PreparedRestore[],
  meter: RestoreMeter,
): Promise<RestoredDatabase[]> {
  const restored: RestoredDatabase[] = []
  for (const [at, { name, docCount, updateSeq, finish }] of prepared.entries()) {
    meter.add('replace', name, 0)
    const kept = await finish().catch((error: unknown) => {
      throw restored.length === 0 ? error : partialFailure(restored, name, error)
    })
    const from = (wanted[at] as CopyToRestore).name
    restored.push({ database: name, from, doc_count: docCount, update_seq: updateSeq, kept })
  }
  return restored
}

function partialFailure(restored: readonly RestoredDatabase[], name: string, cause: unknown): CouchError {
  const names = restored.map(({ database }) => database).join(', ')
  const reasonOfCause = cause instanceof CouchError ? cause.message : 'see the log'
  const reason = `Restored: ${names}. ${name} and the databases after it could not be restored: ${reasonOfCause}`
  return new CouchError('internal_server_error', reason, { cause })
}

/** A copy of a database. */
interface Copy {
  readonly name: string
  /** Absolute. */
  readonly path: string
  readonly bytes: number
  /** null if unknown. */
  readonly sha256: string | null
}

export interface RestoreSource {
  /** For messages. */
  readonly id: string
  readonly copies: readonly Copy[]
  /** The backup; null for a single file. */
  readonly whole: { readonly folder: string; readonly manifest: BackupManifest } | null
}

/**
 * @param given a backup's id, or the absolute path of its folder or of a single file of a database
 * @param folder the folder of the backups
 * @throws not_found, bad_request
 */
export async function findSource(given: string, folder: string): Promise<RestoreSource> {
  const path = isBackupId(given) ? join(folder, given) : given
  if (!isAbsolute(path))
    throw new CouchError('bad_request', 'Give a backup by its id or by an absolute path.')
  const found = await stat(path).catch(() => null)
  if (found === null) throw new CouchError('not_found', `There is no backup ${given}.`)
  if (found.isDirectory()) return sourceOfFolder(path)
  if (!found.isFile()) throw new CouchError('bad_request', `${given} is neither a folder nor a file.`)
  return sourceOfFile(path, await realpath(path), found.size)
}

async function sourceOfFolder(folder: string): Promise<RestoreSource> {
  const manifest = await readManifest(folder).catch((cause: NodeJS.ErrnoException) => {
    const reason = cause.code === undefined ? cause.message : `${folder} is not a backup: it has no manifest`
    throw new CouchError('bad_request', `${reason}.`, { cause })
  })
  const copies: Copy[] = []
  for (const { name, file, bytes, sha256 } of manifest.databases) {
    copies.push({ name, path: await pathIn(folder, file), bytes, sha256 })
  }
  return { id: manifest.id, copies, whole: { folder, manifest } }
}

/** A kept file or a manual copy is named after its database: `notes.sqlite`, `notes.2026-11-22T….sqlite`. */
function sourceOfFile(given: string, path: string, bytes: number): RestoreSource {
  const name = databaseOfFileName(basename(given).replace(/\..*$/, ''))
  if (name === null) throw new CouchError('bad_request', `${given} is not named after a database.`)
  return { id: given, copies: [{ name, path, bytes, sha256: null }], whole: null }
}

/**
 * Compares a file with its entry in the manifest.
 * @param onBytes called with the number of bytes of each chunk
 * @throws bad_request if they differ
 */
export async function checkFile(
  path: string,
  { bytes, sha256 }: Pick<BackupFile, 'bytes' | 'sha256'>,
  onBytes: (count: number) => void,
): Promise<void> {
  const hash = createHash('sha256')
  let length = 0
  try {
    const file = await openRegular(path)
    const reading: AsyncIterable<Buffer> = file.createReadStream({ highWaterMark: 1024 * 1024 })
    for await (const piece of reading) {
      hash.update(piece)
      length += piece.length
      onBytes(piece.length)
      // A sparse file may have terabytes.
      if (length > bytes) break
    }
  } catch (cause) {
    throw new CouchError(
      'bad_request',
      `${path} cannot be read (${(cause as NodeJS.ErrnoException).code}).`,
      { cause },
    )
  }
  if (length === bytes && hash.digest('hex') === sha256) return
  throw new CouchError('bad_request', `${path} does not match the backup's manifest: it is damaged.`)
}
