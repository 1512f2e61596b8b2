/** What the calls of the screens of databases answer; docs/settee-api.md. */
export interface DatabaseRow {
  readonly name: string
  readonly doc_count: number
  readonly doc_del_count: number
  readonly sizes: { readonly file: number; readonly active: number; readonly external: number }
  readonly partitioned: boolean
  readonly compact_running: boolean
  readonly access: 'everyone' | 'members' | 'admins'
  readonly role: 'admin' | 'member' | 'none'
  /** In hosted mode. */
  readonly owner?: string | null
}

/** A database whose file cannot be read. */
export interface FaultyRow {
  readonly name: string
  readonly error: string
  readonly reason: string
}

export type ListedRow = DatabaseRow | FaultyRow

export interface DatabaseList {
  readonly databases: readonly ListedRow[]
  readonly next: string | null
}

/** A day on which the database was written to. */
export interface DaySize {
  readonly date: string
  readonly doc_count: number
  readonly file: number
}

export type PartName =
  | 'live'
  | 'tombstones'
  | 'attachments'
  | 'local'
  | 'old'
  | 'kept'
  | 'indexes'
  | 'free'
  | 'log'

export interface Sizes {
  readonly file: number
  readonly parts: Readonly<Record<PartName, { readonly count?: number; readonly bytes: number } | null>>
  readonly views: { readonly bytes: number }
}

export interface ConflictRow {
  readonly id: string
  readonly rev: string
  readonly leaves: number
}

export interface Conflicts {
  readonly rows: readonly ConflictRow[]
  readonly bookmark: string | null
  readonly searched: number
}

export interface Version {
  readonly rev: string
  readonly deleted: boolean
  /** null: stored by an old settee, which did not record times. */
  readonly stored_at: string | null
  /** null: it is a current one. */
  readonly superseded_at: string | null
  readonly size: number
  readonly attachments: number
}

export interface DocumentHistory {
  readonly id: string
  /** The winner. */
  readonly rev: string
  readonly deleted: boolean
  readonly versions: readonly Version[]
  readonly bookmark: string | null
  readonly known_since: string | null
}

export interface OverwrittenRow {
  readonly id: string
  readonly rev: string
  readonly deleted: boolean
  readonly at: string | null
  readonly overwritten: number
  readonly versions: readonly Version[]
}

export interface Overwritten {
  readonly rows: readonly OverwrittenRow[]
  readonly bookmark: string | null
  readonly known_since: string | null
}

export interface OverwrittenQuery {
  readonly since?: string | undefined
  readonly until?: string | undefined
  readonly deleted?: boolean
  readonly bookmark?: string | undefined
}

export type RewindOutcome =
  | 'restored'
  | 'recreated'
  | 'deleted'
  | 'unchanged'
  | 'expired'
  | 'newer'
  | 'absent'
  | 'refused'

export type RewindCounts = Readonly<Record<RewindOutcome, number>>

export interface RewindLine {
  readonly at?: string
  readonly documents?: number
  readonly progress?: { readonly looked_at: number; readonly counts: RewindCounts }
  readonly done?: true
  readonly looked_at?: number
  readonly counts?: RewindCounts
  readonly id?: string
  readonly outcome?: RewindOutcome
  readonly from?: string | null
  readonly to?: string | null
  readonly rev?: string
  readonly error?: string
  readonly reason?: string
}

export interface RewindRequest {
  readonly at?: string
  readonly ids?: readonly string[]
  readonly rev?: string
  readonly dry_run?: boolean
}

export interface SecurityList {
  readonly names?: readonly string[]
  readonly roles?: readonly string[]
}

export interface Security {
  readonly admins?: SecurityList
  readonly members?: SecurityList
  /** The name of `members` in CouchDB 1.x. */
  readonly readers?: SecurityList
}
