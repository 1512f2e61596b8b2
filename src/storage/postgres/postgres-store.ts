/** One open database of the engine over PostgreSQL. */
import { CouchError } from '../../core/errors.ts'
import type { CommitTally } from '../commit-tally.ts'
import type { StoreView } from '../engine.ts'
import type { StoreEvent } from '../store-events.ts'
import type { DatabaseEvents } from './database-events.ts'
import { VIEW_COLUMNS, type ViewRow } from './database-view.ts'
import type { OpenDatabase } from './open-database.ts'

/** What a store is given by its engine. */
export interface StoreParts {
  readonly events: DatabaseEvents
  readonly partitioned: boolean
  /** Whether it was found, when it was opened, to be behind its last known sequence. */
  readonly wasRolledBack: boolean
  /** In seconds since 1970. */
  readonly createdAt: number
  readonly tally: CommitTally | undefined
  onClosed(): void
}

const VIEW = { name: 'view', text: `SELECT ${VIEW_COLUMNS} FROM database d WHERE d.db = $1` }

export class PostgresStore {
  readonly partitioned: boolean
  readonly wasRolledBack: boolean
  readonly #database: OpenDatabase
  readonly #parts: StoreParts

  constructor(database: OpenDatabase, parts: StoreParts) {
    this.#database = database
    this.#parts = parts
    this.partitioned = parts.partitioned
    this.wasRolledBack = parts.wasRolledBack
  }

  view(): Promise<StoreView> {
    const { views, connections, db } = this.#database
    if (this.#parts.events.isGone) throw new CouchError('no_database')
    return views.reading(
      async () => {
        const [view = null] = await connections.read<ViewRow>({ ...VIEW, values: [db] })
        return { view, rows: null }
      },
      (_, view) => view,
    )
  }

  async info(): Promise<StoreView & { readonly name: string; readonly createdAt: number }> {
    return { ...(await this.view()), name: this.#database.name, createdAt: this.#parts.createdAt }
  }

  onEvent(listener: (event: StoreEvent) => void): void {
    this.#parts.events.on(listener)
  }

  async close(): Promise<void> {
    this.#parts.events.close()
    this.#parts.onClosed()
  }
}
