/** The one way to an open file for all parts of a store: reads between transactions, writes by the group commit. */
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

  /** @param cache told of every use of the file */
  constructor(writer: Writer, cache: Pick<PageCache, 'use'>, errors = new FileErrors()) {
    this.#writer = writer
    this.#cache = cache
    this.#errors = errors
  }

  /** Reads, in one turn; a checkpoint, which takes room, counts as reading. @throws unavailable when the store is closed, or what the driver's error stands for */
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
   * Hands each plan to the writer as a job of its own.
   * @returns what came of each, in order, when the last one is answered
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
   * @param carryOut runs inside the transaction, more than once perhaps; its result is handed on
   * @throws what `carryOut` throws, unavailable when the store is closed, or what the driver's error stands for
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

  /** Refuses everything from now on. @returns when the writes under way are answered */
  close(): Promise<void> {
    this.#closed = true
    return this.#writer.drained()
  }

  /** @throws unavailable when the store is closed */
  refuseIfClosed(): void {
    if (this.#closed) throw new CouchError('unavailable')
  }
}

// Brings a database's log into its file now and then. SQLite would do that within a commit, and all who share the
// commit would wait for it, and for a sync of the file, too; here it is done when their answers are on their way.

/** Pages in the log from which on it is worth it: 8 MB. Fewer of them are written again and again, more take longer. */
const ENOUGH_PAGES = 1000

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

  /** A group is durable, and is answered in this turn. */
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

  /** What fails here is no write's fault: who looks after the disk is told, and SQLite tries it within a commit in the end. */
  #try(work: () => void): void {
    try {
      this.#access.read(work)
    } catch {}
  }
}
