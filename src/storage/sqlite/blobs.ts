/** The contents of attachments, in chunks; equal contents are stored once. */
import { CouchError } from '../../core/errors.ts'
import { CHUNK_BYTES, digestOf } from '../content-upload.ts'
import type { AttachmentEncoding, AttachmentWrite, StoredAttachment } from '../engine.ts'
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

/** A complete blob. */
interface BlobRow {
  readonly md5: Uint8Array
  /** The stored size, in bytes. */
  readonly length: number
  /** `uploads`: no revision has named it yet. */
  readonly state: 'staging' | 'stored'
}

const WHOLE = 'SELECT md5, length, state FROM blob WHERE num = ? AND sha256 IS NOT NULL'

export class Blobs {
  readonly #whole: Statement<BlobRow>
  readonly #byHash: Statement<{ num: number }>
  readonly #begin: Statement
  readonly #complete: Statement
  readonly #markStored: Statement
  readonly #insertChunk: Statement
  readonly #chunk: Statement<{ data: Uint8Array }>
  readonly #chunkPart: Statement<{ data: Uint8Array }>
  readonly #uploads: Statement<{ num: number }>
  readonly #isUpload: Statement
  readonly #abandon: Statement
  readonly #dropChunks: Statement
  readonly #drop: Statement
  /** A number is not reused while the file is open, so that a reader that still has it never gets another content. */
  #lastNum: number

  constructor(connection: Connection) {
    this.#whole = connection.prepare(WHOLE)
    this.#byHash = connection.prepare('SELECT num FROM blob WHERE sha256 = ?')
    this.#begin = connection.prepare("INSERT INTO blob (num, length, state) VALUES (?, 0, 'staging')")
    this.#complete = connection.prepare('UPDATE blob SET sha256 = ?, md5 = ?, length = ? WHERE num = ?')
    this.#markStored = connection.prepare("UPDATE blob SET state = 'stored' WHERE num = ?")
    this.#insertChunk = connection.prepare('INSERT INTO chunk (blob, position, data) VALUES (?, ?, ?)')
    this.#chunk = connection.prepare('SELECT data FROM chunk WHERE blob = ? AND position = ?')
    this.#chunkPart = connection.prepare(
      'SELECT substr(data, ?, ?) AS data FROM chunk WHERE blob = ? AND position = ?',
    )
    this.#uploads = connection.prepare("SELECT num FROM blob WHERE state = 'staging'")
    this.#isUpload = connection.prepare("SELECT 1 FROM blob WHERE num = ? AND state = 'staging'")
    this.#abandon = connection.prepare("UPDATE blob SET sha256 = NULL WHERE num = ? AND state = 'staging'")
    this.#dropChunks = connection.prepare(
      'DELETE FROM chunk WHERE rowid IN (SELECT rowid FROM chunk WHERE blob = ? LIMIT ?)',
    )
    this.#drop = connection.prepare('DELETE FROM blob WHERE num = ?')
    this.#lastNum =
      connection.prepare<{ num: number | null }>('SELECT max(num) AS num FROM blob').get()?.num ?? 0
  }

  /** A complete blob; undefined if it does not exist. */
  find(blob: number): BlobRow | undefined {
    return this.#whole.get(blob)
  }

  /** The complete blob of a content, by its SHA-256. */
  byHash(sha256: Uint8Array): number | undefined {
    return this.#byHash.get(sha256)?.num
  }

  /** Makes an empty blob that no revision names. @returns its number */
  create(): number {
    this.#lastNum += 1
    this.#begin.run(this.#lastNum)
    return this.#lastNum
  }

  addChunk(blob: number, position: number, data: Uint8Array): void {
    this.#insertChunk.run(blob, position, data)
  }

  /** Marks the blob as complete. */
  complete(blob: number, sha256: Uint8Array, md5: Uint8Array, length: number): void {
    this.#complete.run(sha256, md5, length, blob)
  }

  /** Marks the blob as used by a revision. @returns false if there is no complete blob with this number */
  markStored(blob: number): boolean {
    const row = this.find(blob)
    if (row?.state === 'staging') this.#markStored.run(blob)
    return row !== undefined
  }

  /** The blob of a content that a revision names; stores new content. */
  store(sha256: Uint8Array, md5: Uint8Array, bytes: Uint8Array): number {
    const known = this.byHash(sha256)
    const blob = known ?? this.create()
    if (known === undefined) {
      for (let position = 0; position * CHUNK_BYTES < bytes.length; position++) {
        this.addChunk(blob, position, bytes.subarray(position * CHUNK_BYTES, (position + 1) * CHUNK_BYTES))
      }
      this.complete(blob, sha256, md5, bytes.length)
    }
    this.markStored(blob)
    return blob
  }

  /** Bytes of a blob from an offset, up to its end; null if the blob does not exist. */
  read(blob: number, offset: number, length: number): Uint8Array | null {
    const row = this.find(blob)
    if (row === undefined) return null
    const end = Math.min(offset + length, row.length)
    const parts: Uint8Array[] = []
    for (let at = offset; at < end; ) {
      const position = Math.floor(at / CHUNK_BYTES)
      const start = at - position * CHUNK_BYTES
      const part = this.#readChunk(blob, position, start, start + end - at)
      if (part === undefined || part.length === 0) throw new RangeError(`blob ${blob} is incomplete`)
      parts.push(part)
      at += part.length
    }
    return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts)
  }

  /** The requested part of a chunk, so that the garbage collector need not free the rest. */
  #readChunk(blob: number, position: number, start: number, end: number): Uint8Array | undefined {
    if (start === 0 && end >= CHUNK_BYTES) return this.#chunk.get(blob, position)?.data
    return this.#chunkPart.get(start + 1, end - start, blob, position)?.data
  }

  /** Whether no revision uses this blob, which may be incomplete. */
  isUpload(blob: number): boolean {
    return this.#isUpload.get(blob) !== undefined
  }

  /** The blobs that no revision uses; some may be incomplete. */
  uploads(): number[] {
    return this.#uploads.all().map(({ num }) => num)
  }

  /**
   * Removes the hash of a blob that no revision has named, so that it is no longer found.
   * @returns whether it was such a blob
   */
  abandon(blob: number): boolean {
    return this.#abandon.run(blob).changes > 0
  }

  /**
   * Removes some chunks of a blob without a hash, and the blob with the last chunk.
   * @returns whether the blob was removed
   */
  removeSome(blob: number, chunks: number): boolean {
    const { changes } = this.#dropChunks.run(blob, chunks)
    if (changes === chunks) return false
    this.#drop.run(blob)
    return true
  }
}

interface AttachmentRow {
  readonly name: string
  readonly type: string
  readonly revpos: number
  readonly encoding: AttachmentEncoding
  readonly length: number
  readonly blob: number
  readonly md5: Uint8Array
  readonly storedLength: number
}

const OF_REVISION =
  'SELECT a.name, a.type, a.revpos, a.encoding, ifnull(a.length, b.length) AS length, a.blob, b.md5, ' +
  'b.length AS storedLength FROM attachment AS a JOIN blob AS b ON b.num = a.blob ' +
  'WHERE a.revision = ? ORDER BY a.place, a.name'

export class Attachments {
  readonly #blobs: Blobs
  readonly #of: Statement<AttachmentRow>
  readonly #insert: Statement
  readonly #drop: Statement
  readonly #count: Statement<{ rows: number }>

  constructor(connection: Connection, blobs: Blobs) {
    this.#blobs = blobs
    this.#of = connection.prepare(OF_REVISION)
    this.#insert = connection.prepare(
      'INSERT INTO attachment (revision, name, blob, type, revpos, encoding, length, place) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    )
    this.#drop = connection.prepare('DELETE FROM attachment WHERE revision = ?')
    this.#count = connection.prepare('SELECT count(*) AS rows FROM (SELECT 1 FROM attachment LIMIT ?)')
  }

  /** How many attachments there are, up to `most`. */
  count(most: number): number {
    return this.#count.get(most)?.rows ?? 0
  }

  of(revision: number): StoredAttachment[] {
    return this.#of.all(revision).map(({ md5, ...row }) => ({ ...row, digest: digestOf(md5) }))
  }

  /** The size of the contents that a revision uses, except those in a set, in bytes. */
  bytesWithout(revision: number, without: ReadonlySet<number>): number {
    const others = this.#of.all(revision).filter(({ blob }) => !without.has(blob))
    return others.reduce((sum, { storedLength }) => sum + storedLength, 0)
  }

  drop(revision: number): void {
    this.#drop.run(revision)
  }

  /** @throws no_attachment for a blob that is not stored */
  write(revision: number, attachments: readonly AttachmentWrite[]): void {
    for (const [place, attachment] of attachments.entries()) {
      const { name, type, revpos, encoding, length } = attachment
      const blob = this.#blobOf(attachment)
      this.#insert.run(revision, name, blob, type, revpos, encoding, encoding === null ? null : length, place)
    }
  }

  #blobOf({ name, content, digest }: AttachmentWrite): number {
    if ('bytes' in content) {
      const md5 = Buffer.from(digest.slice('md5-'.length), 'base64')
      return this.#blobs.store(content.sha256, md5, content.bytes)
    }
    if (this.#blobs.markStored(content.blob)) return content.blob
    throw new CouchError('no_attachment', `The content of the attachment ${name} is not stored any more.`)
  }
}
