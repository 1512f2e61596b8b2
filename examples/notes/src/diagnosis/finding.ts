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

/** One problem, and how to fix it. */
export interface Finding {
  readonly code: FindingCode
  readonly title: string
  /** Empty if {@link points} say everything. */
  readonly detail: string
  /** Several problems of the same kind, each with how to fix it. */
  readonly points?: readonly string[]
  /** The command to run, without a password. */
  readonly command?: string
}

/** One check and its result; checks run in order. */
export interface Check {
  readonly name: string
  readonly state: 'fine' | 'wrong' | 'skipped'
}

export interface Diagnosis {
  readonly checks: readonly Check[]
  /** null: everything works. */
  readonly finding: Finding | null
}
