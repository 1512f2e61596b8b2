/** Takes a sample a minute and stores it in the file `samples` of the data folder: one small write in place, never synced. */
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import { type Changed, SAMPLE_BYTES, type Sampled, Samples } from './samples.ts'

const MINUTE_MS = 60_000

/** Counters since the start of the server, of which a sample has the rate. */
export const RATES = [
  'answers_ok',
  'answers_4xx',
  'answers_5xx',
  'saves',
  'received_bytes',
  'sent_bytes',
] as const satisfies readonly (keyof Sampled)[]

type Warn = Pick<Logger, 'warn'>

/** The samples and their file. */
export class SampleFile {
  readonly samples: Samples
  /** null: it could not be opened. */
  readonly #file: FileHandle | null
  readonly #logger: Warn
  #lastWrite: Promise<unknown> = Promise.resolve()
  #hasFailed = false

  private constructor(samples: Samples, file: FileHandle | null, logger: Warn) {
    this.samples = samples
    this.#file = file
    this.#logger = logger
  }

  /**
   * Opens the file, and makes it with its full size if it is missing, so that later writes need no space on the disk.
   * Never rejects: without the file, samples are kept in memory.
   */
  static async open(dataDir: string, logger: Warn): Promise<SampleFile> {
    const stored = Buffer.alloc(SAMPLE_BYTES)
    const file = await openForWriting(join(dataDir, 'samples')).catch(() => null)
    const bytesRead = await file?.read(stored, 0, SAMPLE_BYTES, 0).then(
      (result) => result.bytesRead,
      () => 0,
    )
    if (file === null) logger.warn('the file of samples cannot be opened; samples are kept only in memory')
    const samples = new Samples(stored.subarray(0, bytesRead ?? 0), Date.now())
    const opened = new SampleFile(samples, file, logger)
    if (bytesRead !== SAMPLE_BYTES || !samples.content.equals(stored))
      opened.store([{ start: 0, end: SAMPLE_BYTES }])
    return opened
  }

  /** Writes parts in the background. A failure costs samples, and nothing else. */
  store(changed: readonly Changed[]): void {
    this.#lastWrite = this.#lastWrite.then(() => this.#write(changed))
  }

  async #write(changed: readonly Changed[]): Promise<void> {
    try {
      for (const { start, end } of changed)
        await this.#file?.write(this.samples.content, start, end - start, start)
      this.#hasFailed = false
    } catch (error) {
      // Once, since the next minute is likely to fail as well.
      if (!this.#hasFailed) this.#logger.warn({ err: error }, 'cannot store the samples of this minute')
      this.#hasFailed = true
    }
  }

  /** Resolves when all is written. */
  async close(): Promise<void> {
    await this.#lastWrite
    await this.#file?.close().catch(() => undefined)
  }
}

async function openForWriting(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r+')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return open(path, 'w+', 0o600)
  }
}

/** Reads the current values: counters for {@link RATES}, the values themselves for all others. */
type Measure = () => Promise<Sampled>

/** Samples at the end of each minute, until it is closed. */
export class Sampler {
  readonly #file: SampleFile
  readonly #measure: Measure
  #last: { readonly at: number; readonly counters: Sampled }
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  private constructor(file: SampleFile, measure: Measure, counters: Sampled) {
    this.#file = file
    this.#measure = measure
    this.#last = { at: performance.now(), counters }
    this.#schedule()
  }

  /** @param measure never rejects */
  static async begin(file: SampleFile, measure: Measure): Promise<Sampler> {
    return new Sampler(file, measure, await measure())
  }

  #schedule(): void {
    if (this.#isClosed) return
    const untilNextMinute = MINUTE_MS - (Date.now() % MINUTE_MS)
    this.#timer = setTimeout(() => {
      void this.take(Date.now(), performance.now()).finally(() => this.#schedule())
    }, untilNextMinute).unref()
  }

  /**
   * Takes a sample.
   * @param now in ms since 1970
   * @param at in ms of a clock that never goes back
   */
  async take(now: number, at: number): Promise<void> {
    const measured = await this.#measure()
    const seconds = (at - this.#last.at) / 1000
    // A timer that was early by a moment is called again, and a rate over a moment means nothing.
    if (seconds < 1) return
    const rates = RATES.map((name) => [name, rate(measured[name], this.#last.counters[name], seconds)])
    this.#last = { at, counters: measured }
    this.#file.store(this.#file.samples.add(now, { ...measured, ...Object.fromEntries(rates) }))
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }
}

function rate(after: number | null, before: number | null, seconds: number): number | null {
  return after === null || before === null ? null : Math.max(0, after - before) / seconds
}
