/** Counts and compares the rows of the old feed with those here, in memory that does not grow with the database. Pure. */
import { FeedPoints } from './feed-points.ts'
import { LeafDigest } from './leaf-digest.ts'
import type { LocalRow } from './local-rows.ts'
import type { OldRow } from './old-feed.ts'

/** Documents of one kind. */
export interface Differences {
  readonly count: number
  /** The first of them. */
  readonly ids: readonly string[]
}

/** A document of the old database with leaves that were not here when its row was read. */
export interface MissingDocument {
  readonly id: string
  readonly leaves: readonly string[]
  /** The number of its row. */
  readonly row: number
}

/** A document whose winner here may be another one; null: it is deleted here. */
export interface DoubtfulWinner {
  readonly id: string
  readonly winner: string | null
}

const MAX_EXAMPLES = 10
const SAMPLE = 100
/** Documents of which more than an example is kept. */
const MAX_KEPT = 1000
/** Leaves of all of them. */
const MAX_KEPT_LEAVES = 100_000

export class FeedTally {
  readonly points = new FeedPoints()
  readonly oldDigest = new LeafDigest()
  readonly newDigest = new LeafDigest()
  readonly changedHere = new Examples()
  readonly doubtful: DoubtfulWinner[] = []
  /** A few live documents from all parts of the feed, with their winners. */
  readonly sample: { readonly id: string; readonly rev: string }[] = []
  readonly missing: MissingDocument[] = []
  /** Whether more documents are missing than are kept. */
  isOverfull = false
  live = 0
  deleted = 0
  leaves = 0
  /** Documents that are in both, up to `localEnd`. */
  found = 0
  readonly localEnd: number
  readonly #ownIds: ReadonlySet<string>
  /** One bit for each local number: whether its document is in the old database. */
  readonly #marks: Uint8Array
  /** The smallest local number of a document with leaves that the old database does not have. */
  #firstChangedHere = Number.POSITIVE_INFINITY
  #sampleStep = 1
  /** Of the missing documents that are kept. */
  #keptLeaves = 0

  /**
   * @param localEnd the last number of the local feed before the first row is read
   * @param ownIds documents whose leaves may differ, since each server makes its own
   */
  constructor(localEnd: number, ownIds: ReadonlySet<string>) {
    this.localEnd = localEnd
    this.#ownIds = ownIds
    this.#marks = new Uint8Array((localEnd >> 3) + 1)
  }

  get rows(): number {
    return this.live + this.deleted
  }

  /** Whether a document that only exists here, or was written to meanwhile, has this local number. */
  isOnlyHere(seq: number): boolean {
    return seq <= this.localEnd && ((this.#marks[seq >> 3] as number) & (1 << (seq & 7))) === 0
  }

  /** Adds a row. @param here undefined: the document is not here */
  add(row: OldRow, here: LocalRow | undefined): void {
    const { id, leaves } = row
    this.#count(row)
    if (here !== undefined) this.#mark(here.seq)
    if (this.#ownIds.has(id)) {
      this.points.add(row.seq, here?.seq ?? Number.POSITIVE_INFINITY)
      return
    }
    this.oldDigest.add(id, leaves)
    const known = new Set(here?.leaves)
    if (here === undefined || leaves.some((leaf) => !known.has(leaf))) {
      this.#addMissing(row, here)
      return
    }
    this.points.add(row.seq, here.seq)
    this.newDigest.add(id, here.leaves)
    if (here.leaves.length > leaves.length) {
      this.changedHere.add(id)
      this.#noteOwnChange(here.seq)
    }
    const isSame = here.leaves[0] === leaves[0] && here.isDeleted === row.isDeleted
    if (isSame || this.doubtful.length === MAX_KEPT) return
    this.doubtful.push({ id, winner: here.isDeleted ? null : (here.leaves[0] ?? null) })
  }

  /**
   * Checks a document again that was missing, after another copy. A copied one has a local number beyond `localEnd`.
   * @param isHere whether its leaves are known now
   */
  recheck({ id, leaves, row }: MissingDocument, here: LocalRow | undefined, isHere: boolean): void {
    if (isHere) this.newDigest.add(id, leaves)
    if (here === undefined || here.seq > this.localEnd) return
    this.points.include(row, here.seq)
    if (hasOthers(here, leaves)) this.#noteOwnChange(here.seq)
  }

  /**
   * The local number that the end of the old feed stands for.
   * @param firstOwn the smallest local number of a document that only exists here; Infinity: there is none
   */
  endBefore(firstOwn: number): number {
    return Math.min(this.localEnd, this.#firstChangedHere - 1, firstOwn - 1)
  }

  #noteOwnChange(seq: number): void {
    this.#firstChangedHere = Math.min(this.#firstChangedHere, seq)
  }

  /** It gets a greater local number than all others when it is copied; {@link MissingDocument}s are looked at again then. */
  #addMissing({ id, leaves, seq }: OldRow, here: LocalRow | undefined): void {
    const isKept = this.missing.length < MAX_KEPT && this.#keptLeaves + leaves.length <= MAX_KEPT_LEAVES
    this.points.add(seq, isKept || here === undefined ? Number.POSITIVE_INFINITY : here.seq)
    if (isKept) {
      this.missing.push({ id, leaves, row: this.rows })
      this.#keptLeaves += leaves.length
      return
    }
    this.isOverfull = true
    if (here !== undefined && hasOthers(here, leaves)) this.#noteOwnChange(here.seq)
  }

  /** A row may come twice if its document changes meanwhile. */
  #mark(seq: number): void {
    if (!this.isOnlyHere(seq)) return
    this.#marks[seq >> 3] = (this.#marks[seq >> 3] as number) | (1 << (seq & 7))
    this.found += 1
  }

  #count({ id, leaves, isDeleted }: OldRow): void {
    if (isDeleted) this.deleted += 1
    else this.live += 1
    this.leaves += leaves.length
    const [rev] = leaves
    if (isDeleted || rev === undefined || this.live % this.#sampleStep !== 0) return
    this.sample.push({ id, rev })
    if (this.sample.length <= SAMPLE) return
    for (let at = this.sample.length - 1; at >= 0; at -= 2) this.sample.splice(at, 1)
    this.#sampleStep *= 2
  }
}

/** Whether a document has leaves here that the old database does not have. */
function hasOthers(here: LocalRow, leaves: readonly string[]): boolean {
  const known = new Set(leaves)
  return here.leaves.some((leaf) => !known.has(leaf))
}

export class Examples {
  #count = 0
  readonly #ids: string[] = []

  add(id: string): void {
    this.#count += 1
    if (this.#ids.length < MAX_EXAMPLES) this.#ids.push(id)
  }

  list(): Differences {
    return { count: this.#count, ids: [...this.#ids] }
  }
}
