/** The rows of one document in the indexes of a store, and the keys by which an update finds the old ones. */
import { rowKeyChecksum } from './checksum.ts'
import { type IndexedDoc, idBytes, rowKeyOf } from './index-store.ts'

/** A row with its row key. */
export interface KeyedRow {
  readonly rowKey: Buffer
  readonly keyLength: number
  readonly keyText: string
  readonly valueText: string
}

/** The checksum of a row. */
export function rowSum({ rowKey, keyLength, keyText, valueText }: KeyedRow): number {
  return rowKeyChecksum(rowKey, keyLength, keyText, valueText)
}

/** The checksum of a document's keys, as {@link packedKeys} has packed them. */
export function keysSum(id: string, keys: Uint8Array): number {
  return rowKeyChecksum(keys, 0, id)
}

/** The checksum of a kept reduction. @param bucket the row key at which its bucket begins */
export function reductionSum(bucket: Uint8Array, reduction: string): number {
  return rowKeyChecksum(bucket, 0, reduction)
}

/** The rows of one document with their row keys, and their keys as {@link rowKeysOf} reads them. */
export function keyedRows({ id, rows }: IndexedDoc): { readonly rows: KeyedRow[][]; readonly keys: Buffer } {
  const idOf = idBytes(id)
  const rowsByIndex = rows.map((list) => {
    let before: Uint8Array | undefined
    let number = 0
    return list.map(({ key, keyText, valueText }) => {
      number = before !== undefined && Buffer.compare(before, key) === 0 ? number + 1 : 0
      before = key
      return { rowKey: rowKeyOf(key, idOf, number), keyLength: key.length, keyText, valueText }
    })
  })
  return { rows: rowsByIndex, keys: packedKeys(rows.map((list) => list.map(({ key }) => key))) }
}

/** @param lists the keys of a document's rows in each index, in their order */
export function packedKeys(lists: readonly (readonly Uint8Array[])[]): Buffer {
  const parts: Uint8Array[] = []
  for (const keys of lists) {
    parts.push(varint(keys.length))
    for (const key of keys) parts.push(varint(key.length), key)
  }
  return Buffer.concat(parts)
}

/** The keys that {@link packedKeys} has packed. */
export function unpackedKeys(packed: Buffer): Buffer[][] {
  const lists: Buffer[][] = []
  for (let at = 0; at < packed.length; ) {
    const count = readVarint(packed, at)
    at = count.end
    const keys: Buffer[] = []
    for (let left = count.value; left > 0; left--) {
      const length = readVarint(packed, at)
      keys.push(packed.subarray(length.end, length.end + length.value))
      at = length.end + length.value
    }
    lists.push(keys)
  }
  return lists
}

/** The row keys of a document's rows in each index. @param lists the keys of its rows */
export function rowKeysOf(id: string, lists: readonly (readonly Uint8Array[])[]): Buffer[][] {
  const idOf = idBytes(id)
  return lists.map((keys) => {
    let before: Uint8Array | undefined
    let number = 0
    return keys.map((key) => {
      number = before !== undefined && Buffer.compare(before, key) === 0 ? number + 1 : 0
      before = key
      return rowKeyOf(key, idOf, number)
    })
  })
}

/** Seven bits of the number in each byte; all but the last byte have the highest bit. */
function varint(value: number): Uint8Array {
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80)
  return Uint8Array.of(...bytes, rest)
}

function readVarint(bytes: Uint8Array, start: number): { readonly value: number; readonly end: number } {
  let value = 0
  for (let at = start, shift = 0; ; at += 1, shift += 7) {
    const byte = bytes[at] ?? 0
    value |= (byte & 0x7f) << shift
    if (byte < 0x80) return { value, end: at + 1 }
  }
}
