/** The one way to an open file for all parts of a store: reads between transactions, writes by the group commit. */
import { CouchError } from '../../core/errors.ts'
import type { Outcome } from '../engine.ts'
import { storageError } from './connection.ts'
import type { Job, Writer } from './writer.ts'

export class Access {
  readonly #writer: Writer
  #closed = false

  constructor(writer: Writer) {
    this.#writer = writer
  }

  /** Reads, in one turn. @throws unavailable when the store is closed, or what the driver's error stands for */
  read<R>(work: () => R): R {
    this.refuseIfClosed()
    try {
      return work()
    } catch (error) {
      throw storageError(error)
    }
  }

  /**
   * Hands each update to the writer as a job of its own.
   * @param bytes about how many an update writes
   * @param apply runs inside the update's savepoint, more than once perhaps
   * @returns what came of each, in order, when the last one is answered
   * @throws unavailable when the store is closed
   */
  async write<U, O>(
    updates: readonly U[],
    bytes: (update: U) => number,
    apply: (update: U) => O,
  ): Promise<(O | { error: unknown })[]> {
    this.refuseIfClosed()
    const outcomes: (O | { error: unknown })[] = new Array(updates.length)
    let open = updates.length
    if (open === 0) return outcomes
    return new Promise((resolve) => {
      const answer = (at: number, outcome: O | { error: unknown }) => {
        outcomes[at] = outcome
        open -= 1
        if (open === 0) resolve(outcomes)
      }
      updates.forEach((update, at) => {
        let outcome: O
        const job: Job = {
          bytes: bytes(update),
          apply: () => {
            outcome = apply(update)
          },
          done: () => answer(at, outcome),
          failed: (error) => answer(at, { error }),
        }
        this.#writer.add(job)
      })
    })
  }

  /**
   * One write of about `bytes`.
   * @param apply as that of {@link write}; its result is handed on
   * @throws what `apply` throws, unavailable when the store is closed, or what the driver's error stands for
   */
  async writeOne<R>(bytes: number, apply: () => R): Promise<R> {
    const outcomes = await this.write(
      [apply],
      () => bytes,
      (work): Outcome<R> => ({ result: work() }),
    )
    const outcome = outcomes[0] as Outcome<R>
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
