/**
 * The files of a backup: a folder with a manifest (docs/decisions/0023). A restore reads it only through
 * {@link readManifest}.
 *
 *     <backups>/2026-11-22T01-30-00Z/
 *       manifest.json        {@link BackupManifest}; written last
 *       SHA256SUMS           of all other files, for `sha256sum --check`
 *       server.sqlite        uuid, incarnations, device tokens, tenants
 *       local.ini            the configuration, if the file exists; it has hashes and secrets, so its mode is 0600
 *       databases/NAME.sqlite    the same file names as in the data folder
 */
import { join } from 'node:path'
import { isJsonObject } from '../core/json.ts'
import type { Body } from '../documents/database.ts'
import { AMPLE_ROOM, TemporaryFile } from '../documents/temporary-file.ts'
import type { Damage } from '../storage/damage.ts'
import { readRegular } from './foreign-files.ts'

export const MANIFEST_FILE = 'manifest.json'
export const SUMS_FILE = 'SHA256SUMS'
export const SERVER_FILE = 'server.sqlite'
export const CONFIG_FILE = 'local.ini'
/** The suffix of a folder that is not yet, or no longer, a backup. */
export const UNFINISHED = '.unfinished'

/** A file of a backup. */
export interface BackupFile {
  /** Its path in the backup's folder, with slashes. */
  readonly file: string
  readonly bytes: number
  /** 64 hex digits, of the whole file. */
  readonly sha256: string
}

/** One database of a backup; the facts describe the copied state. */
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
  /** 64 hex digits: a hash of the database's contents, independent of its pages (storage/sqlite/snapshot.ts). */
  readonly digest: string
  /** When the copy started, or an earlier copy was found unchanged; ISO 8601. */
  readonly copied_at: string
  /** The earlier backup that shares the file, because nothing had changed; null: copied for this backup. */
  readonly same_as: string | null
  /** The engine's fingerprint of the database file at that moment. It changes with every write. */
  readonly source: string | null
  /** Rows that were damaged in the database, and are so in the copy; absent: none. */
  readonly damage?: Damage
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
  /** Whether the backup contains all databases; false: only those that were named. */
  readonly is_whole: boolean
  /**
   * Every copy was opened and compared with its database, and every row with its checksum: what is not named as damage is
   * what was written. Without this, a folder is not a backup.
   */
  readonly verified: true
  readonly server: BackupFile
  /** null: there was no local.ini. */
  readonly config: BackupFile | null
  /** In the order of their names. */
  readonly databases: readonly BackedUpDatabase[]
  /** Databases that were deleted while the backup was made. */
  readonly left_out: readonly { readonly name: string; readonly reason: string }[]
}

/** `2026-11-22T01-30-00Z`. Further backups of the same second end in `-2`, `-3` and so on. */
const ID = /^\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}Z(?:-[1-9]\d{0,2})?$/

/** Whether a text can be a backup's name; no other text is used as a path. */
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

/** The most bytes of a manifest: of about 200,000 databases. */
const MAX_MANIFEST = 128 * 1024 * 1024

/**
 * Reads the manifest of a folder.
 * @param folder the backup's own
 * @throws Error with a one-line message if this version of settee cannot read it; the file system's error
 */
export async function readManifest(folder: string): Promise<BackupManifest> {
  const manifest = jsonIn(String(await readRegular(join(folder, MANIFEST_FILE), MAX_MANIFEST)))
  const { format, format_version: version, verified } = isJsonObject(manifest) ? manifest : {}
  if (format !== 'settee-backup') throw new Error(`${folder} is not a settee backup`)
  if (version !== 1) throw new Error(`${folder} was written by a newer settee (format ${version})`)
  if (verified !== true) throw new Error(`${folder} is not verified`)
  if (!isManifest(manifest)) throw new Error(`the manifest of ${folder} is damaged`)
  return manifest
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** Checks what is used of a manifest, which may come from elsewhere. */
function isManifest(value: unknown): value is BackupManifest {
  if (!isJsonObject(value)) return false
  const { id, settee, server_uuid, begun_at, ended_at, databases, left_out, server, config } = value
  return (
    [id, settee, server_uuid, begun_at, ended_at].every((text) => typeof text === 'string') &&
    isBackupId(String(id)) &&
    isFile(server) &&
    (config === null || isFile(config)) &&
    Array.isArray(databases) &&
    databases.every(
      (each) => isFile(each) && typeof (each as { name?: unknown }).name === 'string' && isDamage(each),
    ) &&
    Array.isArray(left_out) &&
    left_out.every(isJsonObject)
  )
}

/** Whether what a database says of damage has its form. */
function isDamage(database: object): boolean {
  const { damage } = database as { readonly damage?: unknown }
  if (damage === undefined) return true
  if (!isJsonObject(damage)) return false
  const { count, parts } = damage
  return Number.isSafeInteger(count) && Array.isArray(parts) && parts.every(isJsonObject)
}

function isFile(value: unknown): value is BackupFile {
  if (!isJsonObject(value)) return false
  const { file, bytes, sha256 } = value
  return typeof file === 'string' && Number.isSafeInteger(bytes) && typeof sha256 === 'string'
}

/** Longer lines go to a file. */
const MEMORY_BYTES = 1024 * 1024
/** Enough bytes to recognise the header line and couchbackup's resume marker. */
const HEAD_BYTES = 4096
const LINE_END = 0x0a

const BODY_PREFIX = Buffer.from('{"new_edits":false,"docs":')
const BODY_SUFFIX = Buffer.from('}')

/** A line of a couchbackup file. */
export interface BackupLine {
  /** From 1 on. */
  readonly number: number
  /** The first and the last characters, or the whole line. */
  readonly head: string
  readonly tail: string
  /**
   * The body of a `_bulk_docs`: in memory if short, otherwise in an unlinked file. Valid until the next line is read.
   */
  readonly body: Body
}

/**
 * Splits a stream into lines, and skips empty lines.
 * @param tmpDir folder for temporary files
 * @throws the errors of the source; the file system's errors
 */
export async function* backupLines(
  source: AsyncIterable<Uint8Array>,
  tmpDir: string,
): AsyncGenerator<BackupLine> {
  let number = 1
  let line = new LineBuilder(tmpDir)
  try {
    for await (const chunk of source) {
      for (let from = 0; from < chunk.length; ) {
        const end = chunk.indexOf(LINE_END, from)
        await line.add(chunk.subarray(from, end === -1 ? chunk.length : end))
        if (end === -1) break
        if (line.length > 0) yield await line.finish(number)
        await line.close()
        line = new LineBuilder(tmpDir)
        number += 1
        from = end + 1
      }
    }
    if (line.length > 0) yield await line.finish(number)
  } finally {
    await line.close()
  }
}

class LineBuilder {
  readonly #tmpDir: string
  /** Bytes that are not in the file. */
  #chunks: Uint8Array[] = [BODY_PREFIX]
  #file: TemporaryFile | undefined
  #head: Buffer = Buffer.alloc(0)
  #tail: Buffer = Buffer.alloc(0)
  length = 0

  constructor(tmpDir: string) {
    this.#tmpDir = tmpDir
  }

  async add(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return
    if (this.#head.length < HEAD_BYTES) {
      this.#head = Buffer.concat([this.#head, bytes.subarray(0, HEAD_BYTES - this.#head.length)])
    }
    this.#tail = Buffer.from(Buffer.concat([this.#tail, bytes.subarray(-HEAD_BYTES)]).subarray(-HEAD_BYTES))
    this.length += bytes.length
    this.#chunks.push(bytes)
    if (this.length > MEMORY_BYTES) await this.#spool()
  }

  async #spool(): Promise<void> {
    this.#file ??= await TemporaryFile.open(this.#tmpDir, AMPLE_ROOM)
    for (const chunk of this.#chunks.splice(0)) await this.#file.append(chunk)
  }

  async finish(number: number): Promise<BackupLine> {
    this.#chunks.push(BODY_SUFFIX)
    if (this.#file !== undefined) await this.#spool()
    const body = this.#file?.body ?? { bytes: Buffer.concat(this.#chunks) }
    return { number, head: this.#head.toString(), tail: this.#tail.toString(), body }
  }

  async close(): Promise<void> {
    await this.#file?.close()
    this.#file = undefined
  }
}
