/** Compactions in the background of a database thread, and what the HTTP thread is told of them. */
import { CouchError } from '../core/errors.ts'
import type { CompactionProgress, DatabaseStore } from '../storage/engine.ts'
import { packError, type Reply } from './wire.ts'

/** How often progress is told at the most. */
const TELL_EVERY_MS = 250

type CompactionReply = Extract<Reply, { type: 'compaction' }>

interface CompactionsOptions {
  /** Keeps a database open while work is under way. */
  accompany(database: string, incarnation: number, work: () => Promise<void>): Promise<void>
  tell(reply: CompactionReply): void
}

export class Compactions {
  readonly #options: CompactionsOptions
  /** Incarnations whose compaction is under way. */
  readonly #running = new Set<number>()

  constructor(options: CompactionsOptions) {
    this.#options = options
  }

  /** Compacts a store in the background, unless that is under way. */
  start(database: string, incarnation: number, store: Pick<DatabaseStore, 'compact'>): void {
    if (this.#running.has(incarnation)) return
    this.#running.add(incarnation)
    const end = (fault?: CompactionReply['fault']) => {
      this.#running.delete(incarnation)
      this.#options.tell({ type: 'compaction', incarnation, progress: null, ...(fault && { fault }) })
    }
    const onProgress = paced((progress) => this.#options.tell({ type: 'compaction', incarnation, progress }))
    this.#options
      .accompany(database, incarnation, () => store.compact(onProgress))
      .then(
        () => end(),
        (error: unknown) => end(isOver(error) ? undefined : packError(error)),
      )
  }
}

/** Whether it ended because the database did: it was deleted, or the server is stopping. */
function isOver(error: unknown): boolean {
  return error instanceof CouchError && (error.code === 'no_database' || error.code === 'unavailable')
}

/** Tells the first, and of the others those that come long enough after the one told before. */
function paced(tell: (progress: CompactionProgress) => void): (progress: CompactionProgress) => void {
  let next = 0
  return (progress) => {
    const now = performance.now()
    if (now < next) return
    next = now + TELL_EVERY_MS
    tell(progress)
  }
}
