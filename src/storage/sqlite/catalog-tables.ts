/**
 * Tables of server.sqlite: the log of database events for `_db_updates`, with its own sequence and epochs; last known
 * sequences; and records. The log keeps the latest row for each name and type, as CouchDB's database `_global_changes`
 * does, so that it grows with the number of names and not with time.
 */
import { randomBytes } from 'node:crypto'
import { jsonObjectIn } from '../../core/json.ts'
import type { CatalogUpdate, CatalogUpdates, DatabaseSequence, UpdatesRange } from '../catalog.ts'
import { endOfPrefix, isMadeAnew, type RecordRange, type RecordWrite, type ServerRecord } from '../records.ts'
import { beginEpoch, type Epochs, epochId, type LastKnownSequence } from '../sequence.ts'
import type { Connection } from './connection.ts'
import type { ServerRows } from './server-rows.ts'

/** Databases older than this table count as created with it. */
export const UPDATE_LOG_SCHEMA = `
CREATE TABLE database_update (
  seq INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  type TEXT NOT NULL,
  UNIQUE (name, type)
);
INSERT INTO database_update (seq, name, type)
  SELECT row_number() OVER (ORDER BY incarnation), name, 'created' FROM database;
INSERT INTO server (key, value) SELECT 'update_seq', count(*) FROM database;
`

const ROWS_OF_NAMES = `
SELECT event.seq, event.name, event.type, event.checksum FROM json_each(?) AS wanted
  JOIN database_update AS creation ON creation.name = wanted.value AND creation.type = 'created'
  JOIN database_update AS event ON event.name = wanted.value AND event.seq >= creation.seq
  WHERE event.seq > ? AND event.seq < ?`

export class UpdateLog {
  readonly #connection: Connection
  readonly #rows: ServerRows
  /** The epoch of this opening; it begins with the first row (architecture.md, "Sequence tokens"). */
  readonly #epoch = epochId(randomBytes(9))

  /** The epoch of the first opening owns every number from 0, including the rows that the migration inserted. */
  constructor(connection: Connection, rows: ServerRows) {
    this.#connection = connection
    this.#rows = rows
    if (rows.value('update_epochs') === undefined) this.#putEpochs([{ id: this.#epoch, firstSeq: 0 }])
  }

  /** Notes an event of several databases, with the next sequence numbers. Part of the caller's transaction. */
  note(names: readonly string[], type: CatalogUpdate['type']): void {
    if (names.length === 0) return
    let seq = this.#lastSeq()
    this.#beginEpoch(seq + 1)
    const insert = this.#connection.prepare(
      'INSERT OR REPLACE INTO database_update (seq, name, type, checksum) VALUES (?, ?, ?, ?)',
    )
    for (const name of names) {
      seq += 1
      insert.run(seq, name, type, this.#rows.sumOf('update', { seq, name, type }))
    }
    this.#rows.putValue('update_seq', seq)
  }

  #beginEpoch(firstSeq: number): void {
    const epochs = this.#epochs()
    if (epochs.at(-1)?.id === this.#epoch) return
    this.#putEpochs(beginEpoch(epochs, this.#epoch, firstSeq))
  }

  /** @returns rows of the range, in its direction */
  read(
    { since, descending = false, before = Number.MAX_SAFE_INTEGER, names }: UpdatesRange,
    limit: number,
  ): CatalogUpdates {
    const order = descending ? 'DESC' : 'ASC'
    const maxRows = Math.min(limit, Number.MAX_SAFE_INTEGER)
    const found =
      names === undefined
        ? this.#connection
            .prepare<CatalogUpdate & { checksum: number | null }>(
              `SELECT seq, name, type, checksum FROM database_update WHERE seq > ? AND seq < ? ORDER BY seq ${order} LIMIT ?`,
            )
            .all(since, before, maxRows)
        : this.#connection
            .prepare<CatalogUpdate & { checksum: number | null }>(
              `${ROWS_OF_NAMES} ORDER BY event.seq ${order} LIMIT ?`,
            )
            .all(JSON.stringify(names), since, before, maxRows)
    const rows = found.map((row): CatalogUpdate => {
      this.#rows.check('update', row)
      return { seq: row.seq, name: row.name, type: row.type }
    })
    return { rows, lastSeq: this.#lastSeq(), epochs: this.#epochs() }
  }

  #lastSeq(): number {
    return Number(this.#rows.value('update_seq') ?? 0)
  }

  #epochs(): Epochs {
    return JSON.parse(String(this.#rows.value('update_epochs'))) as Epochs
  }

  #putEpochs(epochs: Epochs): void {
    this.#rows.putValue('update_epochs', JSON.stringify(epochs))
  }
}

export const RECORDS_SCHEMA = `
CREATE TABLE record (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (kind, key)
) WITHOUT ROWID;
`

const KIND = 'mark'

type StoredRecord = ServerRecord & { readonly checksum: number | null }

/** The table of records. */
export class RecordTable {
  readonly #connection: Connection
  readonly #rows: ServerRows

  constructor(connection: Connection, rows: ServerRows) {
    this.#connection = connection
    this.#rows = rows
  }

  /** @returns whether the record can be read; false for a damaged one that is made anew @throws damaged_server_file */
  #isReadable(record: StoredRecord): boolean {
    if (this.#rows.isSound('record', record)) return true
    if (!isMadeAnew(record.kind)) this.#rows.check('record', record)
    return false
  }

  /**
   * @returns the values in the order of the keys; null for a key without a record
   * @throws damaged_server_file
   */
  read(kind: string, keys: readonly string[]): (string | null)[] {
    const select = this.#connection.prepare<StoredRecord>(
      'SELECT kind, key, value, checksum FROM record WHERE kind = ? AND key = ?',
    )
    return keys.map((key) => {
      const found = select.get(kind, key)
      return found !== undefined && this.#isReadable(found) ? found.value : null
    })
  }

  /** @returns records of the range, in the order of their keys' bytes @throws damaged_server_file */
  list(kind: string, { prefix = '', after }: RecordRange, limit: number): ServerRecord[] {
    const end = endOfPrefix(prefix)
    // With two lower bounds, SQLite would seek one and read all keys between them.
    const isAfter = after !== undefined && Buffer.compare(Buffer.from(after), Buffer.from(prefix)) >= 0
    const conditions = ['kind = ?', isAfter ? 'key > ?' : 'key >= ?']
    const values = [kind, isAfter ? after : prefix]
    if (end !== null) {
      conditions.push('key < ?')
      values.push(end)
    }
    const select = this.#connection.prepare<StoredRecord>(
      `SELECT kind, key, value, checksum FROM record WHERE ${conditions.join(' AND ')} ORDER BY key LIMIT ?`,
    )
    const found = select.all(...values, limit)
    const records = found
      .filter((record) => this.#isReadable(record))
      .map(({ kind, key, value }) => ({ kind, key, value }))
    const last = found.at(-1)?.key
    if (records.length === found.length || found.length < limit || last === undefined) return records
    return [...records, ...this.list(kind, { prefix, after: last }, limit - records.length)]
  }

  /**
   * Part of the caller's transaction.
   * @returns false if a record is not as expected: then nothing was written
   * @throws damaged_server_file
   */
  write(writes: readonly RecordWrite[]): boolean {
    for (const { kind, key, expected } of writes) {
      if (expected !== undefined && this.read(kind, [key])[0] !== expected) return false
    }
    const put = this.#connection.prepare(
      'INSERT OR REPLACE INTO record (kind, key, value, checksum) VALUES (?, ?, ?, ?)',
    )
    const remove = this.#connection.prepare('DELETE FROM record WHERE kind = ? AND key = ?')
    for (const { kind, key, value } of writes) {
      if (value === null) remove.run(kind, key)
      else put.run(kind, key, value, this.#rows.sumOf('record', { kind, key, value }))
    }
    return true
  }

  /**
   * The last known sequence of a database. It is about a second old and never ahead of the database, so a file that is
   * behind its last known sequence was replaced by hand.
   * @returns null if none was noted, or its record is damaged
   */
  lastKnown(name: string): LastKnownSequence | null {
    const [value = null] = this.read(KIND, [name])
    const { epoch, updateSeq } = jsonObjectIn(value) ?? {}
    return typeof epoch === 'string' && typeof updateSeq === 'number' ? { epoch, updateSeq } : null
  }

  /** Part of the caller's transaction. */
  noteLastKnown(sequences: readonly DatabaseSequence[]): void {
    const writes = sequences.map(({ name, epoch, updateSeq }) => {
      return { kind: KIND, key: name, value: JSON.stringify({ epoch, updateSeq }) }
    })
    this.write(writes)
  }

  /** Part of the caller's transaction. */
  forgetLastKnown(name: string): void {
    this.write([{ kind: KIND, key: name, value: null }])
  }
}
