import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'

/** What every part of a server stands on. */
export interface ServerContext {
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly config: Config
  readonly logger: Logger
  readonly shutdown: Shutdown
}

/** The way down: what was begun is ended in the reverse order. */
export class Shutdown {
  readonly #steps: (() => Promise<unknown>)[] = []
  #closed: Promise<void> | undefined

  /** @param step is waited for before those that were added sooner begin */
  add(step: () => Promise<unknown>): void {
    this.#steps.push(step)
  }

  /**
   * Takes every step, also those after one that fails. Idempotent.
   * @throws the first failure
   */
  close(): Promise<void> {
    this.#closed ??= this.#closeAll()
    return this.#closed
  }

  async #closeAll(): Promise<void> {
    const failures: unknown[] = []
    for (const step of this.#steps.toReversed()) {
      await step().catch((error: unknown) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
  }
}
