/** A document as it was loaded. A member that needs more than was loaded throws {@link NotLoaded}. */

import type { CouchError } from '../../core/errors.ts'
import {
  type Ancestry,
  ancestryId,
  ancestryLength,
  type Branch,
  decodeAncestry,
} from '../../revisions/branch.ts'
import { agrees, ancestryChecksum } from '../checksum.ts'
import type { StoredAttachment, StoredRevision } from '../engine.ts'
import type { DocHistory, HistoryReadSet, StoredVersion, VersionRange } from '../history-store.ts'
import type { OpenDatabase } from './open-database.ts'
import { attachmentSum, contentSum, docRowChecksum, docSum, listedAttachments } from './row-checksums.ts'

/** Thrown when a callback reads a part that was not loaded. Only the loader catches it. */
export class NotLoaded extends Error {
  constructor() {
    super('A part of a document was read that was not loaded.')
  }
}

/** When a revision was stored, and how large it is. */
export interface VersionFacts {
  readonly place: number
  readonly storedAt: number | null
  readonly supersededAt: number | null
  readonly grownAt: number | null
  readonly size: number
  readonly attachments: number
}

/** A stored revision. What was not loaded is undefined; what was loaded is compared with its checksum when it is read. */
export interface LoadedRevision {
  readonly rev: string
  readonly deleted: boolean
  readonly leaf: boolean
  /** Only for the time machine. */
  readonly retained: boolean
  readonly body?: string | undefined
  /** As they are stored: JSON, or the empty text for none. */
  readonly attachments?: string | undefined
  /** null if it is not noted yet, like the other checksums. */
  readonly contentChecksum: number | null
  /** In the stored form. */
  readonly ancestry?: Uint8Array | undefined
  readonly ancestryChecksum: number | null
  /** Bytes of the ancestry in the stored form. */
  readonly ancestryBytes?: number | undefined
  readonly version?: VersionFacts | undefined
}

/** What a write needs to know of the winner before it. */
export interface WriteFacts {
  /** Bytes of the body and the attachments, decoded. */
  readonly size: number
  /** Bytes of the body as it is stored. */
  readonly bodyBytes: number
  /** Bytes of the ancestry as it is stored. */
  readonly ancestryBytes: number
  readonly hasAttachments: boolean
}

/** The row of a document. */
export interface LoadedRow {
  readonly id: string
  readonly seq: number
  /** Changes with each change of the document. */
  readonly version: number
  /** Its first sequence number. */
  readonly firstSeq: number
  readonly leaves: number
  readonly checksum: number | null
  readonly winner: LoadedRevision
  readonly writeFacts: WriteFacts | undefined
}

/** Which revisions other than the winner were looked for; if they were not found, they are not stored. Others are named. */
export interface Sought {
  readonly leaves: boolean
  /** All superseded and retained revisions, or those of this range. */
  readonly superseded: boolean
  readonly versions: VersionRange | undefined
}

const NOTHING: HistoryReadSet = {}
const NO_REVS: readonly string[] = []

interface ReadingOptions {
  readonly database: Pick<OpenDatabase, 'damage' | 'leaves' | 'rows'>
  /** Whether it is read for the time machine. */
  readonly showsRetained: boolean
}

export class LoadedDocument implements DocHistory {
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  readonly version: number
  readonly firstSeq: number
  readonly leaves: number
  /** undefined if it was not loaded for a write. */
  readonly writeFacts: WriteFacts | undefined
  /** Whether the row does not say what was written, which is reported; then nothing of it is to be used: {@link refusing}. */
  readonly isDamaged: boolean
  /** What the last call has missed. */
  missing = NOTHING
  readonly #database: ReadingOptions['database']
  readonly #showsRetained: boolean
  #winner: LoadedRevision
  /** Most documents have been loaded for their winner alone, and a page has thousands of them. */
  #others: Map<string, LoadedRevision> | undefined
  #sought: Set<string> | undefined
  #hasLeaves: boolean
  /** Whether all leaves were looked for, whatever the row says. */
  #soughtLeaves = false
  #salvages = false
  #hasSuperseded = false
  #versions: VersionRange | undefined
  #branches: readonly Branch[] | undefined
  /** The other revisions whose bodies were read. */
  #read: Set<string> | undefined
  #isWinnerRead: boolean
  /** The revisions whose body, and whose attachments, were compared last. */
  #sound: LoadedRevision | undefined
  #listed: { readonly of: LoadedRevision; readonly attachments: readonly StoredAttachment[] } | undefined

  constructor(row: LoadedRow, { database, showsRetained }: ReadingOptions) {
    const sum = docSum(row.id, row.winner.rev, row.winner.deleted) + row.seq + row.leaves
    this.isDamaged = !agrees(row.checksum, docRowChecksum(sum), true)
    if (this.isDamaged) {
      database.damage.damagedRow(row.id)
      database.rows.onFound(row.id, row.version)
    }
    this.#database = database
    this.id = row.id
    this.seq = row.seq
    this.rev = row.winner.rev
    this.deleted = row.winner.deleted
    this.version = row.version
    this.firstSeq = row.firstSeq
    this.leaves = row.leaves
    this.writeFacts = row.writeFacts
    this.#hasLeaves = row.leaves === 1
    this.#showsRetained = showsRetained
    this.#winner = row.winner
    this.#isWinnerRead = row.winner.body !== undefined
  }

  /** From now on its leaves are those that are found, whatever the row says: {@link PurgeUpdate.salvages}. */
  salvage(): void {
    this.#salvages = true
    this.#hasLeaves = this.#soughtLeaves
  }

  get isSalvaged(): boolean {
    return this.#salvages && (this.isDamaged || this.branches.length !== this.leaves)
  }

  /** Whether a reader may use it. */
  get isUsable(): boolean {
    return this.#salvages || !this.isDamaged
  }

  /** The error for its row. */
  damage(): CouchError {
    return this.#database.damage.damagedRow(this.id)
  }

  /** Adds what was loaded of a revision. */
  add(revision: LoadedRevision): void {
    this.#branches = undefined
    if (revision.rev === this.rev) this.#winner = joined(this.#winner, revision)
    else {
      this.#others ??= new Map()
      this.#others.set(revision.rev, joined(this.#others.get(revision.rev), revision))
    }
  }

  /** Notes which revisions are there if they exist. */
  note({ leaves, superseded, versions }: Sought, revs: Iterable<string> | undefined): void {
    this.#soughtLeaves ||= leaves
    this.#hasLeaves ||= leaves
    this.#hasSuperseded ||= superseded
    this.#versions = versions ?? this.#versions
    if (revs === undefined) return
    this.#sought ??= new Set()
    for (const rev of revs) this.#sought.add(rev)
  }

  #revision(rev: string): LoadedRevision | undefined {
    return rev === this.rev ? this.#winner : this.#others?.get(rev)
  }

  /** Adds what was loaded later. @returns whether both are of one state */
  merge(later: LoadedDocument | null): boolean {
    if (later?.version !== this.version) return false
    // A compaction removes superseded revisions without a change of the document.
    const looked = [...(this.missing.revs ?? []), ...(this.missing.attachments ?? [])]
    if (looked.some((rev) => this.#revision(rev) && !later.#revision(rev))) return false
    for (const revision of later.#all()) this.add(revision)
    const sought = { leaves: later.#hasLeaves, superseded: later.#hasSuperseded, versions: later.#versions }
    this.note(sought, later.#sought)
    this.missing = NOTHING
    return true
  }

  /** Characters of the bodies that were loaded with the document, or read since. */
  get charsRead(): number {
    let chars = this.#isWinnerRead ? (this.#winner.body?.length ?? 0) : 0
    for (const rev of this.#read ?? NO_REVS) chars += this.#others?.get(rev)?.body?.length ?? 0
    return chars
  }

  /** Whether the winner's body was loaded. */
  get hasBody(): boolean {
    return this.#winner.body !== undefined
  }

  get hasOneLeaf(): boolean {
    return this.leaves === 1 && !this.#salvages
  }

  get damagedLeaves(): ReadonlySet<string> {
    return this.#database.leaves.of(this.id)
  }

  get branches(): readonly Branch[] {
    if (!this.#hasLeaves) this.#miss({ branches: true })
    this.#branches ??= this.#all()
      .filter(({ leaf }) => leaf)
      .map((leaf) => new LoadedBranch(leaf, () => this.#ancestryOf(leaf)))
    const areAll = this.#salvages || this.#branches.length === this.leaves
    if (!areAll || !this.#branches.every(({ pos }) => pos > 0)) throw this.#incomplete()
    return this.#branches
  }

  revisions(): readonly StoredRevision[] {
    if (!this.#hasSuperseded || !this.#hasLeaves) this.#miss({ revisions: true })
    const all = this.#all()
    if (!this.#salvages && all.filter(({ leaf }) => leaf).length !== this.leaves) throw this.#incomplete()
    return all
      .filter(({ retained }) => !retained || this.#showsRetained)
      .map(({ rev, deleted, leaf }) => ({ rev, deleted, leaf }))
  }

  retained(): readonly string[] {
    if (!this.#hasSuperseded) this.#miss({ retained: true })
    return this.#all()
      .filter(({ retained }) => retained)
      .map(({ rev }) => rev)
  }

  isDeleted(rev: string): boolean | null {
    return this.#find(rev, 'attachments')?.deleted ?? null
  }

  body(rev: string): string | null {
    const found = this.#find(rev, 'revs')
    if (found === undefined) return null
    if (found.body === undefined) this.#miss(rev === this.rev ? { body: true } : { revs: [rev] })
    if (rev === this.rev) this.#isWinnerRead = true
    else {
      this.#read ??= new Set()
      this.#read.add(rev)
    }
    return this.#checkedBody(found)
  }

  /** @throws damaged_document */
  #checkedBody(revision: LoadedRevision): string {
    const { rev, deleted, contentChecksum, body = '' } = revision
    if (this.#sound === revision) return body
    const attachments = this.#listOf(revision).length
    const sum = contentSum(this.id, rev, deleted, { body, attachments })
    if (!agrees(contentChecksum, sum, true)) throw this.#damaged(revision)
    this.#sound = revision
    return body
  }

  attachments(rev: string): readonly StoredAttachment[] {
    const found = this.#find(rev, 'attachments')
    if (found === undefined) return []
    if (found.attachments === undefined) this.#miss({ attachments: [rev] })
    return this.#listOf(found)
  }

  /** @throws damaged_document */
  #listOf(revision: LoadedRevision): readonly StoredAttachment[] {
    const { attachments = '' } = revision
    if (attachments === '') return []
    if (this.#listed?.of !== revision)
      this.#listed = { of: revision, attachments: this.#parsed(revision, attachments) }
    return this.#listed.attachments
  }

  #parsed(revision: LoadedRevision, stored: string): StoredAttachment[] {
    try {
      return listedAttachments(stored).map(({ checksum = null, ...attachment }) => {
        const sum = attachmentSum(this.id, revision.rev, attachment) + attachment.blob
        if (!agrees(checksum, sum, true)) throw new Error('its checksum is another one')
        return attachment
      })
    } catch {
      throw this.#damaged(revision)
    }
  }

  #damaged({ rev, leaf }: LoadedRevision): CouchError {
    if (leaf) this.#database.leaves.note(this.id, rev)
    return this.#database.damage.damagedDocument(this.id, rev)
  }

  /** The error for rows of leaves that are missing. */
  #incomplete(): CouchError {
    return this.#database.damage.damagedDocument(this.id, this.rev)
  }

  versions(range: VersionRange = {}): readonly StoredVersion[] {
    if (!isWithin(range, this.#versions) || !this.#hasLeaves) this.#miss({ versions: range })
    const { leavesAfter = -1, before = Infinity, limit = Infinity, storedBy = Infinity } = range
    return this.#all()
      .flatMap(({ rev, deleted, leaf, retained, version }) =>
        version === undefined
          ? []
          : {
              ...version,
              rev,
              deleted,
              supersededAt: leaf ? null : (version.supersededAt ?? 0),
              isRetained: retained,
            },
      )
      .filter(({ place, supersededAt }) => place < before && (supersededAt ?? Infinity) > leavesAfter)
      .filter(({ storedAt }) => (storedAt ?? 0) <= storedBy)
      .sort((a, b) => b.place - a.place)
      .slice(0, limit)
  }

  #all(): LoadedRevision[] {
    return [this.#winner, ...(this.#others?.values() ?? [])]
  }

  /** @param kind what to load if nothing is known of it @returns undefined if it is not stored */
  #find(rev: string, kind: 'revs' | 'attachments'): LoadedRevision | undefined {
    const found = this.#revision(rev)
    if (found !== undefined) return found.retained && !this.#showsRetained ? undefined : found
    const isKnown = this.#sought?.has(rev) || (this.#hasLeaves && this.#hasSuperseded)
    if (!isKnown) this.#miss({ [kind]: [rev] })
    return undefined
  }

  /** @throws damaged_document */
  #ancestryOf({ rev, deleted }: LoadedRevision): Uint8Array {
    const found = this.#revision(rev)
    if (found?.ancestry === undefined)
      return this.#miss(rev === this.rev ? { ancestry: 'winner' } : { ancestryOf: [rev] })
    const { ancestry, ancestryChecksum: checksum } = found
    if (!agrees(checksum, ancestryChecksum(ancestry, rev, deleted), true)) throw this.#damaged(found)
    return ancestry
  }

  #miss(readSet: HistoryReadSet): never {
    this.missing = readSet
    throw new NotLoaded()
  }
}

/**
 * The document in the place of one whose row is damaged: whatever a reader wants of it, except its id, is damaged_document.
 * @returns a view of it
 */
export function refusing(doc: LoadedDocument): LoadedDocument {
  return new Proxy(doc, {
    get: (row, member) => {
      if (member === 'id' || member === 'isDamaged') return row[member]
      throw row.damage()
    },
  })
}

/** What two statements have loaded of one revision; the later one counts. */
function joined(known: LoadedRevision | undefined, revision: LoadedRevision): LoadedRevision {
  if (known === undefined) return revision
  return {
    ...revision,
    body: revision.body ?? known.body,
    attachments: revision.attachments ?? known.attachments,
    contentChecksum: revision.contentChecksum ?? known.contentChecksum,
    ancestry: revision.ancestry ?? known.ancestry,
    ancestryChecksum: revision.ancestryChecksum ?? known.ancestryChecksum,
    ancestryBytes: revision.ancestryBytes ?? known.ancestryBytes,
    version: revision.version ?? known.version,
  }
}

/** A leaf. Its ancestry is decoded when all of it is used. */
class LoadedBranch implements Branch, Ancestry {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly #load: () => Uint8Array
  readonly #bytes: number | undefined
  #ids: readonly string[] | undefined
  /** Once it was compared. */
  #ancestry: Uint8Array | undefined

  constructor({ rev, deleted, ancestryBytes }: LoadedRevision, load: () => Uint8Array) {
    // Revisions were checked when they were written.
    const dash = rev.indexOf('-')
    this.pos = Number(rev.slice(0, dash))
    this.leaf = rev.slice(dash + 1)
    this.deleted = deleted
    this.#load = load
    this.#bytes = ancestryBytes
  }

  get #bytesOfAncestry(): Uint8Array {
    this.#ancestry ??= this.#load()
    return this.#ancestry
  }

  get ids(): readonly string[] {
    this.#ids ??= decodeAncestry(this.#bytesOfAncestry)
    return this.#ids
  }

  get ancestry(): Ancestry {
    return this
  }

  get length(): number {
    return this.#ids?.length ?? ancestryLength(this.#bytesOfAncestry)
  }

  get bytes(): number {
    return this.#bytes ?? this.#bytesOfAncestry.length
  }

  id(index: number): string | undefined {
    return this.#ids === undefined ? ancestryId(this.#bytesOfAncestry, index) : this.#ids[index]
  }
}

/** Whether the versions of a range are among those that were loaded of another. */
function isWithin(range: VersionRange, loaded: VersionRange | undefined): boolean {
  if (loaded === undefined) return false
  const { leavesAfter = -1, storedBy = Infinity, before = Infinity, limit = Infinity } = loaded
  const isSame =
    (range.leavesAfter ?? -1) === leavesAfter &&
    (range.storedBy ?? Infinity) === storedBy &&
    (range.before ?? Infinity) === before
  const isWhole = leavesAfter === -1 && storedBy === Infinity && before === Infinity
  return limit === Infinity ? isSame || isWhole : isSame && (range.limit ?? Infinity) <= limit
}
