/** The file of an index store: its tables, its position, and the rows of documents. */
import { rmSync } from 'node:fs'
import type { IndexedDoc, IndexPosition } from '../index-store.ts'
import { idBytes, rowPlace } from '../index-store.ts'
import type { Connection } from './connection.ts'
import { StretchWriter, stretchTables } from './index-stretches.ts'

/** The statements that create the tables of a store. */
export function tables(indexes: number): string {
  const each = Array.from(
    { length: indexes },
    (_, index) => `
    CREATE TABLE rows_${index} (k BLOB PRIMARY KEY, l INTEGER, key TEXT, value TEXT) WITHOUT ROWID;
    ${stretchTables(index)}`,
  )
  return `
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE docs (id TEXT PRIMARY KEY, ks BLOB) WITHOUT ROWID;${each.join('')}`
}

/** Removes the file of a store, and those that SQLite keeps beside it. */
export function removeFile(path: string): void {
  for (const companion of ['-wal', '-shm', '-journal', '']) rmSync(path + companion, { force: true })
}

/** Reads a position from the table `meta`. */
export function readPosition(connection: Connection): IndexPosition | null {
  const read = connection.prepareTuples<[string, string | number]>('SELECT name, value FROM meta')
  const { seq, epoch, purgeSeq } = Object.fromEntries(read.all())
  return seq === undefined ? null : { seq: Number(seq), epoch: String(epoch), purgeSeq: Number(purgeSeq) }
}

/** Writes a position to the table `meta`, in the open transaction. */
export function writePosition(connection: Connection, position: IndexPosition): void {
  const write = connection.prepare('INSERT OR REPLACE INTO meta VALUES (?, ?)')
  for (const [name, value] of Object.entries(position)) write.run(name, value as string | number)
}

/** A row with its place. */
interface PlacedRow {
  readonly place: Buffer
  readonly keyLength: number
  readonly keyText: string
  readonly valueText: string
}

/** The rows of one document with their places, and the keys as the table `docs` has them. */
export function placed({ id, rows }: IndexedDoc): { readonly rows: PlacedRow[][]; readonly keys: Buffer } {
  const idOf = idBytes(id)
  const keys: Uint8Array[] = []
  const placedRows = rows.map((list) => {
    keys.push(varint(list.length))
    let before: Uint8Array | undefined
    let number = 0
    return list.map(({ key, keyText, valueText }) => {
      keys.push(varint(key.length), key)
      number = before !== undefined && Buffer.compare(before, key) === 0 ? number + 1 : 0
      before = key
      return { place: rowPlace(key, idOf, number), keyLength: key.length, keyText, valueText }
    })
  })
  return { rows: placedRows, keys: Buffer.concat(keys) }
}

/** The places of a document's rows in each index. @param keys as {@link placed} returns them */
function placesOf(id: string, keys: Buffer): Buffer[][] {
  const idOf = idBytes(id)
  const lists: Buffer[][] = []
  for (let at = 0; at < keys.length; ) {
    const count = readVarint(keys, at)
    at = count.end
    const places: Buffer[] = []
    let before: Uint8Array | undefined
    let number = 0
    for (let left = count.value; left > 0; left--) {
      const length = readVarint(keys, at)
      const key = keys.subarray(length.end, length.end + length.value)
      at = length.end + length.value
      number = before !== undefined && Buffer.compare(before, key) === 0 ? number + 1 : 0
      before = key
      places.push(rowPlace(key, idOf, number))
    }
    lists.push(places)
  }
  return lists
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

/** Changes the rows of documents, and the stretches with them. All calls are made in an open transaction. */
export class RowWriter {
  readonly #connection: Connection
  readonly #writers: StretchWriter[] = []

  constructor(connection: Connection) {
    this.#connection = connection
  }

  #stretches(index: number): StretchWriter {
    this.#writers[index] ??= new StretchWriter(this.#connection, index)
    return this.#writers[index]
  }

  /** Creates the first stretch of each index of a new file. */
  addFirstStretches(indexes: number): void {
    for (let index = 0; index < indexes; index++) this.#stretches(index).addFirst()
  }

  /** Replaces the rows of a document. */
  replace(doc: IndexedDoc): void {
    const { id } = doc
    const found = this.#connection.prepareTuples<[Buffer]>('SELECT ks FROM docs WHERE id = ?').get(id)
    const isEmpty = doc.rows.every((rows) => rows.length === 0)
    if (found === undefined && isEmpty) return
    const { rows, keys } = placed(doc)
    const old = found === undefined ? [] : placesOf(id, found[0])
    for (const [index, list] of rows.entries()) this.#replaceList(index, old[index] ?? [], list)
    if (isEmpty) this.#connection.prepare('DELETE FROM docs WHERE id = ?').run(id)
    else if (found === undefined || !found[0].equals(keys)) {
      this.#connection.prepare('INSERT OR REPLACE INTO docs VALUES (?, ?)').run(id, keys)
    }
  }

  /** Both lists are sorted by place. */
  #replaceList(index: number, old: readonly Buffer[], rows: readonly PlacedRow[]): void {
    let at = 0
    for (const row of rows) {
      while (at < old.length && Buffer.compare(old[at] as Buffer, row.place) < 0) {
        this.#remove(index, old[at++] as Buffer)
      }
      const isKept = at < old.length && (old[at] as Buffer).equals(row.place)
      if (isKept) at += 1
      if (isKept) this.#change(index, row)
      else this.#insert(index, row)
    }
    for (; at < old.length; at++) this.#remove(index, old[at] as Buffer)
  }

  #insert(index: number, { place, keyLength, keyText, valueText }: PlacedRow): void {
    const insert = this.#connection.prepare(`INSERT INTO rows_${index} VALUES (?, ?, ?, ?)`)
    insert.run(place, keyLength, keyText, valueText)
    this.#stretches(index).adjust(place, 1)
  }

  #change(index: number, { place, keyText, valueText }: PlacedRow): void {
    const change = this.#connection.prepare(
      `UPDATE rows_${index} SET key = ?, value = ? WHERE k = ? AND (key <> ? OR value <> ?)`,
    )
    if (change.run(keyText, valueText, place, keyText, valueText).changes > 0)
      this.#stretches(index).adjust(place, 0)
  }

  #remove(index: number, place: Buffer): void {
    this.#connection.prepare(`DELETE FROM rows_${index} WHERE k = ?`).run(place)
    this.#stretches(index).adjust(place, -1)
  }
}
