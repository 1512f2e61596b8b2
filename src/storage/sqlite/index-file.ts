/** The file of an index store: its tables, its position, and the stretches in which its rows are counted. */
import { rmSync } from 'node:fs'
import type { IndexedDoc, IndexPosition } from '../index-store.ts'
import { idBytes, rowPlace } from '../index-store.ts'
import type { Connection } from './connection.ts'

/** The number of rows in a new stretch; a stretch with more than `most` is split, one with fewer than `least` merged. */
export const STRETCH = { least: 64, usual: 192, most: 256 } as const

/** The place of the first stretch, before all rows. */
export const FIRST = new Uint8Array(0)

/** The statements that create the tables of a store. */
export function tables(indexes: number): string {
  const each = Array.from(
    { length: indexes },
    (_, index) => `
    CREATE TABLE rows_${index} (k BLOB PRIMARY KEY, l INTEGER, key TEXT, value TEXT) WITHOUT ROWID;
    CREATE TABLE sums_${index} (k BLOB PRIMARY KEY, n INTEGER, red TEXT) WITHOUT ROWID;`,
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

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** Creates the first stretch of each index of a new file. */
  addFirstStretches(indexes: number): void {
    for (let index = 0; index < indexes; index++) this.#addStretch(index, FIRST, 0)
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
    const [start, rows] = this.#adjust(index, place, 1)
    if (rows > STRETCH.most) this.#split(index, start, rows)
  }

  #change(index: number, { place, keyText, valueText }: PlacedRow): void {
    const change = this.#connection.prepare(
      `UPDATE rows_${index} SET key = ?, value = ? WHERE k = ? AND (key <> ? OR value <> ?)`,
    )
    if (change.run(keyText, valueText, place, keyText, valueText).changes > 0) this.#adjust(index, place, 0)
  }

  #remove(index: number, place: Buffer): void {
    this.#connection.prepare(`DELETE FROM rows_${index} WHERE k = ?`).run(place)
    const [start, rows] = this.#adjust(index, place, -1)
    if (rows < STRETCH.least) this.#merge(index, start, rows)
  }

  /** Changes the number of rows of a place's stretch, whose reduction is no longer true. */
  #adjust(index: number, place: Buffer, by: number): [start: Buffer, rows: number] {
    const adjust = this.#connection.prepareTuples<[Buffer, number]>(
      `UPDATE sums_${index} SET n = n + ?, red = NULL
       WHERE k = (SELECT k FROM sums_${index} WHERE k <= ? ORDER BY k DESC LIMIT 1) RETURNING k, n`,
    )
    return adjust.get(by, place) as [Buffer, number]
  }

  #split(index: number, start: Buffer, rows: number): void {
    const half = rows >> 1
    const [middle] = this.#connection
      .prepareTuples<[Buffer]>(`SELECT k FROM rows_${index} WHERE k >= ? ORDER BY k LIMIT 1 OFFSET ?`)
      .get(start, half) as [Buffer]
    this.#connection.prepare(`UPDATE sums_${index} SET n = ? WHERE k = ?`).run(half, start)
    this.#addStretch(index, middle, rows - half)
  }

  /** Joins a stretch with the next, if both together are not too long. */
  #merge(index: number, start: Buffer, rows: number): void {
    const next = this.#connection
      .prepareTuples<[Buffer, number]>(`SELECT k, n FROM sums_${index} WHERE k > ? ORDER BY k LIMIT 1`)
      .get(start)
    const remove = this.#connection.prepare(`DELETE FROM sums_${index} WHERE k = ?`)
    if (next !== undefined && rows + next[1] <= STRETCH.usual) {
      remove.run(next[0])
      this.#connection.prepare(`UPDATE sums_${index} SET n = ? WHERE k = ?`).run(rows + next[1], start)
    } else if (rows === 0 && start.length > 0) remove.run(start)
  }

  #addStretch(index: number, start: Uint8Array, rows: number): void {
    this.#connection.prepare(`INSERT INTO sums_${index} VALUES (?, ?, NULL)`).run(start, rows)
  }
}
