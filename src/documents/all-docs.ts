/** `_all_docs`, `_design_docs` and `_local_docs`, protocol.md 8. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isLocalId } from '../core/ids.ts'
import { quoted } from '../core/json.ts'
import { checkSoughtId } from '../core/partitions.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore, DocState, LocalDoc } from '../storage/engine.ts'
import type { ReadSet } from '../storage/read-set.ts'
import { sequenceToken } from '../storage/sequence.ts'
import {
  allDocsQueriesOf,
  allDocsQuery,
  type IdQuery,
  KIND_PREFIX,
  kindRange,
  queryRange,
  rangeBefore,
} from './all-docs-query.ts'
import type { AllDocsKind, AllDocsQuery, Body } from './database.ts'
import { ChunkBuffer } from './pieces.ts'
import {
  damagedMember,
  type RenderedDocument,
  type RenderOptions,
  renderDocument,
  renderInTexts,
  renderLocal,
  unlessDamaged,
} from './render.ts'
import { requireMember } from './security.ts'
import { pinContents } from './stored-content.ts'
import { wholeText } from './whole-text.ts'

/** Maximum number of rows per read. */
const CHUNK_ROWS = 1000
const CHUNK_KEYS = 100
/** Maximum number of characters of documents per read; a single document may be longer. */
const CHUNK_CHARS = 256 * 1024

/** The answer in chunks. @throws at its first chunk, as `allDocsQuery`; unauthorized, forbidden */
export async function* allDocs(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: AllDocsQuery,
  body: Body | null,
): AsyncGenerator<Uint8Array> {
  requireMember(user, (await store.view()).security)
  const chunk = new ChunkBuffer()
  const read = await allDocsQuery(query, body)
  await checkAgainst(store, kind, read)
  yield* listing(store, user, kind, read, chunk)
  chunk.add('\n')
  yield chunk.take()
}

/**
 * Streams the answers to several queries in one body (protocol.md 8.3), one after the other.
 * @param defaults the default parameters of each query
 * @throws at its first chunk, as `allDocsQueriesOf`; unauthorized, forbidden
 */
export async function* allDocsQueries(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  defaults: AllDocsQuery,
  body: Body,
): AsyncGenerator<Uint8Array> {
  requireMember(user, (await store.view()).security)
  const queries = await allDocsQueriesOf(defaults, body)
  for (const query of queries) await checkAgainst(store, kind, query)
  const chunk = new ChunkBuffer()
  chunk.add('{"results":[\r\n')
  const yielder = new Yielder()
  for (const [at, query] of queries.entries()) {
    if (at > 0) chunk.add(',\r\n')
    if (chunk.isLarge) yield chunk.take()
    await yielder.yieldIfDue()
    yield* listing(store, user, kind, query, chunk)
  }
  chunk.add('\r\n]}\n')
  yield chunk.take()
}

/** @throws query_parse_error for a partition of another database; illegal_docid for a key without a partition */
async function checkAgainst(
  { partitioned }: DatabaseStore,
  kind: AllDocsKind,
  { partition, keys = [] }: IdQuery,
): Promise<void> {
  if (!partitioned) {
    if (partition === undefined) return
    throw new CouchError('query_parse_error', '`partition` parameter is not supported on this db')
  }
  if (kind !== 'all') return
  const yielder = new Yielder()
  for (const key of keys) {
    if (typeof key === 'string') checkSoughtId(key)
    await yielder.yieldIfDue()
  }
}

/**
 * One query's envelope with its rows, protocol.md 8.2.
 * @param chunk the text to send first; after the last row, it holds the unsent rest
 */
async function* listing(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: IdQuery,
  chunk: ChunkBuffer,
): AsyncGenerator<Uint8Array> {
  const { updateSeq, epochs } = await store.view()
  const counts = await envelopeCounts(store, kind, query)
  const seq = query.updateSeq
    ? `,"update_seq":${query.keys ? 'null' : JSON.stringify(sequenceToken(epochs, updateSeq))}`
    : ''
  chunk.add(`{"total_rows":${counts.total},"offset":${counts.offset}${seq},"rows":[\r\n`)
  let separator = ''
  const add = (row: string) => {
    chunk.add(separator + row)
    separator = ',\r\n'
    return chunk.isLarge
  }
  for await (const _ of listed(store, user, kind, query, add)) yield chunk.take()
  chunk.add('\r\n]}')
}

/** Adds a row to the current chunk. @returns whether the chunk is full */
type AddRow = (row: string) => boolean

/** Adds a query's rows, and yields whenever the chunk is full, so that rows do not pile up. */
function listed(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: IdQuery,
  add: AddRow,
): AsyncGenerator<void> {
  if (query.keys !== undefined) return keyRows(store, user, kind, query, add)
  if (kind === 'local') return localRows(store, user, query, add)
  return rangeRows(store, user, kind, query, add)
}

async function envelopeCounts(
  store: DatabaseStore,
  kind: AllDocsKind,
  query: IdQuery,
): Promise<{ total: number | null; offset: number | null }> {
  if (kind === 'local') return { total: null, offset: null }
  const total = kind === 'all' ? (await store.view()).docCount : await store.countRange(kindRange(kind))
  if (query.keys !== undefined) return { total, offset: null }
  const before = rangeBefore(kind, query)
  const counted = before === null ? 0 : await store.countRange(before)
  return { total, offset: Math.min(total, counted + (await skipped(store, kind, query))) }
}

/** In the list of a partition, CouchDB counts as skipped only rows that exist, if a single one of its shards answers. */
async function skipped(
  store: DatabaseStore,
  kind: AllDocsKind,
  { skip = 0, ...query }: IdQuery,
): Promise<number> {
  if (skip === 0 || query.partition === undefined) return skip
  const range = queryRange(kind, query)
  return range === null ? 0 : Math.min(skip, await store.countRange(range))
}

async function* rangeRows(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: IdQuery,
  add: AddRow,
): AsyncGenerator<void> {
  const options = winnerOptions(query)
  const whole = queryRange(kind, query)
  let range = whole === null ? null : await store.skipRange(whole, query.skip ?? 0)
  let left = query.limit ?? Number.POSITIVE_INFINITY
  const yielder = new Yielder()
  while (range !== null && left > 0) {
    await yielder.yieldIfDue()
    const paging = { limit: Math.min(CHUNK_ROWS, left), chars: CHUNK_CHARS, readSet: readSetOf(query) }
    const { rows, more } = await store.readRange(range, paging, (doc, view) => {
      requireMember(user, view.security)
      return liveRow(doc, options)
    })
    left -= rows.length
    yield* addRows(store, rows, add, yielder)
    if (!more) return
    range = { ...range, start: { id: rows.at(-1)?.id ?? '', inclusive: false } }
  }
}

function readSetOf({ includeDocs = false, conflicts = false }: IdQuery): ReadSet {
  return { body: includeDocs, branches: includeDocs && conflicts }
}

/** The options for documents in rows; null without documents. */
function winnerOptions(query: IdQuery): RenderOptions | null {
  const { includeDocs, conflicts, attachments, attEncodingInfo } = query
  return includeDocs ? { conflicts, attachments, attEncodingInfo } : null
}

/** A row; with a document, it lacks its member `doc` and the closing brace. */
interface ListedRow {
  readonly id: string
  readonly text: string
  readonly document?: RenderedDocument
}

/** Adds rows that were read just now, and yields whenever the chunk is full. @throws attachment_too_large */
async function* addRows(
  store: DatabaseStore,
  rows: readonly ListedRow[],
  add: AddRow,
  yielder: Yielder,
): AsyncGenerator<void> {
  const contents = rows.every(({ document }) => document === undefined)
    ? []
    : rows.flatMap(({ document }) => document?.contents ?? [])
  const pins = contents.length === 0 ? [] : await pinContents(store, contents)
  try {
    for (const { text, document } of rows) {
      const whole = document === undefined ? text : `${text},"doc":${await wholeText(store, document)}}`
      if (!add(whole)) continue
      yield
      yielder.restart()
    }
  } finally {
    for (const pin of pins) pin.release()
  }
}

function liveRow(doc: DocState, options: RenderOptions | null): ListedRow {
  const value = `"rev":${quoted(doc.rev)}`
  const { id } = doc
  if (options === null) return { id, text: row(id, value, '') }
  const damaged = (error: CouchError) => ({ id, text: row(id, value, damagedMember(error)) })
  return unlessDamaged(() => {
    if (!options.attachments) return { id, text: row(id, value, renderDocument(doc, doc.rev, options)) }
    const document = renderInTexts(doc, doc.rev, 'data', options)
    return { id, text: row(id, value, '').slice(0, -1), document }
  }, damaged)
}

/** @param doc the document's JSON; '' for a row without a document */
function row(id: string, value: string, doc: string): string {
  const key = quoted(id)
  return `{"id":${key},"key":${key},"value":{${value}}${doc && `,"doc":${doc}`}}`
}

/** One row for each key, in the keys' order; protocol.md 8.2. */
async function* keyRows(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: IdQuery,
  add: AddRow,
): AsyncGenerator<void> {
  const ordered = query.descending ? [...(query.keys ?? [])].reverse() : (query.keys ?? [])
  const skip = query.skip ?? 0
  const wanted = ordered
    .filter((key) => kind === 'all' || (typeof key === 'string' && key.startsWith(KIND_PREFIX[kind])))
    .slice(skip, query.limit === undefined ? undefined : skip + query.limit)
  const yielder = new Yielder()
  for (let at = 0; at < wanted.length; ) {
    await yielder.yieldIfDue()
    const rows = await rowsOfKeys(store, user, kind, wanted.slice(at, at + CHUNK_KEYS), query)
    at += rows.length
    yield* addRows(store, rows, add, yielder)
  }
}

/** The rows of the first keys, of one at least. */
async function rowsOfKeys(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  keys: readonly unknown[],
  query: IdQuery,
): Promise<ListedRow[]> {
  const isLocal = (key: unknown) => isId(key) && isLocalId(key)
  const firstLocal = keys.findIndex(isLocal)
  // `_local` documents are among those of `_all_docs` when they are named.
  const part = kind === 'local' || firstLocal < 0 ? keys : keys.slice(0, Math.max(1, firstLocal))
  const ids = part.filter(isId)
  const found = (
    await (part.some(isLocal) ? localsOfIds(store, ids, query) : rowsOfIds(store, user, ids, query))
  ).values()
  const rows: ListedRow[] = []
  for (const key of part) {
    const read = isId(key) ? found.next().value : null
    if (read === undefined) break
    rows.push(read ?? { id: '', text: `{"key":${JSON.stringify(key)},"error":"not_found"}` })
  }
  return rows
}

function isId(key: unknown): key is string {
  return typeof key === 'string' && key.isWellFormed()
}

/** @returns null for a document that does not exist; the first rows if all are too much */
function rowsOfIds(
  store: DatabaseStore,
  user: UserCtx,
  ids: readonly string[],
  query: IdQuery,
): Promise<(ListedRow | null)[]> {
  const options = winnerOptions(query)
  return store.readDocs(
    ids,
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (doc === null) return null
      if (!doc.deleted) return liveRow(doc, options)
      const value = `"rev":${quoted(doc.rev)},"deleted":true`
      return { id: doc.id, text: row(doc.id, value, query.includeDocs ? 'null' : '') }
    },
    readSetOf(query),
    CHUNK_CHARS,
  )
}

/** The same for `_local` documents, one by one, since they have no bound together. */
async function localsOfIds(
  store: DatabaseStore,
  ids: readonly string[],
  query: IdQuery,
): Promise<(ListedRow | null)[]> {
  const found = await store.readLocals(ids.slice(0, 1))
  return found.map((doc) => doc && { id: doc.id, text: localRow(doc, query) })
}

async function* localRows(
  store: DatabaseStore,
  user: UserCtx,
  query: IdQuery,
  add: AddRow,
): AsyncGenerator<void> {
  let range = queryRange('local', query)
  let skip = query.skip ?? 0
  let left = query.limit ?? Number.POSITIVE_INFINITY
  const yielder = new Yielder()
  while (range !== null && left > 0) {
    await yielder.yieldIfDue()
    const paging = { limit: Math.min(CHUNK_ROWS, left + skip), chars: CHUNK_CHARS }
    const { rows, view, more } = await store.readLocalRange(range, paging)
    requireMember(user, view.security)
    for (const doc of rows) {
      if (skip > 0) skip -= 1
      else {
        left -= 1
        if (!add(localRow(doc, query))) continue
        yield
        yielder.restart()
      }
    }
    if (!more) return
    range = { ...range, start: { id: rows.at(-1)?.id ?? '', inclusive: false } }
  }
}

function localRow(doc: LocalDoc, query: IdQuery): string {
  return row(doc.id, `"rev":"0-${doc.rev}"`, query.includeDocs ? renderLocal(doc) : '')
}
