/** Implements storage/history-store.ts for SQLite, from the tables `revision` and `superseded`. */
import type { CouchError } from '../../core/errors.ts'
import type { IdRange, Page, StoredAttachment, StoredRevision, StoreView } from '../engine.ts'
import type {
  DocHistory,
  HistoryPaging,
  HistoryStore,
  StoredVersion,
  StoreHorizon,
  VersionRange,
} from '../history-store.ts'
import type { Attachments } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { DatabaseAccess } from './database-access.ts'
import type { GarbageCounters } from './garbage.ts'
import { fillPage, type IsInPlace, idRange, inFeedRange, inIdRange } from './id-pages.ts'
import type { Meta } from './meta.ts'
import type { Revisions } from './revisions.ts'
import type { Statement } from './statement.ts'
import {
  CONTENT_COLUMNS,
  type ContentRow,
  DOC_COLUMNS,
  type DocRow,
  type DocumentRows,
  type RevisionPlace,
  StoredDocument,
} from './stored-document.ts'

interface Dependencies {
  readonly access: DatabaseAccess
  readonly revisions: Revisions
  readonly attachments: Attachments
  readonly state: { readonly view: StoreView; readonly createdAt: number }
  readonly meta: Pick<Meta, 'number'>
  readonly garbage: Pick<GarbageCounters, 'counts'>
}

type VersionRow = readonly [
  num: number,
  rev: string,
  deleted: number,
  storedAt: number | null,
  leaf: number,
  supersededAt: number | null,
  grownAt: number | null,
  kept: number | null,
  size: number,
  attachments: number,
]

/**
 * Selects rows with only the index on (doc, rev) and the small table, since the rows of `revision` hold the bodies. Their
 * checksums cover the bodies, so the index proves a revision's name here: a row that has another one is damaged, and so is one
 * of another document, to which a damaged index leads, and one that is a leaf without an ancestry, or has one and is none.
 */
const VERSIONS = `
SELECT r.num, r.rev, r.deleted, r.stored_at, r.leaf, p.at, r.grown_at, p.kept, r.size, r.attachments
  FROM (
    SELECT o.num, o.rev, s.at, s.kept FROM revision AS o INDEXED BY sqlite_autoindex_revision_1
      LEFT JOIN superseded AS s ON s.revision = o.num
      WHERE o.doc = ? AND o.num < ? AND (s.at IS NULL OR s.at > ?) ORDER BY o.num DESC LIMIT ?
  ) AS p CROSS JOIN revision AS r ON r.num = p.num
  WHERE +r.doc = ? AND +r.rev = p.rev AND r.leaf = (typeof(r.ancestry) = 'blob')
    AND (r.stored_at IS NULL OR r.stored_at <= ?)
  ORDER BY r.num DESC`

export class History implements HistoryStore {
  readonly #connection: Connection
  readonly #deps: Dependencies
  readonly #rows: HistoryRows
  readonly #byId: Statement<DocRow>
  readonly #newest: Statement<DocRow>
  readonly #oldest: Statement<readonly [storedAt: number | null]>

  constructor(connection: Connection, deps: Dependencies) {
    this.#connection = connection
    this.#deps = deps
    this.#rows = new HistoryRows(connection, deps)
    this.#byId = connection.prepareTuples(`SELECT ${DOC_COLUMNS} FROM doc AS d WHERE d.id = ?`)
    this.#newest = connection.prepareTuples(
      `SELECT ${DOC_COLUMNS} FROM doc AS d WHERE d.seq < ? ORDER BY d.seq DESC LIMIT ?`,
    )
    this.#oldest = connection.prepareTuples('SELECT stored_at FROM revision ORDER BY num LIMIT 1')
  }

  async horizon(): Promise<StoreHorizon> {
    return this.#deps.access.read(() => {
      const timed = this.#deps.meta.number('timed_since')
      const made = this.#deps.state.createdAt * 1000
      const begun = Math.min(made, this.#oldest.get()?.[0] ?? made)
      return { timed, whole: Math.max(timed, this.#deps.garbage.counts.historySince), begun }
    })
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocHistory | null, id: string, view: StoreView) => R,
  ): Promise<R[]> {
    return this.#deps.access.read(() =>
      ids.map((id) => {
        const row = this.#byId.get(id)
        const doc = row === undefined ? null : this.#document(row, id)
        if (doc?.isDamaged) doc.refuse(id)
        return read(doc, id, this.#deps.state.view)
      }),
    )
  }

  async readRange<R>(
    range: IdRange,
    paging: HistoryPaging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#page(paging, inIdRange(range), read, (last, limit) => {
      const rest = last === null ? range : { ...range, start: { id: last.id, inclusive: false } }
      const { where, values } = idRange(rest, 'd.id')
      const order = `ORDER BY d.id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
      return this.#connection
        .prepareTuples<DocRow>(`SELECT ${DOC_COLUMNS} FROM doc AS d WHERE ${where} ${order}`)
        .all(...values, limit)
    })
  }

  async readNewest<R>(
    before: number,
    paging: HistoryPaging,
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#page(paging, inFeedRange(-1, before, true), read, (last, limit) =>
      this.#newest.all(last?.seq ?? before, limit),
    )
  }

  #page<R>(
    paging: HistoryPaging,
    isInPlace: IsInPlace<StoredHistory>,
    read: (doc: DocHistory, view: StoreView) => R,
    fetch: (last: StoredHistory | null, limit: number) => DocRow[],
  ): Page<R> {
    return this.#deps.access.read(() => {
      const { view } = this.#deps.state
      const docs = (last: StoredHistory | null, limit: number) =>
        fetch(last, limit).map((row) => this.#document(row))
      const page = fillPage(
        paging,
        docs,
        isInPlace,
        (doc) => read(doc, view),
        (doc) => doc.charsRead,
      )
      return { ...page, view }
    })
  }

  #document(row: DocRow, asked = row[1]): StoredHistory {
    return new StoredHistory(row, this.#rows, asked)
  }
}

class StoredHistory extends StoredDocument implements DocHistory {
  readonly #rows: HistoryRows

  constructor(row: DocRow, rows: HistoryRows, asked: string) {
    super(row, rows, asked)
    this.#rows = rows
  }

  versions(range: VersionRange = {}): readonly StoredVersion[] {
    if (this.isDamaged) throw this.#rows.damaged(this.id)
    return this.#rows.versionsOf(this.num, range)
  }
}

/** The rows of documents, including those that are retained only for the time machine. */
class HistoryRows implements DocumentRows {
  readonly #deps: Dependencies
  readonly #versions: Statement<VersionRow>
  readonly #revision: Statement<readonly [num: number, deleted: number]>
  readonly #content: Statement<ContentRow>

  constructor(connection: Connection, deps: Dependencies) {
    this.#deps = deps
    this.#versions = connection.prepareTuples(VERSIONS)
    this.#revision = connection.prepareTuples('SELECT num, deleted FROM revision WHERE doc = ? AND rev = ?')
    this.#content = connection.prepareTuples(`SELECT ${CONTENT_COLUMNS} FROM revision WHERE num = ?`)
  }

  versionsOf(doc: number, range: VersionRange): StoredVersion[] {
    const max = Number.MAX_SAFE_INTEGER
    const { leavesAfter = -1, before = max, limit = max, storedBy = max } = range
    return this.#versions
      .all(doc, before, leavesAfter, limit, doc, storedBy)
      .map(([place, rev, deleted, storedAt, leaf, supersededAt, grownAt, kept, size, attachments]) => ({
        place,
        rev,
        deleted: deleted === 1,
        storedAt,
        supersededAt: leaf === 1 ? null : (supersededAt ?? 0),
        grownAt,
        isRetained: kept === 1,
        size,
        attachments,
      }))
  }

  branchesOf(doc: number) {
    return this.#deps.revisions.branchesOf(doc)
  }

  revisionsOf(doc: number): StoredRevision[] {
    return this.versionsOf(doc, {}).map(({ rev, deleted, supersededAt }) => {
      return { rev, deleted, leaf: supersededAt === null }
    })
  }

  retainedOf(doc: number): string[] {
    return this.#deps.revisions.retainedOf(doc)
  }

  isDeleted({ doc, rev }: RevisionPlace): boolean | null {
    const deleted = this.#revision.get(doc, rev)?.[1]
    return deleted === undefined ? null : deleted === 1
  }

  contentOf(place: RevisionPlace): ContentRow | undefined {
    const num = this.#numOf(place)
    return num === undefined ? undefined : this.#content.get(num)
  }

  attachmentsOf(place: RevisionPlace): StoredAttachment[] {
    const num = this.#numOf(place)
    return num === undefined ? [] : this.#deps.attachments.of(num)
  }

  ancestryOf(place: RevisionPlace): Uint8Array {
    return this.#deps.revisions.ancestryOf(place)
  }

  get lacksChecksums(): boolean {
    return this.#deps.revisions.lacksChecksums
  }

  rebuilt(row: DocRow, id: string): DocRow | null {
    return this.#deps.revisions.rebuilt(row, id)
  }

  damagedLeavesOf(doc: number): ReadonlySet<string> {
    return this.#deps.revisions.damagedLeavesOf(doc)
  }

  damaged(id?: string, place?: RevisionPlace): CouchError {
    return this.#deps.revisions.damaged(id, place)
  }

  #numOf({ doc, rev, num }: RevisionPlace): number | undefined {
    return num ?? this.#revision.get(doc, rev)?.[0]
  }
}
