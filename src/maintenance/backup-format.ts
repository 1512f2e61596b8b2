/**
 * What a backup is, as files: a folder that says of itself what is in it (docs/decisions/0023). Whoever restores reads
 * it through {@link readManifest} alone.
 *
 *     <backups>/2026-11-22T01-30-00Z/
 *       manifest.json        what follows; written last
 *       SHA256SUMS           of all other files, for `sha256sum --check`
 *       server.sqlite        uuid, incarnations, device tokens, tenants
 *       local.ini            the configuration, if there is such a file: with hashes and secrets, mode 0600
 *       databases/NAME.sqlite    under the names that they have in the data folder
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

export const MANIFEST_FILE = 'manifest.json'
export const SUMS_FILE = 'SHA256SUMS'
export const SERVER_FILE = 'server.sqlite'
export const CONFIG_FILE = 'local.ini'
/** What the name of a folder ends in that is no backup, not yet or not any more. */
export const UNFINISHED = '.unfinished'

/** A file of a backup. */
export interface BackupFile {
  /** Its path in the backup's folder, with slashes. */
  readonly file: string
  readonly bytes: number
  /** 64 hex digits, of the whole file. */
  readonly sha256: string
}

/** One database of a backup: the facts are of the moment that the copy shows. */
export interface BackedUpDatabase extends BackupFile {
  readonly name: string
  readonly incarnation: number
  readonly schema_version: number
  /** Seconds since 1970: `instance_start_time`. */
  readonly created_at: number
  readonly update_seq: number
  readonly purge_seq: number
  readonly doc_count: number
  readonly doc_del_count: number
  readonly local_count: number
  /** Bytes of attachments, each content once. */
  readonly attachment_bytes: number
  /** 64 hex digits over all that the database holds, whatever pages it is on (storage/sqlite/digest.ts). */
  readonly digest: string
  /** When the copy was begun, ISO 8601; of one that was taken over from an earlier backup, when it was found unchanged. */
  readonly copied_at: string
  /** The earlier backup whose file this is, since nothing had changed; null: it was copied for this one. */
  readonly same_as: string | null
  /** The engine's mark of the database's own file at that moment: where it is the same, nothing was written since. */
  readonly source: string | null
}

/** `manifest.json`. */
export interface BackupManifest {
  readonly format: 'settee-backup'
  readonly format_version: 1
  /** The folder's name. */
  readonly id: string
  /** settee's version. */
  readonly settee: string
  readonly server_uuid: string
  /** ISO 8601, UTC. */
  readonly begun_at: string
  readonly ended_at: string
  readonly reason: 'schedule' | 'asked'
  /** Whether all databases were asked for; false: only some, by name. */
  readonly is_whole: boolean
  /** Every copy was opened and held against the database that it is of. A folder that says anything else is no backup. */
  readonly verified: true
  readonly server: BackupFile
  /** null: there was no such file. */
  readonly config: BackupFile | null
  /** In the names' order. */
  readonly databases: readonly BackedUpDatabase[]
  /** Databases that were deleted while the backup was made. */
  readonly left_out: readonly { readonly name: string; readonly reason: string }[]
}

/** `2026-11-22T01-30-00Z`, with `-2` and so on behind it for further ones of the same second. */
const ID = /^\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}Z(?:-[1-9]\d{0,2})?$/

/** Whether a text can be a backup's name; nothing else is ever made a path of. */
export function isBackupId(text: string): boolean {
  return ID.test(text)
}

/** @param time ms since 1970 @param nth 1 for the first of that second */
export function backupId(time: number, nth: number): string {
  const text = new Date(time)
    .toISOString()
    .replace(/\.\d+Z$/, 'Z')
    .replaceAll(':', '-')
  return nth === 1 ? text : `${text}-${nth}`
}

/** When the backup of this name was begun, in ms since 1970. */
export function timeOfBackup(id: string): number {
  const [date = '', time = ''] = id.slice(0, 19).split('T')
  return Date.parse(`${date}T${time.replaceAll('-', ':')}Z`)
}

/**
 * Reads what a folder says of itself.
 * @param folder the backup's own
 * @throws Error with one clear line when it is no backup that this settee can read; the file system's error
 */
export async function readManifest(folder: string): Promise<BackupManifest> {
  const told: unknown = JSON.parse(await readFile(join(folder, MANIFEST_FILE), 'utf8'))
  const { format, format_version: version, verified } = (told ?? {}) as Partial<BackupManifest>
  if (format !== 'settee-backup') throw new Error(`${folder} is no backup of settee's`)
  if (version !== 1) throw new Error(`${folder} was written by a newer settee (format ${version})`)
  if (verified !== true) throw new Error(`${folder} is not verified`)
  return told as BackupManifest
}
