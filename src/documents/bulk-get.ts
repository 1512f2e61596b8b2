/** `_bulk_get`, protocol.md 4.2: one result for each input, in order; an error in one input is in its result. */

import { CouchError, isDamage } from '../core/errors.ts'
import { BatchSize, Yielder } from '../core/event-loop.ts'
import { checkDocId, isLocalId } from '../core/ids.ts'
import { isJsonObject, quoted } from '../core/json.ts'
import { checkSoughtId } from '../core/partitions.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import { parseRev } from '../revisions/rev.ts'
import type { Body, BulkGetOptions, DocumentReader } from './database.ts'
import type { Schema } from './json-parser.ts'
import {
  isComplete,
  type RevisionRow,
  type RevisionsProgress,
  type RevisionsRequest,
  readFirstPage,
  readFirstPages,
  revisionPages,
  revisionsRequest,
} from './open-revisions.ts'
import {
  documentPart,
  errorPart,
  headerSafe,
  inlinePieces,
  MULTIPART_OPTIONS,
  type Piece,
  pieceChunks,
} from './pieces.ts'
import type { ContentForm, RenderedDocument } from './render.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'
import { readContent } from './stored-content.ts'

/** Characters of answers that are joined, since passing a piece on costs more than making it. */
const JOINED_CHARS = 8 * 1024
/** The maximum and initial number of documents that are read in one turn, unless they are large. */
const MAX_GROUP = 100
const FIRST_GROUP = 25
/** Maximum number of characters in one input, which is sent back with its error. */
const MAX_INPUT = 64 * 1024

/** The result of one input. */
interface BulkGetResult {
  /** As sent; null for an input without id. */
  readonly id: unknown
  readonly pages: AsyncIterable<readonly BulkGetRow[]> | Iterable<readonly BulkGetRow[]>
}

export type BulkGetRow = RenderedDocument | BulkGetError

interface BulkGetError {
  readonly error: object
}

/** A result that has been read and has no attachment contents. */
interface ReadyResult {
  readonly id: unknown
  readonly rows: readonly BulkGetRow[]
}

/** A result, or a function that reads it. */
type Pending = ReadyResult | (() => Promise<ReadyResult | BulkGetResult>)

/** `_bulk_get` as JSON. @throws bad_request and as bodyObject does, before the first chunk */
export async function* bulkGet(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
): AsyncGenerator<Uint8Array> {
  const groups = pendingGroups(store, user, body, options, limits, 'data')
  yield* pieceChunks(jsonPieces(groups), (content, start, end) => readContent(store, content, start, end))
}

async function* jsonPieces(groups: AsyncIterable<readonly Pending[]>): AsyncGenerator<Piece> {
  const yielder = new Yielder()
  let text = '{"results":['
  let comma = ''
  for await (const group of groups) {
    for (const pending of group) {
      const result = typeof pending === 'function' ? await inTurn(pending, yielder) : pending
      text += `${comma}{"id":${valueText(result.id)},"docs":[`
      comma = ','
      if ('rows' in result) text += result.rows.map(rowText).join(',')
      else {
        yield text
        yield* pagePieces(result.pages)
        text = ''
      }
      text += ']}'
      if (text.length < JOINED_CHARS) continue
      yield text
      text = ''
    }
  }
  yield `${text}]}\n`
}

/** Reads a result in a turn of its own. */
async function inTurn(
  read: () => Promise<ReadyResult | BulkGetResult>,
  yielder: Yielder,
): Promise<ReadyResult | BulkGetResult> {
  await yielder.yieldIfDue()
  return read()
}

function valueText(value: unknown): string {
  return typeof value === 'string' ? quoted(value) : JSON.stringify(value)
}

/** @param row one without contents of attachments */
function rowText(row: BulkGetRow): string {
  return 'error' in row ? JSON.stringify(row) : `{"ok":${row.texts[0]}}`
}

async function* pagePieces(pages: BulkGetResult['pages']): AsyncGenerator<Piece> {
  let separator = ''
  for await (const rows of pages) {
    for (const row of rows) {
      yield separator
      separator = ','
      if ('error' in row || row.contents.length === 0) yield rowText(row)
      else yield* ['{"ok":', ...inlinePieces(row), '}']
    }
  }
}

/**
 * Yields the results in the inputs' order. Read all pages of a result before you request the next one.
 * @param form the form of attachments that come with their content
 * @throws bad_request and as bodyObject, before the first
 */
export async function* bulkGetResults(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
  form: ContentForm,
): AsyncGenerator<BulkGetResult> {
  const yielder = new Yielder()
  for await (const group of pendingGroups(store, user, body, options, limits, form)) {
    for (const pending of group) {
      const result = typeof pending === 'function' ? await inTurn(pending, yielder) : pending
      yield 'rows' in result ? { id: result.id, pages: [result.rows] } : result
    }
  }
}

/** Yields the results in groups that were read together. Read each result before you request the next one. */
async function* pendingGroups(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
  form: ContentForm,
): AsyncGenerator<readonly Pending[]> {
  requireMember(user, (await store.view()).security)
  const docs = (await bodyObject(body, schemaOf(limits))).docs as readonly unknown[] | undefined
  if (docs === undefined) throw missingDocs()
  const common = revisionsRequest('', 'all', options, form)
  const yielder = new Yielder()
  const stride = new BatchSize(FIRST_GROUP, MAX_GROUP)
  for (let at = 0; at < docs.length; ) {
    await yielder.yieldIfDue()
    const since = performance.now()
    const inputs = docs
      .slice(at, at + stride.size)
      .map((value) => readInput(value, common, limits, store.partitioned))
    at += inputs.length
    const group = await readGroup(store, user, inputs)
    stride.adapt(since)
    yield group
  }
}

function schemaOf({ maxBulkGet }: Limits): Schema {
  const docs: Schema = {
    check: (value) => {
      if (!Array.isArray(value)) throw missingDocs()
    },
    maxCount: maxBulkGet,
    tooMany: () => new CouchError('bulk_get_count', String(maxBulkGet)),
    elements: { maxLength: MAX_INPUT },
  }
  return { members: { docs }, others: { maxLength: MAX_INPUT } }
}

function missingDocs(): CouchError {
  return new CouchError('bad_request', "Missing JSON list of 'docs'.")
}

/** The request of one input, or its error. */
type Input = ReadyResult | DocumentInput

interface DocumentInput {
  readonly rev: unknown
  readonly request: RevisionsRequest
}

/** @param common the options for all documents */
function readInput(
  value: unknown,
  { latest, render, form }: RevisionsRequest,
  limits: Limits,
  partitioned: boolean,
): Input {
  if (!isJsonObject(value) || Object.keys(value).length === 0) {
    return failed(null, null, new CouchError('bad_request', 'document must be a JSON object'))
  }
  const { rev, atts_since: since } = value
  if (value.id === undefined) return failed(null, null, new CouchError('bad_request', 'document id missed'))
  let id: string
  try {
    id = checkDocId(value.id, { maxBytes: limits.maxDocumentIdLength, partitioned: false })
    if (partitioned) checkSoughtId(id)
  } catch (error) {
    return failed(value.id, null, error as CouchError)
  }
  // `_local` documents have no revisions to read (couch_db:open_doc_revs).
  if (isLocalId(id)) return failed(id, rev ?? 'undefined', new CouchError('not_found'))
  const revs = rev === undefined ? 'all' : [rev]
  const request: RevisionsRequest = { id, revs, latest, render, form }
  if (since === undefined || (Array.isArray(since) && since.length === 0)) return { rev, request }
  try {
    const attsSince = revList(since).map(parseRev)
    return { rev, request: { ...request, render: { ...render, attsSince } } }
  } catch (error) {
    return refused(id, rev, error)
  }
}

/** Reads documents without attachment contents together; contents are pinned one document at a time. */
async function readGroup(
  store: DocumentReader,
  user: UserCtx,
  inputs: readonly Input[],
): Promise<readonly Pending[]> {
  const requests = inputs.flatMap((input) => (hasNoContents(input) ? input.request : []))
  const firstPages = (await readFirstPages(store, user, requests)).values()
  return inputs.map((input) => {
    if ('rows' in input) return input
    return pendingOf(store, user, input, hasNoContents(input) ? (firstPages.next().value ?? null) : null)
  })
}

function hasNoContents(input: Input): input is DocumentInput {
  return (
    'request' in input && !input.request.render.attachments && input.request.render.attsSince === undefined
  )
}

function pendingOf(
  store: DocumentReader,
  user: UserCtx,
  { request, rev }: DocumentInput,
  progress: RevisionsProgress | CouchError | null,
): Pending {
  const { id } = request
  if (progress instanceof CouchError) return refused(id, rev, progress)
  if (progress !== null && isReady(progress)) return { id, rows: errorRows(id, progress.rows) }
  return async () => {
    try {
      const first = progress ?? (await readFirstPage(store, user, request))
      if (isReady(first)) return { id, rows: errorRows(id, first.rows) }
      return { id, pages: withErrors(id, revisionPages(store, user, request, first)) }
    } catch (error) {
      return refused(id, rev, error)
    }
  }
}

/** Whether everything is read, including attachment contents. */
function isReady(progress: RevisionsProgress): boolean {
  return isComplete(progress) && progress.rows.every((row) => 'missing' in row || row.contents.length === 0)
}

/** The error of one input as its row. @throws errors that concern all inputs */
function refused(id: string, rev: unknown, error: unknown): ReadyResult {
  if (!(error instanceof CouchError)) throw error
  if (error.code === 'not_found') return failed(id, 'undefined', error)
  if (error.status === 400 || isDamage(error)) return failed(id, rev ?? null, error)
  throw error
}

function revList(value: unknown): unknown[] {
  if (Array.isArray(value)) return value
  throw new CouchError('bad_request', 'att_since value must be array of revs.')
}

async function* withErrors(
  id: string,
  pages: AsyncIterable<readonly RevisionRow[]>,
): AsyncGenerator<readonly BulkGetRow[]> {
  for await (const rows of pages) yield errorRows(id, rows)
}

function errorRows(id: string, rows: readonly RevisionRow[]): BulkGetRow[] {
  return rows.map((row) => {
    if (!('missing' in row)) return row
    return errorRow(id, row.missing, row.because ?? new CouchError('not_found'))
  })
}

function errorRow(id: unknown, rev: unknown, error: CouchError): BulkGetError {
  return { error: { id, rev, ...error.toBody() } }
}

function failed(id: unknown, rev: unknown, error: CouchError): ReadyResult {
  return { id, rows: [errorRow(id, rev, error)] }
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
  const results = bulkGetResults(store, user, body, { ...options, ...MULTIPART_OPTIONS }, limits, 'follows')
  yield* pieceChunks(bulkParts(results, boundary), (content, start, end) =>
    readContent(store, content, start, end),
  )
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
  if ('error' in row) return [errorPart(row.error)]
  return documentPart(
    row,
    (inner) =>
      `X-Doc-Id: ${headerSafe(String(id))}\r\nX-Rev-Id: ${headerSafe(row.rev)}\r\n` +
      `Content-Type: multipart/related; boundary=${inner}`,
  )
}
