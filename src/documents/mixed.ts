/** Documents with their attachments as the parts of multipart/mixed; protocol.md 3.2 and 4.2. */
import type { Limits, UserCtx } from '../core/types.ts'
import { type BulkGetResult, type BulkGetRow, bulkGetResults } from './bulk-get.ts'
import type { Body, BulkGetOptions, OpenOptions } from './database.ts'
import type { DocumentReader } from './document-reader.ts'
import { beginRevisions, type OpenRow, revisionPages, revisionsAsked } from './open-revisions.ts'
import { headerSafe, newBoundary, relatedPieces } from './parts.ts'
import { type Piece, pieceChunks } from './pieces.ts'
import type { RenderedDocument } from './render.ts'
import { type ReadContent, readContent } from './stored-content.ts'

const JSON_TYPE = 'Content-Type: application/json'
const ERROR_TYPE = 'Content-Type: application/json; error="true"'

/** Contents always come in these forms, and how they are coded is always told; so it is in CouchDB. */
const WITH_CONTENTS = { attachments: true, attEncodingInfo: true }

/**
 * `open_revs` as multipart/mixed, protocol.md 3.2.
 * @throws invalid_rev; not_found for `all` of an unknown document
 */
export async function* openRevsMixed(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  revs: readonly unknown[] | 'all',
  options: OpenOptions,
  boundary: string,
): AsyncGenerator<Uint8Array> {
  const asked = revisionsAsked(id, revs, { ...options, ...WITH_CONTENTS }, 'follows')
  const begun = await beginRevisions(store, user, asked)
  const pages = revisionPages(store, user, asked, begun)
  yield* pieceChunks(revisionParts(pages, boundary), contentsOf(store))
}

async function* revisionParts(
  pages: AsyncIterable<readonly OpenRow[]>,
  boundary: string,
): AsyncGenerator<Piece> {
  const between = `\r\n--${boundary}`
  yield `--${boundary}`
  for await (const rows of pages) {
    for (const row of rows) {
      if ('missing' in row) yield `\r\n${ERROR_TYPE}\r\n\r\n${JSON.stringify(row)}`
      else yield* documentPart(row, (inner) => `Content-Type: multipart/related; boundary="${inner}"`)
      yield between
    }
  }
  yield '--'
}

/** A document's header and content, without the delimiters around it. */
function documentPart(document: RenderedDocument, relatedHeader: (boundary: string) => string): Piece[] {
  const json = document.texts.join('')
  if (document.contents.length === 0) return [`\r\n${JSON_TYPE}\r\n\r\n`, json]
  const inner = newBoundary()
  return [`\r\n${relatedHeader(inner)}\r\n\r\n`, ...relatedPieces(json, document.contents, inner)]
}

/** `_bulk_get` as multipart, protocol.md 4.2. */
export async function* bulkGetMixed(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
  boundary: string,
): AsyncGenerator<Uint8Array> {
  const results = bulkGetResults(store, user, body, { ...options, ...WITH_CONTENTS }, limits, 'follows')
  yield* pieceChunks(bulkParts(results, boundary), contentsOf(store))
}

async function* bulkParts(results: AsyncIterable<BulkGetResult>, boundary: string): AsyncGenerator<Piece> {
  const before = `\r\n--${boundary}`
  for await (const { id, pages } of results) {
    for await (const rows of pages) {
      for (const row of rows) yield* [before, ...bulkPart(id, row)]
    }
  }
  yield `${before}--\r\n`
}

function bulkPart(id: unknown, row: BulkGetRow): Piece[] {
  if ('error' in row) return [`\r\n${ERROR_TYPE}\r\n\r\n${JSON.stringify(row.error)}`]
  return documentPart(
    row,
    (inner) =>
      `X-Doc-Id: ${headerSafe(String(id))}\r\nX-Rev-Id: ${headerSafe(row.rev)}\r\n` +
      `Content-Type: multipart/related; boundary=${inner}`,
  )
}

function contentsOf(store: DocumentReader): ReadContent {
  return (content, start, end) => readContent(store, content, start, end)
}
