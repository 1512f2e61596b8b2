import type { DatabaseEntry } from '../storage/catalog.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'

/** A compaction under way, for `_active_tasks`. */
export interface CompactionTask extends CompactionProgress {
  readonly database: string
  readonly incarnation: number
  /** Seconds since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** The compactions that the database threads have told of. */
export class Tasks {
  readonly #tasks = new Map<number, CompactionTask>()

  /** Notes how far a database's compaction is; null: it has ended. */
  note({ name, incarnation }: DatabaseEntry, progress: CompactionProgress | null): void {
    if (progress === null) {
      this.forget(incarnation)
      return
    }
    const updatedAt = Math.floor(Date.now() / 1000)
    const startedAt = this.#tasks.get(incarnation)?.startedAt ?? updatedAt
    const { done, total } = progress
    this.#tasks.set(incarnation, { database: name, incarnation, done, total, startedAt, updatedAt })
  }

  /** The database, or its thread, is gone. */
  forget(incarnation: number): void {
    this.#tasks.delete(incarnation)
  }

  /** The oldest first. */
  list(): readonly CompactionTask[] {
    return [...this.#tasks.values()]
  }
}
