/**
 * View keys as bytes that are in the order of the keys (protocol.md 9.4), for indexes on disk.
 *
 * A value is a byte for its type, then what follows it: 8 bytes of a number, the sort key of a string, the elements of an
 * array or the names and values of an object, and a zero byte as their end. So the bytes of a key are never the beginning
 * of those of another one.
 */
import { byteRank } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { END, SortKeyWriter } from './collation/sort-key-writer.ts'

/** `json` is the order of view keys; `raw` that of Erlang's terms, for the option `collation: "raw"`. */
export type KeyOrder = 'json' | 'raw'

/** The most bytes of a key, and the most UTF-16 units of a string in a key. */
export const MAX_KEY_BYTES = 64 * 1024

type JsonType = 'null' | 'false' | 'true' | 'number' | 'string' | 'array' | 'object'

/** In the order of types, {@link typeOf}. They are above {@link END}. */
export const TYPE_RANKS: Readonly<Record<KeyOrder, Readonly<Record<JsonType, number>>>> = {
  json: { null: 1, false: 2, true: 3, number: 4, string: 5, array: 6, object: 7 },
  raw: { number: 1, false: 2, null: 3, true: 4, object: 5, array: 6, string: 7 },
}

export function typeOf(value: unknown): JsonType {
  if (value === null) return 'null'
  if (typeof value === 'string' || typeof value === 'number') return typeof value as 'string' | 'number'
  if (typeof value === 'boolean') return value ? 'true' : 'false'
  return Array.isArray(value) ? 'array' : 'object'
}

/** Made at first use, since it needs the table of collation elements. */
let shared: SortKeyWriter | undefined
const number = new DataView(new ArrayBuffer(8))

/**
 * The bytes of a key. Two keys have the same bytes if they are equal in this order.
 *
 * @throws CouchError `key_too_long`
 */
export function encodeKey(value: unknown, order: KeyOrder): Buffer {
  const writer = cleared()
  writeValue(writer, value, order)
  return finished(writer)
}

/**
 * The bytes with which the keys of all arrays begin whose first elements equal these.
 *
 * @throws CouchError `key_too_long`
 */
export function arrayPrefix(elements: readonly unknown[], order: KeyOrder): Buffer {
  const writer = cleared()
  writer.byte(TYPE_RANKS[order].array)
  for (const element of elements) writeValue(writer, element, order)
  return finished(writer)
}

/** The bytes with which all keys of a partition begin, in a view whose rows are in the order of their partitions. */
export function partitionPrefix(partition: string): Buffer {
  return encodeKey(partition, 'raw')
}

function cleared(): SortKeyWriter {
  shared ??= new SortKeyWriter(MAX_KEY_BYTES)
  shared.clear()
  return shared
}

function finished({ bytes, length }: SortKeyWriter): Buffer {
  if (length > MAX_KEY_BYTES) throw new CouchError('key_too_long')
  const key = Buffer.allocUnsafe(length)
  key.set(bytes.subarray(0, length))
  return key
}

/** Recursive, since JSON is at most 512 levels deep. */
function writeValue(writer: SortKeyWriter, value: unknown, order: KeyOrder): void {
  const type = typeOf(value)
  writer.byte(TYPE_RANKS[order][type])
  if (type === 'string') {
    writeString(writer, value as string, order)
  } else if (type === 'number') {
    writeNumber(writer, value as number)
  } else if (type === 'array') {
    for (const element of value as unknown[]) writeValue(writer, element, order)
    writer.byte(END)
  } else if (type === 'object') {
    for (const [name, member] of Object.entries(value as object)) {
      writeValue(writer, name, order)
      writeValue(writer, member, order)
    }
    writer.byte(END)
  }
}

function writeString(writer: SortKeyWriter, text: string, order: KeyOrder): void {
  // Ignored characters take no bytes, but time.
  if (text.length > MAX_KEY_BYTES) throw new CouchError('key_too_long')
  if (order === 'json') writer.text(text)
  else writeUnits(writer, text)
}

/** The bits of a positive number rise with it, those of a negative one fall. */
function writeNumber(writer: SortKeyWriter, value: number): void {
  // -0 equals 0.
  number.setFloat64(0, value === 0 ? 0 : value)
  const isNegative = number.getUint8(0) >= 0x80
  for (let i = 0; i < 8; i++) {
    const byte = number.getUint8(i)
    writer.byte(isNegative ? byte ^ 0xff : i === 0 ? byte ^ 0x80 : byte)
  }
}

/** Each unit of UTF-16 is written by its rank in the order of UTF-8, in the form of UTF-8; 0 and 1 as 1 and one byte more. */
function writeUnits(writer: SortKeyWriter, text: string): void {
  for (let i = 0; i < text.length; i++) {
    const rank = byteRank(text.charCodeAt(i))
    if (rank < 2) {
      writer.byte(1)
      writer.byte(rank + 1)
    } else if (rank < 0x80) {
      writer.byte(rank)
    } else if (rank < 0x800) {
      writer.byte(0xc0 | (rank >> 6))
      writer.byte(0x80 | (rank & 0x3f))
    } else {
      writer.byte(0xe0 | (rank >> 12))
      writer.byte(0x80 | ((rank >> 6) & 0x3f))
      writer.byte(0x80 | (rank & 0x3f))
    }
  }
  writer.byte(END)
}
