/** `_all_docs`, `_design_docs` and `_local_docs`, protocol.md 8. */
import { Breath } from '../core/breath.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore, DocState, LocalDoc, Touches } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import { allDocsQueriesOf, allDocsQuery } from './all-docs-query.ts'
import type { AllDocsKind, AllDocsQuery, Body } from './database.ts'
import { KIND_PREFIX, kindRange, queryRange, rangeBefore } from './id-range.ts'
import { renderDocument, renderLocal } from './render.ts'
import { requireMember } from './security.ts'

/** Rows, and characters of rows, in one chunk of the answer. */
const CHUNK_ROWS = 500
const CHUNK_CHARS = 256 * 1024

/** The answer in chunks. @throws at its first, as `allDocsQuery`; unauthorized, forbidden */
export async function* allDocs(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  asked: AllDocsQuery,
  body: Body | null,
): AsyncGenerator<Uint8Array> {
  requireMember(user, (await store.view()).security)
  for await (const text of listing(store, user, kind, allDocsQuery(asked, body))) yield Buffer.from(text)
  yield Buffer.from('\n')
}

/**
 * Several queries in one body (protocol.md 8.3): their answers one after the other, in chunks.
 * @param asked what each query has where it does not say otherwise itself
 * @throws at its first chunk, as `allDocsQueriesOf`; unauthorized, forbidden
 */
export async function* allDocsQueries(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  asked: AllDocsQuery,
  body: Body,
): AsyncGenerator<Uint8Array> {
  requireMember(user, (await store.view()).security)
  const queries = allDocsQueriesOf(asked, body)
  yield Buffer.from('{"results":[\r\n')
  for (const [at, query] of queries.entries()) {
    if (at > 0) yield Buffer.from(',\r\n')
    for await (const text of listing(store, user, kind, query)) yield Buffer.from(text)
  }
  yield Buffer.from('\r\n]}\n')
}

/** One query's envelope with its rows, protocol.md 8.2. */
async function* listing(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: AllDocsQuery,
): AsyncGenerator<string> {
  const { updateSeq, epochs } = await store.view()
  const rows = new Rows()
  const source =
    query.keys !== undefined
      ? keyRows(store, user, kind, query, rows)
      : kind === 'local'
        ? localRows(store, user, query, rows)
        : rangeRows(store, user, kind, query, rows)
  const counts = await envelopeCounts(store, kind, query)
  const seq = query.updateSeq
    ? `,"update_seq":${query.keys ? 'null' : JSON.stringify(sequenceToken(epochs, updateSeq))}`
    : ''
  yield `{"total_rows":${counts.total},"offset":${counts.offset}${seq},"rows":[\r\n`
  for await (const text of source) if (text !== '') yield text
  yield '\r\n]}'
}

/** Joins rows by `,\r\n` across chunks. */
class Rows {
  #isFirst = true

  join(rows: readonly string[]): string {
    if (rows.length === 0) return ''
    const text = (this.#isFirst ? '' : ',\r\n') + rows.join(',\r\n')
    this.#isFirst = false
    return text
  }
}

async function envelopeCounts(
  store: DatabaseStore,
  kind: AllDocsKind,
  query: AllDocsQuery,
): Promise<{ total: number | null; offset: number | null }> {
  if (kind === 'local') return { total: null, offset: null }
  const total = kind === 'all' ? (await store.view()).docCount : await store.countRange(kindRange(kind))
  if (query.keys !== undefined) return { total, offset: null }
  const before = rangeBefore(kind, query)
  const counted = before === null ? 0 : await store.countRange(before)
  return { total, offset: Math.min(total, counted + (query.skip ?? 0)) }
}

async function* rangeRows(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: AllDocsQuery,
  rows: Rows,
): AsyncGenerator<string> {
  let range = queryRange(kind, query)
  let skip = query.skip ?? 0
  let left = query.limit ?? Number.POSITIVE_INFINITY
  const breath = new Breath()
  while (range !== null && left > 0) {
    await breath.take()
    let chars = 0
    let last = ''
    const page = await store.readRange(
      range,
      {
        limit: Math.min(CHUNK_ROWS, left + skip),
        touches: touchesOf(query),
        enough: () => chars > CHUNK_CHARS || breath.isDue,
      },
      (doc, view) => {
        requireMember(user, view.security)
        last = doc.id
        if (skip > 0) {
          skip -= 1
          return null
        }
        const row = liveRow(doc, query)
        chars += row.length
        return row
      },
    )
    const ready = page.rows.filter((row) => row !== null)
    left -= ready.length
    yield rows.join(ready)
    if (!page.more) return
    range = { ...range, start: { id: last, inclusive: false } }
  }
}

function touchesOf({ includeDocs = false, conflicts = false, attachments = false }: AllDocsQuery): Touches {
  return { body: includeDocs, branches: includeDocs && conflicts, bytes: includeDocs && attachments }
}

function liveRow(doc: DocState, query: AllDocsQuery): string {
  return row(
    doc.id,
    `"rev":${JSON.stringify(doc.rev)}`,
    query.includeDocs ? winnerText(doc, query) : undefined,
  )
}

function winnerText(doc: DocState, query: AllDocsQuery): string {
  const { conflicts, attachments, attEncodingInfo } = query
  return renderDocument(doc, doc.rev, { conflicts, attachments, attEncodingInfo })
}

function row(id: string, value: string, doc: string | undefined): string {
  const key = JSON.stringify(id)
  return `{"id":${key},"key":${key},"value":{${value}}${doc === undefined ? '' : `,"doc":${doc}`}}`
}

/** A row a key, in the keys' order; protocol.md 8.2. */
async function* keyRows(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  query: AllDocsQuery,
  rows: Rows,
): AsyncGenerator<string> {
  const ordered = query.descending ? [...(query.keys ?? [])].reverse() : (query.keys ?? [])
  const skip = query.skip ?? 0
  const wanted = ordered
    .filter((key) => kind === 'all' || (typeof key === 'string' && key.startsWith(KIND_PREFIX[kind])))
    .slice(skip, query.limit === undefined ? undefined : skip + query.limit)
  const breath = new Breath()
  let ready: string[] = []
  let chars = 0
  for (const key of wanted) {
    const text = await keyRow(store, user, kind, key, query)
    ready.push(text)
    chars += text.length
    await breath.take()
    if (chars <= CHUNK_CHARS && ready.length < CHUNK_ROWS) continue
    yield rows.join(ready)
    ready = []
    chars = 0
  }
  yield rows.join(ready)
}

async function keyRow(
  store: DatabaseStore,
  user: UserCtx,
  kind: AllDocsKind,
  key: unknown,
  query: AllDocsQuery,
): Promise<string> {
  const absent = `{"key":${JSON.stringify(key)},"error":"not_found"}`
  if (typeof key !== 'string' || !key.isWellFormed()) return absent
  if (kind === 'local') {
    const [doc] = await store.readLocals([key])
    return doc ? localRow(doc, query) : absent
  }
  const [text] = await store.readDocs(
    [key],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (doc === null) return absent
      if (!doc.deleted) return liveRow(doc, query)
      const value = `"rev":${JSON.stringify(doc.rev)},"deleted":true`
      return row(doc.id, value, query.includeDocs ? 'null' : undefined)
    },
    touchesOf(query),
  )
  return text ?? absent
}

async function* localRows(
  store: DatabaseStore,
  user: UserCtx,
  query: AllDocsQuery,
  rows: Rows,
): AsyncGenerator<string> {
  let range = queryRange('local', query)
  let skip = query.skip ?? 0
  let left = query.limit ?? Number.POSITIVE_INFINITY
  const breath = new Breath()
  while (range !== null && left > 0) {
    await breath.take()
    const page = await store.readLocalRange(range, {
      limit: Math.min(CHUNK_ROWS, left + skip),
      enough: () => breath.isDue,
    })
    requireMember(user, page.view.security)
    const ready = page.rows.slice(skip)
    skip -= page.rows.length - ready.length
    left -= ready.length
    yield rows.join(ready.map((doc) => localRow(doc, query)))
    const last = page.rows.at(-1)
    if (!page.more || last === undefined) return
    range = { ...range, start: { id: last.id, inclusive: false } }
  }
}

function localRow(doc: LocalDoc, query: AllDocsQuery): string {
  return row(doc.id, `"rev":"0-${doc.rev}"`, query.includeDocs ? renderLocal(doc) : undefined)
}
