/** Jobs in the words of CouchDB's scheduler; protocol.md 14.4. Pure. */
import type { ReplicationProgress } from '../replication.ts'

/** @returns a time of ms since 1970 in CouchDB's form, such as `2026-11-25T17:30:00Z` */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

/** @returns the numbers of a run; null before the first */
export function progressInfo(progress: ReplicationProgress | null): object | null {
  if (progress === null) return null
  const { stats } = progress
  return {
    revisions_checked: stats.missing_checked,
    missing_revisions_found: stats.missing_found,
    docs_read: stats.docs_read,
    docs_written: stats.docs_written,
    changes_pending: progress.pending,
    doc_write_failures: stats.doc_write_failures,
    bulk_get_docs: stats.bulk_get_docs,
    bulk_get_attempts: stats.bulk_get_attempts,
    checkpointed_source_seq: progress.checkpointedSeq,
    source_seq: progress.sourceSeq,
    through_seq: progress.throughSeq,
  }
}
