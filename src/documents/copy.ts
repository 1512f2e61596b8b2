/** COPY, protocol.md 3.6: a document's body and attachments as they are stored, to be written under another id. */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { isKnown } from '../revisions/branch.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState, StoredAttachment } from '../storage/engine.ts'
import type { IncomingAttachment, IncomingDoc } from './incoming.ts'
import { requireMember } from './security.ts'

/**
 * The source as if a client had sent it.
 * @throws not_found, deleted, invalid_rev
 */
export async function copySource(
  store: DatabaseStore,
  user: UserCtx,
  source: { readonly id: string; readonly rev?: string },
): Promise<IncomingDoc> {
  if (isLocalId(source.id)) return copyLocal(store, user, source.id)
  const [copied] = await store.readDocs(
    [source.id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (doc === null) throw new CouchError('not_found')
      return copyRevision(doc, sourceRev(doc, source.rev))
    },
    { body: true, branches: true, bytes: true },
  )
  return copied as IncomingDoc
}

function sourceRev(doc: DocState, asked: string | undefined): string {
  if (asked === undefined) {
    if (doc.deleted) throw new CouchError('deleted')
    return doc.rev
  }
  const rev = parseRev(asked)
  if (!isKnown(doc.branches, rev)) throw new CouchError('not_found')
  return formatRev(rev.pos, rev.id)
}

function copyRevision(doc: DocState, rev: string): IncomingDoc {
  const body = doc.body(rev)
  if (body === null) throw new CouchError('not_found')
  const attachments = doc.attachments(rev).map((attachment) => copyAttachment(doc, attachment))
  return { id: undefined, path: null, deleted: false, body, attachments }
}

function copyAttachment(doc: DocState, { name, type, digest, blob }: StoredAttachment): IncomingAttachment {
  const bytes = doc.bytes(blob)
  const sha256 = createHash('sha256').update(bytes).digest()
  return { name, type, revpos: undefined, content: { bytes, sha256, digest } }
}

async function copyLocal(store: DatabaseStore, user: UserCtx, id: string): Promise<IncomingDoc> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  if (doc === null || doc === undefined) throw new CouchError('not_found')
  return { id: undefined, path: null, deleted: false, body: doc.body, attachments: [] }
}
