/**
 * Where accounts have quotas, an index asks the HTTP thread before each step that makes it grow: only there is known what
 * an account stores in all of its databases. The step is reserved in the account's quota until it has ended.
 */
import { CouchError, type PackedError, unpackError } from '../core/errors.ts'

interface Growth {
  readonly granted: PromiseWithResolvers<void>
  readonly ended: PromiseWithResolvers<undefined>
}

/** The steps of a database thread. */
export class IndexGrowth {
  readonly #ask: (number: number, incarnation: number, bytes: number) => void
  readonly #growths = new Map<number, Growth>()
  #last = 0
  #isClosed = false

  /** @param ask asks the HTTP thread, which answers with a call of {@link allow} */
  constructor(ask: (number: number, incarnation: number, bytes: number) => void) {
    this.#ask = ask
  }

  /** As `Grow` of query/index-updater.ts, for an index of a database. @throws also unavailable when the thread stops */
  async run<T>(incarnation: number, bytes: number, step: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new CouchError('unavailable')
    const number = ++this.#last
    const growth: Growth = { granted: Promise.withResolvers(), ended: Promise.withResolvers() }
    this.#growths.set(number, growth)
    try {
      this.#ask(number, incarnation, bytes)
      await growth.granted.promise
      return await step()
    } finally {
      this.#growths.delete(number)
      growth.ended.resolve(undefined)
    }
  }

  /** Begins a step, or refuses it. Resolves when the step has ended. */
  async allow(number: number, refusal: PackedError | null): Promise<undefined> {
    const growth = this.#growths.get(number)
    if (growth === undefined) return undefined
    if (refusal === null) growth.granted.resolve()
    else growth.granted.reject(unpackError(refusal))
    return growth.ended.promise
  }

  /** Refuses the steps that wait. */
  close(): void {
    this.#isClosed = true
    for (const { granted } of this.#growths.values()) granted.reject(new CouchError('unavailable'))
  }
}
