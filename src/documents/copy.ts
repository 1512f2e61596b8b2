/** COPY, protocol.md 3.6: reads a document's body and attachments as stored, to write them under another id. */
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { isKnown } from '../revisions/branch-index.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { BlobReference } from '../storage/blob-leases.ts'
import type { DocState } from '../storage/engine.ts'
import { namedRevisions } from '../storage/read-set.ts'
import type { DocumentReader } from './database.ts'
import type { IncomingDoc } from './incoming-document.ts'
import { requireMember } from './security.ts'
import { pinContents } from './stored-content.ts'

/** Attempts to read and pin the source. A compaction can run between the two steps. */
const ATTEMPTS = 5

/**
 * Calls `use` with the source as if a client had sent it. Its attachments name stored contents, which are pinned
 * until the promise of `use` settles.
 * @throws not_found, deleted, invalid_rev, contended; and as `use`
 */
export async function withCopySource<T>(
  store: DocumentReader,
  user: UserCtx,
  source: { readonly id: string; readonly rev?: string },
  use: (copied: IncomingDoc) => Promise<T>,
): Promise<T> {
  if (isLocalId(source.id)) return use(await copyLocal(store, user, source.id))
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const copied = await copyDocument(store, user, source)
    const pins = await pinAttachments(store, copied)
    if (pins === null) continue
    try {
      return await use(copied)
    } finally {
      for (const pin of pins) pin.release()
    }
  }
  throw new CouchError('contended')
}

async function copyDocument(
  store: DocumentReader,
  user: UserCtx,
  source: { readonly id: string; readonly rev?: string },
): Promise<IncomingDoc> {
  const [copied] = await store.readDocs(
    [source.id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (doc === null) throw new CouchError('not_found')
      return copyRevision(doc, sourceRev(doc, source.rev))
    },
    { body: true, branches: true, ...(source.rev !== undefined && namedRevisions([source.rev])) },
  )
  return copied as IncomingDoc
}

/** Pins the contents of the attachments. @returns null if one of them no longer exists */
async function pinAttachments(
  store: DocumentReader,
  { attachments }: IncomingDoc,
): Promise<readonly BlobReference[] | null> {
  const contents = attachments.flatMap(({ content }) =>
    content !== null && 'blob' in content.content
      ? [{ blob: content.content.blob, digest: content.digest }]
      : [],
  )
  try {
    return await pinContents(store, contents)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_attachment') return null
    throw error
  }
}

function sourceRev(doc: DocState, requested: string | undefined): string {
  if (requested === undefined) {
    if (doc.deleted) throw new CouchError('deleted')
    return doc.rev
  }
  const rev = parseRev(requested)
  if (!isKnown(doc.branches, rev)) throw new CouchError('not_found')
  return formatRev(rev.pos, rev.id)
}

function copyRevision(doc: DocState, rev: string): IncomingDoc {
  const body = doc.body(rev)
  if (body === null) throw new CouchError('not_found')
  const attachments = doc.attachments(rev).map(({ name, type, blob, revpos: _, ...facts }) => ({
    name,
    type,
    revpos: undefined,
    content: { ...facts, content: { blob } },
  }))
  return { id: undefined, path: null, deleted: doc.isDeleted(rev) === true, body, attachments }
}

async function copyLocal(store: DocumentReader, user: UserCtx, id: string): Promise<IncomingDoc> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  if (doc === null || doc === undefined) throw new CouchError('not_found')
  return { id: undefined, path: null, deleted: false, body: doc.body, attachments: [] }
}
