/** The bytes of all databases and indexes, counted in the background. */
import { lstat, opendir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** The first count begins when the start of the server is over, in ms. */
const FIRST_MS = 10_000
/** Between two counts, in ms, or a multiple of the last one's duration: counting takes less than a percent of the time. */
const INTERVAL_MS = 60_000
const INTERVAL_SHARE = 20
/** After so many files a count pauses, since each costs the HTTP thread about 30 microseconds. */
const FILES_OF_TURN = 100
const REST_MS = 20

export class DataSize {
  readonly #folder: string
  readonly #ending = new AbortController()
  #bytes: number | null = null
  #running: Promise<void> = Promise.resolve()

  /** @param folder the data folder */
  constructor(folder: string) {
    this.#folder = folder
  }

  /** The last count; null before the first. */
  get bytes(): number | null {
    return this.#bytes
  }

  /** Counts again and again until {@link close}. @param firstMs for tests */
  start(firstMs: number = FIRST_MS): void {
    this.#running = this.#run(firstMs).catch(() => undefined)
  }

  async #run(firstMs: number): Promise<void> {
    let pause = firstMs
    for (;;) {
      await sleep(pause, undefined, { ref: false, signal: this.#ending.signal })
      const begun = performance.now()
      // The folder may be out of reach for a while.
      this.#bytes = await this.#count().catch(() => null)
      pause = Math.max(INTERVAL_MS, INTERVAL_SHARE * (performance.now() - begun))
    }
  }

  async #count(): Promise<number> {
    let bytes = 0
    let files = 0
    for (const folder of ['databases', 'indexes']) {
      for await (const path of filesBelow(join(this.#folder, folder))) {
        bytes += await sizeOf(path)
        files += 1
        if (files % FILES_OF_TURN === 0)
          await sleep(REST_MS, undefined, { ref: false, signal: this.#ending.signal })
      }
    }
    return bytes
  }

  /** Stops counting. */
  async close(): Promise<void> {
    this.#ending.abort()
    await this.#running
  }
}

/** The paths of files in a folder and in the folders below it; none if it does not exist. */
async function* filesBelow(folder: string): AsyncGenerator<string> {
  const entries = await opendir(folder).catch(() => null)
  if (entries === null) return
  for await (const entry of entries) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* filesBelow(path)
    else if (entry.isFile()) yield path
  }
}

/** 0 for a file that was removed in the meantime. */
async function sizeOf(path: string): Promise<number> {
  return lstat(path).then(
    ({ size }) => size,
    () => 0,
  )
}
