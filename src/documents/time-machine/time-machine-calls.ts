/**
 * The time machine of a database: reads and restores earlier versions of documents; docs/settee-api.md. Also parses
 * times.
 */
import type { UserCtx } from '../../core/types.ts'

/** Selects a version of a document: a stored revision, or the winner at a time, in ms since 1970. */
export type VersionChoice = { readonly rev: string } | { readonly at: number }

/** A page of a list, newest first. */
export interface HistoryPage {
  /** The maximum number of rows. */
  readonly limit: number
  /** The bookmark of the previous page; absent for the newest page. */
  readonly bookmark?: string
}

export interface OverwrittenQuery extends HistoryPage {
  /** In ms since 1970; both are included. */
  readonly since?: number
  readonly until?: number
  /** Only documents that are deleted now. */
  readonly deleted?: boolean
}

export interface RewindRequest {
  /** The time to roll back to, in ms since 1970. */
  readonly at: number
  /** Absent: all documents. */
  readonly ids?: readonly string[]
  /** The version to restore, of the one document in `ids`; absent: the one that was shown at that time. */
  readonly rev?: string
  /** Reports the changes without making them. */
  readonly dryRun: boolean
}

/** The results of a rewind, in documents. */
export interface RewindCounts {
  /** Documents that have the earlier content again, as a new revision. */
  readonly restored: number
  /** Documents that were deleted and exist again. */
  readonly recreated: number
  /** Documents that were deleted or did not exist at that time, and are now deleted. */
  readonly deleted: number
  readonly unchanged: number
  /** Unchanged documents whose earlier version is no longer stored. */
  readonly expired: number
  /** Unchanged documents that were written after the rewind began. */
  readonly newer: number
  /** Documents that were requested by id, but did not exist at that time. */
  readonly absent: number
  readonly refused: number
}

export type RewindOutcome = keyof RewindCounts

/** All methods are for admins of the database. */
export interface TimeMachine {
  /**
   * The stored versions of a document, newest first, as JSON.
   * @throws not_found for a document that never existed; bad_request for an invalid bookmark
   */
  history(user: UserCtx, id: string, page: HistoryPage): Promise<Uint8Array>
  /** Documents with overwritten or deleted versions, newest first, as JSON. @throws bad_request */
  overwritten(user: UserCtx, query: OverwrittenQuery): Promise<Uint8Array>
  /**
   * The JSON of a version.
   * @param attachments whether attachments are base64 instead of stubs
   * @throws not_found if it is not stored or the document did not exist; bad_request for a time in the future
   */
  version(user: UserCtx, id: string, choice: VersionChoice, attachments: boolean): AsyncIterable<Uint8Array>
  /**
   * Rolls documents back to a time, by new revisions. Returns lines of JSON: one for each document that is not
   * `unchanged`, and progress lines. The last line has `done`, or `error` if the rewind failed.
   * @throws bad_request for a time in the future, or before the history begins
   */
  rewind(user: UserCtx, request: RewindRequest): AsyncIterable<Uint8Array>
}

const MILLISECONDS = /^\d{1,15}$/
/**
 * ISO 8601, with a date and an optional time, also with a space for the T. A `+` in a URL may have been decoded as a
 * space.
 */
const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(\.\d{1,3})?)?)?(Z|[+ -]\d\d:?\d\d)?$/

/**
 * @param text ISO 8601, `2025-03-01T14:05Z`, to the minute, the second or the millisecond; or milliseconds since 1970
 * @param zone the time zone of a time without an offset
 * @returns ms since 1970; null for anything else
 */
export function parseTime(text: string, zone: 'utc' | 'local'): number | null {
  if (MILLISECONDS.test(text)) return Number(text)
  const match = ISO.exec(text.trim())
  if (match === null) return null
  const [, date = '', minute = '00:00', second = '00', fraction = '', offset] = match
  const where = offset?.replace(' ', '+') ?? (zone === 'utc' ? 'Z' : '')
  const time = Date.parse(`${date}T${minute}:${second}${fraction}${where}`)
  return Number.isNaN(time) || !isDay(date) ? null : time
}

/** Rejects February 31, which Date reads as March 3. */
function isDay(date: string): boolean {
  const midnight = Date.parse(`${date}T00:00:00Z`)
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(date)
}
