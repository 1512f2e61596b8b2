/** Finds documents with several leaves by a scan of the documents' rows, which are short, in stretches. */
import type { Paging } from '../engine.ts'
import type { Connection } from './connection.ts'
import { PageBound } from './id-pages.ts'
import type { Revisions } from './revisions.ts'
import type { Statement } from './statement.ts'
import { DOC_COLUMNS, type DocRow, StoredDocument } from './stored-document.ts'

/** Rows of one stretch, which takes about 0.5 ms. */
const STRETCH = 2000

export class ForkedDocuments {
  readonly #revisions: Revisions
  readonly #stretch: Statement<readonly [rows: number, last: number | null]>
  readonly #upTo: Statement<readonly [rows: number]>
  readonly #forked: Statement<DocRow>

  constructor(connection: Connection, revisions: Revisions) {
    this.#revisions = revisions
    this.#stretch = connection.prepareTuples(
      'SELECT count(*), max(num) FROM (SELECT num FROM doc WHERE num > ? ORDER BY num LIMIT ?)',
    )
    this.#upTo = connection.prepareTuples('SELECT count(*) FROM doc WHERE num > ? AND num <= ?')
    // 0 leaves: not counted yet, as in documents that an old version wrote.
    this.#forked = connection.prepareTuples(
      `SELECT ${DOC_COLUMNS} FROM doc AS d WHERE d.num > ? AND d.num <= ? AND d.leaves <> 1 ORDER BY d.num LIMIT ?`,
    )
  }

  /** Searches one stretch above the row number `after`. */
  search<R>(
    after: number,
    { limit, chars }: Paging,
    read: (doc: StoredDocument) => R,
  ): { readonly rows: R[]; readonly next: number | null; readonly searched: number } {
    const [count, last] = this.#stretch.get(after, STRETCH) ?? [0, null]
    if (last === null) return { rows: [], next: null, searched: 0 }
    const rows: R[] = []
    const bound = new PageBound(chars)
    let isFull = false
    let place = after
    for (const row of this.#forked.all(after, last, limit + 1)) {
      if (isFull || rows.length >= limit) {
        return { rows, next: place, searched: this.#upTo.get(after, place)?.[0] ?? 0 }
      }
      const doc = new StoredDocument(row, this.#revisions)
      // A row that was rebuilt may have one leaf, and a damaged page may have a row twice.
      if (doc.isDamaged || doc.hasOneLeaf || doc.num <= place) continue
      bound.begin()
      rows.push(read(doc))
      isFull = bound.isReached(doc.charsRead)
      place = doc.num
    }
    return { rows, next: count < STRETCH ? null : last, searched: count }
  }
}
