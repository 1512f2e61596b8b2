import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import type { StoreLocation } from '../storage/open-engine.ts'

/** The shared context of a server's parts. */
export interface ServerContext {
  /** The folder of the databases, or, of a node with a store, of its temporary files. */
  readonly dataDir: string
  readonly location: StoreLocation
  readonly env: NodeJS.ProcessEnv
  readonly config: Config
  readonly logger: Logger
  readonly shutdown: Shutdown
}

/** The steps that shut a server down, in reverse order of its start. */
export class Shutdown {
  readonly #steps: (() => Promise<unknown>)[] = []
  #closed: Promise<void> | undefined

  /** @param step ends before the steps that were added earlier begin */
  add(step: () => Promise<unknown>): void {
    this.#steps.push(step)
  }

  /**
   * Runs every step, also after one that fails. Idempotent.
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
