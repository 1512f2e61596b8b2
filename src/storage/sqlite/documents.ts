/**
 * Reads and writes the rows of documents; revisions.ts has their revisions. The rules of CouchDB are decided elsewhere.
 */
import { agrees, docChecksum, localChecksum } from '../checksum.ts'
import type { DamageReports } from '../damage.ts'
import type { DocWrite, IdRange, LocalDoc, LocalUpdate, Outcome, StoreView } from '../engine.ts'
import type { ReadSet } from '../read-set.ts'
import type { Connection } from './connection.ts'
import type { Plan } from './database-access.ts'
import type { GarbageCounters } from './garbage.ts'
import { idRange } from './id-pages.ts'
import { blobsOf, type Revisions } from './revisions.ts'
import type { Statement, Value } from './statement.ts'
import {
  ANCESTRY_COLUMN,
  BODY_COLUMNS,
  DOC_COLUMNS,
  type DocRow,
  PAGE_BODY_COLUMNS,
  StoredDocument,
} from './stored-document.ts'

/** A document before a write. */
type OldDocument = Pick<StoredDocument, 'num' | 'seq' | 'rev' | 'deleted' | 'leaves' | 'winner'>

/** A document's row, followed by the position of its id in the list of requested ids. */
type PlacedRow = [...DocRow, place: number]

/** The changes of a write that the store's counters need. */
export interface WriteEffect {
  readonly isNew: boolean
  readonly wasDeleted: boolean
  readonly oldSeq: number | null
  /** The change of the leaves' size, in bytes. */
  readonly externalBytes: number
}

/** Looks up the winner's row for documents that older versions wrote, which do not name it. */
const WINNER =
  'r.num = coalesce(d.winner, (SELECT w.num FROM revision AS w WHERE w.doc = d.num AND w.rev = d.rev))'
/** A row that names no revision, since it is damaged, is read as well. */
const WITH_BODY = `doc AS d LEFT JOIN revision AS r ON ${WINNER}`
const BY_IDS = 'json_each(?) AS j CROSS JOIN doc AS d ON d.id = j.value'
const BY_IDS_WITH_BODY = `${BY_IDS} LEFT JOIN revision AS r ON ${WINNER}`

export class Documents {
  readonly #connection: Connection
  readonly #revisions: Revisions
  readonly #now: () => number
  readonly #byId: Statement<DocRow>
  readonly #byIdWithBody: Statement<DocRow>
  readonly #byIdWithAncestry: Statement<DocRow>
  readonly #byIds: Statement<PlacedRow>
  readonly #byIdsWithBody: Statement<PlacedRow>
  readonly #byIdsWithAncestry: Statement<PlacedRow>
  readonly #insertDoc: Statement
  readonly #updateDoc: Statement
  readonly #countLeaves: Statement<{ n: number }>
  /**
   * Numbers are assigned here, not by SQLite, so that a document's row can name its winner's row before that exists.
   */
  #lastDoc: number

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, revisions: Revisions, now: () => number) {
    this.#connection = connection
    this.#revisions = revisions
    this.#now = now
    const select = (columns: string, from: string) => `SELECT ${columns} FROM ${from}`
    this.#byId = connection.prepareTuples(`${select(DOC_COLUMNS, 'doc AS d')} WHERE d.id = ?`)
    this.#byIdWithBody = connection.prepareTuples(
      `${select(`${DOC_COLUMNS}, ${BODY_COLUMNS}`, WITH_BODY)} WHERE d.id = ?`,
    )
    this.#byIdWithAncestry = connection.prepareTuples(
      `${select(`${DOC_COLUMNS}, ${BODY_COLUMNS}, ${ANCESTRY_COLUMN}`, WITH_BODY)} WHERE d.id = ?`,
    )
    this.#byIds = connection.prepareTuples(select(`${DOC_COLUMNS}, j.key`, BY_IDS))
    this.#byIdsWithBody = connection.prepareTuples(
      select(`${DOC_COLUMNS}, ${BODY_COLUMNS}, j.key`, BY_IDS_WITH_BODY),
    )
    this.#byIdsWithAncestry = connection.prepareTuples(
      select(`${DOC_COLUMNS}, ${BODY_COLUMNS}, ${ANCESTRY_COLUMN}, j.key`, BY_IDS_WITH_BODY),
    )
    this.#insertDoc = connection.prepare(
      'INSERT INTO doc (num, id, seq, rev, deleted, leaves, winner, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    )
    this.#updateDoc = connection.prepare(
      'UPDATE doc SET seq = ?, rev = ?, deleted = ?, leaves = ?, winner = ?, checksum = ? WHERE num = ?',
    )
    this.#countLeaves = connection.prepare('SELECT count(*) AS n FROM revision WHERE doc = ? AND leaf')
    const last = connection.prepare<{ num: number | null }>('SELECT max(num) AS num FROM doc').get()
    this.#lastDoc = last?.num ?? 0
  }

  /** A document by id, with its row's number for {@link write}. */
  byId(id: string, readSet?: ReadSet): StoredDocument | null {
    const withBody = readSet?.ancestry ? this.#byIdWithAncestry : this.#byIdWithBody
    const row = (readSet?.body ? withBody : this.#byId).get(id)
    return row === undefined ? null : this.#found(row, id)
  }

  /** As {@link byId}; of a document whose row is damaged, what its leaves say. @throws damaged_document if they hide it */
  salvaged(id: string): StoredDocument | null {
    const row = this.#byId.get(id)
    if (row === undefined) return null
    const doc = new StoredDocument(row, this.#revisions, id)
    const leaves = this.#countLeaves.get(doc.num)?.n ?? 0
    const isWhole = !doc.isDamaged && !doc.isRebuilt && (doc.leaves === 0 || doc.leaves === leaves)
    return isWhole ? doc : new SalvagedDocument(this.#revisions.salvaged(row, id), this.#revisions, id)
  }

  /** Documents by id, in the requested order; null for a missing document. */
  byIds(ids: readonly string[], readSet: ReadSet | undefined): (StoredDocument | null)[] {
    // SQLite's JSON ends a text at its first NUL.
    if (ids.length === 1 || ids.some((id) => id.includes('\0')))
      return ids.map((id) => this.byId(id, readSet))
    const found: (StoredDocument | null)[] = ids.map(() => null)
    const withBody = readSet?.ancestry ? this.#byIdsWithAncestry : this.#byIdsWithBody
    const rows = (readSet?.body ? withBody : this.#byIds).all(JSON.stringify(ids))
    for (const row of rows) {
      const place = row.pop() as number
      found[place] = this.#found(row as unknown as DocRow, ids[place] as string)
    }
    return found
  }

  /** Live documents of a range, in its direction. */
  inRange(range: IdRange, limit: number, readSet: ReadSet | undefined): Iterable<StoredDocument> {
    const { where, values } = idRange(range, 'd.id')
    const order = `ORDER BY d.id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(readSet, `NOT d.deleted AND ${where} ${order}`, [...values, limit])
  }

  /** Documents of the feed with `above < seq < below`, in the requested order. */
  inFeed(
    above: number,
    below: number,
    descending: boolean,
    limit: number,
    readSet: ReadSet | undefined,
  ): Iterable<StoredDocument> {
    const order = `ORDER BY d.seq ${descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(readSet, `d.seq > ? AND d.seq < ? ${order}`, [above, below, limit])
  }

  #select(readSet: ReadSet | undefined, where: string, values: Value[]): Iterable<StoredDocument> {
    const selected = readSet?.body
      ? `${DOC_COLUMNS}, ${PAGE_BODY_COLUMNS} FROM ${WITH_BODY}`
      : `${DOC_COLUMNS} FROM doc AS d`
    const rows = this.#connection.prepareTuples<DocRow>(`SELECT ${selected} WHERE ${where}`).all(...values)
    return rows.map((row) => new StoredDocument(row, this.#revisions))
  }

  /**
   * Counts the live ones among the first `limit` documents of a range, in its direction. Reads indexes alone.
   * @returns `last`: the id after which the range continues; null at its end
   */
  countStretch(range: IdRange, limit: number): { count: number; last: string | null } {
    const { where, values } = idRange(range, 'id')
    const [direction, last] = range.descending ? ['DESC', 'min'] : ['ASC', 'max']
    const all = this.#connection
      .prepare<{ n: number; last: string | null }>(
        `SELECT count(*) AS n, ${last}(id) AS last FROM (SELECT id FROM doc WHERE ${where} ORDER BY id ${direction} LIMIT ?)`,
      )
      .get(...values, limit)
    if (!all || all.last === null) return { count: 0, last: null }
    const deleted = this.#countDeleted({ ...range, end: { id: all.last, inclusive: true } })
    return { count: all.n - deleted, last: all.n < limit ? null : all.last }
  }

  #countDeleted(range: IdRange): number {
    const { where, values } = idRange(range, 'id')
    // The planner does not know that few are deleted.
    const sql = `SELECT count(*) AS n FROM doc INDEXED BY doc_deleted WHERE deleted AND ${where}`
    return this.#connection.prepare<{ n: number }>(sql).get(...values)?.n ?? 0
  }

  /** The id of the live document at a place of a range, from 1, in its direction; null beyond the end. */
  liveIdAt(range: IdRange, place: number): string | null {
    const { where, values } = idRange(range, 'id')
    const order = `ORDER BY id ${range.descending ? 'DESC' : 'ASC'} LIMIT 1 OFFSET ?`
    const sql = `SELECT id FROM doc WHERE NOT deleted AND ${where} ${order}`
    return this.#connection.prepare<{ id: string }>(sql).get(...values, place - 1)?.id ?? null
  }

  /** Carries out a write, inside the transaction of the caller. */
  write(id: string, old: OldDocument | null, write: DocWrite, seq: number): WriteEffect {
    const doc = old === null ? ++this.#lastDoc : old.num
    // A single time, since a version stops being a leaf when its successor is stored.
    const at = this.#now()
    let named: ReadonlySet<number> | undefined
    const blobs = () => {
      named ??= blobsOf(write)
      return named
    }
    const context = { doc, docIsNew: old === null, at, blobs }
    let externalBytes = 0
    let leaves = old?.leaves ?? 0
    let winner = old?.rev === write.rev ? old.winner : null
    for (const revision of write.revisions) {
      const change = this.#revisions.write(revision, context)
      externalBytes += change.bytes
      leaves += change.leaves
      if (revision.rev === write.rev) winner = change.num
    }
    winner ??= this.#revisions.find(doc, write.rev)?.num ?? null
    if (old?.leaves === 0) leaves = this.#countLeaves.get(doc)?.n ?? 0
    const deleted = Number(write.deleted)
    const checksum = docChecksum(id, write.rev, { num: doc, seq, deleted, leaves, winner })
    if (old === null) this.#insertDoc.run(doc, id, seq, write.rev, deleted, leaves, winner, checksum)
    else this.#updateDoc.run(seq, write.rev, deleted, leaves, winner, checksum, doc)
    return { isNew: old === null, wasDeleted: old?.deleted ?? false, oldSeq: old?.seq ?? null, externalBytes }
  }

  /** A document whose members throw if the row is damaged. */
  #found(row: DocRow, id: string): StoredDocument {
    const doc = new StoredDocument(row, this.#revisions, id)
    if (doc.isDamaged) doc.refuse(id)
    return doc
  }
}

class SalvagedDocument extends StoredDocument {
  readonly isSalvaged = true
}

const FANOUT = 1024
/** Enough: 1024^5 exceeds an eighth of the largest integer that JavaScript represents exactly. */
const LEVELS = [1, 2, 3, 4]

/**
 * Counts of the feed's rows, so that `pending` costs the same for a million documents as for ten thousand. Level L has
 * the number of documents in each range of 1024^L sequence numbers. A count adds complete ranges of each level, and
 * counts rows only in the last, partial range of 1024.
 */
export class FeedCounts {
  readonly #add: Statement
  readonly #sum: Statement<{ n: number | null }>
  readonly #rows: Statement<{ n: number }>
  /** Changes of the ranges of level 1 since the last flush. */
  readonly #changes = new Map<number, number>()

  constructor(connection: Connection) {
    this.#add = connection.prepare(
      'INSERT INTO feed_count (level, bucket, rows) VALUES (?, ?, ?) ' +
        'ON CONFLICT DO UPDATE SET rows = rows + excluded.rows',
    )
    this.#sum = connection.prepare(
      'SELECT sum(rows) AS n FROM feed_count WHERE level = ? AND bucket > ? AND bucket <= ?',
    )
    this.#rows = connection.prepare('SELECT count(*) AS n FROM doc WHERE seq > ? AND seq < ?')
  }

  /** Notes that a document has moved in the feed. @param from null if it is new @param to null if it was removed */
  move(from: number | null, to: number | null): void {
    if (from !== null) this.#change(from, -1)
    if (to !== null) this.#change(to, 1)
  }

  #change(seq: number, rows: number): void {
    const bucket = Math.floor(seq / FANOUT)
    this.#changes.set(bucket, (this.#changes.get(bucket) ?? 0) + rows)
  }

  /** Writes the noted changes, as part of the transaction that moved the documents. */
  flush(): void {
    let changes: ReadonlyMap<number, number> = this.#changes
    for (const level of LEVELS) {
      if (level > 1) changes = ofNextLevel(changes)
      for (const [bucket, rows] of changes) if (rows !== 0) this.#add.run(level, bucket, rows)
    }
  }

  /** Clears the noted changes after a commit or a rollback. */
  clearChanges(): void {
    this.#changes.clear()
  }

  /** The number of rows of the feed above `seq`, without changes that are only noted. */
  above(seq: number): number {
    const nextStretch = (Math.floor(seq / FANOUT) + 1) * FANOUT
    let rows = (this.#rows.get(seq, nextStretch) as { n: number }).n
    for (const level of LEVELS) {
      const bucket = Math.floor(seq / FANOUT ** level)
      const isTop = level === LEVELS.length
      const parentEnd = isTop ? Number.MAX_SAFE_INTEGER : (Math.floor(bucket / FANOUT) + 1) * FANOUT - 1
      rows += this.#sum.get(level, bucket, parentEnd)?.n ?? 0
    }
    return rows
  }
}

function ofNextLevel(changes: ReadonlyMap<number, number>): Map<number, number> {
  const sums = new Map<number, number>()
  for (const [bucket, rows] of changes) {
    const next = Math.floor(bucket / FANOUT)
    sums.set(next, (sums.get(next) ?? 0) + rows)
  }
  return sums
}

/** The approximate size of a write other than a document's, in bytes. */
export const SMALL_WRITE = 1024

interface LocalRow extends LocalDoc {
  readonly checksum: number | null
}

/** Of a damaged document, only its place in the order of ids. */
export interface FoundLocal extends LocalDoc {
  readonly isDamaged?: boolean
}

export class Locals {
  readonly #connection: Connection
  readonly #byId: Statement<LocalRow>
  readonly #put: Statement
  readonly #drop: Statement
  readonly #damage: DamageReports
  readonly #garbage: Pick<GarbageCounters, 'lacksChecksums'>
  readonly #checked: Statement<{ id: string }>
  readonly #addChecked: Statement

  constructor(
    connection: Connection,
    damage: DamageReports,
    garbage: Pick<GarbageCounters, 'lacksChecksums'>,
  ) {
    this.#connection = connection
    this.#damage = damage
    this.#garbage = garbage
    this.#byId = connection.prepare('SELECT id, rev, body, checksum FROM local WHERE id = ?')
    this.#put = connection.prepare(
      'INSERT INTO local (id, rev, body, checksum) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE ' +
        'SET rev = excluded.rev, body = excluded.body, checksum = excluded.checksum',
    )
    this.#drop = connection.prepare('DELETE FROM local WHERE id = ?')
    this.#checked = connection.prepare('SELECT id FROM refused_checkpoint WHERE id = ?')
    this.#addChecked = connection.prepare('INSERT OR IGNORE INTO refused_checkpoint (id) VALUES (?)')
  }

  /**
   * A damaged document counts as missing, and is reported. Most are checkpoints: a device that misses one compares what both
   * sides have, and writes it again.
   */
  byId(id: string): LocalDoc | null {
    const row = this.#byId.get(id)
    return row === undefined ? null : this.#sound(row)
  }

  #sound({ checksum, ...doc }: LocalRow): LocalDoc | null {
    if (agrees(checksum, localChecksum(doc), this.#garbage.lacksChecksums)) return doc
    this.#damage.damagedDocument(doc.id)
    return null
  }

  inRange(range: IdRange, limit: number): FoundLocal[] {
    const { where, values } = idRange(range, 'id')
    const order = `ORDER BY id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
    const sql = `SELECT id, rev, body, checksum FROM local WHERE ${where} ${order}`
    const rows = this.#connection.prepare<LocalRow>(sql).all(...values, limit)
    return rows.map((row) => this.#sound(row) ?? { id: row.id, rev: row.rev, body: '', isDamaged: true })
  }

  count(range: IdRange): number {
    const { where, values } = idRange(range, 'id')
    const sql = `SELECT count(*) AS n FROM local WHERE ${where}`
    return this.#connection.prepare<{ n: number }>(sql).get(...values)?.n ?? 0
  }

  /** @param view called when the decision is made */
  plan<R>({ id, decide }: LocalUpdate<R>, view: () => StoreView): Plan<Outcome<R>> {
    return {
      bytes: SMALL_WRITE,
      decide: () => {
        const now = view()
        const wasChecked = now.wasRestored && this.#wasChecked(id)
        const { result, write, checked } = decide(this.byId(id), now, wasChecked)
        return () => {
          if (write !== undefined) this.#write(id, write)
          if (checked && now.wasRestored) this.#addChecked.run(id)
          return { result }
        }
      },
    }
  }

  /** Stores the new body; null removes the document. */
  #write(id: string, doc: { readonly rev: number; readonly body: string } | null): void {
    if (doc === null) this.#drop.run(id)
    else this.#put.run(id, doc.rev, doc.body, localChecksum({ id, ...doc }))
  }

  /** Whether a decision on this id returned `checked` since the last restore. */
  #wasChecked(id: string): boolean {
    return this.#checked.get(id) !== undefined
  }
}
