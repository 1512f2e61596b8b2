/**
 * What is refused where the account that owns a database has used up what it may store (docs/hosted.md): whatever
 * makes the database grow, document by document, so that the rest of a bulk goes on. Deletions pass, and so do small
 * `_local` documents, which clients cannot sync without.
 */
import { CouchError } from '../core/errors.ts'
import type { Allowance, UserCtx } from '../core/types.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import type { Edit } from './edit.ts'
import type { NewRevision, RevisionCheck } from './edited-document.ts'

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
  inspect: RevisionCheck | undefined,
): RevisionCheck | undefined {
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
  candidate: NewRevision,
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
function isDeletion({ doc, old, branches }: NewRevision): boolean {
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
  inspect: RevisionCheck | undefined,
): RevisionCheck | undefined {
  if (refusal === null) return inspect
  return (candidate) => {
    if (grows(candidate, edits[candidate.at])) throw refusal
    inspect?.(candidate)
  }
}

function grows(candidate: NewRevision, edit: Pick<Edit, 'attachment' | 'doc'> | undefined): boolean {
  const { doc } = candidate
  if (doc.attachments.some(({ content }) => content !== null)) return true
  // Whoever removes an attachment makes room, though the document is written once more for it.
  const isRemoval = edit?.attachment !== undefined
  return !isRemoval && !(doc.deleted && isDeletion(candidate))
}
