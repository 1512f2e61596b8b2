import type { DamageReports } from '../damage.ts'
import type { Connections } from './connections.ts'
import type { DatabaseViews } from './database-view.ts'
import type { NotedLeaves } from './noted-leaves.ts'

/** Tells of documents whose rows do not say what was written. */
export class DamagedRows {
  /** @param version of the row */
  onFound: (id: string, version: number) => void = () => undefined
}

/** What the parts of one open database share. */
export interface OpenDatabase {
  readonly name: string
  /** Its incarnation, the first value of all statements on its rows. */
  readonly db: number
  readonly connections: Connections
  readonly views: DatabaseViews
  readonly damage: DamageReports
  readonly leaves: NotedLeaves
  readonly rows: DamagedRows
  /** Identifies this engine among all that use the store: a random text. */
  readonly opener: string
  /** The time, in ms since 1970. */
  now(): number
}
