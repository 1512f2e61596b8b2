/** Divides an update of an index store into steps of a bounded size: what one call of the function `index_update` stores. */
import { createHash } from 'node:crypto'
import {
  type KeyedRow,
  keyedRows,
  keysSum,
  packedKeys,
  rowKeysOf,
  rowSum,
  unpackedKeys,
} from '../index-rows.ts'
import type { IndexedDoc } from '../index-store.ts'
import { HEAD_BYTES } from './index-tables.ts'

/** Rows of a step, and their bytes, after which it ends. A single row may be longer. */
const STEP_ROWS = 2000
const STEP_BYTES = 1024 * 1024
/** Ids up to this length, in bytes, are keys of their documents as they are; others are hashed. */
const LONG_ID_BYTES = 500

/** A document with the keys of its stored rows, as {@link packedKeys} has packed them; null if it has none. */
export interface KnownDoc {
  readonly doc: IndexedDoc
  readonly keys: Buffer | null
}

/** A row key in the index of this number. */
interface IndexedKey {
  readonly index: number
  readonly rowKey: Buffer
}

interface RowOf extends IndexedKey {
  readonly row: KeyedRow
}

/** Changes of rows. The three lists have no row key in common. */
export class IndexChange {
  readonly docs: { readonly key: Buffer; readonly keys: Buffer | null }[] = []
  readonly gone: IndexedKey[] = []
  /** Rows whose row keys are stored already; their texts may be the same. */
  readonly replaced: RowOf[] = []
  readonly added: RowOf[] = []
  #bytes = 0

  get isFull(): boolean {
    const rows = this.gone.length + this.replaced.length + this.added.length
    return rows >= STEP_ROWS || this.#bytes >= STEP_BYTES
  }

  add({ index, rowKey, row, isStored }: RowChange): void {
    if (row === null) this.gone.push({ index, rowKey })
    else if (isStored) this.replaced.push({ index, rowKey, row })
    else this.added.push({ index, rowKey, row })
    this.#bytes += rowKey.length + (row === null ? 0 : row.keyText.length + row.valueText.length)
  }

  setKeys(key: Buffer, keys: Buffer | null): void {
    this.docs.push({ key, keys })
    this.#bytes += keys?.length ?? 0
  }

  /** The values of the function's lists, in its order. */
  values(): unknown[] {
    const { docs, gone, replaced, added } = this
    return [
      docs.map(({ key }) => key),
      docs.map(({ keys }) => keys),
      ...keyLists(gone),
      ...keyLists(replaced),
      replaced.map(({ row }) => row.keyText),
      replaced.map(({ row }) => row.valueText),
      ...keyLists(added),
      added.map(({ row }) => row.keyLength),
      added.map(({ row }) => row.keyText),
      added.map(({ row }) => row.valueText),
      docs.map(({ key, keys }) => (keys === null ? null : docSum(key, keys))),
      replaced.map(({ row }) => rowSum(row)),
      added.map(({ row }) => rowSum(row)),
    ]
  }
}

function keyLists(list: readonly IndexedKey[]): [indexes: number[], heads: Buffer[], tails: Buffer[]] {
  return [
    list.map(({ index }) => index),
    list.map(({ rowKey }) => headOf(rowKey)),
    list.map(({ rowKey }) => tailOf(rowKey)),
  ]
}

/** The part of a row key that is compared first. */
export function headOf(rowKey: Uint8Array): Buffer {
  return Buffer.from(rowKey.buffer, rowKey.byteOffset, Math.min(rowKey.length, HEAD_BYTES))
}

export function tailOf(rowKey: Uint8Array): Buffer {
  return Buffer.from(rowKey.subarray(HEAD_BYTES))
}

/** The key of a document in the table `index_doc`, however long its id is. */
export function docKey(id: string): Buffer {
  const bytes = Buffer.from(id)
  return bytes.length <= LONG_ID_BYTES
    ? bytes
    : Buffer.concat([bytes.subarray(0, LONG_ID_BYTES), createHash('sha256').update(bytes).digest()])
}

/** The checksum of a document's keys. @param key of {@link docKey} */
export function docSum(key: Buffer, keys: Uint8Array): number {
  return keysSum(key.toString('latin1'), keys)
}

/** A change of one row of a document. */
interface RowChange extends IndexedKey {
  /** null: the row is removed. */
  readonly row: KeyedRow | null
  readonly isStored: boolean
}

/**
 * The steps that replace the rows of documents. A document whose rows do not fit into one step is replaced row by row, and its
 * keys are those of the rows that it has after each step.
 */
export function* stepsOf(docs: readonly KnownDoc[]): Generator<IndexChange> {
  let step = new IndexChange()
  for (const { doc, keys } of docs) {
    const key = docKey(doc.id)
    const stored = keys === null ? [] : unpackedKeys(keys)
    const { rows, keys: finalKeys } = keyedRows(doc)
    const isEmpty = rows.every((list) => list.length === 0)
    const changes = changesOf(rows, rowKeysOf(doc.id, stored))
    for (const [at, change] of changes.entries()) {
      if (step.isFull) {
        if (at > 0) step.setKeys(key, keysAfter(change, rows, stored, doc.id))
        yield step
        step = new IndexChange()
      }
      step.add(change)
    }
    if (isEmpty ? keys !== null : !finalKeys.equals(keys ?? Buffer.alloc(0)))
      step.setKeys(key, isEmpty ? null : finalKeys)
    if (step.isFull) {
      yield step
      step = new IndexChange()
    }
  }
  yield step
}

/** In the order of indexes and row keys. */
function changesOf(
  rows: readonly (readonly KeyedRow[])[],
  stored: readonly (readonly Buffer[])[],
): RowChange[] {
  const changes: RowChange[] = []
  for (const [index, list] of rows.entries()) {
    const old = stored[index] ?? []
    let at = 0
    const removeBefore = (rowKey: Buffer | null) => {
      for (; at < old.length; at++) {
        const gone = old[at] as Buffer
        if (rowKey !== null && Buffer.compare(gone, rowKey) >= 0) return
        changes.push({ index, rowKey: gone, row: null, isStored: true })
      }
    }
    for (const row of list) {
      removeBefore(row.rowKey)
      const isStored = old[at]?.equals(row.rowKey) ?? false
      if (isStored) at += 1
      changes.push({ index, rowKey: row.rowKey, row, isStored })
    }
    removeBefore(null)
  }
  return changes
}

/** The keys of the rows that a document has when all its changes before this one are stored. */
function keysAfter(
  next: IndexedKey,
  rows: readonly (readonly KeyedRow[])[],
  stored: readonly (readonly Buffer[])[],
  id: string,
): Buffer {
  const rowKeys = rowKeysOf(id, stored)
  const isDone = (index: number, rowKey: Buffer) =>
    index < next.index || (index === next.index && Buffer.compare(rowKey, next.rowKey) < 0)
  return packedKeys(
    rows.map((list, index) => [
      ...list
        .filter(({ rowKey }) => isDone(index, rowKey))
        .map(({ rowKey, keyLength }) => rowKey.subarray(0, keyLength)),
      ...(stored[index] ?? []).filter((_, at) => !isDone(index, rowKeys[index]?.[at] as Buffer)),
    ]),
  )
}
