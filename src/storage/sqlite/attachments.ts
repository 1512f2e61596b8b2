/** Attachments of revisions, and the blobs that hold their bytes in chunks; equal bytes are stored once. */
import type { AttachmentWrite, StoredAttachment } from '../engine.ts'
import type { Connection, Statement } from './connection.ts'

/** Bytes of a chunk: small enough to be read in a turn, large enough to cost few rows. */
export const CHUNK_BYTES = 256 * 1024

interface AttachmentRow {
  readonly name: string
  readonly type: string
  readonly revpos: number
  readonly blob: number
  readonly md5: Uint8Array
  readonly length: number
}

export class Attachments {
  readonly #of: Statement<AttachmentRow>
  readonly #insert: Statement
  readonly #drop: Statement
  readonly #blobByHash: Statement<{ num: number }>
  readonly #insertBlob: Statement
  readonly #insertChunk: Statement
  readonly #blob: Statement<{ length: number }>
  readonly #chunk: Statement<{ data: Uint8Array }>

  constructor(connection: Connection) {
    this.#of = connection.prepare(
      'SELECT a.name, a.type, a.revpos, a.blob, b.md5, b.length FROM attachment AS a ' +
        'JOIN blob AS b ON b.num = a.blob WHERE a.revision = ? ORDER BY a.name',
    )
    this.#insert = connection.prepare(
      'INSERT INTO attachment (revision, name, blob, type, revpos) VALUES (?, ?, ?, ?, ?)',
    )
    this.#drop = connection.prepare('DELETE FROM attachment WHERE revision = ?')
    this.#blobByHash = connection.prepare('SELECT num FROM blob WHERE sha256 = ?')
    this.#insertBlob = connection.prepare(
      "INSERT INTO blob (sha256, md5, length, state) VALUES (?, ?, ?, 'stored')",
    )
    this.#insertChunk = connection.prepare('INSERT INTO chunk (blob, position, data) VALUES (?, ?, ?)')
    this.#blob = connection.prepare('SELECT length FROM blob WHERE num = ?')
    this.#chunk = connection.prepare('SELECT data FROM chunk WHERE blob = ? AND position = ?')
  }

  of(revision: number): StoredAttachment[] {
    return this.#of.all(revision).map(({ md5, ...row }) => ({
      ...row,
      digest: `md5-${Buffer.from(md5).toString('base64')}`,
    }))
  }

  drop(revision: number): void {
    this.#drop.run(revision)
  }

  write(revision: number, attachments: readonly AttachmentWrite[]): void {
    for (const attachment of attachments) {
      this.#insert.run(
        revision,
        attachment.name,
        this.#blobOf(attachment),
        attachment.type,
        attachment.revpos,
      )
    }
  }

  #blobOf({ content, digest }: AttachmentWrite): number {
    if ('blob' in content) return content.blob
    const known = this.#blobByHash.get(content.sha256)
    if (known !== undefined) return known.num
    const md5 = Buffer.from(digest.slice('md5-'.length), 'base64')
    const { bytes } = content
    const blob = Number(this.#insertBlob.run(content.sha256, md5, bytes.length).lastInsertRowid)
    for (let position = 0; position * CHUNK_BYTES < bytes.length; position++) {
      const chunk = bytes.subarray(position * CHUNK_BYTES, (position + 1) * CHUNK_BYTES)
      this.#insertChunk.run(blob, position, chunk)
    }
    return blob
  }

  /** Bytes of a blob from an offset on, not beyond its end; null when there is no such blob. */
  read(blob: number, offset: number, length: number): Uint8Array | null {
    const row = this.#blob.get(blob)
    if (row === undefined) return null
    const end = Math.min(offset + length, row.length)
    const parts: Uint8Array[] = []
    for (let at = offset; at < end; ) {
      const position = Math.floor(at / CHUNK_BYTES)
      const start = at - position * CHUNK_BYTES
      const chunk = this.#chunk.get(blob, position)?.data
      if (chunk === undefined || chunk.length <= start) throw new RangeError(`blob ${blob} is incomplete`)
      const part = chunk.subarray(start, Math.min(chunk.length, start + end - at))
      parts.push(part)
      at += part.length
    }
    return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts)
  }
}
