import type { Clock } from '../changes/source.ts'
import type { RecordWrite } from '../storage/records.ts'

/** Records in one write: a few milliseconds of the catalog's thread. */
const BATCH = 500

interface RecordQueueOptions {
  readonly clock: Clock
  /** After the first change, until records are written; in ms. */
  readonly delay: number
  /** The record of a key as it is now; a value of null removes it. */
  recordOf(key: string): RecordWrite
  writeRecords(writes: readonly RecordWrite[]): Promise<unknown>
  /** Records could not be written; they will be tried again. */
  onFault(fault: unknown): void
}

/** Keys whose records have changed: they are written together, some time later, each as it is then. */
export class RecordQueue {
  readonly #options: RecordQueueOptions
  readonly #unsaved = new Set<string>()
  #cancel: (() => void) | null = null
  #work: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: RecordQueueOptions) {
    this.#options = options
  }

  add(key: string): void {
    this.#unsaved.add(key)
    if (this.#isClosed) return
    this.#cancel ??= this.#options.clock.after(this.#options.delay, () => {
      this.#cancel = null
      this.#work = this.#work.then(() => this.#save())
    })
  }

  /** Never rejects. */
  async #save(): Promise<void> {
    const { recordOf, writeRecords, onFault } = this.#options
    const keys = [...this.#unsaved]
    this.#unsaved.clear()
    for (let at = 0; at < keys.length; at += BATCH) {
      const batch = keys.slice(at, at + BATCH)
      await writeRecords(batch.map(recordOf)).catch((fault: unknown) => {
        onFault(fault)
        for (const key of batch) this.add(key)
      })
    }
  }

  /** Writes what is left. Records that are added later, or could not be written, are lost. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancel?.()
    await this.#work
    await this.#save()
  }
}
