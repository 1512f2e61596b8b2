/** The storage contract for maintenance: compaction, garbage counters, sizes and commit statistics; see engine.ts. */
import type { HistogramCounts } from '../core/histogram.ts'

/** The progress of a compaction. */
export interface CompactionProgress {
  /** Of `total` steps of about equal work. */
  readonly done: number
  readonly total: number
}

export interface CompactOptions {
  /**
   * Revisions that were superseded after this time (ms since 1970) are retained with body and attachments; only
   * {@link DocState.retained} and the history show them. If absent, none is retained.
   */
  readonly keepSince?: number
  /** The maximum size of retained bodies, in bytes; beyond it the oldest are removed, minute by minute. */
  readonly keepBytes?: number
  /** The first call comes when every opener of the database tells that it is being compacted (`StoreInfo.compacting`). */
  onProgress?(progress: CompactionProgress): void
}

/** What a compaction could remove, from counters alone. */
export interface GarbageCounts {
  /** Grows with each write of any kind. */
  readonly writes: number
  /** Bytes that the database takes in its store; of its file without its log, where the engine has files. */
  readonly storedBytes: number
  /** Bytes in free pages of the file; 0 where the engine has no files. */
  readonly freeBytes: number
  /** The approximate bytes of revisions that were superseded since the last compaction. */
  readonly supersededBytes: number
  /** The approximate bytes of attachments that a revision names and its successor does not. */
  readonly maybeUnreferencedBytes: number
  /** When the oldest retained revision was superseded, in ms since 1970; null if none is retained. */
  readonly oldestRetained: number | null
  /** When the last compaction ended, in ms since 1970; 0 if there was none. */
  readonly compactedAt: number
  /** A compaction is needed in any case: documents were purged, or `revsLimit` was lowered. */
  readonly needsCompaction: boolean
}

/** What can be read of the retained revisions of a closed database. */
export type RetainedVersions = Pick<GarbageCounts, 'oldestRetained' | 'compactedAt'>

export interface SizePart {
  readonly count: number
  readonly bytes: number
}

/** The bytes of each part of a database. The parts add up to `file`, except for writes during the count. */
export interface StoreSizes {
  /** Bytes that the database takes in its store; of its file and its log, where the engine has files. */
  readonly file: number
  /** Bodies of leaves that are not deleted. */
  readonly live: SizePart
  /** Bodies of superseded revisions that can be read until the next compaction. */
  readonly old: SizePart
  /** Bodies of superseded revisions that are retained for the time machine. */
  readonly kept: SizePart
  /** Bodies of leaves that are deleted. */
  readonly tombstones: SizePart
  /** Contents of attachments as they are stored, each once, including those of old and retained revisions. */
  readonly attachments: SizePart
  /** `_local` documents. */
  readonly local: SizePart
  /** Ids, histories, the feed, the engine's own indexes, and unused parts of pages. */
  readonly indexes: { readonly bytes: number }
  /** Free pages; null where the engine has no files. */
  readonly free: SizePart | null
  /** The write-ahead log; null where the engine has no files. */
  readonly log: { readonly bytes: number } | null
}

/** Statistics of the commits of a thread's databases. */
export interface CommitCounts {
  /** Writes that shared a commit: documents, `_local` documents, settings, chunks of attachments. */
  readonly writes: HistogramCounts
  /** Sequence numbers in a commit: documents whose leaves it changed. */
  readonly updates: HistogramCounts
  /** Seconds that making a commit durable took. */
  readonly seconds: HistogramCounts
}
