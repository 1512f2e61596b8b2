/**
 * Checksums of documents in PostgreSQL. They are computed where a row is written and read, by nodes, since PostgreSQL
 * has no function for them. Rows have no numbers here: their ids and revisions identify them.
 *
 * Some columns get their values in the database: sequence numbers, the number of leaves, the numbers of blobs. A function that
 * stores a row adds them to the checksum that it is given, and whoever reads the row adds them again.
 */
import {
  ancestryChecksum,
  chunkChecksum,
  contentChecksum,
  docChecksum,
  type PurgeFacts,
  rowChecksum,
  seedOf,
} from '../checksum.ts'
import type { StoredAttachment } from '../engine.ts'
import { storedText, textOf } from './stored-text.ts'

/** The largest prime that a smallint has room for: each changed bit of a sum changes its remainder. */
const PRIME = 65_521
const SMALLEST = -32_768

/** Of a row of `doc`, without its sequence number and its leaves, which the database adds: a number of 32 bits, not negative. */
export function docSum(id: string, rev: string, deleted: boolean): number {
  return docChecksum(id, rev, { num: 0, seq: 0, deleted: Number(deleted), leaves: 0, winner: null }) >>> 0
}

/** The checksum of a row of `doc` as it is stored. @param sum of {@link docSum}, its sequence number and its leaves */
export function docRowChecksum(sum: number): number {
  return (sum % PRIME) + SMALLEST
}

/** As {@link docRowChecksum}, as an expression of SQL. */
export function docChecksumOf(sum: string): string {
  return `((${sum}) % ${PRIME} + (${SMALLEST}))::smallint`
}

/** A sum modulo 2^32, as an expression of SQL: like `| 0` in JavaScript. */
export function wrapped(sum: string): string {
  return `(((${sum}) + 2147483648 & 4294967295) - 2147483648)::integer`
}

/** Of a row of `blob`, without its number, which is added. */
export function blobSum({ sha256, digest, length }: BlobFacts): number {
  return rowChecksum(sha256, digest, length)
}

/** Of a row of `chunk`, without the number of its blob, which is added. */
export function chunkSum(position: number, data: Uint8Array): number {
  return chunkChecksum(0, position, data)
}

/** The checksum of a row of `blob` or `chunk`. @param sum of {@link blobSum} or {@link chunkSum} */
export function ofBlob(sum: number, blob: number): number {
  return (sum + blob) | 0
}

/** Of a remembered purge, without its number, which is added. @param revs JSON */
export function purgeSum(id: string, revs: string): number {
  return rowChecksum(id, revs)
}

/** The checksum of a row of `purge`. */
export function purgeRowSum({ seq, id, revs }: PurgeFacts): number {
  return (purgeSum(id, revs) + seq) | 0
}

export interface BlobFacts {
  readonly sha256: Uint8Array
  readonly digest: string
  /** In bytes. */
  readonly length: number
}

/** Of a revision's content, in `doc` or in `revision`. */
export function contentSum(
  id: string,
  rev: string,
  deleted: boolean,
  content: { readonly body: string; readonly attachments: number },
): number {
  return contentChecksum({ num: seedOf(id), rev, deleted: Number(deleted), ...content })
}

/** Of an attachment in a list of `doc` or `revision`, without the number of its blob, which is added. */
export function attachmentSum(
  id: string,
  rev: string,
  { name, type, revpos, digest, length, encoding, storedLength }: Omit<StoredAttachment, 'blob'>,
): number {
  return rowChecksum(id, rev, name, type, revpos, digest, length, encoding, storedLength)
}

/** A row of `doc` or `revision`. */
export interface RevisionFacts {
  readonly id: string
  readonly rev: string
  readonly deleted: boolean
  /** As they are stored, like the ancestry and the body. */
  readonly attachments: string | null
  readonly ancestry: Uint8Array | null
  readonly body: string
}

/** The checksums that a row of `doc` or `revision` should have. */
export interface RevisionSums {
  /** Only of `doc`. */
  readonly row: number
  readonly content: number
  readonly ancestry: number | null
  readonly listed: readonly ListedAttachment[]
}

/**
 * @param added the sequence number and the leaves of a row of `doc`
 * @returns null if the list of attachments cannot be read
 */
export function sumsOf(facts: RevisionFacts, added: number): RevisionSums | null {
  const { id, rev, deleted, attachments, ancestry, body } = facts
  let listed: readonly ListedAttachment[]
  try {
    listed = listedAttachments(attachments ?? '')
  } catch {
    return null
  }
  return {
    row: docRowChecksum(docSum(id, rev, deleted) + added),
    content: contentSum(id, rev, deleted, { body: textOf(body), attachments: listed.length }),
    ancestry: ancestry === null ? null : ancestryChecksum(ancestry, rev, deleted),
    listed,
  }
}

/** An attachment in a stored list. */
export interface ListedAttachment extends StoredAttachment {
  /** Absent if a node of before has stored it. */
  readonly checksum?: number
}

/** @returns the attachments of a stored list, which is empty for none @throws SyntaxError for a damaged list */
export function listedAttachments(stored: string): readonly ListedAttachment[] {
  return stored === '' ? [] : (JSON.parse(stored) as ListedAttachment[])
}

/**
 * A list of attachments as it is stored. named_blobs (write-functions.ts) adds the blob of a new content to the checksum, and finds the
 * last three members at the end, as does attachmentNumber (stored-text.ts).
 * @param attachments with a negative place in the list of new contents for a blob that is not stored yet
 * @returns null if there are none
 */
export function storedAttachments(
  id: string,
  rev: string,
  attachments: readonly StoredAttachment[],
): string | null {
  if (attachments.length === 0) return null
  const listed = attachments.map((attachment) => {
    const { name, type, revpos, digest, length, encoding, storedLength, blob } = attachment
    const checksum = attachmentSum(id, rev, attachment) + Math.max(blob, 0)
    return { name, type, revpos, digest, length, encoding, checksum, storedLength, blob }
  })
  return storedText(JSON.stringify(listed))
}
