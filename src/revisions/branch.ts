/**
 * A document's history is a set of branches (architecture.md, "Branches"). Each is a leaf with its ancestry, exactly
 * CouchDB's `_revisions`. There is no tree; the tree is the union of the branches.
 *
 * An engine may load `ids` from disk when they are first read. Code that has a stored branch therefore decides by `pos`
 * and `leaf` where they suffice, and reads `ids` last.
 */
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { compareRevIds, formatRev, normalizeRevId, type Rev } from './rev.ts'

export interface Branch {
  /** The leaf's generation. */
  readonly pos: number
  /** The leaf's id; the same as `ids[0]`, but never costs a load. */
  readonly leaf: string
  /** Newest first, never empty: `ids[k]` has the generation `pos - k`. */
  readonly ids: readonly string[]
  /** Whether the leaf is a tombstone. */
  readonly deleted: boolean
  /** Access to `ids` without decoding all of them. Absent: read `ids`. */
  readonly ancestry?: Ancestry
}

/** An ancestry in the form in which it is stored. */
export interface Ancestry {
  /** How many ids there are. */
  readonly length: number
  /** Their approximate stored size, in bytes; never costs a load. */
  readonly bytes: number
  /** The same as `ids[index]`. */
  id(index: number): string | undefined
}

/** Makes a branch of ids in memory, newest first. @throws RangeError if there are no ids */
export function makeBranch(pos: number, ids: readonly string[], deleted: boolean): Branch {
  const leaf = ids[0]
  if (leaf === undefined) throw new RangeError('A branch has at least one revision.')
  return { pos, leaf, ids, deleted }
}

/** The leaf as `pos-id`. */
export function leafRev(branch: Pick<Branch, 'pos' | 'leaf'>): string {
  return formatRev(branch.pos, branch.leaf)
}

/** Whether the branch ends in this revision; loads nothing. */
export function endsIn(branch: Pick<Branch, 'pos' | 'leaf'>, rev: Rev): boolean {
  return branch.pos === rev.pos && branch.leaf === rev.id
}

/** Whether the revision is the branch's leaf or one of its ancestors (architecture.md, "Branches"). */
export function knows(branch: Branch, rev: Rev): boolean {
  return idAt(branch, rev.pos) === rev.id
}

/** The id of a generation; undefined if the branch has none. Loads nothing for the leaf's generation and later ones. */
export function idAt(branch: Branch, pos: number): string | undefined {
  if (branch.pos <= pos) return branch.pos === pos ? branch.leaf : undefined
  const index = branch.pos - pos
  return branch.ancestry === undefined ? branch.ids[index] : branch.ancestry.id(index)
}

/** The generation of the oldest id. */
export function oldestOf(branch: Branch): number {
  return branch.pos - (branch.ancestry ?? branch.ids).length + 1
}

/** The approximate stored size of the ancestry, in bytes. */
export function bytesOf(branch: Branch): number {
  if (branch.ancestry !== undefined) return branch.ancestry.bytes
  return idBytes(branch.ids)
}

/** The approximate stored size of the ids of revisions, in bytes. */
export function idBytes(ids: readonly string[]): number {
  let bytes = 0
  for (const id of ids) bytes += id.length === HEX_DIGITS ? HEX_BYTES : Buffer.byteLength(id)
  return bytes
}

/**
 * Checks a document's `_revisions` member, `{start, ids}` with ids newest first.
 *
 * @returns the leaf's generation and the ids, 32-digit hex ones in lower case
 * @throws CouchError doc_validation with the reasons of protocol.md 1.2; the bounds (at least one id, no
 * generation below that of the first revision) and their reason are ours
 */
export function parseRevisions(value: unknown): { pos: number; ids: string[] } {
  if (!isJsonObject(value)) {
    throw new CouchError('doc_validation', 'Bad special document member: _revisions')
  }
  const { start, ids } = value
  if (typeof start !== 'number' || !Number.isSafeInteger(start)) {
    throw new CouchError('doc_validation', "_revisions.start isn't an integer.")
  }
  if (!Array.isArray(ids)) throw new CouchError('doc_validation', "_revisions.ids isn't a array.")
  // `_local` documents have generation 0 and one id.
  if (start < 0 || ids.length === 0 || ids.length > Math.max(start, 1)) {
    throw new CouchError('doc_validation', '_revisions.ids must have from 1 to _revisions.start members.')
  }
  return { pos: start, ids: ids.map(parseRevId) }
}

function parseRevId(value: unknown): string {
  if (typeof value !== 'string') throw new CouchError('doc_validation', "RevId isn't a string")
  const id = normalizeRevId(value)
  if (id === undefined) throw new CouchError('doc_validation', "RevId isn't a valid hexadecimal")
  return id
}

/** The properties that order leaves; a Branch has them, and so has a row without an ancestry. */
export interface Leaf {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
}

/** Orders leaves, the winner first: live before deleted, then generation, then id (protocol.md 6.1). */
export function compareLeaves(a: Leaf, b: Leaf): number {
  return Number(a.deleted) - Number(b.deleted) || b.pos - a.pos || compareRevIds(b.leaf, a.leaf)
}

/** The same leaves in a new array, winner first: the order of `changes` with style=all_docs (protocol.md 19.1). */
export function sortLeaves<T extends Leaf>(leaves: readonly T[]): T[] {
  return [...leaves].sort(compareLeaves)
}

/** The leaf that a document shows; the document is deleted if this leaf is. Undefined if there are no leaves. */
export function winner<T extends Leaf>(leaves: readonly T[]): T | undefined {
  let best = leaves[0]
  for (const leaf of leaves) if (best && leaf !== best && compareLeaves(leaf, best) < 0) best = leaf
  return best
}

/**
 * The leaves of a stored document as `pos-id`, the winner first, then the best.
 * @param winner that is stored with the document; an older settee ordered ids of different forms otherwise, and its choice
 *   holds until the next write
 */
export function leafRevs(leaves: readonly Leaf[], winner: string): string[] {
  return [winner, ...losers(leaves, winner).map(leafRev)]
}

/** `_conflicts`: the live leaves besides the winner as `pos-id`, best first. @param winner as in {@link leafRevs} */
export function conflicts(leaves: readonly Leaf[], winner: string): string[] {
  return losers(leaves, winner).flatMap((leaf) => (leaf.deleted ? [] : leafRev(leaf)))
}

/** `_deleted_conflicts`: the deleted leaves besides the winner, as in {@link conflicts}. */
export function deletedConflicts(leaves: readonly Leaf[], winner: string): string[] {
  return losers(leaves, winner).flatMap((leaf) => (leaf.deleted ? leafRev(leaf) : []))
}

function losers(leaves: readonly Leaf[], winner: string): Leaf[] {
  return sortLeaves(leaves).filter((leaf) => leafRev(leaf) !== winner)
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
 * @throws RangeError for an id of 65,535 bytes or more, which `normalizeRevId` never accepts
 */
export function encodeAncestry(ids: readonly string[]): Uint8Array {
  const hex = ids.every((id) => id.length === HEX_DIGITS) ? encodeHex(ids.join('')) : undefined
  return hex ?? Buffer.concat([Uint8Array.of(MIXED_FORM), ...ids.map(encodeMixed)])
}

/**
 * Decodes an encoded ancestry.
 *
 * @throws RangeError for damaged bytes
 */
export function decodeAncestry(bytes: Uint8Array): string[] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer[0] === HEX_FORM && buffer.length % HEX_BYTES === 1) return decodeHex(buffer)
  if (buffer[0] === MIXED_FORM) return decodeMixed(buffer)
  throw damaged()
}

/**
 * The number of ids in an encoded ancestry; decodes none of them.
 *
 * @throws RangeError for damaged bytes
 */
export function ancestryLength(bytes: Uint8Array): number {
  if (bytes[0] === HEX_FORM) return (bytes.length - 1) / HEX_BYTES
  let count = 0
  for (let at = 1; at < bytes.length; at = mixedEnd(bytes, at)) count += 1
  return count
}

/**
 * One id of an encoded ancestry; decodes no other.
 *
 * @param index 0 for the newest
 * @returns undefined if there are fewer ids
 * @throws RangeError for damaged bytes
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
  // Converting back detects upper case and invalid hex in a third of the time of a regular expression.
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

/** The end of the id that begins at this offset. */
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
