/** Searches by a json index: its rows name the documents, or have all fields of the answer. */
import { BatchSize, isHeldLong } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { renderDocument, unlessDamaged } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { type FindRequest, invalidBookmark, isDescending } from './find-request.ts'
import type { KeyBounds } from './index-choice.ts'
import type { IndexRange, IndexRow, IndexScan } from './index-scan.ts'
import { columnsOf, type MangoIndex } from './mango-index.ts'
import type { Matches } from './matches.ts'
import { documentOf, elementTexts, parseFieldPath } from './projection.ts'

/** The rows of a page, at least and at most. */
const LEAST_ROWS = 32
const MOST_ROWS = 1000
/** The documents of the first step, and of the largest. */
const FIRST_DOCS = 8
const MOST_DOCS = 256
/** The characters of documents of one step. */
const STEP_CHARS = 256 * 1024

/** An index, and what a query reads of it. */
export interface IndexQuery {
  readonly store: DatabaseStore
  readonly user: UserCtx
  readonly request: FindRequest
  readonly index: MangoIndex
  readonly bounds: KeyBounds
  /** Whether the rows have all fields of the answer. */
  readonly covering: boolean
}

/**
 * Tests the documents of the rows, in the order of the index. Yields after each step of a few milliseconds.
 * @throws invalid_bookmark; invalid_selector if a document is too much work; unauthorized, forbidden
 */
export async function* searchIndex(
  query: IndexQuery,
  scan: IndexScan,
  matches: Matches,
): AsyncGenerator<void> {
  const { limit, skip } = query.request
  const range = rangeOf(query)
  if (matches.isComplete) return
  const most = Math.min(Math.max(limit + skip, LEAST_ROWS), MOST_ROWS)
  const size = new BatchSize(FIRST_DOCS, MOST_DOCS)
  for await (const rows of scan.rows(range, most)) {
    for (let at = 0; at < rows.length; ) {
      const since = performance.now()
      const step = rows.slice(at, at + size.size)
      at += query.covering ? await testRows(query, step, matches) : await readDocuments(query, step, matches)
      size.adapt(since)
      yield
      if (matches.isComplete) return
    }
  }
}

function rangeOf({ request, index, bounds }: IndexQuery): IndexRange {
  const { partition, after, bookmark } = request
  const isOfIndex =
    after === null || (after.key !== null && elementTexts(after.key).length === index.fields.length)
  if (!isOfIndex) throw invalidBookmark(bookmark)
  return { ...bounds, partition, descending: isDescending(request), after }
}

/** Tests documents until time is up. @returns how many rows are done */
async function readDocuments(
  query: IndexQuery,
  rows: readonly IndexRow[],
  matches: Matches,
): Promise<number> {
  const { store, user, request } = query
  const { conflicts } = request
  const since = performance.now()
  const texts = await store.readDocs(
    rows.map(({ id }) => id),
    (doc, _id, view) => {
      requireMember(user, view.security)
      // It may have been deleted since the index was updated.
      return unlessDamaged(
        () => (doc === null || doc.deleted ? null : renderDocument(doc, doc.rev, { conflicts })),
        () => undefined,
      )
    },
    { body: true, branches: conflicts },
    STEP_CHARS,
  )
  let done = 0
  for (const text of texts) {
    if (matches.isComplete || matches.chunk.isLarge || (done > 0 && isHeldLong(since))) break
    const row = rows[done++] as IndexRow
    matches.keysExamined += 1
    if (text === undefined) matches.damaged += 1
    if (text === undefined || text === null) continue
    matches.docsExamined += 1
    if (!matches.test(row, text)) await matches.testLong(row, text)
  }
  return done
}

/** Tests the documents that rows describe, until time is up. @returns how many rows are done */
async function testRows(query: IndexQuery, rows: readonly IndexRow[], matches: Matches): Promise<number> {
  const { store, user, index } = query
  requireMember(user, (await store.view()).security)
  const since = performance.now()
  const paths = columnsOf(index).map(parseFieldPath)
  let done = 0
  for (const row of rows) {
    if (matches.isComplete || matches.chunk.isLarge || isHeldLong(since)) break
    done += 1
    matches.keysExamined += 1
    const text = describedDocument(row, paths)
    if (!matches.test(row, text)) await matches.testLong(row, text)
  }
  return done
}

/** A document with the fields of an index. */
function describedDocument({ id, key }: IndexRow, paths: readonly (readonly string[])[]): string {
  const values = elementTexts(key)
  const fields = paths.map((path, at) => [path, values[at] as string] as const)
  return documentOf([...fields, [['_id'], JSON.stringify(id)]])
}
