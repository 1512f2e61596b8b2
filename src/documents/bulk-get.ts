/** `_bulk_get`, protocol.md 4.2: one result an input, in order, whatever is wrong with it. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { checkDocId, isLocalId } from '../core/ids.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import type { Body, BulkGetOptions } from './database.ts'
import { openRevisions } from './open.ts'
import { renderLocal } from './render.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'

/** A list of ids and revisions: this many bytes hold about a million. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024
/** Bytes of rows in one chunk of the answer. */
const CHUNK_BYTES = 256 * 1024

interface Asked {
  readonly id: string
  readonly rev: unknown
  readonly attsSince?: readonly Rev[]
}

export async function* bulkGet(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
  options: BulkGetOptions,
  limits: Limits,
): AsyncGenerator<Uint8Array> {
  requireMember(user, (await store.view()).security)
  const { docs } = bodyObject(body, MAX_REQUEST_BYTES)
  if (!Array.isArray(docs)) throw new CouchError('bad_request', "Missing JSON list of 'docs'.")
  const breath = new Breath()
  let text = '{"results":['
  for (const [at, asked] of docs.entries()) {
    await breath.take()
    text += (at === 0 ? '' : ',') + (await result(store, user, asked, options, limits))
    if (text.length < CHUNK_BYTES) continue
    yield Buffer.from(text)
    text = ''
  }
  yield Buffer.from(`${text}]}\n`)
}

async function result(
  store: DatabaseStore,
  user: UserCtx,
  value: unknown,
  options: BulkGetOptions,
  limits: Limits,
): Promise<string> {
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
  const named = { id: id as string, rev }
  if (isLocalId(named.id)) return localResult(store, user, named)
  try {
    const asked = since === undefined ? named : { ...named, attsSince: attsSince(since) }
    return await readResult(store, user, asked, options)
  } catch (error) {
    if (error instanceof CouchError && error.status === 400) return failed(id, rev ?? null, error)
    throw error
  }
}

function attsSince(value: unknown): Rev[] {
  if (!Array.isArray(value)) throw new CouchError('bad_request', 'att_since value must be array of revs.')
  return value.map(parseRev)
}

async function readResult(
  store: DatabaseStore,
  user: UserCtx,
  asked: Asked,
  options: BulkGetOptions,
): Promise<string> {
  const bytes = (options.attachments ?? false) || asked.attsSince !== undefined
  const [text] = await store.readDocs(
    [asked.id],
    (doc, _id, view) => documentResult(doc, view, user, asked, options),
    { body: true, branches: true, bytes },
  )
  return text as string
}

function documentResult(
  doc: DocState | null,
  view: StoreView,
  user: UserCtx,
  { id, rev, attsSince }: Asked,
  options: BulkGetOptions,
): string {
  requireMember(user, view.security)
  if (doc === null && rev === undefined) return failed(id, 'undefined', new CouchError('not_found'))
  const rows = openRevisions(doc, rev === undefined ? 'all' : [rev], {
    ...options,
    ...(attsSince && { attsSince }),
  })
  const entries = rows.map((row) =>
    'ok' in row ? `{"ok":${row.ok}}` : errorEntry(id, row.missing, new CouchError('not_found')),
  )
  return entry(id, entries.join(','))
}

async function localResult(store: DatabaseStore, user: UserCtx, { id }: Asked): Promise<string> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  return doc ? entry(id, `{"ok":${renderLocal(doc)}}`) : failed(id, 'undefined', new CouchError('not_found'))
}

function entry(id: unknown, docs: string): string {
  return `{"id":${JSON.stringify(id)},"docs":[${docs}]}`
}

function errorEntry(id: unknown, rev: unknown, error: CouchError): string {
  return JSON.stringify({ error: { id, rev, ...error.toBody() } })
}

function failed(id: unknown, rev: unknown, error: CouchError): string {
  return entry(id, errorEntry(id, rev, error))
}
