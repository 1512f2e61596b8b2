import type { Records } from './records.ts'

/** The number of records that one step looks at. */
const STEP = 16

interface RecordSweepOptions {
  readonly records: Pick<Records, 'listRecords' | 'writeRecords'>
  readonly kind: string
  isExpired(value: string): boolean
  /** Called if expired records cannot be removed; a later step tries it again. */
  onFault(fault: unknown): void
}

/**
 * Removes the expired records of a kind, a few whenever some are written. So expired ones do not pile up, and no node has to
 * look for them.
 */
export class RecordSweep {
  readonly #options: RecordSweepOptions
  /** The last record that was looked at; undefined: begin anew. */
  #last: string | undefined
  #work: Promise<unknown> | null = null

  constructor(options: RecordSweepOptions) {
    this.#options = options
  }

  /** Begins a step, unless one is under way. Never rejects. */
  step(): void {
    this.#work ??= this.#sweep()
      .catch(this.#options.onFault)
      .finally(() => {
        this.#work = null
      })
  }

  async #sweep(): Promise<void> {
    const { records, kind, isExpired } = this.#options
    const after = this.#last
    const found = await records.listRecords(kind, after === undefined ? {} : { after }, STEP)
    this.#last = found.length < STEP ? undefined : found.at(-1)?.key
    const expired = found.filter(({ value }) => isExpired(value))
    if (expired.length === 0) return
    // Nothing is removed if one of them was written again; the next round tries it again.
    await records.writeRecords(expired.map(({ key, value }) => ({ kind, key, value: null, expected: value })))
  }

  /** Resolves when the step under way has ended. */
  async close(): Promise<void> {
    await this.#work
  }
}
