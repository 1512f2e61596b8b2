/** What there is to restore from: a backup, or one file of a database. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, isAbsolute, join } from 'node:path'
import { CouchError } from '../core/errors.ts'
import { databaseOfFileName } from '../core/ids.ts'
import { type BackupFile, type BackupManifest, isBackupId, readManifest } from './backup-format.ts'

/** A copy of a database. */
export interface Copy {
  readonly name: string
  /** Absolute. */
  readonly path: string
  readonly bytes: number
  /** null: nobody has noted what it was. */
  readonly sha256: string | null
}

export interface RestoreSource {
  /** As it is told to people. */
  readonly id: string
  readonly copies: readonly Copy[]
  /** What the backup has beside databases; null: a single file. */
  readonly whole: { readonly folder: string; readonly manifest: BackupManifest } | null
}

/**
 * @param given a backup's id, or the absolute path of its folder or of a single file of a database
 * @param folder where backups are, by their ids
 * @throws not_found, bad_request
 */
export async function findSource(given: string, folder: string): Promise<RestoreSource> {
  const path = isBackupId(given) ? join(folder, given) : given
  if (!isAbsolute(path))
    throw new CouchError('bad_request', 'A backup is named by its id or by an absolute path.')
  const found = await stat(path).catch(() => null)
  if (found === null) throw new CouchError('not_found', `There is no backup ${given}.`)
  return found.isDirectory() ? sourceOfFolder(path) : sourceOfFile(path, found.size)
}

async function sourceOfFolder(folder: string): Promise<RestoreSource> {
  const manifest = await readManifest(folder).catch((cause: NodeJS.ErrnoException) => {
    const reason = cause.code === undefined ? cause.message : `${folder} is no backup: it has no manifest`
    throw new CouchError('bad_request', `${reason}.`, { cause })
  })
  const copies = manifest.databases.map(({ name, file, bytes, sha256 }) => {
    return { name, path: pathIn(folder, file), bytes, sha256 }
  })
  return { id: manifest.id, copies, whole: { folder, manifest } }
}

/** @throws bad_request for a path that leads out of the folder */
export function pathIn(folder: string, file: string): string {
  const parts = file.split('/')
  if (parts.some((part) => part === '' || part === '.' || part === '..' || part.includes('\0'))) {
    throw new CouchError('bad_request', `The manifest of ${folder} names a file outside of it.`)
  }
  return join(folder, ...parts)
}

/** A file that was kept, or copied by hand, is named after its database: `notes.sqlite`, `notes.2026-11-22T….sqlite`. */
function sourceOfFile(path: string, bytes: number): RestoreSource {
  const name = databaseOfFileName(basename(path).replace(/\..*$/, ''))
  if (name === null) throw new CouchError('bad_request', `${path} is not named after a database.`)
  return { id: path, copies: [{ name, path, bytes, sha256: null }], whole: null }
}

/**
 * Holds a file against what the manifest says of it.
 * @param onBytes told how many more were read
 * @throws bad_request when it is another
 */
export async function checkFile(
  path: string,
  { bytes, sha256 }: Pick<BackupFile, 'bytes' | 'sha256'>,
  onBytes: (count: number) => void,
): Promise<void> {
  const hash = createHash('sha256')
  let length = 0
  const reading: AsyncIterable<Buffer> = createReadStream(path, { highWaterMark: 1024 * 1024 })
  try {
    for await (const piece of reading) {
      hash.update(piece)
      length += piece.length
      onBytes(piece.length)
    }
  } catch (cause) {
    throw new CouchError(
      'bad_request',
      `${path} cannot be read (${(cause as NodeJS.ErrnoException).code}).`,
      { cause },
    )
  }
  if (length === bytes && hash.digest('hex') === sha256) return
  throw new CouchError('bad_request', `${path} is not what the backup's manifest says: it is damaged.`)
}
