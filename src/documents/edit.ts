/**
 * What comes of writing to one document: pure decisions on its branches. One call takes all the edits that a
 * request holds for the document, in their order, and makes one write of them.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import { type Branch, endsIn, leafRev, makeBranch } from '../revisions/branch.ts'
import { extend, merge } from '../revisions/merge.ts'
import { formatRev, newRevId, type Rev } from '../revisions/rev.ts'
import { winner } from '../revisions/winner.ts'
import type {
  AttachmentWrite,
  Decision,
  DocState,
  DocWrite,
  RevisionWrite,
  StoredAttachment,
} from '../storage/engine.ts'
import { amendedDocument } from './attachment-edit.ts'
import { checkNewAttachmentName, type IncomingAttachment, type IncomingDoc, namedRev } from './incoming.ts'

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

/** A revision that an edit is about to make. */
export interface Candidate {
  /** Which of the edits makes it. */
  readonly at: number
  readonly doc: IncomingDoc
  readonly rev: string
  readonly attachments: readonly AttachmentWrite[]
  /**
   * What it follows (protocol.md 9.2): the parent of an edit made here, the nearest ancestor whose body is kept of a
   * replicated one; null when there is none, and for a document that is made anew after its deletion.
   */
  readonly old: OldRevision | null
  /** The document's leaves before it. */
  readonly branches: readonly Branch[]
}

interface OldContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly (StoredAttachment | AttachmentWrite)[]
}

export interface OldRevision extends OldContent {
  readonly pos: number
  /** Its own id and those of its ancestors, newest first. */
  readonly ids: readonly string[]
}

/** Looks at what is about to be made; throws a CouchError to refuse it. Pure. */
export type Inspect = (candidate: Candidate) => void

interface Content {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly AttachmentWrite[]
}

/** A document while edits are applied to it. */
class Draft {
  readonly id: string
  readonly state: DocState | null
  readonly revsLimit: number
  readonly inspect: Inspect | undefined
  /** As stored; read once, since an engine may hand out others at each look. */
  readonly before: readonly Branch[]
  branches: readonly Branch[]
  /** Contents that the edits brought, by revision. */
  readonly contents = new Map<string, Content>()
  /** Contents of stored revisions that were asked for, and which of all stored ones are deleted. */
  #contents: Map<string, OldContent | null> | undefined
  #deleted: ReadonlyMap<string, boolean> | undefined

  constructor(id: string, state: DocState | null, revsLimit: number, inspect: Inspect | undefined) {
    this.id = id
    this.state = state
    this.revsLimit = revsLimit
    this.inspect = inspect
    this.before = state?.branches ?? []
    this.branches = this.before
  }

  /** The attachments of a revision, stored or brought by an earlier edit; null when no row of it is kept. */
  attachments(rev: string): readonly (StoredAttachment | AttachmentWrite)[] | null {
    const brought = this.contents.get(rev)
    if (brought !== undefined) return brought.attachments
    if (this.state === null || this.state.body(rev) === null) return null
    return this.state.attachments(rev)
  }

  /**
   * The newest of some revisions whose body is kept, or was brought by an earlier edit.
   * @param ids newest first, the first of generation `pos`
   */
  nearest(pos: number, ids: readonly string[]): OldRevision | null {
    for (const [steps, id] of ids.entries()) {
      const rev = formatRev(pos - steps, id)
      const content = this.contents.get(rev) ?? this.#kept(rev)
      if (content !== null) return { ...content, pos: pos - steps, ids: ids.slice(steps) }
    }
    return null
  }

  #kept(rev: string): OldContent | null {
    const { state } = this
    if (state === null) return null
    this.#deleted ??= new Map(state.revisions().map((stored) => [stored.rev, stored.deleted]))
    const deleted = this.#deleted.get(rev)
    if (deleted === undefined) return null
    this.#contents ??= new Map()
    const known = this.#contents.get(rev)
    if (known !== undefined) return known
    const body = state.body(rev)
    const content = body === null ? null : { deleted, body, attachments: state.attachments(rev) }
    this.#contents.set(rev, content)
    return content
  }
}

/**
 * Decides edits of one document.
 * @param state the document as stored; null when it never was
 * @param revsLimit ancestors kept for each branch
 * @param inspect asked about each revision that would be made; an edit that it refuses changes nothing
 * @returns a result an edit, in order, and the write that makes them true
 */
export function decideEdits(
  id: string,
  state: DocState | null,
  revsLimit: number,
  edits: readonly Edit[],
  inspect?: Inspect,
): Extract<Decision<EditResult[]>, { result: unknown }> {
  const draft = new Draft(id, state, revsLimit, inspect)
  const result = edits.map((asked, at) => {
    try {
      const edit = amendedEdit(state, asked)
      return edit.newEdits ? editInteractively(draft, edit, at) : editAsReplica(draft, edit.doc, at)
    } catch (error) {
      if (error instanceof CouchError) return error
      throw error
    }
  })
  const write = writeOf(draft)
  return write === undefined ? { result } : { result, write }
}

function amendedEdit(state: DocState | null, edit: Edit): Edit {
  return edit.attachment === undefined
    ? edit
    : { ...edit, doc: amendedDocument(state, edit.attachment, edit.doc) }
}

/** Protocol.md 3.3 and 6.3: the parent is a leaf, or the tombstone of a document that is made anew. */
function editInteractively(draft: Draft, { doc, mustBeLive }: Edit, at: number): EditResult {
  const parent = parentOf(draft.branches, doc, mustBeLive ?? false)
  const pos = (parent?.pos ?? 0) + 1
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
  if (draft.inspect !== undefined) {
    const follows = parent !== null && doc.path !== null
    const old = follows ? draft.nearest(parent.pos, parent.ids) : null
    draft.inspect({ at, doc, rev, attachments, old, branches: draft.branches })
  }
  draft.branches = grown(draft, parent, { pos, id }, doc.deleted)
  draft.contents.set(rev, { deleted: doc.deleted, body: doc.body, attachments })
  return { rev, deleted: doc.deleted }
}

function parentOf(branches: readonly Branch[], doc: IncomingDoc, mustBeLive: boolean): Branch | null {
  const best = winner(branches)
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
  const parent = branches.find((branch) => endsIn(branch, rev))
  if (parent === undefined || best.deleted) throw new CouchError('conflict')
  return parent
}

function grown(draft: Draft, parent: Branch | null, rev: Rev, deleted: boolean): readonly Branch[] {
  if (parent === null) return [makeBranch(rev.pos, [rev.id], deleted)]
  return extend(draft.branches, parent, rev.id, deleted, draft.revsLimit)
}

function interactiveAttachment(
  draft: Draft,
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

export function missingStub(id: string, name: string): CouchError {
  return new CouchError('missing_stub', `Invalid attachment stub in ${id} for ${name}`)
}

/** Protocol.md 6.4: never a conflict; what is known already, leaf or inner, changes nothing. */
function editAsReplica(draft: Draft, doc: IncomingDoc, at: number): EditResult {
  const path = replicatedPath(doc)
  const incoming = makeBranch(path.pos, path.ids, doc.deleted)
  const rev = leafRev(incoming)
  const wasLeaf = leafOf(draft.branches, incoming) !== undefined
  const { branches } = merge(draft.branches, incoming, draft.revsLimit)
  const leaf = leafOf(branches, incoming)
  if (!wasLeaf && leaf !== undefined) {
    const attachments = doc.attachments.map((attachment) => replicatedAttachment(draft, incoming, attachment))
    if (draft.inspect !== undefined) {
      const old = draft.nearest(leaf.pos - 1, leaf.ids.slice(1))
      draft.inspect({ at, doc, rev, attachments, old, branches: draft.branches })
    }
    draft.contents.set(rev, { deleted: doc.deleted, body: doc.body, attachments })
  }
  draft.branches = branches
  return { rev, deleted: doc.deleted }
}

/** The branch that ends as another does. */
function leafOf(branches: readonly Branch[], { pos, leaf }: Branch): Branch | undefined {
  return branches.find((branch) => branch.pos === pos && branch.leaf === leaf)
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

function replicatedAttachment(draft: Draft, path: Branch, attachment: IncomingAttachment): AttachmentWrite {
  if (attachment.content !== null) return newAttachment(attachment, attachment.revpos ?? 0)
  const ancestor = path.ids
    .map((id, steps) => draft.attachments(formatRev(path.pos - steps, id)))
    .find((stored) => stored !== null)
  return keptAttachment(draft.id, attachment, ancestor ?? null)
}

/** The difference between the branches as stored and as drafted; undefined when there is none. */
function writeOf(draft: Draft): DocWrite | undefined {
  const best = winner(draft.branches)
  if (best === undefined) return undefined
  const { revisions, sequenced } = firstRevision(draft) ?? changedRevisions(draft)
  if (revisions.length === 0) return undefined
  const write = { rev: leafRev(best), deleted: best.deleted, sequenced, revisions }
  return isDesignId(draft.id) ? { ...write, design: true } : write
}

type Changes = Pick<DocWrite, 'revisions' | 'sequenced'>

/** What `changedRevisions` makes of a new document with one revision, as most writes are; in a sixth of the time. */
function firstRevision({ before, branches, contents }: Draft): Changes | null {
  const [leaf] = branches
  if (before.length > 0 || leaf === undefined || branches.length > 1 || contents.size > 1) return null
  for (const [rev, content] of contents) {
    return { revisions: [leafWrite(rev, leaf, content)], sequenced: true }
  }
  return null
}

function changedRevisions({ before, branches, contents }: Draft): Changes {
  const stored = new Map(before.map((branch) => [leafRev(branch), branch]))
  const leaves = new Map(branches.map((branch) => [leafRev(branch), branch]))
  const revisions = [
    ...before.filter((branch) => !leaves.has(leafRev(branch))).map(superseded),
    ...[...contents].filter(([rev]) => !leaves.has(rev)).map(supersededAtOnce),
    ...[...leaves]
      .filter(([rev, branch]) => stored.get(rev) !== branch)
      .map(([rev, branch]) => leafWrite(rev, branch, contents.get(rev))),
  ]
  const sameLeaves = leaves.size === stored.size && [...leaves.keys()].every((rev) => stored.has(rev))
  return { revisions, sequenced: !sameLeaves }
}

function superseded(branch: Branch): RevisionWrite {
  return { rev: leafRev(branch), deleted: branch.deleted, ancestry: null }
}

function supersededAtOnce([rev, { deleted, body, attachments }]: [string, Content]): RevisionWrite {
  return { rev, deleted, ancestry: null, content: { body, attachments } }
}

function leafWrite(rev: string, branch: Branch, content: Content | undefined): RevisionWrite {
  const { deleted, ids } = branch
  if (content === undefined) return { rev, deleted, ancestry: ids }
  return { rev, deleted, ancestry: ids, content: { body: content.body, attachments: content.attachments } }
}
