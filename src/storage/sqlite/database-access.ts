/** Access to an open file for all parts of a store: reads between transactions, writes by group commit; and its checkpoints. */
import { CouchError } from '../../core/errors.ts'
import type { Outcome } from '../engine.ts'
import type { Connection } from './connection.ts'
import { FileErrors } from './file-errors.ts'
import type { PageCache } from './page-caches.ts'
import type { Plan, Writer } from './writer.ts'

export class DatabaseAccess {
  readonly #writer: Writer
  readonly #cache: Pick<PageCache, 'use'>
  readonly #errors: FileErrors
  #closed = false

  /** @param cache is notified of every use of the file */
  constructor(writer: Writer, cache: Pick<PageCache, 'use'>, errors = new FileErrors()) {
    this.#writer = writer
    this.#cache = cache
    this.#errors = errors
  }

  /**
   * Reads, in one turn; also for a checkpoint, which may need disk space and is retried on a full disk.
   * @throws unavailable when the store is closed; the translated error of the driver
   */
  read<R>(work: () => R): R {
    this.refuseIfClosed()
    this.#cache.use()
    try {
      return this.#errors.retrying(work)
    } catch (error) {
      throw this.#errors.report(error)
    }
  }

  /**
   * Passes each plan to the writer as a job of its own.
   * @returns the outcomes in order, when all are known
   * @throws unavailable when the store is closed
   */
  async write<O>(plans: readonly Plan<O>[]): Promise<(O | { error: unknown })[]> {
    this.refuseIfClosed()
    const outcomes: (O | { error: unknown })[] = new Array(plans.length)
    let open = plans.length
    if (open === 0) return outcomes
    this.#cache.use()
    return new Promise((resolve) => {
      const answer = (at: number, outcome: O | { error: unknown }) => {
        outcomes[at] = outcome
        open -= 1
        if (open === 0) resolve(outcomes)
      }
      plans.forEach((plan, at) => {
        this.#writer.add<O>({
          plan,
          done: (outcome) => answer(at, outcome),
          failed: (error) => answer(at, { error }),
        })
      })
    })
  }

  /**
   * One write of about `bytes`.
   * @param carryOut runs inside the transaction, perhaps more than once; its result is returned
   * @throws what `carryOut` throws; unavailable when the store is closed; the translated error of the driver
   */
  writeOne<R>(bytes: number, carryOut: () => R, facts: Pick<Plan, 'grows'> = {}): Promise<R> {
    return this.decideOne(bytes, () => carryOut, facts)
  }

  /** As {@link writeOne}, with a decision before it, as a {@link Plan} has it. */
  async decideOne<R>(bytes: number, decide: () => () => R, facts: Pick<Plan, 'grows'> = {}): Promise<R> {
    const plan: Plan<Outcome<R>> = {
      ...facts,
      bytes,
      decide: () => {
        const carryOut = decide()
        return () => ({ result: carryOut() })
      },
    }
    const outcome = (await this.write([plan]))[0] as Outcome<R>
    if ('result' in outcome) return outcome.result
    throw (outcome as { error: unknown }).error
  }

  /** Refuses everything from now on. Resolves when the writes under way are answered. */
  close(): Promise<void> {
    this.#closed = true
    return this.#writer.drained()
  }

  /** @throws unavailable when the store is closed */
  refuseIfClosed(): void {
    if (this.#closed) throw new CouchError('unavailable')
  }
}

/** Pages in the log that make a checkpoint worthwhile: 8 MB. With fewer, pages are written repeatedly; more take longer. */
const ENOUGH_PAGES = 1000

/**
 * Checkpoints a database's log. SQLite would do that within a commit, and all writes of the commit would wait for it and
 * for a sync of the file. Here it is done after their answers are sent.
 */
export class Checkpointer {
  readonly #connection: Pick<Connection, 'logPages' | 'checkpointPassively'>
  readonly #access: Pick<DatabaseAccess, 'read'>
  #isScheduled = false

  constructor(
    connection: Pick<Connection, 'logPages' | 'checkpointPassively'>,
    access: Pick<DatabaseAccess, 'read'>,
  ) {
    this.#connection = connection
    this.#access = access
  }

  /** To be called when a group is durable and is answered in this turn. */
  committed(): void {
    if (this.#isScheduled) return
    this.#try(() => {
      if (this.#connection.logPages() < ENOUGH_PAGES) return
      this.#isScheduled = true
      // Answers leave their thread at the end of the turn after the one that gave them.
      setImmediate(() => setImmediate(() => this.#checkpoint()))
    })
  }

  #checkpoint(): void {
    this.#isScheduled = false
    this.#try(() => this.#connection.checkpointPassively())
  }

  /** A failure here concerns no write. The disk watch is notified, and SQLite later checkpoints within a commit. */
  #try(work: () => void): void {
    try {
      this.#access.read(work)
    } catch {}
  }
}
