/** What a database's file holds beside what lives in it, and how that is cleaned up: a part of the contract of engine.ts. */
import { Histogram, type HistogramCounts } from '../core/histogram.ts'

/** How far a compaction is. */
export interface CompactionProgress {
  /** Of `total` steps of about equal work. */
  readonly done: number
  readonly total: number
}

export interface CompactOptions {
  /**
   * Superseded revisions are kept, with body and attachments, that became so later than this (ms since 1970): the
   * revision model knows them no more ({@link DocState.retained} alone does). Absent: none is, and those that were go.
   */
  readonly keepSince?: number
  /** Bytes of bodies that are kept at the most: beyond it those go that were superseded first, by the minute. */
  readonly keepBytes?: number
  onProgress?(progress: CompactionProgress): void
}

/** What a compaction would find to do, as far as it is known without looking. */
export interface GarbageCounts {
  /** Grows with each write, of whatever kind. */
  readonly writes: number
  /** Bytes of the file, its log aside. */
  readonly fileBytes: number
  /** Bytes in pages of the file that hold nothing. */
  readonly freeBytes: number
  /** Bytes of superseded revisions that no compaction has come to yet, about. */
  readonly supersededBytes: number
  /** Bytes of contents that a revision has named and its successor does not, about. */
  readonly looseBytes: number
  /** When the oldest revision that is kept was superseded, in ms since 1970; null: none is kept. */
  readonly oldestRetained: number | null
  /** When a compaction ended last, in ms since 1970; 0: never. */
  readonly compactedAt: number
  /** Somebody wants something gone: documents were purged, or the limit of ancestors was lowered. */
  readonly isOwed: boolean
}

/** What is known of kept revisions of a database that nobody has open. */
export type RetainedVersions = Pick<GarbageCounts, 'oldestRetained' | 'compactedAt'>

export interface SizePart {
  readonly count: number
  readonly bytes: number
}

/** Where the bytes of a database are; the parts add up to `file`, but for what is written while they are counted. */
export interface StoreSizes {
  /** Bytes of the file and its log. */
  readonly file: number
  /** Bodies of leaves that are not deleted. */
  readonly live: SizePart
  /** Bodies of superseded revisions that can be read until the next compaction. */
  readonly old: SizePart
  /** Bodies of superseded revisions that only the time machine knows. */
  readonly kept: SizePart
  /** Bodies of leaves that are deleted. */
  readonly tombstones: SizePart
  /** Contents of attachments as they are stored, each once, those of old and kept revisions among them. */
  readonly attachments: SizePart
  /** `_local` documents. */
  readonly local: SizePart
  /** Ids, histories, the feed, the engine's own indexes, and what the pages of all the others are not filled with. */
  readonly indexes: { readonly bytes: number }
  /** Pages that hold nothing. */
  readonly free: SizePart
  /** The log of what is not in the file yet, or is there twice. */
  readonly log: { readonly bytes: number }
}

// What the commits of a thread's databases come to: how many there were, what each held, how long each took.

const WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const UPDATES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
/** From an SSD that lies about its cache to a disk that is about to fail. */
const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

export interface CommitCounts {
  /** Writes that shared a commit: documents, `_local` documents, settings, chunks of attachments. */
  readonly writes: HistogramCounts
  /** Sequence numbers that a commit gave out: documents whose leaves it changed. */
  readonly updates: HistogramCounts
  /** Seconds that making a commit durable took. */
  readonly seconds: HistogramCounts
}

export class CommitTally {
  readonly #writes = new Histogram(WRITES)
  readonly #updates = new Histogram(UPDATES)
  readonly #seconds = new Histogram(SECONDS)

  /** A commit is durable. @param ms how long that took, from the COMMIT on */
  add(writes: number, updates: number, ms: number): void {
    this.#writes.add(writes)
    this.#updates.add(updates)
    this.#seconds.add(ms / 1000)
  }

  counts(): CommitCounts {
    return {
      writes: this.#writes.counts(),
      updates: this.#updates.counts(),
      seconds: this.#seconds.counts(),
    }
  }
}
