/** What the app says about a sync that does not work. */

export type FindingCode =
  | 'address'
  | 'offline'
  | 'insecure'
  | 'refused'
  | 'unreachable'
  | 'slow'
  | 'cors'
  | 'credentials'
  | 'rights'
  | 'locked'
  | 'busy'
  | 'no_database'
  | 'no_mobile_filter'
  | 'not_couchdb'
  | 'server'
  | 'feed'
  | 'buffered_feed'
  | 'refusal'

/** One thing that is wrong, and how it is mended. */
export interface Finding {
  readonly code: FindingCode
  readonly title: string
  readonly detail: string
  /** What to type, without a password. */
  readonly command?: string
}

/** What was looked at, in order, and what came of it. */
export interface Check {
  readonly name: string
  readonly state: 'fine' | 'wrong' | 'skipped'
}

export interface Diagnosis {
  readonly checks: readonly Check[]
  /** null: all is well. */
  readonly finding: Finding | null
}
