/** What is said between the HTTP thread and a thread that copies databases. */
import type { CopyFacts } from '../storage/storage-engine.ts'
import type { WireError } from './wire.ts'

/** A copy that was made before, and may still be what the database holds. */
export interface KnownCopy {
  readonly path: string
  readonly bytes: number
  readonly sha256: string
  readonly facts: CopyFacts
  /** The database's fingerprint when it was made (storage/engine.ts). */
  readonly fingerprint: string | null
}

export interface CopyJob {
  readonly database: string
  /** The file to make. */
  readonly target: string
  readonly known: KnownCopy | null
  /** Bytes that stay free on the disk of the target; null: what is kept of any disk by default (core/types.ts). */
  readonly floor: number | null
}

export interface CopyOutcome {
  readonly incarnation: number
  readonly facts: CopyFacts
  readonly bytes: number
  /** 64 hex digits. */
  readonly sha256: string
  readonly fingerprint: string | null
  /** Nothing has changed since the known copy was made, and the new file is the same file. */
  readonly isSame: boolean
  /** What was found wrong with the known copy; null: nothing, or it was not looked at. */
  readonly damage: string | null
}

/** How much of one database's copy is done. */
export interface JobProgress {
  /** Of 100. */
  readonly percent: number
}

/** A thread for copies, at work for one backup. */
export interface Copier {
  /**
   * Copies a database as it stands, and holds the copy against it.
   * @throws no_database when there is none, or it was deleted meanwhile; DamagedCopy when the copy is not what the
   *   database holds, or the database itself is damaged; insufficient_storage; internal_server_error
   */
  copy(job: CopyJob, onProgress: (progress: JobProgress) => void): Promise<CopyOutcome>
  /** Holds a copy of what belongs to the server against what it must be. @throws internal_server_error */
  checkCatalog(path: string, serverUuid: string): Promise<FileHash>
  /** Ends the thread, whatever it is at. */
  close(): Promise<void>
}

export interface FileHash {
  readonly bytes: number
  /** 64 hex digits. */
  readonly sha256: string
}

export interface Copies {
  start(): Copier
  /** Copies what belongs to the server and to no database. */
  copyCatalog(path: string): Promise<void>
}

/** The message says what is wrong, without the name of the database. */
export class DamagedCopy extends Error {
  override readonly name = 'DamagedCopy'
}

/** What the thread starts with. */
export interface CopierData {
  readonly dataDir: string
  readonly copies: true
}

export type CopyRequest = { readonly call: number } & (
  | { readonly type: 'same'; readonly job: CopyJob & { readonly known: KnownCopy } }
  | { readonly type: 'copy'; readonly job: CopyJob }
  | { readonly type: 'catalog'; readonly path: string; readonly serverUuid: string }
)

export type CopyReply =
  | { readonly call: number; readonly type: 'answer'; readonly value: unknown }
  | { readonly call: number; readonly type: 'progress'; readonly progress: JobProgress }
  | { readonly call: number; readonly type: 'damaged'; readonly reason: string }
  | { readonly call: number; readonly type: 'failed'; readonly error: WireError }

/** An outcome without what the HTTP thread knows better. */
export type MadeCopy = Omit<CopyOutcome, 'incarnation'>

export function isCopier(data: unknown): data is CopierData {
  return typeof data === 'object' && data !== null && 'copies' in data && data.copies === true
}
