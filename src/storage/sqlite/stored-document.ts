/** A document, whose members are read from its rows on demand. */
import {
  type Ancestry,
  ancestryId,
  ancestryLength,
  type Branch,
  decodeAncestry,
} from '../../revisions/branch.ts'
import type { DocState, StoredAttachment, StoredRevision } from '../engine.ts'

/** The columns of a {@link DocRow}, in its order: of `doc` as d, and optionally of the winner as r. */
export const DOC_COLUMNS = 'd.num, d.id, d.seq, d.rev, d.deleted, d.leaves, d.winner'
export const BODY_COLUMNS = 'r.body, r.attachments'
/** For many documents at once: a long body is read only when it is used. */
export const SHORT_BODY_COLUMNS = shortBodies(65_536)
/** For the rows of a page, which may end before the last of them. */
export const PAGE_BODY_COLUMNS = shortBodies(4096)
export const ANCESTRY_COLUMN = 'r.ancestry'

function shortBodies(bytes: number): string {
  return `iif(octet_length(r.body) <= ${bytes}, r.body, NULL), r.attachments`
}

export type DocRow = readonly [
  num: number,
  id: string,
  seq: number,
  rev: string,
  deleted: number,
  /** 0 if not counted yet. */
  leaves: number,
  /** The number of the winner's row; null if not noted yet. */
  winner: number | null,
  /** null if not read yet. */
  body?: string | null,
  attachments?: number,
  ancestry?: Uint8Array,
]

/** The text of a revision, how many attachments it has, and whether it is a tombstone. */
export type ContentRow = readonly [body: string, attachments: number, deleted: number]

/** Identifies a revision's row. */
export interface RevisionPlace {
  /** The number of the document's row. */
  readonly doc: number
  readonly rev: string
  /** The number of the revision's row, if known. */
  readonly num: number | null
}

/** Reads the rows of a document. */
export interface DocumentRows {
  branchesOf(doc: number): Branch[]
  revisionsOf(doc: number): StoredRevision[]
  retainedOf(doc: number): string[]
  isDeleted(place: RevisionPlace): boolean | null
  contentOf(place: RevisionPlace): ContentRow | undefined
  attachmentsOf(place: RevisionPlace): StoredAttachment[]
  /** In the stored form. */
  ancestryOf(place: RevisionPlace): Uint8Array
}

export class StoredDocument implements DocState {
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  /** 0 if not counted yet. */
  readonly leaves: number
  /** The number of the winner's row; null if not noted yet. */
  readonly winner: number | null
  readonly #rows: DocumentRows
  #content: ContentRow | undefined
  /** Characters of the bodies of other revisions that were read. */
  #otherChars = 0
  /** The last revision that was read other than the winner, since its members are used together. */
  #other: { readonly rev: string; readonly content: ContentRow | undefined } | undefined
  #branches: readonly Branch[] | undefined
  readonly #ancestry: Uint8Array | undefined

  constructor(row: DocRow, rows: DocumentRows) {
    const [num, id, seq, rev, deleted, leaves, winner, body, attachments, ancestry] = row
    this.num = num
    this.id = id
    this.seq = seq
    this.rev = rev
    this.deleted = deleted === 1
    this.leaves = leaves
    this.winner = winner
    this.#rows = rows
    this.#ancestry = ancestry
    if (typeof body === 'string') this.#content = [body, attachments ?? 0, deleted]
  }

  /** Characters of the bodies that were read so far. */
  get charsRead(): number {
    return this.#otherChars + (this.#content?.[0].length ?? 0)
  }

  get hasOneLeaf(): boolean {
    return this.leaves === 1
  }

  get branches(): readonly Branch[] {
    this.#branches ??= this.hasOneLeaf
      ? [new StoredBranch(this.#place(this.rev), this.deleted, this.#rows, this.#ancestry)]
      : this.#rows.branchesOf(this.num)
    return this.#branches
  }

  revisions(): readonly StoredRevision[] {
    return this.#rows.revisionsOf(this.num)
  }

  retained(): readonly string[] {
    return this.#rows.retainedOf(this.num)
  }

  isDeleted(rev: string): boolean | null {
    if (rev === this.rev) return this.deleted
    const read = this.#other?.rev === rev ? this.#other.content : undefined
    return read === undefined ? this.#rows.isDeleted(this.#place(rev)) : read[2] === 1
  }

  body(rev: string): string | null {
    return this.#contentOf(rev)?.[0] ?? null
  }

  attachments(rev: string): readonly StoredAttachment[] {
    const count = this.#contentOf(rev)?.[1] ?? 0
    return count === 0 ? [] : this.#rows.attachmentsOf(this.#place(rev))
  }

  #contentOf(rev: string): ContentRow | undefined {
    if (rev !== this.rev) {
      if (this.#other?.rev !== rev) {
        const content = this.#rows.contentOf(this.#place(rev))
        this.#other = { rev, content }
        this.#otherChars += content?.[0].length ?? 0
      }
      return this.#other.content
    }
    this.#content ??= this.#rows.contentOf(this.#place(rev))
    return this.#content
  }

  #place(rev: string): RevisionPlace {
    return { doc: this.num, rev, num: rev === this.rev ? this.winner : null }
  }
}

/** A leaf of a document. Its ancestry is read from the file on demand, and decoded when all of it is used. */
export class StoredBranch implements Branch, Ancestry {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly #place: RevisionPlace
  readonly #rows: DocumentRows
  readonly #bytes: number | undefined
  #stored: Uint8Array | undefined
  #ids: readonly string[] | undefined

  /**
   * @param stored the stored form of the ancestry, if already read
   * @param bytes its length, if known
   */
  constructor(
    place: RevisionPlace,
    deleted: boolean,
    rows: DocumentRows,
    stored?: Uint8Array | null,
    bytes?: number,
  ) {
    const { rev } = place
    // Revisions were checked when they were written.
    const dash = rev.indexOf('-')
    this.pos = Number(rev.slice(0, dash))
    this.leaf = rev.slice(dash + 1)
    this.deleted = deleted
    this.#place = place
    this.#rows = rows
    this.#stored = stored ?? undefined
    this.#bytes = bytes
  }

  get #ancestry(): Uint8Array {
    this.#stored ??= this.#rows.ancestryOf(this.#place)
    return this.#stored
  }

  get ids(): readonly string[] {
    this.#ids ??= decodeAncestry(this.#ancestry)
    return this.#ids
  }

  get ancestry(): Ancestry {
    return this
  }

  get length(): number {
    return this.#ids?.length ?? ancestryLength(this.#ancestry)
  }

  get bytes(): number {
    return this.#bytes ?? this.#ancestry.length
  }

  id(index: number): string | undefined {
    return this.#ids === undefined ? ancestryId(this.#ancestry, index) : this.#ids[index]
  }
}
