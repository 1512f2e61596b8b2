/**
 * What is refused where the account that owns a database has used up what it may store (docs/hosted.md): whatever
 * makes the database grow, document by document, so that the rest of a bulk goes on. Deletions pass, and so do small
 * `_local` documents, which clients cannot sync without.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import type { Allowance, UserCtx } from '../core/types.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import { spliceDocument } from './body.ts'
import type { StoredBefore } from './database.ts'
import type { Candidate, Inspect } from './draft.ts'
import type { Edit } from './edit.ts'
import type { IncomingDoc } from './incoming.ts'

/** What rows and ancestry of a revision take beside its body, about. */
const REVISION_BYTES = 256
/** A deletion may say something of itself, as PouchDB's and LiveSync's do. */
const TOMBSTONE_BYTES = 1024
/** A `_local` document that is still taken: checkpoints and LiveSync's milestone have some kilobytes. */
const LOCAL_BYTES = 64 * 1024
/** How far beyond the limit new `_local` documents may go: else whoever is over it could store in them for ever. */
const LOCAL_RESERVE = 16 * 1024 * 1024

/**
 * Adds the check of the allowance to what inspects the edits of a document.
 * @param doc the document as stored
 * @returns `inspect` as it is where nothing could be refused, as in most writes
 */
export function withinAllowance(
  allowance: Allowance | undefined,
  doc: DocState | null,
  view: StoreView,
  edits: readonly Edit[],
  inspect: Inspect | undefined,
): Inspect | undefined {
  if (allowance === undefined) return inspect
  if (!isTight(allowance, edits) && !isFull(allowance, view)) return inspect
  const isLive = doc !== null && !doc.deleted
  return (candidate) => {
    const refusal = refusalOf(allowance, view, isLive, candidate)
    if (refusal !== null) throw refusal
    inspect?.(candidate)
  }
}

/** Whether the edits come near a limit of bytes, or of one document: then stored bodies may be looked at. */
export function isTight({ bytes, maxDocumentSize }: Allowance, edits: readonly Pick<Edit, 'doc'>[]): boolean {
  const brought = edits.reduce((sum, edit) => sum + 3 * editBytes(edit), 0)
  return bytes.others + bytes.here + brought > bytes.limit || brought > maxDocumentSize
}

function isFull({ documents }: Allowance, { docCount }: StoreView): boolean {
  return documents.others + docCount >= documents.limit
}

function editBytes({ doc }: Pick<Edit, 'doc'>): number {
  return doc.attachments.reduce(
    (sum, { content }) => sum + (content?.storedLength ?? 0),
    doc.body.length + REVISION_BYTES,
  )
}

function refusalOf(
  allowance: Allowance,
  view: StoreView,
  isLive: boolean,
  candidate: Candidate,
): CouchError | null {
  const { bytes, documents, maxDocumentSize } = allowance
  const { doc } = candidate
  const used = bytes.others + bytes.here
  const isOver = used + editBytes(candidate) > bytes.limit
  if (doc.deleted) return isOver && !isDeletion(candidate) ? tooManyBytes(used, bytes.limit) : null
  const size = Buffer.byteLength(doc.body)
  if (size > maxDocumentSize) return tooLarge(size, maxDocumentSize)
  if (isOver) return tooManyBytes(used, bytes.limit)
  const stored = documents.others + view.docCount
  return !isLive && stored >= documents.limit ? tooManyDocuments(stored, documents.limit) : null
}

/**
 * It ends a live leaf, and is no larger than what it ends: one that does neither, such as the tombstone of a document that
 * never was, would be a way to go on storing.
 */
function isDeletion({ doc, old, branches }: Candidate): boolean {
  const { path } = doc
  const isLive = (id: string, steps: number) =>
    branches.leaf({ pos: (path?.pos ?? 0) - steps, id })?.deleted === false
  const isEnd = path === null ? old !== null && !old.deleted : path.ids.some(isLive)
  if (!isEnd) return false
  return doc.body.length <= Math.max(TOMBSTONE_BYTES, old?.body.length ?? 0)
}

/**
 * Whether a `_local` document may be written.
 * @param stored the length of its body as it is stored; null when it is not there
 */
export function localRefusal(
  allowance: Allowance | undefined,
  stored: number | null,
  body: string,
): CouchError | null {
  if (allowance === undefined) return null
  const { bytes, maxDocumentSize } = allowance
  const used = bytes.others + bytes.here
  const size = Buffer.byteLength(body)
  if (size > maxDocumentSize) return tooLarge(size, maxDocumentSize)
  if (used + size <= bytes.limit || (stored !== null && size <= Math.max(LOCAL_BYTES, stored))) return null
  return size <= LOCAL_BYTES && used < bytes.limit + LOCAL_RESERVE ? null : tooManyBytes(used, bytes.limit)
}

/**
 * The user with the size of the database as it is now, where it counts: a compaction may have made room since the HTTP
 * thread looked, and a refusal that need not be is never tried again by a client that replicates.
 */
export async function exactWhereTight(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly Pick<Edit, 'doc'>[],
): Promise<UserCtx> {
  const { allowance } = user
  return allowance !== undefined && isTight(allowance, edits) ? remeasured(store, user) : user
}

/** The same in any case: asked between the groups of a bulk, which may be large. */
export async function remeasured(store: DatabaseStore, user: UserCtx): Promise<UserCtx> {
  const { allowance } = user
  if (allowance === undefined) return user
  const { sizes } = await store.info()
  return { ...user, allowance: { ...allowance, bytes: { ...allowance.bytes, here: sizes.active } } }
}

function tooManyBytes(used: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} bytes and stores ${used}: ` +
      'nothing but deletions is taken until documents are deleted and the database is compacted.',
  )
}

function tooManyDocuments(stored: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} documents and stores ${stored}: ` +
      'no new ones are taken until some are deleted.',
  )
}

function tooLarge(size: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The document has ${size} bytes; the owner of this database may store ones of ${limit} bytes.`,
  )
}

// What is refused while the disk is short of room (docs/operating.md, Full disks): whatever makes a database grow,
// document by document, so that the rest of a bulk goes on. Deletions pass, and so does all that is no document of a
// database: `_local` documents, settings, purges, compaction.

/**
 * Adds the check to what inspects the edits of a document.
 * @param refusal null: there is room
 * @returns `inspect` as it is where there is room
 */
export function withinRoom(
  refusal: CouchError | null,
  edits: readonly Pick<Edit, 'attachment' | 'doc'>[],
  inspect: Inspect | undefined,
): Inspect | undefined {
  if (refusal === null) return inspect
  return (candidate) => {
    if (grows(candidate, edits[candidate.at])) throw refusal
    inspect?.(candidate)
  }
}

function grows(candidate: Candidate, edit: Pick<Edit, 'attachment' | 'doc'> | undefined): boolean {
  const { doc } = candidate
  if (doc.attachments.some(({ content }) => content !== null)) return true
  // Whoever removes an attachment makes room, though the document is written once more for it.
  const isRemoval = edit?.attachment !== undefined
  return !isRemoval && !(doc.deleted && isDeletion(candidate))
}

// Hosted mode, docs/hosted.md: what a tenant may not bring. No design documents, since they are programs, and no
// attachments; their tombstones neither, so that what stands in a data folder from before stays as it is. Pure.

const USERS_DATABASE = '_users'

/** What is looked at of an edit. */
interface HostedEdit {
  readonly id: string
  readonly doc: Pick<IncomingDoc, 'deleted' | 'body' | 'attachments'>
  /** The edit is of this attachment alone, its removal too. */
  readonly attachment?: string
}

/**
 * What hosted mode refuses an edit with, whoever sends it and whatever is stored; null: it may be written.
 * @param database its name
 */
export function hostedRefusal(database: string, { id, doc, attachment }: HostedEdit): CouchError | null {
  if (attachment !== undefined) return new CouchError('hosted_attachment')
  const isOwn = !doc.deleted && isOwnDesign(database, id, doc.body)
  if (isDesignId(id) && !isOwn) return new CouchError('hosted_design')
  return doc.attachments.length > 0 ? new CouchError('hosted_attachment') : null
}

/**
 * Whether a document is settee's own `_design/_auth`, the one design document there is in hosted mode.
 * @param body its text as it is stored
 */
export function isOwnDesign(database: string, id: string, body: string): boolean {
  return mayBeOwnDesign(database, id) && body === AUTH_DESIGN_BODY
}

/** As {@link isOwnDesign} as far as the address tells it. */
export function mayBeOwnDesign(database: string, id: string): boolean {
  return database === USERS_DATABASE && id === AUTH_DESIGN_ID
}

// What a database holds from before hosted mode, which takes no more of it (docs/hosted.md).

/** Attachments are counted so far; what that takes is a millisecond or two. */
export const MOST_COUNTED = 10_000

/** @param database its name */
export async function storedBefore(store: DatabaseStore, database: string): Promise<StoredBefore> {
  const [designDocs, [own], attachments] = await Promise.all([
    store.countRange(kindRange('design')),
    store.readDocs(
      [AUTH_DESIGN_ID],
      (doc, id) =>
        doc !== null && !doc.deleted && isOwnDesign(database, id, doc.body(doc.rev) ?? '') ? 1 : 0,
      { body: true },
    ),
    store.countAttachments(MOST_COUNTED),
  ])
  return { designDocs: designDocs - (own ?? 0), attachments }
}

// The sandbox of hosted mode: it runs settee's own functions, and refuses any other before a thread is asked for one.

/**
 * @param sandbox runs what may run
 * @param database the name of the database whose functions are asked for
 * @returns a sandbox that rejects with hosted_function for all functions but those of settee's own design document
 */
export function ownFunctionsOnly(sandbox: Sandbox, database: string): Sandbox {
  const check = (fn: UserFunction): void => {
    if (!isOwn(fn, database)) throw new CouchError('hosted_function')
  }
  return {
    compile: async (fn) => {
      check(fn)
      return sandbox.compile(fn)
    },
    filter: async (fn, docs, req) => {
      check(fn)
      return sandbox.filter(fn, docs, req)
    },
    map: async (fn, docs) => {
      check(fn)
      return sandbox.map(fn, docs)
    },
    reduce: async (fn, calls) => {
      check(fn)
      return sandbox.reduce(fn, calls)
    },
    validate: async (fn, calls) => {
      check(fn)
      return sandbox.validate(fn, calls)
    },
  }
}

function isOwn({ ddoc, rev, source }: UserFunction, database: string): boolean {
  if (!mayBeOwnDesign(database, ddoc)) return false
  return source === spliceDocument({ id: AUTH_DESIGN_ID, rev, body: AUTH_DESIGN_BODY })
}
