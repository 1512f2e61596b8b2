/**
 * Erlang's External Term Format, as far as the ids of CouchDB's replications need it. Each function encodes one term.
 * Source: the Erlang documentation, "External Term Format"; atoms as `term_to_binary` writes them with minor version 1.
 */

const VERSION = 131
const SMALL_INTEGER = 97
const INTEGER = 98
const NEW_FLOAT = 70
const ATOM = 100
const SMALL_TUPLE = 104
const NIL = 106
const STRING = 107
const LIST = 108
const BINARY = 109
const SMALL_BIG = 110

/** @param terms encoded */
export function tuple(...terms: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.from([SMALL_TUPLE, terms.length]), ...terms])
}

/** @param terms encoded */
export function list(terms: readonly Buffer[]): Buffer {
  if (terms.length === 0) return Buffer.from([NIL])
  return Buffer.concat([tagged(LIST, 4, terms.length), ...terms, Buffer.from([NIL])])
}

export function atom(name: string): Buffer {
  return Buffer.concat([tagged(ATOM, 2, name.length), Buffer.from(name, 'latin1')])
}

/** The bytes of a text as a binary. */
export function binary(text: string): Buffer {
  const bytes = Buffer.from(text)
  return Buffer.concat([tagged(BINARY, 4, bytes.length), bytes])
}

/** The bytes of a text as a list of numbers, which is what a string is in Erlang. */
export function charList(text: string): Buffer {
  const bytes = Buffer.from(text)
  if (bytes.length === 0) return list([])
  if (bytes.length > 0xffff) return list([...bytes].map((byte) => integer(byte)))
  return Buffer.concat([tagged(STRING, 2, bytes.length), bytes])
}

export function integer(value: number): Buffer {
  if (value >= 0 && value <= 255) return Buffer.from([SMALL_INTEGER, value])
  if (value >= -(2 ** 31) && value < 2 ** 31) {
    const bytes = Buffer.alloc(5)
    bytes[0] = INTEGER
    bytes.writeInt32BE(value, 1)
    return bytes
  }
  const digits: number[] = []
  for (let rest = BigInt(Math.abs(value)); rest > 0n; rest >>= 8n) digits.push(Number(rest & 0xffn))
  return Buffer.from([SMALL_BIG, digits.length, value < 0 ? 1 : 0, ...digits])
}

/** Parsed JSON as CouchDB holds it: objects are lists of pairs in a tuple, and texts binaries. */
export function ejson(value: unknown): Buffer {
  if (typeof value === 'string') return binary(value)
  if (typeof value === 'number') return Number.isInteger(value) ? integer(value) : float(value)
  if (Array.isArray(value)) return list(value.map(ejson))
  if (typeof value !== 'object' || value === null) return atom(String(value))
  return tuple(list(Object.entries(value).map(([name, member]) => tuple(binary(name), ejson(member)))))
}

/** A term with its version byte, as `term_to_binary` returns it. */
export function termToBinary(term: Buffer): Buffer {
  return Buffer.concat([Buffer.from([VERSION]), term])
}

function float(value: number): Buffer {
  const bytes = Buffer.alloc(9)
  bytes[0] = NEW_FLOAT
  bytes.writeDoubleBE(value, 1)
  return bytes
}

function tagged(tag: number, width: 2 | 4, size: number): Buffer {
  const bytes = Buffer.alloc(1 + width)
  bytes[0] = tag
  bytes.writeUIntBE(size, 1, width)
  return bytes
}
