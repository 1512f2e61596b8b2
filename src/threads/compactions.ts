/** Compactions in the background of a database thread, and what the HTTP thread is told of them. */
import { CouchError } from '../core/errors.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'
import type { Keeping } from './compaction-policy.ts'
import { packError, type Reply } from './wire.ts'

/** How often progress is told at the most. */
const TELL_EVERY_MS = 250

type CompactionReply = Extract<Reply, { type: 'compaction' }>

interface CompactionsOptions {
  /** Keeps a database open while work is under way. */
  accompany(
    database: string,
    incarnation: number,
    work: (store: Pick<DatabaseStore, 'compact'>) => Promise<void>,
  ): Promise<void>
  tell(reply: CompactionReply): void
  /** What is kept of a database for the time machine by one that begins now. */
  keeping(database: string): Keeping
}

export class Compactions {
  readonly #options: CompactionsOptions
  /** Those that are under way, by incarnation. */
  readonly #running = new Map<number, Promise<boolean>>()

  constructor(options: CompactionsOptions) {
    this.#options = options
  }

  /**
   * Compacts a database in the background, unless that is under way.
   * @returns when it has ended: whether it did what there was to do. Never rejects
   */
  start(database: string, incarnation: number): Promise<boolean> {
    const known = this.#running.get(incarnation)
    if (known !== undefined) return known
    const running = this.#run(database, incarnation).then(
      () => this.#end(incarnation, null),
      (error: unknown) => this.#end(incarnation, error),
    )
    this.#running.set(incarnation, running)
    return running
  }

  #run(database: string, incarnation: number): Promise<void> {
    const { accompany, tell, keeping } = this.#options
    const onProgress = paced((progress) => tell({ type: 'compaction', incarnation, progress }))
    return accompany(database, incarnation, (store) => store.compact({ ...keeping(database), onProgress }))
  }

  #end(incarnation: number, error: unknown): boolean {
    this.#running.delete(incarnation)
    const fault = error === null || isOver(error) ? undefined : packError(error)
    this.#options.tell({ type: 'compaction', incarnation, progress: null, ...(fault && { fault }) })
    return error === null
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
