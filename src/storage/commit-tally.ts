/** What the metrics know of the commits of a thread's databases, whatever engine makes them. */
import { Histogram } from '../core/histogram.ts'
import type { CommitCounts } from './upkeep.ts'

const WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const UPDATES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
/** The bounds of the histogram: from an SSD that ignores flushes to a failing disk. */
const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

/** Counts the commits of a thread's databases. */
export class CommitTally {
  readonly #writes = new Histogram(WRITES)
  readonly #updates = new Histogram(UPDATES)
  readonly #seconds = new Histogram(SECONDS)

  /** Counts a durable commit. @param ms duration of the COMMIT */
  add(writes: number, updates: number, ms: number): void {
    this.#writes.add(writes)
    this.#updates.add(updates)
    this.#seconds.add(ms / 1000)
  }

  counts(): CommitCounts {
    return {
      writes: this.#writes.counts(),
      updates: this.#updates.counts(),
      seconds: this.#seconds.counts(),
    }
  }
}
