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

/** A document as it is before a write. */
export type OldDocument = Pick<StoredDocument, 'num' | 'seq' | 'deleted' | 'leaves'>

/** A document's row, and where its id stands among those asked for. */
interface PlacedRow extends DocRow {
  readonly place: number
}

/** What a write changed beside its own rows: the store's counters follow from it. */
export interface WriteEffect {
  readonly isNew: boolean
  readonly wasDeleted: boolean
  readonly oldSeq: number | null
  /** Change of the bytes that leaves hold. */
  readonly externalBytes: number
}

const DOC = 'd.num, d.id, d.seq, d.rev, d.deleted, d.leaves'
const DOC_WITH_BODY = `${DOC}, r.body, r.attachments`
const WITH_BODY = 'doc AS d CROSS JOIN revision AS r ON r.doc = d.num AND r.rev = d.rev'
const BY_IDS = 'FROM json_each(?) AS j CROSS JOIN doc AS d ON d.id = j.value'
const BY_IDS_WITH_BODY = `${BY_IDS} CROSS JOIN revision AS r ON r.doc = d.num AND r.rev = d.rev`

export class Documents implements DocumentRows {
  readonly #connection: Connection
  readonly #attachments: Attachments
  readonly #blobs: Blobs
  readonly #byId: Statement<DocRow>
  readonly #byIdWithBody: Statement<DocRow>
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
  readonly #ancestry: Statement<{ ancestry: Uint8Array | null }>
  readonly #body: Statement<{ body: string; attachments: number }>

  constructor(connection: Connection, attachments: Attachments, blobs: Blobs) {
    this.#connection = connection
    this.#attachments = attachments
    this.#blobs = blobs
    this.#byId = connection.prepare(`SELECT ${DOC} FROM doc AS d WHERE id = ?`)
    this.#byIdWithBody = connection.prepare(`SELECT ${DOC_WITH_BODY} FROM ${WITH_BODY} WHERE d.id = ?`)
    this.#byIds = connection.prepare(`SELECT j.key AS place, ${DOC} ${BY_IDS}`)
    this.#byIdsWithBody = connection.prepare(`SELECT j.key AS place, ${DOC_WITH_BODY} ${BY_IDS_WITH_BODY}`)
    this.#byIdsWithAncestry = connection.prepare(
      `SELECT j.key AS place, ${DOC_WITH_BODY}, r.ancestry ${BY_IDS_WITH_BODY}`,
    )
    this.#insertDoc = connection.prepare(
      'INSERT INTO doc (id, seq, rev, deleted, leaves) VALUES (?, ?, ?, ?, ?)',
    )
    this.#updateDoc = connection.prepare(
      'UPDATE doc SET seq = ?, rev = ?, deleted = ?, leaves = ? WHERE num = ?',
    )
    this.#countLeaves = connection.prepare('SELECT count(*) AS n FROM revision WHERE doc = ? AND leaf')
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
    this.#ancestry = connection.prepare('SELECT ancestry FROM revision WHERE doc = ? AND rev = ?')
    this.#body = connection.prepare('SELECT body, attachments FROM revision WHERE doc = ? AND rev = ?')
  }

  /** A document by id, and its row's number for {@link write}. */
  byId(id: string, touches?: Touches): StoredDocument | null {
    const row = (touches?.body ? this.#byIdWithBody : this.#byId).get(id)
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
    for (const row of rows) found[row.place] = this.#state(row)
    return found
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
  write(id: string, old: OldDocument | null, write: DocWrite, seq: number): WriteEffect {
    const num = old === null ? this.#addDoc(id, write, seq) : old.num
    let externalBytes = 0
    let leaves = old?.leaves ?? 0
    for (const revision of write.revisions) {
      const change = this.#writeRevision(num, old === null, revision)
      externalBytes += change.bytes
      leaves += change.leaves
    }
    if (old !== null) {
      const count = old.leaves === 0 ? (this.#countLeaves.get(num)?.n ?? 0) : leaves
      this.#updateDoc.run(seq, write.rev, Number(write.deleted), count, num)
    }
    return { isNew: old === null, wasDeleted: old?.deleted ?? false, oldSeq: old?.seq ?? null, externalBytes }
  }

  #addDoc(id: string, { rev, deleted, revisions }: DocWrite, seq: number): number {
    const leaves = revisions.filter(({ ancestry }) => ancestry !== null).length
    return Number(this.#insertDoc.run(id, seq, rev, Number(deleted), leaves).lastInsertRowid)
  }

  /** @returns by how much it changes the bytes that leaves hold, and their number */
  #writeRevision(doc: number, docIsNew: boolean, write: RevisionWrite): { bytes: number; leaves: number } {
    const stored = docIsNew ? undefined : this.#revision.get(doc, write.rev)
    const leaf = write.ancestry === null ? 0 : 1
    const ancestry = write.ancestry === null ? null : encodeAncestry(write.ancestry)
    const [wasLeaf, before] = stored?.leaf ? [1, stored.size] : [0, 0]
    if (write.content === undefined) {
      if (stored === undefined)
        throw new RangeError(`revision ${write.rev} is not stored and brings no content`)
      this.#updateLeaf.run(leaf, Number(write.deleted), ancestry, stored.num)
      return { bytes: leaf * stored.size - before, leaves: leaf - wasLeaf }
    }
    const { body, attachments } = write.content
    const size = attachments.reduce((sum, { length }) => sum + length, Buffer.byteLength(body))
    const columns = [leaf, Number(write.deleted), ancestry, attachments.length, size, body]
    const num = this.#putRevision(doc, write.rev, stored?.num, columns)
    if (stored !== undefined) this.#attachments.drop(num)
    this.#attachments.write(num, attachments)
    return { bytes: leaf * size - before, leaves: leaf - wasLeaf }
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

  #state(row: DocRow): StoredDocument {
    return new StoredDocument(row, this)
  }

  branchesOf(doc: number): Branch[] {
    return this.#leaves.all(doc).map(({ rev, deleted }) => new StoredBranch(doc, rev, deleted === 1, this))
  }

  revisionsOf(doc: number): StoredRevision[] {
    return this.#all
      .all(doc)
      .map(({ rev, deleted, leaf }) => ({ rev, deleted: deleted === 1, leaf: leaf === 1 }))
  }

  bodyOf(doc: number, rev: string): { body: string; attachments: number } | undefined {
    return this.#body.get(doc, rev)
  }

  ancestryOf(doc: number, rev: string): string[] {
    const ancestry = this.#ancestry.get(doc, rev)?.ancestry
    if (!ancestry) throw new RangeError('an ancestry was read after its callback had returned')
    return decodeAncestry(ancestry)
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
