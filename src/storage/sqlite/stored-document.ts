/** A document, whose members are read from its rows on demand. */
import type { CouchError } from '../../core/errors.ts'
import {
  type Ancestry,
  ancestryId,
  ancestryLength,
  type Branch,
  decodeAncestry,
} from '../../revisions/branch.ts'
import { agrees, checkedAncestry, contentChecksum, docChecksum } from '../checksum.ts'
import type { DocState, StoredAttachment, StoredRevision } from '../engine.ts'

/** The columns of a {@link DocRow}, in its order: of `doc` as d, and optionally of the winner as r. */
export const DOC_COLUMNS = 'd.num, d.id, d.seq, d.rev, d.deleted, d.leaves, d.winner, d.checksum'
/** A long body is read only when it is used. */
export const BODY_COLUMNS = shortBodies(65_536)
/** For the rows of a page, which may end before the last of them. */
export const PAGE_BODY_COLUMNS = shortBodies(4096)
export const ANCESTRY_COLUMN = 'r.ancestry'

function shortBodies(bytes: number): string {
  const isShort = `octet_length(r.body) <= ${bytes}`
  // The checksum lies behind the body, so reading it reads the body's pages.
  return `iif(${isShort}, r.body, NULL), r.attachments, iif(${isShort}, r.checksum, NULL)`
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
  /** null if not noted yet; see {@link docChecksum}. */
  checksum: number | null,
  /** null if not read yet. */
  body?: string | null,
  attachments?: number,
  contentChecksum?: number | null,
  ancestry?: Uint8Array,
]

/** The columns of a {@link ContentRow}, of `revision`. */
export const CONTENT_COLUMNS = 'body, attachments, deleted, checksum, num'

/** The text of a revision, how many attachments it has, and whether it is a tombstone. */
export type ContentRow = readonly [
  body: string,
  attachments: number,
  deleted: number,
  /** As {@link contentChecksum}; null if it is not noted yet. */
  checksum: number | null,
  num: number,
]

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
  /** In the stored form, not checked. */
  ancestryOf(place: RevisionPlace): Uint8Array
  /** Whether rows of an older settee may lack their checksums. */
  readonly lacksChecksums: boolean
  /**
   * A document's row as it was written, if the document's revisions and the checksum of the row prove it.
   * @param row a row that does not say what was written, which is reported
   * @param id of the document
   */
  rebuilt(row: DocRow, id: string): DocRow | null
  /** The leaves of a document that are known to be damaged. */
  damagedLeavesOf(doc: number): ReadonlySet<string>
  /**
   * The error for a document, or a revision, that does not say what was written; it is reported as a fault of the database.
   * @param id of the document, if known
   * @param place of the revision; absent: the damage is in the document's row
   */
  damaged(id?: string, place?: Pick<RevisionPlace, 'doc' | 'rev'>): CouchError
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
  /** The winner's content as it was read with the document, until it is used. */
  readonly #unchecked: ContentRow | undefined
  /** Characters of the bodies of other revisions that were read. */
  #otherChars = 0
  /** The last revision that was read other than the winner, since its members are used together. */
  #other: { readonly rev: string; readonly content: ContentRow | undefined } | undefined
  #branches: readonly Branch[] | undefined
  readonly #ancestry: Uint8Array | undefined

  /** Whether the row does not say what was written, which is reported; then nothing of it is to be used. */
  readonly isDamaged: boolean
  /** Whether the row does not say what was written, but its members are proven. */
  readonly isRebuilt: boolean

  /** @param asked the id that was asked for; by default the row's */
  constructor(stored: DocRow, rows: DocumentRows, asked = stored[1]) {
    const row = asked === stored[1] && isSound(stored, rows) ? stored : rows.rebuilt(stored, asked)
    const [num, id, seq, rev, deleted, leaves, winner, , body, attachments, bodyChecksum, ancestry] =
      row ?? stored
    this.isDamaged = row === null
    this.isRebuilt = row !== null && row !== stored
    this.num = num
    this.id = id
    this.seq = seq
    this.rev = rev
    this.deleted = deleted === 1
    this.leaves = leaves
    this.winner = winner
    this.#rows = rows
    this.#ancestry = ancestry
    if (typeof body === 'string' && winner !== null)
      this.#unchecked = [body, attachments ?? 0, deleted, bodyChecksum ?? null, winner]
  }

  /**
   * Makes each member throw damaged_document, since none of them can be trusted.
   * @param id of the document that was asked for
   */
  refuse(id: string): void {
    const get = () => {
      throw this.#rows.damaged(id)
    }
    for (const name of ['seq', 'rev', 'deleted', 'leaves', 'winner'])
      Object.defineProperty(this, name, { get })
  }

  #damage(rev = this.rev): CouchError {
    return this.#rows.damaged(this.id, { doc: this.num, rev })
  }

  get damagedLeaves(): ReadonlySet<string> {
    return this.#rows.damagedLeavesOf(this.num)
  }

  /** How many attachments the winner has, if its body was read with the document; otherwise 0. */
  get attachmentCount(): number {
    return this.#unchecked?.[1] ?? 0
  }

  /** Characters of the bodies that were read so far. */
  get charsRead(): number {
    return this.#otherChars + ((this.#content ?? this.#unchecked)?.[0].length ?? 0)
  }

  get hasOneLeaf(): boolean {
    return this.leaves === 1
  }

  get branches(): readonly Branch[] {
    this.#branches ??= this.hasOneLeaf
      ? [new StoredBranch(this.#place(this.rev), this.deleted, this.#rows, this.#ancestry)]
      : this.#rows.branchesOf(this.num)
    if (this.leaves > 0 && this.#branches.length !== this.leaves) throw this.#damage()
    return this.#branches
  }

  revisions(): readonly StoredRevision[] {
    const revisions = this.#rows.revisionsOf(this.num)
    const leaves = revisions.filter(({ leaf }) => leaf)
    const isWhole =
      leaves.some(({ rev }) => rev === this.rev) && leaves.length === (this.leaves || leaves.length)
    if (!isWhole) throw this.#damage()
    return revisions
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
    if (count === 0) return []
    const attachments = this.#rows.attachmentsOf(this.#place(rev))
    if (attachments.length !== count) throw this.#damage(rev)
    return attachments
  }

  #contentOf(rev: string): ContentRow | undefined {
    if (rev !== this.rev) {
      if (this.#other?.rev !== rev) {
        const content = this.#checked(rev, this.#rows.contentOf(this.#place(rev)))
        this.#other = { rev, content }
        this.#otherChars += content?.[0].length ?? 0
      }
      return this.#other.content
    }
    this.#content ??= this.#checked(rev, this.#unchecked ?? this.#rows.contentOf(this.#place(rev)))
    // A leaf has a content.
    if (this.#content === undefined) throw this.#damage()
    return this.#content
  }

  /** @throws damaged_document */
  #checked(rev: string, content: ContentRow | undefined): ContentRow | undefined {
    if (content === undefined) return undefined
    const [body, attachments, deleted, checksum, num] = content
    const sum = contentChecksum({ num, rev, deleted, attachments, body })
    if (agrees(checksum, sum, this.#rows.lacksChecksums)) return content
    throw this.#damage(rev)
  }

  #place(rev: string): RevisionPlace {
    return { doc: this.num, rev, num: rev === this.rev ? this.winner : null }
  }
}

function isSound(row: DocRow, { lacksChecksums }: DocumentRows): boolean {
  // Taking the row apart twice cost a feed 5 %.
  const facts = { num: row[0], seq: row[2], deleted: row[4], leaves: row[5], winner: row[6] }
  return agrees(row[7], docChecksum(row[1], row[3], facts), lacksChecksums)
}

/** A leaf of a document. Its ancestry is read from the file on demand, and decoded when all of it is used. */
export class StoredBranch implements Branch, Ancestry {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly #place: RevisionPlace
  readonly #rows: DocumentRows
  readonly #bytes: number | undefined
  readonly #unchecked: Uint8Array | undefined
  #checked: Uint8Array | undefined
  #ids: readonly string[] | undefined

  /**
   * @param stored the stored form of the ancestry, if already read; it is checked when it is used
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
    this.#unchecked = stored ?? undefined
    this.#bytes = bytes
  }

  /** @throws damaged_document */
  get #ancestry(): Uint8Array {
    this.#checked ??= this.#check(this.#unchecked ?? this.#rows.ancestryOf(this.#place))
    return this.#checked
  }

  #check(stored: Uint8Array): Uint8Array {
    const { rev } = this.#place
    const ancestry = checkedAncestry(stored, rev, this.deleted, this.#rows.lacksChecksums)
    if (ancestry === null) throw this.#rows.damaged(undefined, this.#place)
    return ancestry
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
