/** A document as its rows show it; what is not asked for is not read. */
import { decodeAncestry } from '../../revisions/ancestry.ts'
import type { Branch } from '../../revisions/branch.ts'
import { parseRev } from '../../revisions/rev.ts'
import type { DocState, StoredAttachment, StoredRevision } from '../engine.ts'

export interface DocRow {
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: number
  /** 0: not counted yet. */
  readonly leaves: number
  /** Only where the winner's body was asked for with the row. */
  readonly body?: string
  readonly attachments?: number
  /** Only where it was asked for with the row. */
  readonly ancestry?: Uint8Array
}

export interface RevisionRow {
  readonly num: number
  readonly rev: string
  readonly leaf: number
  readonly deleted: number
  readonly size: number
}

/** Where the rows of one document are read, by its number. */
export interface DocumentRows {
  branchesOf(doc: number): Branch[]
  revisionsOf(doc: number): StoredRevision[]
  bodyOf(doc: number, rev: string): { readonly body: string; readonly attachments: number } | undefined
  ancestryOf(doc: number, rev: string): readonly string[]
  attachmentsOf(doc: number, rev: string): StoredAttachment[]
  bytesOf(blob: number): Uint8Array
}

export class StoredDocument implements DocState {
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  /** 0: not counted yet. */
  readonly leaves: number
  readonly #rows: DocumentRows
  #winner: { readonly body: string; readonly attachments: number } | undefined
  #branches: readonly Branch[] | undefined
  readonly #ancestry: Uint8Array | undefined

  constructor(row: DocRow, rows: DocumentRows) {
    this.num = row.num
    this.id = row.id
    this.seq = row.seq
    this.rev = row.rev
    this.deleted = row.deleted === 1
    this.leaves = row.leaves
    this.#rows = rows
    this.#ancestry = row.ancestry
    if (row.body !== undefined) this.#winner = { body: row.body, attachments: row.attachments ?? 0 }
  }

  get hasOneLeaf(): boolean {
    return this.leaves === 1
  }

  get branches(): readonly Branch[] {
    this.#branches ??= this.hasOneLeaf
      ? [new StoredBranch(this.num, this.rev, this.deleted, this.#rows, this.#ancestry)]
      : this.#rows.branchesOf(this.num)
    return this.#branches
  }

  revisions(): readonly StoredRevision[] {
    return this.#rows.revisionsOf(this.num)
  }

  body(rev: string): string | null {
    return this.#content(rev)?.body ?? null
  }

  attachments(rev: string): readonly StoredAttachment[] {
    const content = this.#content(rev)
    return content === undefined || content.attachments === 0 ? [] : this.#rows.attachmentsOf(this.num, rev)
  }

  bytes(blob: number): Uint8Array {
    return this.#rows.bytesOf(blob)
  }

  #content(rev: string): { readonly body: string; readonly attachments: number } | undefined {
    if (rev !== this.rev) return this.#rows.bodyOf(this.num, rev)
    this.#winner ??= this.#rows.bodyOf(this.num, rev)
    return this.#winner
  }
}

/** A leaf of a document; its ancestry is read from the file when it is touched. */
export class StoredBranch implements Branch {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly #doc: number
  readonly #rev: string
  readonly #rows: DocumentRows
  #ids: readonly string[] | undefined

  /** @param ancestry as it is stored, where it has been read already */
  constructor(doc: number, rev: string, deleted: boolean, rows: DocumentRows, ancestry?: Uint8Array) {
    const { pos, id } = parseRev(rev)
    this.pos = pos
    this.leaf = id
    this.deleted = deleted
    this.#doc = doc
    this.#rev = rev
    this.#rows = rows
    if (ancestry !== undefined) this.#ids = decodeAncestry(ancestry)
  }

  get ids(): readonly string[] {
    this.#ids ??= this.#rows.ancestryOf(this.#doc, this.#rev)
    return this.#ids
  }
}
