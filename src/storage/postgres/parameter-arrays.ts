/**
 * Arrays as parameters of a statement, in the binary form of PostgreSQL. The text form of `pg` quotes and escapes each
 * element, which PostgreSQL undoes again: for bodies of documents this took longer than all else that the node does.
 *
 * Source of the form: array_send and array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c.
 */

const TEXT = 25
const BYTEA = 17
const INT8 = 20
const BOOL = 16

/** Dimensions, whether there are nulls, the type of the elements, and, of the only dimension, its size and lower bound. */
const HEAD_BYTES = 20
const LENGTH_BYTES = 4

/** @returns a `text[]` */
export function textArray(values: readonly (string | null)[]): Buffer {
  let bytes = HEAD_BYTES
  for (const value of values) bytes += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value))
  const buffer = begun(TEXT, values.length, bytes)
  let at = HEAD_BYTES
  for (const value of values) {
    const length = value === null ? -1 : buffer.write(value, at + LENGTH_BYTES)
    buffer.writeInt32BE(length, at)
    at += LENGTH_BYTES + Math.max(length, 0)
  }
  return buffer
}

/** @returns a `bytea[]` */
export function bytesArray(values: readonly (Uint8Array | null)[]): Buffer {
  let bytes = HEAD_BYTES
  for (const value of values) bytes += LENGTH_BYTES + (value?.length ?? 0)
  const buffer = begun(BYTEA, values.length, bytes)
  let at = HEAD_BYTES
  for (const value of values) {
    buffer.writeInt32BE(value?.length ?? -1, at)
    if (value !== null) buffer.set(value, at + LENGTH_BYTES)
    at += LENGTH_BYTES + (value?.length ?? 0)
  }
  return buffer
}

/** @param values safe integers @returns a `bigint[]` */
export function numberArray(values: readonly number[]): Buffer {
  const element = LENGTH_BYTES + 8
  const buffer = begun(INT8, values.length, HEAD_BYTES + values.length * element)
  let at = HEAD_BYTES
  for (const value of values) {
    buffer.writeInt32BE(8, at)
    buffer.writeInt32BE(Math.floor(value / 2 ** 32), at + LENGTH_BYTES)
    buffer.writeUInt32BE(value >>> 0, at + LENGTH_BYTES + 4)
    at += element
  }
  return buffer
}

/** @returns a `boolean[]` */
export function booleanArray(values: readonly boolean[]): Buffer {
  const element = LENGTH_BYTES + 1
  const buffer = begun(BOOL, values.length, HEAD_BYTES + values.length * element)
  let at = HEAD_BYTES
  for (const value of values) {
    buffer.writeInt32BE(1, at)
    buffer[at + LENGTH_BYTES] = value ? 1 : 0
    at += element
  }
  return buffer
}

/** An empty array has no dimension. */
function begun(type: number, length: number, bytes: number): Buffer {
  if (length === 0) {
    const empty = Buffer.alloc(12)
    empty.writeInt32BE(type, 8)
    return empty
  }
  const buffer = Buffer.allocUnsafe(bytes)
  buffer.writeInt32BE(1, 0)
  buffer.writeInt32BE(1, 4)
  buffer.writeInt32BE(type, 8)
  buffer.writeInt32BE(length, 12)
  buffer.writeInt32BE(1, 16)
  return buffer
}
