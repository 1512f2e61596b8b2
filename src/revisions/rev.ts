import { hash } from 'node:crypto'
import { compareUtf8 } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'

/** The name of a revision: its generation, and its id after the dash. */
export interface Rev {
  pos: number
  id: string
}

/** The content whose digest is the id of a new revision. `digest` is the attachment's stored digest, as text. */
export interface RevContent {
  parent: string | null
  deleted: boolean
  body: string
  attachments: readonly { name: string; type: string; digest: string }[]
}

const ERLANG_INTEGER = /^\+?[0-9]+$/
/** Sticky and without an end, it takes half the time of {@link HEX_ID}. */
const LOWER_HEX = /[0-9a-f]*/y
const HEX_ID = /^[0-9a-f]{32}$/i
const LONE_SURROGATE = /\p{Surrogate}/u

// A limit of settee; CouchDB has none. An id is an index key, a header and a part of every ancestry below it.
const MAX_ID_LENGTH = 512

/**
 * A revision id as it is stored and compared: 32 hex digits in lower case, any other text as it stands, the
 * empty one too, since CouchDB takes `1-` for a revision.
 *
 * @returns undefined for what is no id: longer than 512, a lone surrogate, or 32 characters not all hex
 * (protocol.md 2.3)
 */
export function normalizeRevId(id: string): string | undefined {
  if (id.length === 32) {
    LOWER_HEX.lastIndex = 0
    if (LOWER_HEX.test(id) && LOWER_HEX.lastIndex === 32) return id
    return HEX_ID.test(id) ? id.toLowerCase() : undefined
  }
  if (id.length > MAX_ID_LENGTH || LONE_SURROGATE.test(id)) return undefined
  return id
}

/**
 * Reads `3-abc`: split at the first dash, the generation as Erlang reads integers (protocol.md 2.3).
 *
 * @throws CouchError invalid_rev for anything else, and for a generation that is no safe integer
 */
export function parseRev(text: unknown): Rev {
  if (typeof text !== 'string') throw new CouchError('invalid_rev')
  const dash = text.indexOf('-')
  const digits = text.slice(0, Math.max(dash, 0))
  const pos = ERLANG_INTEGER.test(digits) ? Number(digits) : Number.NaN
  const id = normalizeRevId(text.slice(dash + 1))
  if (!Number.isSafeInteger(pos) || id === undefined) throw new CouchError('invalid_rev')
  return { pos, id }
}

/** The text of a revision, `pos-id`. */
export function formatRev(pos: number, id: string): string {
  return `${pos}-${id}`
}

/** Orders revisions by generation as a number, then by id, smaller first (protocol.md 2.3). */
export function compareRevs(a: Rev, b: Rev): number {
  return a.pos - b.pos || compareUtf8(a.id, b.id)
}

/**
 * The id of a new revision: the same edit of the same parent has the same id on every server (protocol.md 6.5).
 *
 * @param content.parent the parent as `pos-id`, or null for a first revision
 * @param content.body the stored text, without `_` members
 * @returns 32 lower-case hex digits
 */
export function newRevId(content: RevContent): string {
  // A parent is never empty text, so null needs no mark of its own.
  let text = field(content.parent ?? '') + field(content.deleted ? '1' : '0') + field(content.body)
  const byName = [...content.attachments].sort((a, b) => compareUtf8(a.name, b.name))
  for (const { name, type, digest } of byName) text += field(name) + field(type) + field(digest)
  return hash('md5', text)
}

/** A field follows its length, so that different contents never make the same bytes. */
function field(text: string): string {
  return `${Buffer.byteLength(text)}:${text}`
}

/**
 * The bytes in which an engine stores the ids of a branch. The first byte names the form:
 *
 *   1  every id is 32 lower-case hex digits: 16 bytes each, nothing between them
 *   2  mixed: before each id two bytes, big-endian: 65535 for 16 bytes of hex, else the length of its UTF-8 text
 *
 * Almost every ancestry has form 1, which takes a single hex conversion.
 */
const HEX_FORM = 1
const MIXED_FORM = 2
const HEX_BYTES = 16
const HEX_MARK = 0xffff
const HEX_DIGITS = 32
const LOWER_HEX_ID = /^[0-9a-f]{32}$/

/**
 * @param ids newest first, as `Branch.ids`
 * @throws RangeError for an id of 65,535 bytes or more, which `normalizeRevId` never lets in
 */
export function encodeAncestry(ids: readonly string[]): Uint8Array {
  const hex = ids.every((id) => id.length === HEX_DIGITS) ? encodeHex(ids.join('')) : undefined
  return hex ?? Buffer.concat([Uint8Array.of(MIXED_FORM), ...ids.map(encodeMixed)])
}

/**
 * The ids that `encodeAncestry` was given.
 *
 * @throws RangeError for bytes it did not make
 */
export function decodeAncestry(bytes: Uint8Array): string[] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer[0] === HEX_FORM && buffer.length % HEX_BYTES === 1) return decodeHex(buffer)
  if (buffer[0] === MIXED_FORM) return decodeMixed(buffer)
  throw damaged()
}

/**
 * How many ids `encodeAncestry` was given; decodes none of them.
 *
 * @throws RangeError for bytes it did not make
 */
export function ancestryLength(bytes: Uint8Array): number {
  if (bytes[0] === HEX_FORM) return (bytes.length - 1) / HEX_BYTES
  let count = 0
  for (let at = 1; at < bytes.length; at = mixedEnd(bytes, at)) count += 1
  return count
}

/**
 * One of the ids that `encodeAncestry` was given; decodes no other.
 *
 * @param index 0 for the newest
 * @returns undefined when there are not so many
 * @throws RangeError for bytes it did not make
 */
export function ancestryId(bytes: Uint8Array, index: number): string | undefined {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer[0] === HEX_FORM) {
    const at = 1 + index * HEX_BYTES
    return at < buffer.length ? buffer.toString('hex', at, at + HEX_BYTES) : undefined
  }
  let at = 1
  for (let left = index; left > 0 && at < buffer.length; left--) at = mixedEnd(buffer, at)
  return at < buffer.length ? mixedId(buffer, at, mixedEnd(buffer, at)) : undefined
}

function encodeHex(digits: string): Uint8Array | undefined {
  const buffer = Buffer.allocUnsafe(1 + digits.length / 2)
  buffer[0] = HEX_FORM
  buffer.write(digits, 1, 'hex')
  // Converting back finds upper case and what is no hex in a third of the time a regular expression takes.
  return buffer.toString('hex', 1) === digits ? buffer : undefined
}

function encodeMixed(id: string): Buffer {
  const isHex = LOWER_HEX_ID.test(id)
  const text = Buffer.from(id, isHex ? 'hex' : 'utf8')
  if (text.length >= HEX_MARK) throw new RangeError('A revision id has less than 65,535 bytes.')
  const head = Buffer.alloc(2)
  head.writeUInt16BE(isHex ? HEX_MARK : text.length)
  return Buffer.concat([head, text])
}

function decodeHex(buffer: Buffer): string[] {
  const digits = buffer.toString('hex', 1)
  const ids: string[] = []
  for (let at = 0; at < digits.length; at += HEX_DIGITS) ids.push(digits.slice(at, at + HEX_DIGITS))
  return ids
}

function decodeMixed(buffer: Buffer): string[] {
  const ids: string[] = []
  for (let at = 1; at < buffer.length; ) {
    const end = mixedEnd(buffer, at)
    ids.push(mixedId(buffer, at, end))
    at = end
  }
  return ids
}

/** Where the id that begins here ends. */
function mixedEnd(bytes: Uint8Array, at: number): number {
  if (at + 2 > bytes.length) throw damaged()
  const mark = mixedMark(bytes, at)
  const end = at + 2 + (mark === HEX_MARK ? HEX_BYTES : mark)
  if (end > bytes.length) throw damaged()
  return end
}

function mixedId(buffer: Buffer, at: number, end: number): string {
  return buffer.toString(mixedMark(buffer, at) === HEX_MARK ? 'hex' : 'utf8', at + 2, end)
}

function mixedMark(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number)
}

function damaged(): RangeError {
  return new RangeError('Stored ancestry is damaged.')
}
