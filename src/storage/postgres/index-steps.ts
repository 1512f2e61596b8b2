/** Divides an update of an index store into steps of a bounded size: what one call of the function `index_update` stores. */
import { createHash } from 'node:crypto'
import { keysSum, type PlacedRow, packedKeys, placed, placesOf, rowSum, unpackedKeys } from '../index-rows.ts'
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

/** A place in the index of this number. */
interface PlaceOf {
  readonly index: number
  readonly place: Buffer
}

interface RowOf extends PlaceOf {
  readonly row: PlacedRow
}

/** Changes of rows. The three lists have no place in common. */
export class IndexChange {
  readonly docs: { readonly key: Buffer; readonly keys: Buffer | null }[] = []
  readonly gone: PlaceOf[] = []
  /** Rows at places that have one already; their texts may be the same. */
  readonly replaced: RowOf[] = []
  readonly added: RowOf[] = []
  #bytes = 0

  get isFull(): boolean {
    const rows = this.gone.length + this.replaced.length + this.added.length
    return rows >= STEP_ROWS || this.#bytes >= STEP_BYTES
  }

  add({ index, place, row, isStored }: RowChange): void {
    if (row === null) this.gone.push({ index, place })
    else if (isStored) this.replaced.push({ index, place, row })
    else this.added.push({ index, place, row })
    this.#bytes += place.length + (row === null ? 0 : row.keyText.length + row.valueText.length)
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
      ...placeLists(gone),
      ...placeLists(replaced),
      replaced.map(({ row }) => row.keyText),
      replaced.map(({ row }) => row.valueText),
      ...placeLists(added),
      added.map(({ row }) => row.keyLength),
      added.map(({ row }) => row.keyText),
      added.map(({ row }) => row.valueText),
      docs.map(({ key, keys }) => (keys === null ? null : docSum(key, keys))),
      replaced.map(({ row }) => rowSum(row)),
      added.map(({ row }) => rowSum(row)),
    ]
  }
}

function placeLists(list: readonly PlaceOf[]): [indexes: number[], heads: Buffer[], tails: Buffer[]] {
  return [
    list.map(({ index }) => index),
    list.map(({ place }) => headOf(place)),
    list.map(({ place }) => tailOf(place)),
  ]
}

/** The part of a place that is compared first. */
export function headOf(place: Uint8Array): Buffer {
  return Buffer.from(place.buffer, place.byteOffset, Math.min(place.length, HEAD_BYTES))
}

export function tailOf(place: Uint8Array): Buffer {
  return Buffer.from(place.subarray(HEAD_BYTES))
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

/** What happens at one place of a document. */
interface RowChange extends PlaceOf {
  /** null: the row is removed. */
  readonly row: PlacedRow | null
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
    const { rows, keys: finalKeys } = placed(doc)
    const isEmpty = rows.every((list) => list.length === 0)
    const changes = changesOf(rows, placesOf(doc.id, stored))
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

/** In the order of indexes and places. */
function changesOf(
  rows: readonly (readonly PlacedRow[])[],
  stored: readonly (readonly Buffer[])[],
): RowChange[] {
  const changes: RowChange[] = []
  for (const [index, list] of rows.entries()) {
    const old = stored[index] ?? []
    let at = 0
    const removeBefore = (place: Buffer | null) => {
      for (; at < old.length; at++) {
        const gone = old[at] as Buffer
        if (place !== null && Buffer.compare(gone, place) >= 0) return
        changes.push({ index, place: gone, row: null, isStored: true })
      }
    }
    for (const row of list) {
      removeBefore(row.place)
      const isStored = old[at]?.equals(row.place) ?? false
      if (isStored) at += 1
      changes.push({ index, place: row.place, row, isStored })
    }
    removeBefore(null)
  }
  return changes
}

/** The keys of the rows that a document has when all its changes before this one are stored. */
function keysAfter(
  next: PlaceOf,
  rows: readonly (readonly PlacedRow[])[],
  stored: readonly (readonly Buffer[])[],
  id: string,
): Buffer {
  const places = placesOf(id, stored)
  const isDone = (index: number, place: Buffer) =>
    index < next.index || (index === next.index && Buffer.compare(place, next.place) < 0)
  return packedKeys(
    rows.map((list, index) => [
      ...list
        .filter(({ place }) => isDone(index, place))
        .map(({ place, keyLength }) => place.subarray(0, keyLength)),
      ...(stored[index] ?? []).filter((_, at) => !isDone(index, places[index]?.[at] as Buffer)),
    ]),
  )
}
