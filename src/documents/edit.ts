/**
 * What comes of writing to one document: pure decisions on its branches. One call takes all the edits that a
 * request holds for the document, in their order, and makes one write of them.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import { type Branch, leafRev, makeBranch } from '../revisions/branch.ts'
import type { BranchChange, BranchSet } from '../revisions/branch-set.ts'
import { formatRev, newRevId } from '../revisions/rev.ts'
import type {
  AttachmentWrite,
  Decision,
  DocState,
  DocWrite,
  RevisionWrite,
  StoredAttachment,
} from '../storage/engine.ts'
import { type EditBounds, EditedDocument, type NewContent } from './edited-document.ts'
import {
  checkAttachmentCount,
  checkNewAttachmentName,
  type IncomingAttachment,
} from './incoming-attachments.ts'
import { type IncomingDoc, namedRev } from './incoming-document.ts'

/** One edit of a document. */
export interface Edit {
  readonly doc: IncomingDoc
  /** false: the revision is stored as it is named (replication, protocol.md 6.4). */
  readonly newEdits: boolean
  /** An interactive deletion by the DELETE method: the document must be there and live (protocol.md 3.4). */
  readonly mustBeLive?: boolean
  /**
   * The edit is of this attachment alone: `doc` holds it, or none for its removal, and the parent's revision. All
   * else stays as the parent has it (protocol.md 7.4). Only for the first edit of a document.
   */
  readonly attachment?: string
}

/** The revision an edit made, or why it made none. */
export type EditResult = { readonly rev: string; readonly deleted: boolean } | CouchError

/**
 * Decides edits of one document.
 * @param state the document as stored; null when it never was
 * @param revsLimit ancestors kept for each branch
 * @returns a result an edit, in order, and the write that makes them true. Where that takes long, results of the first
 * edits only: of one at least
 */
export function decideEdits(
  id: string,
  state: DocState | null,
  revsLimit: number,
  edits: readonly Edit[],
  bounds: EditBounds = {},
): Extract<Decision<EditResult[]>, { result: unknown }> {
  const draft = new EditedDocument(id, state, revsLimit, bounds)
  const result: EditResult[] = []
  for (const [at, edit] of edits.entries()) {
    if (at > 0 && draft.isLong) break
    result.push(resultOf(draft, edit, at))
  }
  const write = writeOf(draft)
  return write === undefined ? { result } : { result, write }
}

function resultOf(draft: EditedDocument, asked: Edit, at: number): EditResult {
  try {
    const edit = amendedEdit(draft.state, asked)
    return edit.newEdits ? editInteractively(draft, edit, at) : editAsReplica(draft, edit.doc, at)
  } catch (error) {
    if (error instanceof CouchError) return error
    throw error
  }
}

function amendedEdit(state: DocState | null, edit: Edit): Edit {
  return edit.attachment === undefined
    ? edit
    : { ...edit, doc: amendedDocument(state, edit.attachment, edit.doc) }
}

/** Protocol.md 3.3 and 6.3: the parent is a leaf, or the tombstone of a document that is made anew. */
function editInteractively(draft: EditedDocument, { doc, mustBeLive }: Edit, at: number): EditResult {
  const parent = parentOf(draft.branches, doc, mustBeLive ?? false)
  const pos = (parent?.pos ?? 0) + 1
  checkAttachmentCount(doc.attachments, draft.maxAttachments)
  const attachments = doc.attachments.map((attachment) =>
    interactiveAttachment(draft, parent, attachment, pos),
  )
  const id = newRevId({
    parent: parent === null ? null : leafRev(parent),
    deleted: doc.deleted,
    body: doc.body,
    attachments,
  })
  const rev = formatRev(pos, id)
  if (draft.check !== undefined) {
    const follows = parent !== null && doc.path !== null
    const old = follows ? draft.nearest(parent.pos, parent.ids) : null
    draft.check({ at, doc, rev, attachments, old, branches: draft.branches })
  }
  const change: BranchChange =
    parent === null
      ? { removed: [], added: [makeBranch(pos, [id], doc.deleted)] }
      : draft.branches.extendOf(parent, id, doc.deleted)
  draft.branches.apply(change)
  draft.contents.set(rev, { deleted: doc.deleted, body: doc.body, attachments })
  return { rev, deleted: doc.deleted }
}

function parentOf(branches: BranchSet, doc: IncomingDoc, mustBeLive: boolean): Branch | null {
  const best = branches.winner
  const rev = namedRev(doc)
  if (mustBeLive && best === undefined) throw new CouchError('not_found')
  if (mustBeLive && best?.deleted) throw new CouchError('deleted')
  if (best === undefined) {
    if (rev !== null || mustBeLive) throw new CouchError('conflict')
    return null
  }
  if (rev === null) {
    if (!best.deleted || doc.deleted) throw new CouchError('conflict')
    return best
  }
  const parent = branches.leaf(rev)
  if (parent === undefined || best.deleted) throw new CouchError('conflict')
  return parent
}

function interactiveAttachment(
  draft: EditedDocument,
  parent: Branch | null,
  attachment: IncomingAttachment,
  pos: number,
): AttachmentWrite {
  if (attachment.content !== null) {
    checkNewAttachmentName(attachment.name)
    return newAttachment(attachment, pos)
  }
  const stored = parent === null ? null : draft.attachments(leafRev(parent))
  return keptAttachment(draft.id, attachment, stored)
}

function newAttachment({ name, type, content }: IncomingAttachment, revpos: number): AttachmentWrite {
  if (content === null) throw new RangeError('a stub brings no content')
  return { name, type, revpos, ...content }
}

function keptAttachment(
  id: string,
  { name, revpos }: IncomingAttachment,
  stored: readonly (StoredAttachment | AttachmentWrite)[] | null,
): AttachmentWrite {
  const kept = stored?.find((attachment) => attachment.name === name)
  if (kept === undefined || (revpos !== undefined && revpos !== kept.revpos)) throw missingStub(id, name)
  if ('content' in kept) return kept
  const { blob, ...facts } = kept
  return { ...facts, content: { blob } }
}

function missingStub(id: string, name: string): CouchError {
  return new CouchError('missing_stub', `Invalid attachment stub in ${id} for ${name}`)
}

/** Protocol.md 6.4: never a conflict; what is known already, leaf or inner, changes nothing. */
function editAsReplica(draft: EditedDocument, doc: IncomingDoc, at: number): EditResult {
  const path = replicatedPath(doc)
  const incoming = makeBranch(path.pos, path.ids, doc.deleted)
  const rev = leafRev(incoming)
  const change = draft.branches.mergeOf(incoming)
  const leaf = change.added.find((branch) => branch.pos === incoming.pos && branch.leaf === incoming.leaf)
  if (leaf !== undefined && draft.branches.leaf({ pos: leaf.pos, id: leaf.leaf }) === undefined) {
    draft.checkLeafCount(change)
    checkAttachmentCount(doc.attachments, draft.maxAttachments)
    const attachments = doc.attachments.map((attachment) => replicatedAttachment(draft, incoming, attachment))
    if (draft.check !== undefined) {
      const old = draft.nearest(leaf.pos - 1, leaf.ids.slice(1))
      draft.check({ at, doc, rev, attachments, old, branches: draft.branches })
    }
    draft.contents.set(rev, { deleted: doc.deleted, body: doc.body, attachments })
  }
  draft.branches.apply(change)
  return { rev, deleted: doc.deleted }
}

/**
 * The revision that a replicated document names, with its ancestry.
 * @throws bad_request when it names none (protocol.md 1.2); invalid_rev for generation 0, which only `_local`
 * documents have
 */
export function replicatedPath(doc: IncomingDoc): NonNullable<IncomingDoc['path']> {
  if (doc.path === null) {
    throw new CouchError(
      'bad_request',
      'When `new_edits: false`, the document needs `_rev` or `_revisions` specified',
    )
  }
  if (doc.path.pos === 0) throw new CouchError('invalid_rev')
  return doc.path
}

function replicatedAttachment(
  draft: EditedDocument,
  path: Branch,
  attachment: IncomingAttachment,
): AttachmentWrite {
  if (attachment.content !== null) return newAttachment(attachment, attachment.revpos ?? 0)
  return keptAttachment(draft.id, attachment, draft.nearest(path.pos, path.ids)?.attachments ?? null)
}

/** The difference between the branches as stored and as drafted; undefined when there is none. */
function writeOf(draft: EditedDocument): DocWrite | undefined {
  const best = draft.branches.winner
  if (best === undefined) return undefined
  const { revisions, sequenced } = firstRevision(draft, best) ?? changedRevisions(draft)
  if (revisions.length === 0) return undefined
  const write = { rev: leafRev(best), deleted: best.deleted, sequenced, revisions }
  return isDesignId(draft.id) ? { ...write, design: true } : write
}

type Changes = Pick<DocWrite, 'revisions' | 'sequenced'>

/** What `changedRevisions` makes of a new document with one revision, as most writes are; in a sixth of the time. */
function firstRevision({ state, branches, contents }: EditedDocument, leaf: Branch): Changes | null {
  if (state !== null || branches.size > 1 || contents.size > 1) return null
  for (const [rev, content] of contents) {
    return { revisions: [leafWrite(rev, leaf, content)], sequenced: true }
  }
  return null
}

function changedRevisions({ branches, contents }: EditedDocument): Changes {
  const changes = branches.changes()
  const written = new Map(changes.written.map((branch) => [leafRev(branch), branch]))
  const revisions = [
    ...changes.superseded.map(superseded),
    ...[...contents].filter(([rev]) => !written.has(rev)).map(supersededAtOnce),
    ...[...written].map(([rev, branch]) => leafWrite(rev, branch, contents.get(rev))),
  ]
  return { revisions, sequenced: changes.leavesChanged }
}

function superseded(branch: Branch): RevisionWrite {
  return { rev: leafRev(branch), deleted: branch.deleted, ancestry: null }
}

function supersededAtOnce([rev, { deleted, body, attachments }]: [string, NewContent]): RevisionWrite {
  return { rev, deleted, ancestry: null, content: { body, attachments } }
}

function leafWrite(rev: string, branch: Branch, content: NewContent | undefined): RevisionWrite {
  const { deleted, ids } = branch
  if (content === undefined) return { rev, deleted, ancestry: ids }
  return { rev, deleted, ancestry: ids, content: { body: content.body, attachments: content.attachments } }
}

// What writing to one attachment makes of its document; protocol.md 7.4.

/**
 * The document as a client would send it to change this one attachment and nothing else. Pure.
 * A new attachment comes before the others, as in CouchDB.
 * @param state the document as stored; null when it never was
 * @param name of the attachment
 * @param doc names the parent, if any, and holds the attachment, or none when it is to be removed
 * @throws missing_rev for a parent whose body is not stored, no_attachment for the removal of what is not there; and
 * where a removal names no parent, not_found and deleted
 */
function amendedDocument(state: DocState | null, name: string, doc: IncomingDoc): IncomingDoc {
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
