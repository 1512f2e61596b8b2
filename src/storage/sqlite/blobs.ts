/** The contents of attachments, in chunks; equal contents are stored once. */
import { discard } from '../../core/bytes.ts'
import { CouchError } from '../../core/errors.ts'
import { agrees, chunkChecksum, rowChecksum } from '../checksum.ts'
import { CHUNK_BYTES, digestOf } from '../content-upload.ts'
import type { DamageReports } from '../damage.ts'
import type { AttachmentEncoding, AttachmentWrite, StoredAttachment } from '../engine.ts'
import type { Connection } from './connection.ts'
import type { DamagedLeaves } from './damaged-leaves.ts'
import type { GarbageCounters } from './garbage.ts'
import type { Statement } from './statement.ts'

/** Says whether rows of an older settee may lack their checksums. */
type Checksums = Pick<GarbageCounters, 'lacksChecksums'>

/** A complete blob. */
interface BlobRow {
  readonly num: number
  readonly sha256: Uint8Array
  /** null if it is not noted yet. */
  readonly checksum: number | null
  readonly md5: Uint8Array
  /** The stored size, in bytes. */
  readonly length: number
  /** `uploads`: no revision has named it yet. */
  readonly state: 'staging' | 'stored'
}

const BLOB_COLUMNS = 'num, sha256, md5, length, state, checksum'

export type BlobFacts = Pick<BlobRow, 'num' | 'sha256' | 'md5' | 'length'>

export function blobChecksum({ num, sha256, md5, length }: BlobFacts): number {
  return rowChecksum(num, sha256, md5, length)
}

export class Blobs {
  readonly #whole: Statement<BlobRow>
  readonly #damage: DamageReports
  readonly #checksums: Checksums
  readonly #damagedLeaves: DamagedLeaves
  readonly #byHash: Statement<BlobRow>
  readonly #begin: Statement
  readonly #complete: Statement
  readonly #markStored: Statement
  readonly #putChunk: Statement
  readonly #chunk: Statement<readonly [data: Uint8Array, checksum: number | null]>
  readonly #uploads: Statement<{ num: number }>
  readonly #isUpload: Statement
  readonly #abandon: Statement
  readonly #dropChunks: Statement
  readonly #drop: Statement
  /** A number is not reused while the file is open, so that a reader that still has it never gets another content. */
  #lastNum: number

  constructor(
    connection: Connection,
    damage: DamageReports,
    garbage: Checksums,
    damagedLeaves: DamagedLeaves,
  ) {
    this.#damage = damage
    this.#damagedLeaves = damagedLeaves
    this.#checksums = garbage
    this.#whole = connection.prepare(`SELECT ${BLOB_COLUMNS} FROM blob WHERE num = ? AND sha256 IS NOT NULL`)
    this.#byHash = connection.prepare(`SELECT ${BLOB_COLUMNS} FROM blob WHERE sha256 = ?`)
    this.#begin = connection.prepare("INSERT INTO blob (num, length, state) VALUES (?, 0, 'staging')")
    this.#complete = connection.prepare(
      'UPDATE blob SET sha256 = ?, md5 = ?, length = ?, checksum = ? WHERE num = ?',
    )
    this.#markStored = connection.prepare("UPDATE blob SET state = 'stored' WHERE num = ?")
    this.#putChunk = connection.prepare(
      'INSERT OR REPLACE INTO chunk (blob, position, data, checksum) VALUES (?, ?, ?, ?)',
    )
    this.#chunk = connection.prepareTuples('SELECT data, checksum FROM chunk WHERE blob = ? AND position = ?')
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

  /** A complete blob; undefined if it does not exist. @throws damaged_document */
  find(blob: number): BlobRow | undefined {
    const row = this.#whole.get(blob)
    if (row === undefined || agrees(row.checksum, blobChecksum(row), this.#checksums.lacksChecksums))
      return row
    throw this.#damaged(blob)
  }

  #damaged(blob: number): CouchError {
    this.#damagedLeaves.noteContent(blob)
    return this.#damage.damagedContent()
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

  /** Stores a chunk, also in place of a damaged one. */
  putChunk(blob: number, position: number, data: Uint8Array): void {
    this.#putChunk.run(blob, position, data, chunkChecksum(blob, position, data))
  }

  /** A chunk as it was stored; null if it is missing or damaged. */
  chunk(blob: number, position: number): Uint8Array | null {
    const [data, checksum] = this.#chunk.get(blob, position) ?? []
    if (data === undefined) return null
    return agrees(checksum ?? null, chunkChecksum(blob, position, data), this.#checksums.lacksChecksums)
      ? data
      : null
  }

  /** Marks the blob as complete. */
  complete(blob: number, sha256: Uint8Array, md5: Uint8Array, length: number): void {
    this.#complete.run(sha256, md5, length, blobChecksum({ num: blob, sha256, md5, length }), blob)
  }

  /** Marks the blob as used by a revision. @returns false if there is no complete blob with this number */
  markStored(blob: number): boolean {
    const row = this.find(blob)
    if (row?.state === 'staging') this.#markStored.run(blob)
    return row !== undefined
  }

  /** The blob of a content that a revision names; stores new content, and mends a stored one that is damaged. */
  store(sha256: Uint8Array, md5: Uint8Array, bytes: Uint8Array): number {
    const known = this.byHash(sha256)
    const blob = known ?? this.create()
    for (let position = 0; position * CHUNK_BYTES < bytes.length; position++) {
      if (known !== undefined && this.chunk(known, position) !== null) continue
      this.putChunk(blob, position, bytes.subarray(position * CHUNK_BYTES, (position + 1) * CHUNK_BYTES))
    }
    this.complete(blob, sha256, md5, bytes.length)
    this.markStored(blob)
    return blob
  }

  /** Bytes of a blob from an offset, up to its end; null if the blob does not exist. @throws damaged_document */
  read(blob: number, offset: number, length: number): Uint8Array | null {
    const row = this.find(blob)
    if (row === undefined) return null
    const end = Math.min(offset + length, row.length)
    const parts: Uint8Array[] = []
    for (let at = offset; at < end; ) {
      const position = Math.floor(at / CHUNK_BYTES)
      const start = at - position * CHUNK_BYTES
      const chunk = this.chunk(blob, position)
      const length = Math.min((chunk?.length ?? 0) - start, end - at)
      if (chunk === null || length <= 0) throw this.#damaged(blob)
      if (length === chunk.length) parts.push(chunk)
      else {
        // All of the chunk was read to be compared. Stalled readers take small parts of many chunks.
        parts.push(Uint8Array.from(chunk.subarray(start, start + length)))
        discard(chunk)
      }
      at += length
    }
    return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts)
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
  /** null if the content is not coded. */
  readonly length: number | null
  readonly blob: number
  readonly md5: Uint8Array
  readonly storedLength: number
  readonly num: number
  readonly sha256: Uint8Array
  readonly place: number
  /** null if it is not noted yet, like the next. */
  readonly checksum: number | null
  readonly blobChecksum: number | null
}

const OF_REVISION =
  'SELECT a.name, a.type, a.revpos, a.encoding, a.length, a.blob, a.place, a.checksum, b.num, b.sha256, b.md5, ' +
  'b.length AS storedLength, b.checksum AS blobChecksum FROM attachment AS a JOIN blob AS b ON b.num = a.blob ' +
  'WHERE a.revision = ? ORDER BY a.place, a.name'

export type AttachmentFacts = Pick<
  AttachmentRow,
  'name' | 'blob' | 'type' | 'revpos' | 'encoding' | 'length' | 'place'
>

export function attachmentChecksum(revision: number, row: AttachmentFacts): number {
  const { name, blob, type, revpos, encoding, length, place } = row
  return rowChecksum(revision, name, blob, type, revpos, encoding, length, place)
}

export class Attachments {
  readonly #blobs: Blobs
  readonly #damage: DamageReports
  readonly #checksums: Checksums
  readonly #damagedLeaves: DamagedLeaves
  readonly #of: Statement<AttachmentRow>
  readonly #insert: Statement
  readonly #drop: Statement
  readonly #count: Statement<{ rows: number }>

  constructor(
    connection: Connection,
    blobs: Blobs,
    damage: DamageReports,
    garbage: Checksums,
    damagedLeaves: DamagedLeaves,
  ) {
    this.#damagedLeaves = damagedLeaves
    this.#blobs = blobs
    this.#damage = damage
    this.#checksums = garbage
    this.#of = connection.prepare(OF_REVISION)
    this.#insert = connection.prepare(
      'INSERT INTO attachment (revision, name, blob, type, revpos, encoding, length, place, checksum) ' +
        'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
    )
    this.#drop = connection.prepare('DELETE FROM attachment WHERE revision = ?')
    this.#count = connection.prepare('SELECT count(*) AS rows FROM (SELECT 1 FROM attachment LIMIT ?)')
  }

  /** How many attachments there are, up to `most`. */
  count(most: number): number {
    return this.#count.get(most)?.rows ?? 0
  }

  /** @throws damaged_document */
  of(revision: number): StoredAttachment[] {
    return this.#of.all(revision).map((row) => {
      const { checksum, blobChecksum: blobSum, num, sha256 } = row
      const isSound =
        agrees(checksum, attachmentChecksum(revision, row), this.#checksums.lacksChecksums) &&
        agrees(
          blobSum,
          blobChecksum({ num, sha256, md5: row.md5, length: row.storedLength }),
          this.#checksums.lacksChecksums,
        )
      if (!isSound) {
        this.#damagedLeaves.noteRevision(revision)
        throw this.#damage.damagedDocument()
      }
      const { name, type, revpos, encoding, length, blob, md5, storedLength } = row
      const digest = digestOf(md5)
      return { name, type, revpos, encoding, length: length ?? storedLength, blob, digest, storedLength }
    })
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
      const row = { name, blob, type, revpos, encoding, length: encoding === null ? null : length, place }
      this.#insert.run(revision, ...Object.values(row), attachmentChecksum(revision, row))
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
