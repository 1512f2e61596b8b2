/**
 * Checksums of what an engine stores. They are stored beside it, and compared each time that it is read, so that bytes that
 * a disk has changed are never served as a document. A disk changes bytes by accident, so 32 bits are enough. Each is a
 * signed number, which V8 keeps without an allocation.
 */
import { crc32 } from 'node:zlib'
import type { LocalDoc } from './engine.ts'

/** The facts of a document's row, except its id and its winner. */
export interface DocFacts {
  /** The number of the row. */
  readonly num: number
  readonly seq: number
  readonly deleted: number
  readonly leaves: number
  readonly winner: number | null
}

/** Odd, so that each change of a number changes its product modulo 2^32. */
const FACTORS = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f] as const
const TWO_32 = 2 ** 32
const FNV_PRIME = 0x01000193

/** The checksum of a document's row. */
export function docChecksum(
  id: string,
  rev: string,
  { num, seq, deleted, leaves, winner }: DocFacts,
): number {
  const facts =
    seq ^
    Math.imul(seq / TWO_32, FACTORS[0]) ^
    Math.imul(num, FACTORS[1]) ^
    Math.imul(leaves * 2 + deleted, FACTORS[2]) ^
    Math.imul(winner ?? -1, FACTORS[3])
  return hashShort(rev, hashShort(id, facts))
}

/** A revision's row, except its ancestry. */
export interface ContentFacts {
  /** The number of the row, or {@link seedOf} its document where rows have no numbers. */
  readonly num: number
  readonly rev: string
  readonly deleted: number
  /** How many attachments the revision has. */
  readonly attachments: number
  readonly body: string
}

/** The checksum of a revision's content. */
export function contentChecksum({ num, rev, deleted, attachments, body }: ContentFacts): number {
  return sumOfText(body, hashShort(rev, Math.imul(num, FACTORS[0]) ^ (attachments * 2 + deleted)))
}

/** A number for the id of a document, in the place of a row's number. */
export function seedOf(id: string): number {
  return hashShort(id, 0)
}

/**
 * The checksum of a piece of an attachment's content.
 * @param blob the number of the content @param position the number of the piece in it
 */
export function chunkChecksum(blob: number, position: number, data: Uint8Array): number {
  return sumOfBytes(data, Math.imul(blob, FACTORS[0]) ^ position)
}

/** The checksum of a named value, for many short ones: a call of `crc32` costs more. */
export function valueChecksum(key: string, value: string | number): number {
  const seed = hashShort(key, 0)
  if (typeof value !== 'number') return sumOfText(value, seed)
  return hashShort(String(value), seed)
}

/**
 * The checksum of a row's columns in their order.
 * @param columns the last one is not bytes
 * @returns NaN if it is: it was a text, and its bytes have the same CRC
 */
export function rowChecksum(...columns: readonly (string | number | Uint8Array | null)[]): number {
  const isBytes = (column: unknown): column is Uint8Array => column instanceof Uint8Array
  if (isBytes(columns.at(-1))) return Number.NaN
  const text = columns.map((column) => (isBytes(column) ? '' : column)).join('\0')
  return columns.reduce<number>(
    (sum, column) => (isBytes(column) ? sumOfBytes(column, sum) : sum),
    sumOfText(text, 0),
  )
}

/** The checksum of a `_local` document. */
export function localChecksum({ id, rev, body }: LocalDoc): number {
  return rowChecksum(id, rev, body)
}

/** The checksum of a row of an index, or of another place with one or two texts. */
export function rowKeyChecksum(place: Uint8Array, keyLength: number, first: string, second = ''): number {
  return hashText(second, hashText(first, hashBytes(place, keyLength)))
}

/** A purge that is remembered. */
export interface PurgeFacts {
  readonly seq: number
  readonly id: string
  /** JSON. */
  readonly revs: string
}

/** The checksum of a remembered purge. */
export function purgeChecksum({ seq, id, revs }: PurgeFacts): number {
  return typeof id === 'string' && typeof revs === 'string' ? rowChecksum(seq, id, revs) : Number.NaN
}

/**
 * Whether a row says what was written.
 * @param stored its checksum; null if it has none
 * @param checksum what its columns have now
 * @param mayLack whether an older settee may have stored it, without a checksum
 */
export function agrees(stored: number | null, checksum: number, mayLack: boolean): boolean {
  return stored === null ? mayLack && !Number.isNaN(checksum) : stored === checksum
}

/**
 * The CRC of a text. One changed bit of a row can make bytes of a text, and a text of bytes, with the same CRC.
 * @returns NaN for a value of another type, which equals no checksum
 */
function sumOfText(value: unknown, seed: number): number {
  return typeof value === 'string' ? crc32(value, seed >>> 0) | 0 : Number.NaN
}

/** As {@link sumOfText}, of bytes. */
function sumOfBytes(value: unknown, seed: number): number {
  return value instanceof Uint8Array ? crc32(value, seed >>> 0) | 0 : Number.NaN
}

/** FNV-1a of UTF-16 units: of fifty characters it takes a fifth of the time of a call of `crc32`. */
function hashShort(text: unknown, seed: number): number {
  if (typeof text !== 'string') return Number.NaN
  let hash = seed
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), FNV_PRIME)
  return Math.imul(hash ^ text.length, FNV_PRIME)
}

/** Up to this many characters or bytes, {@link hashShort} is faster than `crc32`. */
const SHORT = 80

/** Of a text that is mostly short. */
function hashText(text: unknown, seed: number): number {
  return typeof text === 'string' && text.length > SHORT ? sumOfText(text, seed) : hashShort(text, seed)
}

/** As {@link hashText}, of bytes. */
function hashBytes(bytes: unknown, seed: number): number {
  if (!(bytes instanceof Uint8Array) || bytes.length > SHORT) return sumOfBytes(bytes, seed)
  let hash = seed
  for (let at = 0; at < bytes.length; at++) hash = Math.imul(hash ^ (bytes[at] as number), FNV_PRIME)
  return Math.imul(hash ^ bytes.length, FNV_PRIME)
}

/**
 * The checksum of an ancestry from `encodeAncestry`.
 * @param rev of the leaf, which the checksum covers, as it does whether it is a tombstone
 */
export function ancestryChecksum(ancestry: Uint8Array, rev: string, deleted: boolean): number {
  return sumOfBytes(ancestry, hashShort(rev, Number(deleted)))
}

/** Set in the first byte of an ancestry with a checksum; the forms of `encodeAncestry` are small numbers. */
const HAS_CHECKSUM = 0x80
const CHECKSUM_BYTES = 4

/**
 * @param ancestry from `encodeAncestry`; one that has a checksum already stays as it is
 * @param rev of the leaf
 * @returns a copy of it that ends with its checksum
 */
export function withChecksum(ancestry: Uint8Array, rev: string, deleted: boolean): Uint8Array {
  if ((ancestry[0] as number) >= HAS_CHECKSUM) return ancestry
  const stored = Buffer.allocUnsafe(ancestry.length + CHECKSUM_BYTES)
  stored.set(ancestry)
  stored[0] = (ancestry[0] as number) | HAS_CHECKSUM
  stored.writeInt32LE(ancestryChecksum(ancestry, rev, deleted), ancestry.length)
  return stored
}

/**
 * @param stored from {@link withChecksum}; its first byte changes
 * @param rev as in {@link withChecksum}
 * @param mayLack whether it may be one that an older settee stored
 * @returns the ancestry; null if it is not what was stored
 */
export function checkedAncestry(
  stored: Uint8Array,
  rev: string,
  deleted: boolean,
  mayLack: boolean,
): Uint8Array | null {
  if (!(stored instanceof Uint8Array)) return null
  const form = stored[0] ?? 0
  if (form < HAS_CHECKSUM) return mayLack ? stored : null
  const end = stored.length - CHECKSUM_BYTES
  if (end < 1) return null
  const bytes = Buffer.from(stored.buffer, stored.byteOffset, stored.length)
  const ancestry = bytes.subarray(0, end)
  ancestry[0] = form & ~HAS_CHECKSUM
  return ancestryChecksum(ancestry, rev, deleted) === bytes.readInt32LE(end) ? ancestry : null
}
