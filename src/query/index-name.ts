/**
 * The name that CouchDB gives to an index without one: the SHA-1 of its definition and options in Erlang's external term
 * format (https://www.erlang.org/doc/apps/erts/erl_ext_dist.html), so that one definition has one name on all servers.
 * Pure.
 */
import { createHash } from 'node:crypto'
import { isJsonObject } from '../core/json.ts'

/** The options of `POST _index` that are part of the name, as the request has them. */
export interface NamingOptions {
  readonly ddoc: string | undefined
  readonly name: string | undefined
  readonly partitioned: boolean | undefined
  readonly type: string
  readonly w: number
}

/** @param def the member `index` of the request */
export function generatedName(def: unknown, { ddoc, name, partitioned, type, w }: NamingOptions): string {
  const definition = term(def)
  const options: (readonly [name: string, value: Buffer])[] = [
    ['ddoc', ddoc === undefined ? atom('auto_name') : term(ddoc)],
    ['def', definition],
    ['name', name === undefined ? atom('auto_name') : term(name)],
    ['partitioned', partitioned === undefined ? atom('db_default') : term(partitioned)],
    ['type', term(type)],
    ['w', term(w)],
  ]
  const pairs = options.map(([key, value]) => tuple([atom(key), value]))
  return createHash('sha1')
    .update(Buffer.concat([Buffer.from([VERSION]), tuple([definition, list(pairs)])]))
    .digest('hex')
}

const VERSION = 131
const SMALL_TUPLE = 104
const ATOM = 100
const BINARY = 109
const NIL = 106
const LIST = 108
const STRING = 107
const SMALL_INTEGER = 97
const INTEGER = 98
const SMALL_BIG = 110
const FLOAT = 70
/** The longest list of bytes that Erlang writes as a string. */
const MAX_STRING = 65_535

/** A JSON value as Erlang's JSON parser reads it: an object is a tuple with a list of pairs. */
function term(value: unknown): Buffer {
  if (typeof value === 'string') return sized(BINARY, 4, Buffer.from(value))
  if (typeof value === 'number') return numberTerm(value)
  if (Array.isArray(value))
    return isBytes(value) ? sized(STRING, 2, Buffer.from(value)) : list(value.map(term))
  if (!isJsonObject(value)) return atom(String(value))
  return tuple([list(Object.entries(value).map(([key, member]) => tuple([term(key), term(member)])))])
}

function isBytes(values: readonly unknown[]): values is number[] {
  const isByte = (value: unknown) =>
    Number.isInteger(value) && (value as number) >= 0 && (value as number) < 256
  return values.length > 0 && values.length <= MAX_STRING && values.every(isByte)
}

function atom(name: string): Buffer {
  return sized(ATOM, 2, Buffer.from(name))
}

function tuple(elements: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.from([SMALL_TUPLE, elements.length]), ...elements])
}

function list(elements: readonly Buffer[]): Buffer {
  if (elements.length === 0) return Buffer.from([NIL])
  return Buffer.concat([tagged(LIST, 4, elements.length), ...elements, Buffer.from([NIL])])
}

function sized(tag: number, lengthBytes: number, content: Buffer): Buffer {
  return Buffer.concat([tagged(tag, lengthBytes, content.length), content])
}

function tagged(tag: number, lengthBytes: number, length: number): Buffer {
  const head = Buffer.alloc(1 + lengthBytes, tag)
  head.writeUIntBE(length, 1, lengthBytes)
  return head
}

function numberTerm(value: number): Buffer {
  if (!Number.isInteger(value) || !Number.isSafeInteger(value)) {
    const float = Buffer.alloc(9, FLOAT)
    float.writeDoubleBE(value, 1)
    return float
  }
  if (value >= 0 && value < 256) return Buffer.from([SMALL_INTEGER, value])
  if (value === (value | 0)) {
    const integer = Buffer.alloc(5, INTEGER)
    integer.writeInt32BE(value, 1)
    return integer
  }
  const bytes: number[] = []
  for (let rest = BigInt(Math.abs(value)); rest > 0n; rest >>= 8n) bytes.push(Number(rest & 255n))
  return Buffer.from([SMALL_BIG, bytes.length, value < 0 ? 1 : 0, ...bytes])
}
