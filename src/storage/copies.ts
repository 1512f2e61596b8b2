/** Copies of databases, as every engine gives them that can: see engine.ts. */

/** What a database holds at one moment. Two databases with equal facts hold the same. */
export interface CopyFacts {
  readonly schemaVersion: number
  /** Seconds since 1970 of the database's making. */
  readonly createdAt: number
  readonly updateSeq: number
  readonly purgeSeq: number
  readonly docCount: number
  readonly deletedCount: number
  readonly localCount: number
  /** Bytes of whole contents of attachments, each content once. */
  readonly attachmentBytes: number
  /** 64 hex digits, over all rows that the database has. */
  readonly digest: string
}

/** How far a reading or a copying is. */
export interface CopyProgress {
  /** Of `total` steps of about equal work. */
  readonly done: number
  readonly total: number
}

/** A database at one moment, which stays as it is until it is closed; meanwhile what is written takes room twice. */
export interface DatabaseSnapshot {
  /** Bytes that a copy takes. */
  readonly bytes: number
  /** Reads all of it, at its leisure. */
  facts(onProgress?: (progress: CopyProgress) => void): Promise<CopyFacts>
  /** Makes a new file with all of it, which is durable when resolved. */
  copyTo(path: string, onProgress?: (progress: CopyProgress) => void): Promise<void>
  /** Idempotent. */
  close(): void
}
