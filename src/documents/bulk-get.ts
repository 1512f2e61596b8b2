/** `_bulk_get`, protocol.md 4.2: one result an input, in order, whatever is wrong with it. */

import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { checkDocId, isLocalId } from '../core/ids.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Body, BulkGetOptions } from './database.ts'
import {
  beginRevisions,
  beginTogether,
  type OpenRow,
  type RevisionsAsked,
  type RevisionsBegun,
  revisionPages,
  revisionsAsked,
} from './open-revisions.ts'
import { inlinePieces } from './parts.ts'
import { type Piece, pieceChunks } from './pieces.ts'
import { type ContentForm, type RenderedDocument, renderLocal } from './render.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'
import { readContent } from './stored-content.ts'

/** Characters of answers that are gathered before they are handed on. */
const GATHERED = 32 * 1024
/** Documents that are read in one turn. */
const TOGETHER = 50

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

/** Texts are gathered, since each piece that is handed on costs more than what is in it. */
async function* jsonPieces(results: AsyncIterable<BulkGetResult>): AsyncGenerator<Piece> {
  let text = '{"results":['
  let comma = ''
  for await (const { id, pages } of results) {
    text += `${comma}{"id":${JSON.stringify(id)},"docs":[`
    let separator = ''
    for await (const rows of pages) {
      for (const row of rows) {
        text += separator
        if ('error' in row) text += JSON.stringify(row)
        else if (row.contents.length === 0) text += `{"ok":${row.texts[0]}}`
        else {
          yield* [`${text}{"ok":`, ...inlinePieces(row), '}']
          text = ''
        }
        separator = ','
      }
      if (text.length > GATHERED) {
        yield text
        text = ''
      }
    }
    text += ']}'
    comma = ','
  }
  yield `${text}]}\n`
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
  const { docs } = bodyObject(body)
  if (!Array.isArray(docs)) throw new CouchError('bad_request', "Missing JSON list of 'docs'.")
  const breath = new Breath()
  for (let at = 0; at < docs.length; at += TOGETHER) {
    await breath.take()
    const inputs = docs.slice(at, at + TOGETHER).map((value) => readInput(value, options, limits, form))
    const begun = await beginDocuments(store, user, inputs)
    for (const input of inputs) {
      await breath.take()
      yield await resultOf(store, user, input, begun.get(input))
    }
  }
}

/** What one input asks for, or what is wrong with it. */
type Input = BulkGetResult | { readonly local: string } | DocumentInput

interface DocumentInput {
  readonly rev: unknown
  readonly asked: RevisionsAsked
}

function readInput(value: unknown, options: BulkGetOptions, limits: Limits, form: ContentForm): Input {
  if (!isJsonObject(value)) {
    return failed(null, null, new CouchError('bad_request', 'document must be a JSON object'))
  }
  const { id, rev, atts_since: since } = value
  if (id === undefined) return failed(null, null, new CouchError('bad_request', 'document id missed'))
  try {
    checkDocId(id, limits.maxDocumentIdLength)
  } catch (error) {
    return failed(id, null, error as CouchError)
  }
  if (isLocalId(id as string)) return { local: id as string }
  try {
    const sinceRevs = since === undefined ? {} : { attsSince: attsSince(since) }
    const revs = rev === undefined ? 'all' : [rev]
    return { rev, asked: revisionsAsked(id as string, revs, { ...options, ...sinceRevs }, form) }
  } catch (error) {
    return refused(id as string, rev, error)
  }
}

/** Documents that bring no contents of attachments, which are held one document at a time, are read together. */
async function beginDocuments(store: DatabaseStore, user: UserCtx, inputs: readonly Input[]) {
  const simple = inputs.filter(
    (input): input is DocumentInput =>
      'asked' in input && !input.asked.render.attachments && input.asked.render.attsSince === undefined,
  )
  const begun = await beginTogether(
    store,
    user,
    simple.map(({ asked }) => asked),
  )
  return new Map<Input, (typeof begun)[number]>(simple.map((input, at) => [input, begun[at] ?? null]))
}

async function resultOf(
  store: DatabaseStore,
  user: UserCtx,
  input: Input,
  begun: RevisionsBegun | CouchError | null | undefined,
): Promise<BulkGetResult> {
  if ('pages' in input) return input
  if ('local' in input) return localResult(store, user, input.local)
  const { asked, rev } = input
  try {
    if (begun instanceof CouchError) throw begun
    const first = begun ?? (await beginRevisions(store, user, asked))
    return { id: asked.id, pages: pagesOf(store, user, asked, first) }
  } catch (error) {
    return refused(asked.id, rev, error)
  }
}

function pagesOf(
  store: DatabaseStore,
  user: UserCtx,
  asked: RevisionsAsked,
  begun: RevisionsBegun,
): BulkGetResult['pages'] {
  const isWhole = begun.done === begun.plan.length
  const isBare = begun.rows.every((row) => 'missing' in row || row.contents.length === 0)
  if (isWhole && isBare) return [errorRows(asked.id, begun.rows)]
  return withErrors(asked.id, revisionPages(store, user, asked, begun))
}

/** What is wrong with one input is told in its row. @throws what is wrong with all of them */
function refused(id: string, rev: unknown, error: unknown): BulkGetResult {
  if (!(error instanceof CouchError)) throw error
  if (error.code === 'not_found') return failed(id, 'undefined', error)
  if (error.status === 400) return failed(id, rev ?? null, error)
  throw error
}

/** Whether they are revisions is looked at where they are used. */
function attsSince(value: unknown): string[] {
  if (Array.isArray(value)) return value
  throw new CouchError('bad_request', 'att_since value must be array of revs.')
}

async function* withErrors(
  id: string,
  pages: AsyncIterable<readonly OpenRow[]>,
): AsyncGenerator<readonly BulkGetRow[]> {
  for await (const rows of pages) yield errorRows(id, rows)
}

function errorRows(id: string, rows: readonly OpenRow[]): BulkGetRow[] {
  return rows.map((row) => ('missing' in row ? errorRow(id, row.missing, new CouchError('not_found')) : row))
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
