/** Documents and their revisions as rows. No rule of CouchDB's is here: rows are read and written as decided. */
import { decodeAncestry, encodeAncestry } from '../../revisions/ancestry.ts'
import type { Branch } from '../../revisions/branch.ts'
import type {
  DocState,
  DocWrite,
  IdRange,
  RevisionWrite,
  StoredAttachment,
  StoredRevision,
  Touches,
} from '../engine.ts'
import type { Attachments } from './attachments.ts'
import type { Blobs } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { Statement, Value } from './statement.ts'
import {
  ANCESTRY_COLUMN,
  BODY_COLUMNS,
  type ContentRow,
  DOC_COLUMNS,
  type DocRow,
  type DocumentRows,
  type RevisionPlace,
  StoredBranch,
  StoredDocument,
} from './stored-document.ts'
import { Superseded } from './superseded.ts'

/** A document as it is before a write. */
export type OldDocument = Pick<StoredDocument, 'num' | 'seq' | 'rev' | 'deleted' | 'leaves' | 'winner'>

/** A document's row, and behind its columns where its id stands among those asked for. */
type PlacedRow = [...DocRow, place: number]

interface RevisionRow {
  readonly num: number
  readonly rev: string
  readonly leaf: number
  readonly deleted: number
  readonly size: number
}

/** What a write changed beside its own rows: the store's counters follow from it. */
export interface WriteEffect {
  readonly isNew: boolean
  readonly wasDeleted: boolean
  readonly oldSeq: number | null
  /** Change of the bytes that leaves hold. */
  readonly externalBytes: number
}

/** Of a document that was written before its winner's row was noted with it, that row is looked up. */
const WINNER =
  'r.num = coalesce(d.winner, (SELECT w.num FROM revision AS w WHERE w.doc = d.num AND w.rev = d.rev))'
const WITH_BODY = `doc AS d CROSS JOIN revision AS r ON ${WINNER}`
const BY_IDS = 'json_each(?) AS j CROSS JOIN doc AS d ON d.id = j.value'
const BY_IDS_WITH_BODY = `${BY_IDS} CROSS JOIN revision AS r ON ${WINNER}`

export class Documents implements DocumentRows {
  readonly #connection: Connection
  readonly #attachments: Attachments
  readonly #blobs: Blobs
  readonly #superseded: Superseded
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
  readonly #revision: Statement<RevisionRow>
  readonly #insertRevision: Statement
  readonly #updateRevision: Statement
  readonly #updateLeaf: Statement
  readonly #dropRevision: Statement
  readonly #leaves: Statement<RevisionRow>
  readonly #all: Statement<RevisionRow>
  readonly #ancestry: Statement<readonly [Uint8Array | null]>
  readonly #content: Statement<ContentRow>
  /** Numbers are given here, not by SQLite, so that a document's row can name its winner's before that is made. */
  #lastDoc: number
  #lastRevision: number

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, attachments: Attachments, blobs: Blobs, now: () => number) {
    this.#connection = connection
    this.#attachments = attachments
    this.#blobs = blobs
    this.#superseded = new Superseded(connection)
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
      'INSERT INTO doc (num, id, seq, rev, deleted, leaves, winner) VALUES (?, ?, ?, ?, ?, ?, ?)',
    )
    this.#updateDoc = connection.prepare(
      'UPDATE doc SET seq = ?, rev = ?, deleted = ?, leaves = ?, winner = ? WHERE num = ?',
    )
    this.#countLeaves = connection.prepare('SELECT count(*) AS n FROM revision WHERE doc = ? AND leaf')
    this.#revision = connection.prepare(
      'SELECT num, rev, leaf, deleted, size FROM revision WHERE doc = ? AND rev = ?',
    )
    this.#insertRevision = connection.prepare(
      'INSERT INTO revision (num, doc, rev, leaf, deleted, ancestry, attachments, size, body, stored_at) ' +
        'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
    )
    this.#updateRevision = connection.prepare(
      'UPDATE revision SET leaf = ?, deleted = ?, ancestry = ?, attachments = ?, size = ?, body = ? WHERE num = ?',
    )
    this.#updateLeaf = connection.prepare(
      'UPDATE revision SET leaf = ?, deleted = ?, ancestry = ? WHERE num = ?',
    )
    this.#dropRevision = connection.prepare('DELETE FROM revision WHERE num = ?')
    this.#leaves = connection.prepare(
      'SELECT num, rev, leaf, deleted, size FROM revision WHERE doc = ? AND leaf',
    )
    this.#all = connection.prepare('SELECT num, rev, leaf, deleted, size FROM revision WHERE doc = ?')
    this.#ancestry = connection.prepareTuples('SELECT ancestry FROM revision WHERE num = ?')
    this.#content = connection.prepareTuples('SELECT body, attachments FROM revision WHERE num = ?')
    this.#lastDoc = lastNumber(connection, 'doc')
    this.#lastRevision = lastNumber(connection, 'revision')
  }

  /** A document by id, and its row's number for {@link write}. */
  byId(id: string, touches?: Touches): StoredDocument | null {
    const withBody = touches?.ancestry ? this.#byIdWithAncestry : this.#byIdWithBody
    const row = (touches?.body ? withBody : this.#byId).get(id)
    return row === undefined ? null : this.#state(row)
  }

  /** Documents by id, in the order asked; null for one that is not there. */
  byIds(ids: readonly string[], touches: Touches | undefined): (StoredDocument | null)[] {
    // SQLite's JSON ends a text at its first NUL.
    if (ids.length === 1 || ids.some((id) => id.includes('\0')))
      return ids.map((id) => this.byId(id, touches))
    const found: (StoredDocument | null)[] = ids.map(() => null)
    const withBody = touches?.ancestry ? this.#byIdsWithAncestry : this.#byIdsWithBody
    const rows = (touches?.body ? withBody : this.#byIds).all(JSON.stringify(ids))
    for (const row of rows) {
      const place = row.pop() as number
      found[place] = this.#state(row as unknown as DocRow)
    }
    return found
  }

  /** Live documents of a range, in its direction. */
  inRange(range: IdRange, limit: number, touches: Touches | undefined): DocState[] {
    const { where, values } = idRange(range, 'd.id')
    const order = `ORDER BY d.id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(touches, `NOT d.deleted AND ${where} ${order}`, [...values, limit])
  }

  /** Documents of the feed with `above < seq < below`, in the order asked for. */
  inFeed(
    above: number,
    below: number,
    descending: boolean,
    limit: number,
    touches: Touches | undefined,
  ): DocState[] {
    const order = `ORDER BY d.seq ${descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(touches, `d.seq > ? AND d.seq < ? ${order}`, [above, below, limit])
  }

  #select(touches: Touches | undefined, where: string, values: Value[]): DocState[] {
    const sql = touches?.body
      ? `SELECT ${DOC_COLUMNS}, ${BODY_COLUMNS} FROM ${WITH_BODY} WHERE ${where}`
      : `SELECT ${DOC_COLUMNS} FROM doc AS d WHERE ${where}`
    const rows = this.#connection.prepareTuples<DocRow>(sql).all(...values)
    return rows.map((row) => this.#state(row))
  }

  /** How many documents, live ones unless `deletedToo`, stand in a stretch of a range; at most `limit`, and the last id. */
  countStretch(range: IdRange, deletedToo: boolean, limit: number): { count: number; last: string | null } {
    const { where, values } = idRange(range, 'id')
    const live = deletedToo ? '' : 'NOT deleted AND '
    const row = this.#connection
      .prepare<{ n: number; last: string | null }>(
        `SELECT count(*) AS n, max(id) AS last FROM (SELECT id FROM doc WHERE ${live}${where} ORDER BY id LIMIT ?)`,
      )
      .get(...values, limit)
    return { count: row?.n ?? 0, last: row?.last ?? null }
  }

  /** Carries out a write at a place of the feed, inside the transaction of the caller. */
  write(id: string, old: OldDocument | null, write: DocWrite, seq: number): WriteEffect {
    const doc = old === null ? ++this.#lastDoc : old.num
    // One time for all: what supersedes a version is stored when that ceases to be a leaf.
    const at = this.#now()
    let externalBytes = 0
    let leaves = old?.leaves ?? 0
    let winner = old?.rev === write.rev ? old.winner : null
    for (const revision of write.revisions) {
      const change = this.#writeRevision(doc, old === null, revision, at)
      externalBytes += change.bytes
      leaves += change.leaves
      if (revision.rev === write.rev) winner = change.num
    }
    winner ??= this.#revision.get(doc, write.rev)?.num ?? null
    const isDeleted = Number(write.deleted)
    if (old === null) this.#insertDoc.run(doc, id, seq, write.rev, isDeleted, leaves, winner)
    else {
      if (old.leaves === 0) leaves = this.#countLeaves.get(doc)?.n ?? 0
      this.#updateDoc.run(seq, write.rev, isDeleted, leaves, winner, doc)
    }
    return { isNew: old === null, wasDeleted: old?.deleted ?? false, oldSeq: old?.seq ?? null, externalBytes }
  }

  /** @returns the row's number, and by how much it changes the bytes that leaves hold, and their number */
  #writeRevision(
    doc: number,
    docIsNew: boolean,
    write: RevisionWrite,
    at: number,
  ): { num: number; bytes: number; leaves: number } {
    const stored = docIsNew ? undefined : this.#revision.get(doc, write.rev)
    const leaf = write.ancestry === null ? 0 : 1
    const ancestry = write.ancestry === null ? null : encodeAncestry(write.ancestry)
    const [wasLeaf, before] = stored?.leaf ? [1, stored.size] : [0, 0]
    if (write.content === undefined) {
      if (stored === undefined)
        throw new RangeError(`revision ${write.rev} is not stored and brings no content`)
      this.#updateLeaf.run(leaf, Number(write.deleted), ancestry, stored.num)
      if (leaf !== wasLeaf) this.#noteLeaf(stored.num, leaf === 1, at)
      return { num: stored.num, bytes: leaf * stored.size - before, leaves: leaf - wasLeaf }
    }
    const { body, attachments } = write.content
    const size = attachments.reduce((sum, { length }) => sum + length, Buffer.byteLength(body))
    const columns = [leaf, Number(write.deleted), ancestry, attachments.length, size, body]
    const num = this.#putRevision(doc, write.rev, stored?.num, columns, at)
    if (stored !== undefined) this.#attachments.drop(num)
    this.#attachments.write(num, attachments)
    if (leaf === 0 || stored?.leaf === 0) this.#noteLeaf(num, leaf === 1, at)
    return { num, bytes: leaf * size - before, leaves: leaf - wasLeaf }
  }

  #putRevision(doc: number, rev: string, stored: number | undefined, columns: Value[], at: number): number {
    if (stored === undefined) {
      this.#lastRevision += 1
      this.#insertRevision.run(this.#lastRevision, doc, rev, ...columns, at)
      return this.#lastRevision
    }
    this.#updateRevision.run(...columns, stored)
    return stored
  }

  /** Whether a revision is a leaf has changed, or it has come as none. */
  #noteLeaf(num: number, isLeaf: boolean, at: number): void {
    if (isLeaf) this.#superseded.revive(num, at)
    else this.#superseded.add(num, at)
  }

  /** As {@link dropRevision}, of a superseded version whose time is over: before it was superseded, not all is known. */
  expireRevision(num: number): void {
    this.#superseded.noteExpiry(num)
    this.dropRevision(num)
  }

  /** Removes a revision's row, by its number, and what it says of attachments. */
  dropRevision(num: number): void {
    this.#attachments.drop(num)
    this.#superseded.remove(num)
    this.#dropRevision.run(num)
  }

  #state(row: DocRow): StoredDocument {
    return new StoredDocument(row, this)
  }

  branchesOf(doc: number): Branch[] {
    return this.#leaves
      .all(doc)
      .map(({ num, rev, deleted }) => new StoredBranch({ doc, rev, num }, deleted === 1, this))
  }

  revisionsOf(doc: number): StoredRevision[] {
    return this.#all
      .all(doc)
      .map(({ rev, deleted, leaf }) => ({ rev, deleted: deleted === 1, leaf: leaf === 1 }))
  }

  contentOf(place: RevisionPlace): ContentRow | undefined {
    const num = this.#numOf(place)
    return num === undefined ? undefined : this.#content.get(num)
  }

  attachmentsOf(place: RevisionPlace): StoredAttachment[] {
    const num = this.#numOf(place)
    return num === undefined ? [] : this.#attachments.of(num)
  }

  ancestryOf(place: RevisionPlace): string[] {
    const num = this.#numOf(place)
    const ancestry = num === undefined ? null : this.#ancestry.get(num)?.[0]
    if (!ancestry) throw new RangeError('an ancestry was read after its callback had returned')
    return decodeAncestry(ancestry)
  }

  #numOf({ doc, rev, num }: RevisionPlace): number | undefined {
    return num ?? this.#revision.get(doc, rev)?.num
  }

  bytesOf(blob: number): Uint8Array {
    const bytes = this.#blobs.read(blob, 0, Number.MAX_SAFE_INTEGER)
    if (bytes === null) throw new RangeError(`blob ${blob} is not stored`)
    return bytes
  }
}

function lastNumber(connection: Connection, table: 'doc' | 'revision'): number {
  return connection.prepare<{ num: number | null }>(`SELECT max(num) AS num FROM ${table}`).get()?.num ?? 0
}

/** A range of ids as a condition on a column and its values. */
export function idRange(range: IdRange, column: string): { where: string; values: string[] } {
  const conditions: string[] = []
  const values: string[] = []
  const add = (bound: IdRange['start'], above: boolean) => {
    if (bound === undefined) return
    conditions.push(`${column} ${above ? '>' : '<'}${bound.inclusive ? '=' : ''} ?`)
    values.push(bound.id)
  }
  add(range.start, !range.descending)
  add(range.end, range.descending === true)
  return { where: conditions.length === 0 ? 'true' : conditions.join(' AND '), values }
}
