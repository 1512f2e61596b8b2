/** What a database tells of what its documents were, and how it makes them so again; docs/settee-api.md. */
import type { UserCtx } from '../../core/types.ts'

/** Which version of a document: a revision that is stored, or its winner at a time, in ms since 1970. */
export type VersionChoice = { readonly rev: string } | { readonly at: number }

/** A stretch of a list, newest first. */
export interface HistoryPage {
  /** Rows at most. */
  readonly limit: number
  /** Where the page before it ended, as that says; absent: the newest. */
  readonly bookmark?: string
}

export interface OverwrittenQuery extends HistoryPage {
  /** In ms since 1970; both are included. */
  readonly since?: number
  readonly until?: number
}

export interface RewindRequest {
  /** The time that documents are to be again as they were at, in ms since 1970. */
  readonly at: number
  /** Absent: all documents. */
  readonly ids?: readonly string[]
  /** Says what would be done, and does nothing. */
  readonly dryRun: boolean
}

/** What came of the documents that a rewind looked at. */
export interface RewindCounts {
  /** Have the content of then, as a new revision. */
  readonly restored: number
  /** Were deleted, and are there again. */
  readonly recreated: number
  /** Were deleted then, or not made yet, and are deleted. */
  readonly deleted: number
  readonly unchanged: number
  /** Left alone: what they were is not known any more. */
  readonly expired: number
  /** Left alone: they were written to after the rewind had begun. */
  readonly newer: number
  /** Named, and not there then; or never. */
  readonly absent: number
  readonly refused: number
}

export type RewindOutcome = keyof RewindCounts

/** All are for admins of the database. */
export interface TimeMachine {
  /**
   * The stored versions of a document, newest first, as JSON.
   * @throws not_found for one that never was; bad_request for a bad bookmark
   */
  history(user: UserCtx, id: string, page: HistoryPage): Promise<Uint8Array>
  /** The documents of which something was overwritten or deleted, newest first, as JSON. @throws bad_request */
  overwritten(user: UserCtx, query: OverwrittenQuery): Promise<Uint8Array>
  /**
   * The JSON of a version.
   * @param attachments with their contents as base64 instead of stubs
   * @throws not_found where it is not stored, or the document was not there; bad_request for a time to come
   */
  version(user: UserCtx, id: string, choice: VersionChoice, attachments: boolean): AsyncIterable<Uint8Array>
  /**
   * Makes documents what they were at a time, as new revisions. One line of JSON for each that is not `unchanged`, and
   * lines that say how far it is; the last has `done` or, where it broke off, `error`.
   * @throws bad_request for a time to come, or before anything is known
   */
  rewind(user: UserCtx, request: RewindRequest): AsyncIterable<Uint8Array>
}

// Times as people and programs write them. Pure.

const MILLISECONDS = /^\d{1,15}$/
/** ISO 8601, of a date and time, with a space for the T too; a `+` of an address may have become a space. */
const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(\.\d{1,3})?)?)?(Z|[+ -]\d\d:?\d\d)?$/

/**
 * @param text ISO 8601, `2025-03-01T14:05Z`, to the minute, the second or the millisecond, or milliseconds since 1970
 * @param zone what a time without a zone is of
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

/** There is no 31st of February, which Date takes for the 3rd of March. */
function isDay(date: string): boolean {
  const midnight = Date.parse(`${date}T00:00:00Z`)
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(date)
}
