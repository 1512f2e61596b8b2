/**
 * CouchDB's sequence tokens, `N-OPAQUE`. OPAQUE is the base64url of a list in Erlang's External Term Format, usually
 * compressed, with an element for each shard: `{Node, [Begin, End], Seq}`. Seq is `{Number, Uuid, Owner}`: the updates of
 * the shard's file, its uuid, and the node that made the last of them. It is the number alone in old versions, and 0
 * for a shard whose changes have not been read. N is the sum of the numbers.
 * Sources: fabric_view_changes.erl (pack_seqs); the Erlang documentation, "External Term Format".
 */
import { inflateSync } from 'node:zlib'

/** One shard of a token. */
export interface ShardSequence {
  /** Its node and its range. */
  readonly shard: string
  /** The file that the number belongs to; empty if the token does not say. */
  readonly file: string
  readonly seq: number
}

/** The longest OPAQUE that is read, in characters: CouchDB with 64 shards on three nodes has about 2,000. */
const MAX_TEXT = 16 * 1024
/** The longest term, in bytes. */
const MAX_TERM = 64 * 1024
const MAX_SHARDS = 1024
/** A term in a token is nested four deep. */
const MAX_DEPTH = 8

/**
 * Reads the part of a token behind `N-`.
 * @returns the shards in the order of their names; null for any other text, and for a token with a shard that has been
 *   split or replaced, whose numbers cannot be compared
 */
export function readCouchSequence(opaque: string): readonly ShardSequence[] | null {
  if (opaque.length > MAX_TEXT) return null
  try {
    const term = new TermReader(termBytes(Buffer.from(opaque, 'base64url'))).read()
    if (!Array.isArray(term) || term.length === 0 || term.length > MAX_SHARDS) return null
    const shards = term.map(shardOf)
    const names = new Set(shards.map(({ shard }) => shard))
    if (names.size !== shards.length) return null
    return shards.sort((a, b) => (a.shard < b.shard ? -1 : 1))
  } catch {
    return null
  }
}

type Term = number | string | readonly Term[] | Tuple

class Tuple {
  readonly members: readonly Term[]

  constructor(members: readonly Term[]) {
    this.members = members
  }
}

/** @throws Error for anything but a shard that is whole */
function shardOf(element: Term): ShardSequence {
  const [node, range, seq] = membersOf(element, 3)
  if (typeof node !== 'string' || !Array.isArray(range) || range.length !== 2) throw malformed()
  if (!range.every((end) => typeof end === 'number')) throw malformed()
  const shard = JSON.stringify([node, range])
  if (typeof seq === 'number') return { shard, file: '', seq }
  const [number, uuid, owner] = membersOf(seq, 3)
  if (typeof number !== 'number' || typeof uuid !== 'string' || typeof owner !== 'string') throw malformed()
  return { shard, file: owner === node ? uuid : `${uuid} ${owner}`, seq: number }
}

function membersOf(term: Term | undefined, count: number): readonly Term[] {
  if (!(term instanceof Tuple) || term.members.length !== count) throw malformed()
  return term.members
}

function malformed(): Error {
  return new Error('not a sequence of CouchDB')
}

const VERSION = 131
const COMPRESSED = 80

/** The bytes of the term itself, decompressed. */
function termBytes(bytes: Buffer): Buffer {
  if (bytes[0] !== VERSION) throw malformed()
  if (bytes[1] !== COMPRESSED) return bytes.subarray(1)
  if (bytes.readUInt32BE(2) > MAX_TERM) throw malformed()
  return inflateSync(bytes.subarray(6), { maxOutputLength: MAX_TERM })
}

/** Reads the kinds of terms that a token consists of. Reading past the end throws. */
class TermReader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  read(depth = 0): Term {
    if (depth > MAX_DEPTH) throw malformed()
    const tag = this.#number(1)
    switch (tag) {
      case 97: // SMALL_INTEGER_EXT
        return this.#number(1)
      case 98: // INTEGER_EXT
        return this.#bytes.readInt32BE(this.#skip(4))
      case 110: // SMALL_BIG_EXT
        return this.#big()
      case 100: // ATOM_EXT
      case 118: // ATOM_UTF8_EXT
        return `:${this.#text(this.#number(2))}`
      case 115: // SMALL_ATOM_EXT
      case 119: // SMALL_ATOM_UTF8_EXT
        return `:${this.#text(this.#number(1))}`
      case 109: // BINARY_EXT
        return this.#text(this.#number(4))
      case 104: // SMALL_TUPLE_EXT
        return new Tuple(this.#members(this.#number(1), depth))
      case 106: // NIL_EXT
        return []
      case 107: // STRING_EXT: a list of bytes
        return [...this.#take(this.#number(2))]
      case 108: // LIST_EXT
        return this.#list(depth)
      default:
        throw malformed()
    }
  }

  #list(depth: number): readonly Term[] {
    const members = this.#members(this.#number(4), depth)
    const tail = this.read(depth + 1)
    if (!Array.isArray(tail) || tail.length > 0) throw malformed()
    return members
  }

  #members(count: number, depth: number): readonly Term[] {
    if (count > MAX_SHARDS) throw malformed()
    return Array.from({ length: count }, () => this.read(depth + 1))
  }

  #big(): number {
    const digits = this.#number(1)
    const isNegative = this.#number(1) === 1
    const bytes = this.#take(digits)
    const value = bytes.reduceRight((sum, byte) => sum * 256 + byte, 0)
    if (isNegative || !Number.isSafeInteger(value)) throw malformed()
    return value
  }

  #text(length: number): string {
    return this.#take(length).toString('latin1')
  }

  #number(width: number): number {
    return this.#bytes.readUIntBE(this.#skip(width), width)
  }

  #take(length: number): Buffer {
    const start = this.#skip(length)
    return this.#bytes.subarray(start, start + length)
  }

  /** @returns where the skipped bytes begin */
  #skip(length: number): number {
    const start = this.#at
    if (start + length > this.#bytes.length) throw malformed()
    this.#at += length
    return start
  }
}
