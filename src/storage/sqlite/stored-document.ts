/** A document as its rows show it; what is not asked for is not read. */
import type { Branch } from '../../revisions/branch.ts'
import { parseRev } from '../../revisions/rev.ts'
import type { DocState, StoredAttachment, StoredRevision } from '../engine.ts'

export interface DocRow {
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: number
  /** Only where the winner's body was asked for with the row. */
  readonly body?: string
  readonly attachments?: number
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
  ancestryOf(revision: number): readonly string[]
  attachmentsOf(doc: number, rev: string): StoredAttachment[]
  bytesOf(blob: number): Uint8Array
}

export class StoredDocument implements DocState {
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  readonly #rows: DocumentRows
  #winner: { readonly body: string; readonly attachments: number } | undefined
  #branches: readonly Branch[] | undefined

  constructor(row: DocRow, rows: DocumentRows) {
    this.num = row.num
    this.id = row.id
    this.seq = row.seq
    this.rev = row.rev
    this.deleted = row.deleted === 1
    this.#rows = rows
    if (row.body !== undefined) this.#winner = { body: row.body, attachments: row.attachments ?? 0 }
  }

  get branches(): readonly Branch[] {
    this.#branches ??= this.#rows.branchesOf(this.num)
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
  readonly #num: number
  readonly #rows: DocumentRows
  #ids: readonly string[] | undefined

  constructor(row: RevisionRow, rows: DocumentRows) {
    const { pos, id } = parseRev(row.rev)
    this.pos = pos
    this.leaf = id
    this.deleted = row.deleted === 1
    this.#num = row.num
    this.#rows = rows
  }

  get ids(): readonly string[] {
    this.#ids ??= this.#rows.ancestryOf(this.#num)
    return this.#ids
  }
}
