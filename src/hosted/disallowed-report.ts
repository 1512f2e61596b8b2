/**
 * Reports what the policy no longer allows, but a data folder holds from before hosted mode: design documents and
 * attachments. They can be read, but no functions run (docs/hosted.md).
 */
import type { DisallowedContent } from '../documents/database.ts'
import { MAX_COUNTED } from '../documents/document-policy.ts'
import type { Databases } from '../threads/databases.ts'
import { NO_OTHERS, type WorkClaims } from './tenant-databases.ts'

/** The part of a logger that is used. */
interface Log {
  info(facts: object, text: string): void
  warn(facts: object, text: string): void
}

/** Databases that are named in the log; the last line has their number. */
const MOST_NAMED = 100
/** Pause between two databases: a multiple of the time that the last one took, and at least 5 ms. */
const REST_FACTOR = 4
const LEAST_REST_MS = 5

/**
 * Searches all databases in the background, one at a time and slowly, so that it delays nobody. Of several nodes that
 * start, one searches.
 * @returns a function that stops the search; it resolves when the search has stopped
 */
export function reportDisallowed(
  databases: Pick<Databases, 'allNames' | 'has' | 'get'>,
  log: Log,
  claims: WorkClaims = NO_OTHERS,
): () => Promise<void> {
  const look = new DisallowedScan(databases, log)
  const done = claimed(claims, () => look.run(), log)
  return async () => {
    look.stop()
    await done
  }
}

/** Never rejects. */
async function claimed(claims: WorkClaims, work: () => Promise<void>, log: Log): Promise<void> {
  try {
    const claim = await claims.take('search for content from before hosted mode')
    if (claim === null) return
    await work().finally(() => claim.release())
  } catch (error) {
    log.warn({ err: error }, 'hosted mode: could not search the databases')
  }
}

class DisallowedScan {
  readonly #databases: Pick<Databases, 'allNames' | 'has' | 'get'>
  readonly #log: Log
  #found = 0
  #looked = 0
  #named = 0
  #isStopped = false
  #wake: () => void = () => undefined

  constructor(databases: Pick<Databases, 'allNames' | 'has' | 'get'>, log: Log) {
    this.#databases = databases
    this.#log = log
  }

  /** @throws as `allNames` */
  async run(): Promise<void> {
    // New databases hold nothing from before.
    for await (const name of this.#databases.allNames()) {
      const begun = performance.now()
      await this.#lookInto(name)
      await this.#rest(Math.max(LEAST_REST_MS, REST_FACTOR * (performance.now() - begun)))
      if (this.#isStopped) return
    }
    const facts = { databases: this.#looked, holding: this.#found }
    this.#log.info(
      facts,
      'hosted mode: searched all databases for design documents and attachments from before',
    )
  }

  async #lookInto(name: string): Promise<void> {
    try {
      const stored = await (await this.#databases.get(name)).countDisallowed()
      this.#looked += 1
      if (stored.designDocs > 0 || stored.attachments > 0) this.#report(name, stored)
    } catch (error) {
      if (this.#isStopped || !(await this.#databases.has(name))) return
      this.#warn({ err: error, database: name }, 'hosted mode: could not search a database')
    }
  }

  #report(database: string, { designDocs, attachments }: DisallowedContent): void {
    this.#found += 1
    this.#warn({ database, designDocs, attachments }, textOf(designDocs, attachments))
  }

  #warn(facts: object, text: string): void {
    this.#named += 1
    if (this.#named <= MOST_NAMED) this.#log.warn(facts, text)
    if (this.#named === MOST_NAMED)
      this.#log.warn({}, 'hosted mode: more databases hold some; they are not listed')
  }

  #rest(ms: number): Promise<void> {
    if (this.#isStopped) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  stop(): void {
    this.#isStopped = true
    this.#wake()
  }
}

function textOf(designDocs: number, attachments: number): string {
  const counted = attachments < MAX_COUNTED ? `${attachments}` : `${MAX_COUNTED} or more`
  return (
    `hosted mode: this database holds ${designDocs} design documents and ${counted} attachments from before; ` +
    'they can be read, but their functions do not run'
  )
}
