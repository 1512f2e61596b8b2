/** What writing to one attachment makes of its document; protocol.md 7.4. */
import { CouchError } from '../core/errors.ts'
import { formatRev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import { type IncomingDoc, namedRev } from './incoming.ts'

/**
 * The document as a client would send it to change this one attachment and nothing else. Pure.
 * A new attachment comes before the others, as in CouchDB.
 * @param state the document as stored; null when it never was
 * @param name of the attachment
 * @param doc names the parent, if any, and holds the attachment, or none when it is to be removed
 * @throws missing_rev for a parent whose body is not stored, no_attachment for the removal of what is not there; and
 * where a removal names no parent, not_found and deleted
 */
export function amendedDocument(state: DocState | null, name: string, doc: IncomingDoc): IncomingDoc {
  const isRemoval = doc.attachments.length === 0
  const named = namedRev(doc)
  if (named === null) {
    // What comes of no parent the edit itself decides: a new document, one made anew, or a conflict.
    if (isRemoval) requireAttachment(liveState(state), state?.rev as string, name)
    return doc
  }
  const rev = formatRev(named.pos, named.id)
  const body = state?.body(rev) ?? null
  if (state === null || body === null) throw new CouchError('missing_rev')
  if (isRemoval) requireAttachment(state, rev, name)
  const kept = state
    .attachments(rev)
    .filter((attachment) => attachment.name !== name)
    .map(({ name, type }) => ({ name, type, revpos: undefined, content: null }))
  return { ...doc, deleted: state.isDeleted(rev) ?? false, body, attachments: [...doc.attachments, ...kept] }
}

function liveState(state: DocState | null): DocState {
  if (state === null) throw new CouchError('not_found')
  if (state.deleted) throw new CouchError('deleted')
  return state
}

function requireAttachment(state: DocState, rev: string, name: string): void {
  if (state.attachments(rev).every((attachment) => attachment.name !== name)) {
    throw new CouchError('no_attachment')
  }
}
