/** What the commits of a thread's databases come to: how many there were, what each held, how long each took. */
import { Histogram, type HistogramCounts } from '../core/histogram.ts'

const WRITES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const UPDATES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
/** From an SSD that lies about its cache to a disk that is about to fail. */
const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

export interface CommitCounts {
  /** Writes that shared a commit: documents, `_local` documents, settings, chunks of attachments. */
  readonly writes: HistogramCounts
  /** Sequence numbers that a commit gave out: documents whose leaves it changed. */
  readonly updates: HistogramCounts
  /** Seconds that making a commit durable took. */
  readonly seconds: HistogramCounts
}

export class CommitTally {
  readonly #writes = new Histogram(WRITES)
  readonly #updates = new Histogram(UPDATES)
  readonly #seconds = new Histogram(SECONDS)

  /** A commit is durable. @param ms how long that took, from the COMMIT on */
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
