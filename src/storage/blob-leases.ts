/**
 * Contents of attachments that are being uploaded or read: each upload and each reference is a lease on its blob.
 *
 * Rules for every engine, which test/storage/conformance.ts checks:
 * - A blob that no revision names is removed only if no lease holds it. Uploads end with their release, and so do references.
 * - A lease outlives neither its release nor, for long, its opener. Where `capabilities.sharedWriters` is false, leases are in
 *   the memory of the only opener, and the next opening removes the blobs of uploads that it left.
 * - Where it is true, leases are stored with the database. An opener renews its own every {@link LEASE_RENEWAL_MS} while it
 *   lives, so a lease that was not renewed for {@link LEASE_MS} belongs to a dead opener. Whoever removes blobs, at an opening or
 *   in a compaction, leaves those of another opener for {@link LEASE_GRACE_MS} more: clocks differ, and an opener that was
 *   suspended may continue.
 * - An opener that lost its leases stores nothing wrong: a write that names a blob which is gone rejects with no_attachment.
 */

/** How long a lease lasts after its last renewal, in ms. */
export const LEASE_MS = 60_000

/** How often an opener renews its leases, in ms: two renewals may fail. */
export const LEASE_RENEWAL_MS = 20_000

/** How long after the end of its last lease a blob is removed at the earliest, in ms. */
export const LEASE_GRACE_MS = 60_000

/** @returns what was renewed at this time or before belongs to a dead opener, and can be removed; in ms since 1970 */
export function lapsed(now: number): number {
  return now - LEASE_MS - LEASE_GRACE_MS
}

/** Content that is being stored, chunk by chunk. No document names it yet. */
export interface BlobUpload {
  /** Adds the next bytes; resolves when they are stored. Calls must not overlap. */
  append(bytes: Uint8Array): Promise<void>
  /** Completes the content. If equal content is already stored, it is used instead, and leased. */
  finish(): Promise<UploadedBlob>
  /**
   * Ends the upload and removes content that no revision names. Call it in the end, also after an error.
   * Idempotent; never rejects.
   */
  release(): Promise<void>
}

export interface UploadedBlob {
  readonly blob: number
  /** `md5-` and the base64 of the MD5 of the bytes. */
  readonly digest: string
  readonly length: number
}

/** Keeps a blob from being removed until it is released. */
export interface BlobReference {
  readonly digest: string
  readonly length: number
  /** Idempotent. */
  release(): void
}
