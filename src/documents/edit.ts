/**
 * Decides the edits of one document from its branches alone. One call takes all edits of a request for the document, in
 * order, and returns one write.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import { type Branch, leafRev, makeBranch } from '../revisions/branch.ts'
import { type BranchChange, type BranchSet, bytesGained } from '../revisions/branch-set.ts'
import { formatRev, newRevId } from '../revisions/rev.ts'
import type {
  AttachmentWrite,
  Decision,
  DocState,
  DocWrite,
  RevisionWrite,
  StoredAttachment,
} from '../storage/engine.ts'
import {
  checkNewAttachmentName,
  type IncomingAttachment,
  tooLongNames,
  tooManyAttachments,
} from './incoming-attachments.ts'
import {
  type EditBounds,
  EditedDocument,
  type IncomingDoc,
  type NewContent,
  namedRev,
  type OldRevision,
} from './incoming-document.ts'

/** One edit of a document. */
export interface Edit {
  readonly doc: IncomingDoc
  /** false stores the revision with the id that it has (replication, protocol.md 6.4). */
  readonly newEdits: boolean
  /** A deletion by the DELETE method: the document must exist and be live (protocol.md 3.4). */
  readonly mustBeLive?: boolean
  /**
   * The edit changes only this attachment: `doc` has it, or no attachment to remove it, and names the parent.
   * Everything else stays as in the parent (protocol.md 7.4). Only for the first edit of a document.
   */
  readonly attachment?: string
  /**
   * The edit stores a revision again, of which a good copy was found: a leaf or a superseded one. Its stubs stand for contents
   * that were found to be as they were written. Only for a replicated edit.
   */
  readonly isRepair?: boolean
}

/** The new revision, or the reason for a refusal. */
export type EditResult = { readonly rev: string; readonly deleted: boolean } | CouchError

/**
 * Decides edits of one document.
 * @param state the document as stored; null if it never existed
 * @param revsLimit the number of ancestors kept for each branch
 * @returns one result for each edit, in order, and the write for them. If that takes long, only the first edits have
 * results, at least one
 */
export function decideEdits(
  id: string,
  state: DocState | null,
  revsLimit: number,
  edits: readonly Edit[],
  bounds: EditBounds = {},
): Extract<Decision<EditResult[]>, { result: unknown }> {
  const document = new EditedDocument(id, state, revsLimit, bounds)
  const result: EditResult[] = []
  for (const [at, edit] of edits.entries()) {
    if (at > 0 && document.isLong) break
    result.push(resultOf(document, edit, at))
  }
  const write = writeOf(document)
  return write === undefined ? { result } : { result, write }
}

function resultOf(document: EditedDocument, requested: Edit, at: number): EditResult {
  try {
    const edit =
      requested.attachment === undefined
        ? requested
        : { ...requested, doc: amendedDocument(document.state, requested.attachment, requested.doc) }
    return edit.newEdits ? editInteractively(document, edit, at) : editAsReplica(document, edit, at)
  } catch (error) {
    if (error instanceof CouchError) return error
    throw error
  }
}

/** Protocol.md 3.3 and 6.3: the parent is a leaf, or the tombstone of a document that is recreated. */
function editInteractively(document: EditedDocument, { doc, mustBeLive }: Edit, at: number): EditResult {
  const parent = parentOf(document.branches, doc, mustBeLive ?? false)
  const pos = (parent?.pos ?? 0) + 1
  checkAttachmentList(doc.attachments, document.maxAttachments)
  const attachments = doc.attachments.map((attachment) =>
    interactiveAttachment(document, parent, attachment, pos),
  )
  const id = newRevId({
    parent: parent === null ? null : leafRev(parent),
    deleted: doc.deleted,
    body: doc.body,
    attachments,
  })
  const rev = formatRev(pos, id)
  const change: BranchChange =
    parent === null
      ? { removed: [], added: [makeBranch(pos, [id], doc.deleted)] }
      : document.branches.extendOf(parent, id, doc.deleted)
  const follows = parent !== null && doc.path !== null
  const old = () => (follows ? document.nearest(parent.pos, parent.ids) : null)
  take(document, { at, doc, rev, attachments }, change, old)
  document.branches.apply(change)
  return { rev, deleted: doc.deleted }
}

interface NewRevision {
  /** The place of the edit among those of its document. */
  readonly at: number
  readonly doc: IncomingDoc
  readonly rev: string
  readonly attachments: AttachmentWrite[]
}

/** Takes the content of a revision, unless it is refused. @param old the revision that it follows, if that is stored */
function take(
  document: EditedDocument,
  { at, doc, rev, attachments }: NewRevision,
  change: BranchChange,
  old: () => OldRevision | null,
): void {
  const grown = () => bytesGained(change)
  document.check?.({ at, doc, rev, attachments, old, branches: document.branches, grown })
  document.contents.set(rev, { deleted: doc.deleted, body: doc.body, attachments })
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
  document: EditedDocument,
  parent: Branch | null,
  attachment: IncomingAttachment,
  pos: number,
): AttachmentWrite {
  if (attachment.content !== null) {
    checkNewAttachmentName(attachment.name)
    return newAttachment(attachment, pos)
  }
  const stored = parent === null ? null : document.attachments(leafRev(parent))
  return keptAttachment(document.id, attachment, stored)
}

function newAttachment({ name, type, content }: IncomingAttachment, revpos: number): AttachmentWrite {
  if (content === null) throw new RangeError('a stub has no content')
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

/** Protocol.md 6.4: there is never a conflict, and a known revision, leaf or inner, changes nothing. */
function editAsReplica(document: EditedDocument, { doc, isRepair }: Edit, at: number): EditResult {
  const path = replicatedPath(doc)
  const incoming = makeBranch(path.pos, path.ids, doc.deleted)
  const rev = leafRev(incoming)
  if (isRepair) return repair(document, doc, incoming, at)
  if (document.isDamagedLeaf(rev))
    return storeAgain(document, doc, incoming, at, newAttachments(document, doc))
  const change = document.branches.mergeOf(incoming)
  const leaf = change.added.find((branch) => branch.pos === incoming.pos && branch.leaf === incoming.leaf)
  if (leaf !== undefined && document.branches.leaf({ pos: leaf.pos, id: leaf.leaf }) === undefined) {
    document.checkLeafCount(change)
    checkAttachmentList(doc.attachments, document.maxAttachments)
    const attachments = doc.attachments.map((attachment) =>
      replicatedAttachment(document, incoming, attachment),
    )
    const old = () => {
      const newest = newestKnown(leaf, change)
      return document.nearest(newest, leaf.ids.slice(leaf.pos - newest))
    }
    take(document, { at, doc, rev, attachments }, change, old)
  } else if (change.added.length > 0) document.checkAncestry?.(bytesGained(change))
  document.branches.apply(change)
  return { rev, deleted: doc.deleted }
}

/** A revision never changes, so what a device sends of a damaged leaf takes its place. */
function storeAgain(
  document: EditedDocument,
  doc: IncomingDoc,
  incoming: Branch,
  at: number,
  attachments: AttachmentWrite[],
): EditResult {
  const rev = leafRev(incoming)
  const damaged = document.branches.leaf({ pos: incoming.pos, id: incoming.leaf }) as Branch
  // A leaf whose ancestry was damaged as well has only itself as such.
  const ids = damaged.ids.length < incoming.ids.length ? incoming.ids : damaged.ids
  const added = document.stemmed(makeBranch(incoming.pos, ids, doc.deleted))
  const change = { removed: [damaged], added: [added] }
  checkAttachmentList(doc.attachments, document.maxAttachments)
  const old = () => document.nearest(incoming.pos - 1, ids.slice(1))
  take(document, { at, doc, rev, attachments }, change, old)
  document.branches.apply(change)
  document.hasRestored = true
  return { rev, deleted: doc.deleted }
}

/** @throws missing_stub: what is stored of a damaged leaf is not relied on */
function newAttachments(document: EditedDocument, { attachments }: IncomingDoc): AttachmentWrite[] {
  const stub = attachments.find(({ content }) => content === null)
  if (stub !== undefined) throw missingStub(document.id, stub.name)
  return attachments.map((attachment) => newAttachment(attachment, attachment.revpos ?? 0))
}

/** Nothing changes if the revision is not stored any more: it was purged, or removed by a compaction. */
function repair(document: EditedDocument, doc: IncomingDoc, incoming: Branch, at: number): EditResult {
  const rev = leafRev(incoming)
  const result = { rev, deleted: doc.deleted }
  const isLeaf = document.branches.leaf({ pos: incoming.pos, id: incoming.leaf }) !== undefined
  if (!isLeaf && !document.isStored(rev)) return result
  const attachments = doc.attachments.map((attachment) =>
    attachment.content === null
      ? keptAttachment(document.id, attachment, document.attachments(rev))
      : newAttachment(attachment, attachment.revpos ?? 0),
  )
  if (isLeaf) return storeAgain(document, doc, incoming, at, attachments)
  take(document, { at, doc, rev, attachments }, { removed: [], added: [] }, () => null)
  return result
}

/**
 * The generation of the newest ancestor of a new leaf that may be stored. Those above the leaves that it changes are as new as itself: an
 * engine that looked for each of a thousand would take a second.
 */
function newestKnown(leaf: Branch, { removed }: BranchChange): number {
  const known = removed.reduce((newest, { pos }) => Math.max(newest, pos), 0)
  return known === 0 ? leaf.pos - 1 : Math.min(known, leaf.pos - 1)
}

/**
 * The revision of a replicated document, with its ancestry.
 * @throws bad_request without a revision (protocol.md 1.2); invalid_rev for generation 0, which only `_local`
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
  document: EditedDocument,
  path: Branch,
  attachment: IncomingAttachment,
): AttachmentWrite {
  if (attachment.content !== null) return newAttachment(attachment, attachment.revpos ?? 0)
  return keptAttachment(document.id, attachment, document.nearest(path.pos, path.ids)?.attachments ?? null)
}

/** The difference between the stored and the edited branches; undefined without a difference. */
function writeOf(document: EditedDocument): DocWrite | undefined {
  const best = document.branches.winner
  if (best === undefined) return undefined
  const { revisions, sequenced } = firstRevision(document, best) ?? changedRevisions(document)
  if (revisions.length === 0) return undefined
  const write = { rev: leafRev(best), deleted: best.deleted, sequenced, revisions }
  return isDesignId(document.id) ? { ...write, design: true } : write
}

type Changes = Pick<DocWrite, 'revisions' | 'sequenced'>

/** The result of `changedRevisions` for a new document with one revision, the usual write, in a sixth of the time. */
function firstRevision({ state, branches, contents }: EditedDocument, leaf: Branch): Changes | null {
  if (state !== null || branches.size > 1 || contents.size > 1) return null
  for (const [rev, content] of contents) {
    return { revisions: [leafWrite(rev, leaf, content)], sequenced: true }
  }
  return null
}

function changedRevisions({ branches, contents, hasRestored }: EditedDocument): Changes {
  const changes = branches.changes()
  const written = new Map(changes.written.map((branch) => [leafRev(branch), branch]))
  const revisions = [
    ...changes.superseded.map(superseded),
    ...[...contents].filter(([rev]) => !written.has(rev)).map(supersededAtOnce),
    ...[...written].map(([rev, branch]) => leafWrite(rev, branch, contents.get(rev))),
  ]
  return { revisions, sequenced: changes.leavesChanged || hasRestored }
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

/**
 * The document as a client would send it to change only this attachment; protocol.md 7.4. Pure.
 * A new attachment comes before the others, as in CouchDB.
 * @param state the document as stored; null if it never existed
 * @param name of the attachment
 * @param doc names the parent, if any, and has the attachment, or no attachment to remove it
 * @throws missing_rev for a parent without a stored body; no_attachment if the attachment to remove does not exist;
 * not_found and deleted for a removal without a parent
 */
function amendedDocument(state: DocState | null, name: string, doc: IncomingDoc): IncomingDoc {
  const isRemoval = doc.attachments.length === 0
  const named = namedRev(doc)
  if (named === null) {
    // Without a parent, the edit itself decides: a new document, a recreated document, or a conflict.
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

/** Bytes of names and types for each attachment that a document may have. */
const LISTED_BYTES = 256

/**
 * Refuses new contents in a document whose attachments are too many, or have too long names and types: all of them are read
 * with each revision. Stubs pass, so that existing attachments can be edited and removed.
 * @throws document_too_large
 */
function checkAttachmentList(attachments: readonly IncomingAttachment[], max: number): void {
  if (attachments.every(({ content }) => content === null)) return
  if (attachments.length > max) throw tooManyAttachments(max)
  const bytes = attachments.reduce((sum, { name, type }) => sum + Buffer.byteLength(name + type), 0)
  if (bytes > max * LISTED_BYTES) throw tooLongNames(max * LISTED_BYTES)
}
