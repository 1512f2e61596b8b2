/**
 * A document while the edits of a request are applied to it: its branches, the contents that the edits brought, and
 * what of the stored ones they have looked up. It holds a document to what one decision can look through.
 */
import { CouchError } from '../core/errors.ts'
import { bytesOf } from '../revisions/branch.ts'
import { type BranchChange, BranchSet } from '../revisions/branch-set.ts'
import { formatRev } from '../revisions/rev.ts'
import type { AttachmentWrite, DocState, StoredAttachment } from '../storage/engine.ts'
import type { IncomingDoc } from './incoming-document.ts'

/** A revision that an edit is about to make. */
export interface NewRevision {
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
  readonly branches: Pick<BranchSet, 'leaf'>
}

interface StoredContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly (StoredAttachment | AttachmentWrite)[]
}

export interface OldRevision extends StoredContent {
  readonly pos: number
  /** Its own id and those of its ancestors, newest first. */
  readonly ids: readonly string[]
}

/** Looks at what is about to be made; throws a CouchError to refuse it. Pure. */
export type RevisionCheck = (candidate: NewRevision) => void

/** What a document is held to. */
export interface EditBounds {
  /** Asked about each revision that would be made; an edit that it refuses changes nothing. */
  readonly check?: RevisionCheck | undefined
  /** Leaves that the document may have, deleted ones too; unbounded by default. */
  readonly maxLeaves?: number
  /** Attachments that a revision may have which brings a new one; unbounded by default. */
  readonly maxAttachments?: number
}

/** Branches and ids looked at, after which a decision leaves the rest of its edits to the next: some milliseconds. */
const MOST_STEPS = 30_000
/** A stored revision that is looked up counts as so many of them. */
const LOOKUP_STEPS = 20
/** Ancestors of a revision that are looked up; more are not kept, with the usual `_revs_limit`. */
const MOST_LOOKUPS = 1000
/** Bytes that the ancestries of a document's leaves may take together: a thousand of a thousand ids each. */
const MOST_ANCESTRY = 16 * 1024 * 1024
/** So many leaves are not counted: their ancestries take less whatever ids they have, with the usual `_revs_limit`. */
const UNCOUNTED_LEAVES = 16

export interface NewContent {
  readonly deleted: boolean
  readonly body: string
  readonly attachments: readonly AttachmentWrite[]
}

/** A document while edits are applied to it. */
export class EditedDocument {
  readonly id: string
  readonly state: DocState | null
  readonly check: RevisionCheck | undefined
  readonly maxLeaves: number
  readonly maxAttachments: number
  readonly branches: BranchSet
  /** Contents that the edits brought, by revision. */
  readonly contents = new Map<string, NewContent>()
  /** Stored revisions that were asked for. */
  readonly #kept = new Map<string, StoredContent | null>()
  #lookups = 0

  constructor(id: string, state: DocState | null, revsLimit: number, bounds: EditBounds) {
    this.id = id
    this.state = state
    this.check = bounds.check
    this.maxLeaves = bounds.maxLeaves ?? Number.POSITIVE_INFINITY
    this.maxAttachments = bounds.maxAttachments ?? Number.POSITIVE_INFINITY
    // Read once, since an engine may hand out others at each look.
    this.branches = new BranchSet(state?.branches ?? [], revsLimit)
  }

  /** Whether it has taken so long that the rest is for the next decision. */
  get isLong(): boolean {
    return this.branches.steps + LOOKUP_STEPS * this.#lookups > MOST_STEPS
  }

  /**
   * Refuses what would make more of the document than a decision on it can look through.
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

  /** The attachments of a revision, stored or brought by an earlier edit; null when no row of it is kept. */
  attachments(rev: string): readonly (StoredAttachment | AttachmentWrite)[] | null {
    const brought = this.contents.get(rev)
    if (brought !== undefined) return brought.attachments
    return this.#stored(rev)?.attachments ?? null
  }

  /**
   * The newest of some revisions whose body is kept, or was brought by an earlier edit.
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

  /** null when no body of it is kept. */
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
    `The document has ${leaves} conflicting revisions, and no more are taken (${bound}): ` +
    'resolve conflicts on devices that have them all, or purge revisions.'
  )
}
