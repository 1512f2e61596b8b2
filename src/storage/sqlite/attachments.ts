/** Attachments of revisions as rows; their contents are in blobs.ts. */
import { CouchError } from '../../core/errors.ts'
import type { AttachmentEncoding, AttachmentWrite, StoredAttachment } from '../engine.ts'
import { type Blobs, digestOf } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { Statement } from './statement.ts'

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

  /** How many there are, up to `most`. */
  count(most: number): number {
    return this.#count.get(most)?.rows ?? 0
  }

  of(revision: number): StoredAttachment[] {
    return this.#of.all(revision).map(({ md5, ...row }) => ({ ...row, digest: digestOf(md5) }))
  }

  /** Bytes of the contents that a revision names, but for some. */
  bytesWithout(revision: number, without: ReadonlySet<number>): number {
    const others = this.#of.all(revision).filter(({ blob }) => !without.has(blob))
    return others.reduce((sum, { storedLength }) => sum + storedLength, 0)
  }

  drop(revision: number): void {
    this.#drop.run(revision)
  }

  /** @throws no_attachment for a content that is named by its blob and is not stored (any more) */
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
    if (this.#blobs.name(content.blob)) return content.blob
    throw new CouchError('no_attachment', `The content of the attachment ${name} is not stored any more.`)
  }
}
