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
import type { Connection, Statement, Value } from './connection.ts'
import {
  type DocRow,
  type DocumentRows,
  type RevisionRow,
  StoredBranch,
  StoredDocument,
} from './stored-document.ts'

/** What a write changed beside its own rows: the store's counters follow from it. */
export interface WriteEffect {
  readonly isNew: boolean
  readonly wasDeleted: boolean
  readonly oldSeq: number | null
  /** Change of the bytes that leaves hold. */
  readonly externalBytes: number
}

const DOC = 'd.num, d.id, d.seq, d.rev, d.deleted'
const DOC_WITH_BODY = `${DOC}, r.body, r.attachments`
const WITH_BODY = 'doc AS d CROSS JOIN revision AS r ON r.doc = d.num AND r.rev = d.rev'

export class Documents implements DocumentRows {
  readonly #connection: Connection
  readonly #attachments: Attachments
  readonly #blobs: Blobs
  readonly #byId: Statement<DocRow>
  readonly #insertDoc: Statement
  readonly #updateDoc: Statement
  readonly #revision: Statement<RevisionRow>
  readonly #insertRevision: Statement
  readonly #updateRevision: Statement
  readonly #updateLeaf: Statement
  readonly #dropRevision: Statement
  readonly #leaves: Statement<RevisionRow>
  readonly #all: Statement<RevisionRow>
  readonly #ancestry: Statement<{ ancestry: Uint8Array }>
  readonly #body: Statement<{ body: string; attachments: number }>

  constructor(connection: Connection, attachments: Attachments, blobs: Blobs) {
    this.#connection = connection
    this.#attachments = attachments
    this.#blobs = blobs
    this.#byId = connection.prepare(`SELECT ${DOC} FROM doc AS d WHERE id = ?`)
    this.#insertDoc = connection.prepare('INSERT INTO doc (id, seq, rev, deleted) VALUES (?, ?, ?, ?)')
    this.#updateDoc = connection.prepare('UPDATE doc SET seq = ?, rev = ?, deleted = ? WHERE num = ?')
    this.#revision = connection.prepare(
      'SELECT num, rev, leaf, deleted, size FROM revision WHERE doc = ? AND rev = ?',
    )
    this.#insertRevision = connection.prepare(
      'INSERT INTO revision (doc, rev, leaf, deleted, ancestry, attachments, size, body) ' +
        'VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
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
    this.#ancestry = connection.prepare('SELECT ancestry FROM revision WHERE num = ?')
    this.#body = connection.prepare('SELECT body, attachments FROM revision WHERE doc = ? AND rev = ?')
  }

  /** A document by id, and its row's number for {@link write}. */
  byId(id: string): (DocState & { readonly num: number }) | null {
    const row = this.#byId.get(id)
    return row === undefined ? null : this.#state(row)
  }

  /** Live documents of a range, in its direction. */
  inRange(range: IdRange, limit: number, touches: Touches | undefined): DocState[] {
    const { where, values } = idRange(range, 'd.id')
    const sql =
      `SELECT ${touches?.body ? DOC_WITH_BODY : DOC} FROM ${touches?.body ? WITH_BODY : 'doc AS d'} ` +
      `WHERE NOT d.deleted AND ${where} ORDER BY d.id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(sql, [...values, limit])
  }

  /** Documents of the feed with `above < seq < below`, in the order asked for. */
  inFeed(
    above: number,
    below: number,
    descending: boolean,
    limit: number,
    touches: Touches | undefined,
  ): DocState[] {
    const sql =
      `SELECT ${touches?.body ? DOC_WITH_BODY : DOC} FROM ${touches?.body ? WITH_BODY : 'doc AS d'} ` +
      `WHERE d.seq > ? AND d.seq < ? ORDER BY d.seq ${descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#select(sql, [above, below, limit])
  }

  #select(sql: string, values: Value[]): DocState[] {
    const rows = this.#connection.prepare<DocRow>(sql).all(...values)
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
  write(
    id: string,
    old: { num: number; seq: number; deleted: boolean } | null,
    write: DocWrite,
    seq: number,
  ): WriteEffect {
    const num = this.#writeDoc(id, old?.num, write, seq)
    let externalBytes = 0
    for (const revision of write.revisions) externalBytes += this.#writeRevision(num, old === null, revision)
    return { isNew: old === null, wasDeleted: old?.deleted ?? false, oldSeq: old?.seq ?? null, externalBytes }
  }

  #writeDoc(id: string, num: number | undefined, write: DocWrite, seq: number): number {
    const deleted = write.deleted ? 1 : 0
    if (num === undefined) {
      return Number(this.#insertDoc.run(id, seq, write.rev, deleted).lastInsertRowid)
    }
    this.#updateDoc.run(seq, write.rev, deleted, num)
    return num
  }

  #writeRevision(doc: number, docIsNew: boolean, write: RevisionWrite): number {
    const stored = docIsNew ? undefined : this.#revision.get(doc, write.rev)
    const leaf = write.ancestry === null ? 0 : 1
    const ancestry = write.ancestry === null ? null : encodeAncestry(write.ancestry)
    const before = stored?.leaf ? stored.size : 0
    if (write.content === undefined) {
      if (stored === undefined)
        throw new RangeError(`revision ${write.rev} is not stored and brings no content`)
      this.#updateLeaf.run(leaf, write.deleted ? 1 : 0, ancestry, stored.num)
      return leaf * stored.size - before
    }
    const { body, attachments } = write.content
    const size = attachments.reduce((sum, { length }) => sum + length, Buffer.byteLength(body))
    const columns = [leaf, write.deleted ? 1 : 0, ancestry, attachments.length, size, body]
    const num = this.#putRevision(doc, write.rev, stored?.num, columns)
    if (stored !== undefined) this.#attachments.drop(num)
    this.#attachments.write(num, attachments)
    return leaf * size - before
  }

  #putRevision(doc: number, rev: string, num: number | undefined, columns: Value[]): number {
    if (num === undefined) return Number(this.#insertRevision.run(doc, rev, ...columns).lastInsertRowid)
    this.#updateRevision.run(...columns, num)
    return num
  }

  /** Removes a revision's row, by its number, and what it says of attachments. */
  dropRevision(num: number): void {
    this.#attachments.drop(num)
    this.#dropRevision.run(num)
  }

  #state(row: DocRow): DocState & { readonly num: number } {
    return new StoredDocument(row, this)
  }

  branchesOf(doc: number): Branch[] {
    return this.#leaves.all(doc).map((row) => new StoredBranch(row, this))
  }

  revisionsOf(doc: number): StoredRevision[] {
    return this.#all
      .all(doc)
      .map(({ rev, deleted, leaf }) => ({ rev, deleted: deleted === 1, leaf: leaf === 1 }))
  }

  bodyOf(doc: number, rev: string): { body: string; attachments: number } | undefined {
    return this.#body.get(doc, rev)
  }

  ancestryOf(revision: number): string[] {
    const row = this.#ancestry.get(revision)
    if (row === undefined) throw new RangeError('an ancestry was read after its callback had returned')
    return decodeAncestry(row.ancestry)
  }

  bytesOf(blob: number): Uint8Array {
    const bytes = this.#blobs.read(blob, 0, Number.MAX_SAFE_INTEGER)
    if (bytes === null) throw new RangeError(`blob ${blob} is not stored`)
    return bytes
  }

  attachmentsOf(doc: number, rev: string): StoredAttachment[] {
    const row = this.#revision.get(doc, rev)
    return row === undefined ? [] : this.#attachments.of(row.num)
  }
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
