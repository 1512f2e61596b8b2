/**
 * Reads a client's document from its JSON, with all checks that do not depend on stored data, and applies its edits to
 * the stored document.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import type { Limits, Settings } from '../core/types.ts'
import { type Branch, bytesOf, leafRev, makeBranch, parseRevisions } from '../revisions/branch.ts'
import { type BranchChange, BranchSet } from '../revisions/branch-set.ts'
import { stem } from '../revisions/merge.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { AttachmentWrite, DocState, StoredAttachment } from '../storage/engine.ts'
import { type DocumentText, memberValue, type SplitDocument, splitDocumentText } from './body.ts'
import {
  type FollowingAttachment,
  type IncomingAttachment,
  invalidAttachment,
  readAttachments,
} from './incoming-attachments.ts'
import type { LeftContents } from './left-contents.ts'
import { unlessDamaged } from './render.ts'

/** Members that a client may send back unchanged; a write ignores them (protocol.md 2.4). */
const IGNORED = new Set(['_revs_info', '_local_seq', '_conflicts', '_deleted_conflicts'])
const UNDERSTOOD = new Set(['_id', '_rev', '_revisions', '_deleted', '_attachments'])

/**
 * Maximum number of JSON values in a design document. JSON.parse reads the whole document, which takes 10 ms for this
 * many.
 */
const MAX_DESIGN_VALUES = 50_000

const NO_ATTACHMENTS: IncomingDoc['attachments'] = []

export interface IncomingDoc {
  /** `_id` as sent, unchecked; undefined without `_id`. */
  readonly id: unknown
  /**
   * From `_revisions`, else from `_rev`: the generation, and the ids of the revision and its ancestors, newest first.
   */
  readonly path: { readonly pos: number; readonly ids: readonly string[] } | null
  readonly deleted: boolean
  /** The text to store. */
  readonly body: string
  readonly attachments: readonly IncomingAttachment[]
}

/**
 * Reads one document: synchronously, or in steps if it is long or has attachments.
 * @param document its JSON
 * @param address the id from the address, if any; it overrides `_id`
 * @throws invalid_json, document_not_object, too_deep, doc_validation, invalid_rev, bad_request (attachments),
 * document_too_large, attachment_too_large
 */
export function readDocument(
  document: DocumentText,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  return readSplit(splitDocumentText(document), settings, address)
}

/** Like {@link readDocument}, for a document whose text is already split. */
export function readSplit(
  split: SplitDocument | Promise<SplitDocument>,
  settings: Settings,
  address?: string,
): IncomingDoc | Promise<IncomingDoc> {
  if (split instanceof Promise) return split.then((parts) => readSplit(parts, settings, address))
  const members = readMembers(split, settings.limits, address)
  const attachments = members.special.get('_attachments')
  return attachments === undefined
    ? documentOf(members, NO_ATTACHMENTS)
    : withAttachments(members, attachments, settings, split.contents)
}

async function withAttachments(
  members: Members,
  json: string,
  settings: Settings,
  contents: LeftContents | undefined,
): Promise<IncomingDoc> {
  const { attachments, follows } = await readAttachments(json, settings, contents)
  const doc = documentOf(members, attachments)
  const [first] = follows
  if (first !== undefined) throw invalidAttachment(first.name)
  return doc
}

/**
 * Reads a document whose attachments may follow it.
 * @returns the document without the attachments that follow it, these attachments, and the names of all attachments in
 * the order sent
 * @throws as {@link readDocument}
 */
export async function readLeadingDocument(
  document: DocumentText,
  settings: Settings,
  address?: string,
): Promise<{
  readonly doc: IncomingDoc
  readonly follows: readonly FollowingAttachment[]
  readonly names: readonly string[]
}> {
  const members = readMembers(await splitDocumentText(document), settings.limits, address)
  const json = members.special.get('_attachments') ?? '{}'
  const { attachments, follows, names } = await readAttachments(json, settings, document.contents)
  return { doc: documentOf(members, attachments), follows, names }
}

/** The members of a document. All are checked except the attachments and the revision. */
interface Members {
  /** `_id` as sent; undefined without `_id`. */
  readonly id: unknown
  readonly special: ReadonlyMap<string, string>
  readonly deleted: boolean
  readonly body: string
}

function readMembers(
  { special, body, values }: SplitDocument,
  limits: Limits,
  address: string | undefined,
): Members {
  for (const name of special.keys()) {
    if (!UNDERSTOOD.has(name) && !IGNORED.has(name)) throw badMember(name)
  }
  const id = memberValue(special, '_id')
  const name = address ?? (typeof id === 'string' ? id : '')
  if (isLonger(body, limits.maxDocumentSize)) throw new CouchError('document_too_large', name)
  if (values > MAX_DESIGN_VALUES && isDesignId(name)) {
    const reason = `a design document holds more than ${MAX_DESIGN_VALUES} JSON values`
    throw new CouchError('document_too_large', reason)
  }
  const deleted = special.get('_deleted') ?? 'false'
  if (deleted !== 'true' && deleted !== 'false') throw badMember('_deleted')
  return { id, special, deleted: deleted === 'true', body }
}

/** Whether a text has more bytes in UTF-8. A UTF-16 unit has at most three. */
function isLonger(text: string, bytes: number): boolean {
  return 3 * text.length > bytes && Buffer.byteLength(text) > bytes
}

function documentOf(
  { id, special, deleted, body }: Members,
  attachments: IncomingDoc['attachments'],
): IncomingDoc {
  return { id, path: readPath(special), deleted, body, attachments }
}

function badMember(name: string): CouchError {
  return new CouchError('doc_validation', `Bad special document member: ${name.slice(0, 256)}`)
}

function readPath(special: ReadonlyMap<string, string>): { pos: number; ids: string[] } | null {
  if (special.has('_revisions')) return parseRevisions(memberValue(special, '_revisions'))
  if (!special.has('_rev')) return null
  const rev = parseRev(memberValue(special, '_rev'))
  return { pos: rev.pos, ids: [rev.id] }
}

/** The revision that a document names; null if it names no revision. */
export function namedRev(doc: IncomingDoc): Rev | null {
  return doc.path === null ? null : { pos: doc.path.pos, id: doc.path.ids[0] as string }
}

/** A revision that an edit is about to make. */
export interface NewRevision {
  /** The index of the edit that makes it. */
  readonly at: number
  readonly doc: IncomingDoc
  readonly rev: string
  readonly attachments: readonly AttachmentWrite[]
  /**
   * The revision before it (protocol.md 9.2): the parent of an interactive edit, or the nearest ancestor with a stored
   * body of a replicated edit. Null without such a revision, and for a recreated document. Read only on request.
   */
  old(): OldRevision | null
  /** The document's leaves before the edit. */
  readonly branches: Pick<BranchSet, 'leaf'>
  /** How many bytes the edit adds to the document's ancestries, the revision's own id included. Counted only on request. */
  grown(): number
}

interface StoredContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly (StoredAttachment | AttachmentWrite)[]
}

export interface OldRevision extends StoredContent {
  readonly pos: number
  /** The ids of the revision and its ancestors, newest first. */
  readonly ids: readonly string[]
}

/** Checks a new revision. Pure. @throws CouchError to refuse it */
export type RevisionCheck = (candidate: NewRevision) => void

/** The limits of a document. */
export interface EditBounds {
  /** Called for each new revision; an edit that it refuses changes nothing. */
  readonly check?: RevisionCheck | undefined
  /**
   * Called for an edit that adds no revision, but ids to the ancestries of others.
   * @param bytes how many they take
   * @throws CouchError to refuse it
   */
  readonly checkAncestry?: ((bytes: number) => void) | undefined
  /** Maximum number of leaves, including deleted ones; unbounded by default. */
  readonly maxLeaves?: number
  /** Maximum number of attachments of a revision that adds one; unbounded by default. */
  readonly maxAttachments?: number
}

/**
 * Maximum number of branches and ids that one decision examines, which takes some milliseconds. The next decision takes
 * the remaining edits.
 */
const MAX_STEPS = 30_000
/** A lookup of a stored revision counts as this many steps. */
const LOOKUP_STEPS = 20
/** Maximum number of ancestors of a revision that are looked up. The usual `_revs_limit` keeps no more. */
const MAX_LOOKUPS = 1000
/** Maximum bytes of the ancestries of all leaves: a thousand leaves with a thousand ids each. */
const MAX_ANCESTRY_BYTES = 16 * 1024 * 1024
/**
 * Up to this many leaves the bytes are not counted: with the usual `_revs_limit`, their ancestries are always smaller.
 */
const UNCOUNTED_LEAVES = 16

export interface NewContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly AttachmentWrite[]
}

/**
 * A document while the edits of a request are applied to it: its branches, the contents that the edits brought, and
 * the stored contents that were looked up. It bounds the work of one decision.
 */
export class EditedDocument {
  readonly id: string
  readonly state: DocState | null
  readonly check: RevisionCheck | undefined
  readonly checkAncestry: EditBounds['checkAncestry']
  readonly maxLeaves: number
  readonly maxAttachments: number
  readonly branches: BranchSet
  /** The contents that the edits brought, by revision. */
  readonly contents = new Map<string, NewContent>()
  /** Whether an edit has brought a damaged leaf again. */
  hasRestored = false
  readonly #revsLimit: number
  /** The stored revisions that were looked up; null without a stored body. */
  readonly #lookedUp = new Map<string, StoredContent | null>()
  /** The stored revisions of which only the attachments were looked up. */
  #listed: Map<string, Pick<StoredContent, 'attachments'>> | undefined
  #lookups = 0

  constructor(id: string, state: DocState | null, revsLimit: number, bounds: EditBounds) {
    this.id = id
    this.state = state
    this.check = bounds.check
    this.checkAncestry = bounds.checkAncestry
    this.maxLeaves = bounds.maxLeaves ?? Number.POSITIVE_INFINITY
    this.maxAttachments = bounds.maxAttachments ?? Number.POSITIVE_INFINITY
    // Read once, since an engine may return other objects at each read.
    this.branches = new BranchSet(usableBranches(state), revsLimit)
    this.#revsLimit = revsLimit
  }

  /** Whether the decision has taken long enough, so that the remaining edits wait for the next decision. */
  get isLong(): boolean {
    return this.branches.steps + LOOKUP_STEPS * this.#lookups > MAX_STEPS
  }

  /**
   * Refuses a change that gives the document more leaves than one decision can examine.
   * @throws too_many_leaves
   */
  checkLeafCount({ removed, added }: BranchChange): void {
    const { size } = this.branches
    const leaves = size + added.length - removed.length
    if (leaves <= size || leaves <= UNCOUNTED_LEAVES) return
    if (leaves > this.maxLeaves) {
      throw new CouchError('too_many_leaves', tooManyLeaves(size, 'settee/max_leaves'))
    }
    const bytes = added.reduce((sum, branch) => sum + bytesOf(branch), 0)
    if (bytes + this.branches.ancestryBytes() > MAX_ANCESTRY_BYTES) {
      throw new CouchError('too_many_leaves', tooManyLeaves(size, 'their ancestries'))
    }
  }

  /** Whether what is stored of a leaf is damaged, as far as it is known or its rows show it. */
  isDamagedLeaf(rev: string): boolean {
    const { state } = this
    if (state?.damagedLeaves === undefined || this.contents.has(rev)) return false
    if (state.damagedLeaves.has(rev)) return true
    if (this.branches.leaf(parseRev(rev)) === undefined) return false
    const read = () => {
      state.attachments(rev)
      return false
    }
    return unlessDamaged(read, () => true)
  }

  /** Whether a revision has a row, whatever can be read of it; also a retained one. */
  isStored(rev: string): boolean {
    const { state } = this
    if (state === null) return false
    return state.revisions().some((stored) => stored.rev === rev) || state.retained().includes(rev)
  }

  /** A branch without the ancestors beyond the limit. */
  stemmed(branch: Branch): Branch {
    return stem(branch, this.#revsLimit)
  }

  /** The attachments of a revision, stored or brought by an earlier edit; none for a revision without a stored row. */
  attachments(rev: string): StoredContent['attachments'] {
    const edited = this.contents.get(rev)
    if (edited !== undefined) return edited.attachments
    const known = this.#lookedUp.get(rev) ?? this.#listed?.get(rev)
    if (known !== undefined) return known.attachments
    this.#lookups += 1
    const attachments = this.state?.attachments(rev) ?? []
    this.#listed ??= new Map()
    this.#listed.set(rev, { attachments })
    return attachments
  }

  /**
   * The newest of some revisions whose body is stored, or was brought by an earlier edit.
   * @param ids newest first, the first of generation `pos`
   */
  nearest(pos: number, ids: readonly string[]): OldRevision | null {
    for (const [steps, id] of ids.slice(0, MAX_LOOKUPS).entries()) {
      const rev = formatRev(pos - steps, id)
      const content = this.contents.get(rev) ?? this.#stored(rev)
      if (content !== null) return { ...content, pos: pos - steps, ids: ids.slice(steps) }
    }
    return null
  }

  /** @returns null without a stored body */
  #stored(rev: string): StoredContent | null {
    const known = this.#lookedUp.get(rev)
    if (known !== undefined) return known
    this.#lookups += 1
    const content = this.#read(rev)
    this.#lookedUp.set(rev, content)
    return content
  }

  #read(rev: string): StoredContent | null {
    const { state } = this
    const body = state?.body(rev) ?? null
    if (state === null || body === null) return null
    return { deleted: state.isDeleted(rev) ?? false, body, attachments: state.attachments(rev) }
  }
}

/**
 * The branches that a write can extend. Of a damaged ancestry only the leaf is left, as if all others had been cut: else
 * nobody could write the document until a device brings that leaf again.
 */
function usableBranches(state: DocState | null): readonly Branch[] {
  if (state === null) return []
  const { branches, damagedLeaves } = state
  if (damagedLeaves === undefined || damagedLeaves.size === 0) return branches
  return branches.map((branch) => (damagedLeaves.has(leafRev(branch)) ? usable(branch) : branch))
}

function usable(branch: Branch): Branch {
  const { pos, leaf, deleted } = branch
  return makeBranch(
    pos,
    unlessDamaged(
      () => branch.ids,
      () => [leaf],
    ),
    deleted,
  )
}

function tooManyLeaves(leaves: number, bound: string): string {
  return (
    `The document has ${leaves} conflicting revisions and cannot have more (${bound}): ` +
    'resolve conflicts on devices that have them all, or purge revisions.'
  )
}
