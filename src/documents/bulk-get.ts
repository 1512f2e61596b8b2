/** `_bulk_get`, protocol.md 4.2: one result an input, in order, whatever is wrong with it. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { checkDocId, isLocalId } from '../core/ids.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Body, BulkGetOptions } from './database.ts'
import {
  beginRevisions,
  type OpenRow,
  type RevisionsAsked,
  revisionPages,
  revisionsAsked,
} from './open-revisions.ts'
import { inlinePieces } from './parts.ts'
import { type Piece, pieceChunks } from './pieces.ts'
import { type ContentForm, type RenderedDocument, renderLocal } from './render.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'
import { readContent } from './stored-content.ts'

/** A list of ids and revisions: this many bytes hold about a million. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024

/** What one input comes to. */
export interface BulkGetResult {
  /** As it was sent; null for an input that has none. */
  readonly id: unknown
  readonly pages: AsyncIterable<readonly BulkGetRow[]> | Iterable<readonly BulkGetRow[]>
}

export type BulkGetRow = RenderedDocument | { readonly error: object }

/** `_bulk_get` as JSON. @throws bad_request and as bodyObject does, before the first chunk */
export async function* bulkGet(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
): AsyncGenerator<Uint8Array> {
  const results = bulkGetResults(store, user, body, options, limits, 'data')
  yield* pieceChunks(jsonPieces(results), (content, start, end) => readContent(store, content, start, end))
}

async function* jsonPieces(results: AsyncIterable<BulkGetResult>): AsyncGenerator<Piece> {
  let opening = '{"results":['
  for await (const { id, pages } of results) {
    yield `${opening}{"id":${JSON.stringify(id)},"docs":[`
    let separator = ''
    for await (const rows of pages) {
      for (const row of rows) {
        if ('error' in row) yield separator + JSON.stringify(row)
        else yield* [`${separator}{"ok":`, ...inlinePieces(row), '}']
        separator = ','
      }
    }
    yield ']}'
    opening = ','
  }
  yield opening === ',' ? ']}\n' : `${opening}]}\n`
}

/**
 * The results in the inputs' order; each one's pages are to be read before the next result is asked for.
 * @param form how attachments come that come with their content
 * @throws bad_request and as bodyObject does, before the first
 */
export async function* bulkGetResults(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
  form: ContentForm,
): AsyncGenerator<BulkGetResult> {
  requireMember(user, (await store.view()).security)
  const { docs } = bodyObject(body, MAX_REQUEST_BYTES)
  if (!Array.isArray(docs)) throw new CouchError('bad_request', "Missing JSON list of 'docs'.")
  const breath = new Breath()
  for (const asked of docs) {
    await breath.take()
    yield await resultOf(store, user, asked, options, limits, form)
  }
}

async function resultOf(
  store: DatabaseStore,
  user: UserCtx,
  value: unknown,
  options: BulkGetOptions,
  limits: Limits,
  form: ContentForm,
): Promise<BulkGetResult> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return failed(null, null, new CouchError('bad_request', 'document must be a JSON object'))
  }
  const { id, rev, atts_since: since } = value as Record<string, unknown>
  if (id === undefined) return failed(null, null, new CouchError('bad_request', 'document id missed'))
  try {
    checkDocId(id, limits.maxDocumentIdLength)
  } catch (error) {
    return failed(id, null, error as CouchError)
  }
  if (isLocalId(id as string)) return localResult(store, user, id as string)
  try {
    const sinceRevs = since === undefined ? {} : { attsSince: attsSince(since) }
    const revs = rev === undefined ? 'all' : [rev]
    const asked = revisionsAsked(id as string, revs, { ...options, ...sinceRevs }, form)
    return await documentResult(store, user, asked)
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    if (error.code === 'not_found') return failed(id, 'undefined', error)
    if (error.status === 400) return failed(id, rev ?? null, error)
    throw error
  }
}

/** Whether they are revisions is looked at where they are used. */
function attsSince(value: unknown): string[] {
  if (Array.isArray(value)) return value
  throw new CouchError('bad_request', 'att_since value must be array of revs.')
}

/** @throws not_found when every leaf of an unknown document is asked for; invalid_rev */
async function documentResult(
  store: DatabaseStore,
  user: UserCtx,
  asked: RevisionsAsked,
): Promise<BulkGetResult> {
  const begun = await beginRevisions(store, user, asked)
  return { id: asked.id, pages: withErrors(asked.id, revisionPages(store, user, asked, begun)) }
}

async function* withErrors(
  id: string,
  pages: AsyncIterable<readonly OpenRow[]>,
): AsyncGenerator<readonly BulkGetRow[]> {
  for await (const rows of pages) {
    yield rows.map((row) => ('missing' in row ? errorRow(id, row.missing, new CouchError('not_found')) : row))
  }
}

async function localResult(store: DatabaseStore, user: UserCtx, id: string): Promise<BulkGetResult> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  if (!doc) return failed(id, 'undefined', new CouchError('not_found'))
  return { id, pages: [[{ rev: `0-${doc.rev}`, texts: [renderLocal(doc)], contents: [] }]] }
}

function errorRow(id: unknown, rev: unknown, error: CouchError): BulkGetRow {
  return { error: { id, rev, ...error.toBody() } }
}

function failed(id: unknown, rev: unknown, error: CouchError): BulkGetResult {
  return { id, pages: [[errorRow(id, rev, error)]] }
}
