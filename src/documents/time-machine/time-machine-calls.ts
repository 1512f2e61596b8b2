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

// Notices that most of a database is deleted within a minute, as a device does that was reset, or misunderstands what
// it is told (clients.md pain 10). It counts documents that were live and are not any more, however they came: by
// DELETE, by a bulk, or as tombstones that a device replicates. Nothing is refused.

/** From when on deletions are too many. */
interface DeletionLimits {
  /** Of a hundred live documents; 0: nothing is noticed. */
  readonly percent: number
  /** Fewer are never too many. */
  readonly documents: number
}

/** Deletions that are too many; times in ms since 1970. */
export interface MassDeletion {
  /** Just before the first of them. */
  readonly since: number
  /** The last one so far. */
  readonly until: number
  readonly deleted: number
  /** Live documents before the first of them. */
  readonly of: number
  /** Who deleted most of them; null: nobody with a name. */
  readonly account: string | null
}

/** The documents that one call deleted. */
interface Deletions {
  /** 0 where it ended only leaves beside others: what deletes a document in conflict begins with one of these. */
  readonly count: number
  /** The time just before the first tombstone was stored, in ms since 1970. */
  readonly since: number
  readonly account: string | null
  /** Live documents that are left. */
  readonly left: number
}

interface Stretch {
  readonly since: number
  readonly account: string | null
  until: number
  count: number
}

const WINDOW_MS = 60_000
/** Deletions of one account within so long count as one stretch. */
const STRETCH_MS = 1000
const MAX_STRETCHES = 1000
/** It is told again when there are so many times as many as were told of. */
const TELL_AGAIN = 1.25

interface Incident {
  readonly since: number
  readonly of: number
  deleted: number
  told: number
}

export class DeletionWatch {
  readonly #limits: () => DeletionLimits
  readonly #alarm: (found: MassDeletion) => void
  /** Of the last minute, the oldest first. */
  #stretches: Stretch[] = []
  #incident: Incident | null = null

  /**
   * @param limits asked anew each time
   * @param alarm told when deletions become too many, and again while they go on
   */
  constructor(limits: () => DeletionLimits, alarm: (found: MassDeletion) => void) {
    this.#limits = limits
    this.#alarm = alarm
  }

  /** Takes in what a call has deleted, once that is stored. @param now in ms since 1970 */
  note(deletions: Deletions, now: number): void {
    const { percent, documents } = this.#limits()
    this.#drop(now)
    this.#add(deletions, now)
    if (percent === 0) return
    if (this.#incident !== null) this.#goOn(this.#incident, deletions, now)
    else this.#judge(deletions.left, percent, documents, now)
  }

  /** Lets go of what is over: a clock that was set back ends it all. */
  #drop(now: number): void {
    this.#stretches = this.#stretches.filter(({ until }) => until <= now && now - until < WINDOW_MS)
    if (this.#stretches.length === 0) this.#incident = null
  }

  #add({ count, since, account }: Deletions, now: number): void {
    const last = this.#stretches.at(-1)
    const isOfLast = last?.account === account && now - last.since < STRETCH_MS
    if (last !== undefined && (isOfLast || this.#stretches.length >= MAX_STRETCHES)) {
      last.count += count
      last.until = now
    } else this.#stretches.push({ since, account, until: now, count })
  }

  #judge(left: number, percent: number, documents: number, now: number): void {
    const deleted = this.#stretches.reduce((sum, { count }) => sum + count, 0)
    const of = left + deleted
    if (deleted < documents || deleted * 100 < percent * of) return
    const since = Math.min(...this.#stretches.map((stretch) => stretch.since))
    this.#tell({ since, of, deleted, told: 0 }, now)
  }

  #goOn(incident: Incident, { count, left }: Deletions, now: number): void {
    incident.deleted += count
    if (left === 0 || incident.deleted >= incident.told * TELL_AGAIN) this.#tell(incident, now)
  }

  #tell(incident: Incident, now: number): void {
    const { since, of, deleted } = incident
    incident.told = deleted
    this.#incident = incident
    // Documents that were made meanwhile may have been deleted, too.
    this.#alarm({ since, until: now, deleted, of: Math.max(of, deleted), account: this.#culprit() })
  }

  #culprit(): string | null {
    const counts = new Map<string | null, number>()
    for (const { account, count } of this.#stretches) counts.set(account, (counts.get(account) ?? 0) + count)
    const [most] = [...counts].sort(([, a], [, b]) => b - a)
    return most === undefined ? null : most[0]
  }
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
