/** What `/_settee/moves` answers. */

export interface MovePlan {
  readonly server: string
  readonly uuid: string | null
  readonly takes_uuid: boolean
  readonly databases: number
  readonly left: number
  readonly documents: number
  readonly deleted: number
  readonly bytes: number
  /** null: the databases of this server are in a store. */
  readonly free_bytes: number | null
}

export interface MoveSetting {
  readonly section: string
  readonly key: string
  /** null: a secret. */
  readonly value: string | null
  readonly outcome: 'set' | 'kept' | 'refused'
  readonly reason: string | null
}

export interface Move {
  readonly id: string
  readonly from: string
  readonly dry_run: boolean
  readonly databases: readonly string[] | null
  readonly merge: boolean
  readonly keep_uuid: boolean
  readonly state: 'planning' | 'planned' | 'moving' | 'done' | 'failed' | 'stopped'
  readonly begun_at: string
  readonly ended_at: string | null
  readonly error: { readonly error: string; readonly reason: string } | null
  readonly progress: {
    readonly database: string
    readonly databases_done: number
    readonly databases_total: number
    readonly phase: 'copying' | 'comparing' | 'checkpoints'
    readonly documents: number
    readonly total: number | null
  } | null
  readonly results: { readonly complete: number; readonly incomplete: number; readonly failed: number }
  readonly plan: MovePlan | null
  readonly settings: readonly MoveSetting[] | null
  readonly has_uuid: boolean | null
}

export interface MovedDatabase {
  readonly name: string
  readonly target?: string
  readonly state: 'waiting' | 'moving' | 'moved' | 'incomplete' | 'failed' | 'left'
  readonly found?: 'new' | 'continued' | 'merged'
  readonly documents?: number
  readonly deleted?: number
  readonly bytes?: number | null
  readonly notes?: readonly string[]
  readonly reason?: string
  readonly result?: {
    readonly reason?: string
    readonly complete?: boolean
    readonly documents?: number
    readonly sampled?: number
    readonly local?: number
    readonly notes?: readonly string[]
  } | null
}

export interface DatabasePage {
  readonly total: number
  readonly skip: number
  readonly databases: readonly MovedDatabase[]
}

/** The share of a move that is done, from 0 to 1: of each database, copying is the longest part. */
export function shareOf({ state, progress }: Pick<Move, 'state' | 'progress'>): number {
  if (state === 'done') return 1
  if (progress === null) return 0
  const { databases_done: done, databases_total: all, phase, documents, total } = progress
  const share = total === null || total === 0 ? 0 : Math.min(1, documents / total)
  const step = phase === 'copying' ? 0.7 * share : phase === 'comparing' ? 0.7 + 0.25 * share : 0.95
  return Math.min(1, (done + step) / Math.max(all, 1))
}
