/**
 * A document while the edits of a request are applied to it: its branches, the contents that the edits brought, and
 * the stored contents they have looked up. It bounds the work of one decision.
 */
import { CouchError } from '../core/errors.ts'
import { bytesOf } from '../revisions/branch.ts'
import { type BranchChange, BranchSet } from '../revisions/branch-set.ts'
import { formatRev } from '../revisions/rev.ts'
import type { AttachmentWrite, DocState, StoredAttachment } from '../storage/engine.ts'
import type { IncomingDoc } from './incoming-document.ts'

/** A revision that an edit is about to make. */
export interface NewRevision {
  /** The index of the edit that makes it. */
  readonly at: number
  readonly doc: IncomingDoc
  readonly rev: string
  readonly attachments: readonly AttachmentWrite[]
  /**
   * The revision before it (protocol.md 9.2): the parent of an edit made here, or the nearest ancestor with a stored
   * body of a replicated one. Null without such a revision, and for a document created anew after its deletion.
   */
  readonly old: OldRevision | null
  /** The document's leaves before the edit. */
  readonly branches: Pick<BranchSet, 'leaf'>
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

/** The bounds of a document. */
export interface EditBounds {
  /** Called for each new revision; an edit that it refuses changes nothing. */
  readonly check?: RevisionCheck | undefined
  /** Maximum of leaves, deleted ones too; unbounded by default. */
  readonly maxLeaves?: number
  /** Maximum of attachments of a revision that brings a new one; unbounded by default. */
  readonly maxAttachments?: number
}

/**
 * Branches and ids that one decision examines, which takes some milliseconds. The next decision takes the edits that
 * are left.
 */
const MOST_STEPS = 30_000
/** A lookup of a stored revision counts as this many steps. */
const LOOKUP_STEPS = 20
/** Ancestors of a revision that are looked up. With the usual `_revs_limit` no more are kept. */
const MOST_LOOKUPS = 1000
/** Bytes of the ancestries of all leaves: a thousand leaves with a thousand ids each. */
const MOST_ANCESTRY = 16 * 1024 * 1024
/** With so few leaves the bytes are not counted: with the usual `_revs_limit` their ancestries are always smaller. */
const UNCOUNTED_LEAVES = 16

export interface NewContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly AttachmentWrite[]
}

export class EditedDocument {
  readonly id: string
  readonly state: DocState | null
  readonly check: RevisionCheck | undefined
  readonly maxLeaves: number
  readonly maxAttachments: number
  readonly branches: BranchSet
  /** The contents that the edits brought, by revision. */
  readonly contents = new Map<string, NewContent>()
  /** The stored revisions that were looked up; null without a stored body. */
  readonly #kept = new Map<string, StoredContent | null>()
  #lookups = 0

  constructor(id: string, state: DocState | null, revsLimit: number, bounds: EditBounds) {
    this.id = id
    this.state = state
    this.check = bounds.check
    this.maxLeaves = bounds.maxLeaves ?? Number.POSITIVE_INFINITY
    this.maxAttachments = bounds.maxAttachments ?? Number.POSITIVE_INFINITY
    // Read once, since an engine may return other objects at each read.
    this.branches = new BranchSet(state?.branches ?? [], revsLimit)
  }

  /** Whether the decision has taken long enough, so that the next one takes the edits that are left. */
  get isLong(): boolean {
    return this.branches.steps + LOOKUP_STEPS * this.#lookups > MOST_STEPS
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
    if (bytes + this.branches.ancestryBytes() > MOST_ANCESTRY) {
      throw new CouchError('too_many_leaves', tooManyLeaves(size, 'their ancestries'))
    }
  }

  /** The attachments of a revision, stored or brought by an earlier edit; null for a revision without a stored row. */
  attachments(rev: string): readonly (StoredAttachment | AttachmentWrite)[] | null {
    const brought = this.contents.get(rev)
    if (brought !== undefined) return brought.attachments
    return this.#stored(rev)?.attachments ?? null
  }

  /**
   * The newest of some revisions whose body is stored, or was brought by an earlier edit.
   * @param ids newest first, the first of generation `pos`
   */
  nearest(pos: number, ids: readonly string[]): OldRevision | null {
    for (const [steps, id] of ids.slice(0, MOST_LOOKUPS).entries()) {
      const rev = formatRev(pos - steps, id)
      const content = this.contents.get(rev) ?? this.#stored(rev)
      if (content !== null) return { ...content, pos: pos - steps, ids: ids.slice(steps) }
    }
    return null
  }

  /** @returns null without a stored body */
  #stored(rev: string): StoredContent | null {
    const known = this.#kept.get(rev)
    if (known !== undefined) return known
    this.#lookups += 1
    const content = this.#read(rev)
    this.#kept.set(rev, content)
    return content
  }

  #read(rev: string): StoredContent | null {
    const { state } = this
    const body = state?.body(rev) ?? null
    if (state === null || body === null) return null
    return { deleted: state.isDeleted(rev) ?? false, body, attachments: state.attachments(rev) }
  }
}

function tooManyLeaves(leaves: number, bound: string): string {
  return (
    `The document has ${leaves} conflicting revisions and cannot have more (${bound}): ` +
    'resolve conflicts on devices that have them all, or purge revisions.'
  )
}
