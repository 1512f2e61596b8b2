/** When the next backup is due. */

/** Time as a calendar has it, so that tests can hold it still. */
export interface WallClock {
  /** ms since 1970. */
  now(): number
  /** Calls back once. @returns a function that takes the call back */
  after(ms: number, call: () => void): () => void
}

export const wallClock: WallClock = {
  now: () => Date.now(),
  after(ms, call) {
    const timer = setTimeout(call, ms)
    timer.unref()
    return () => clearTimeout(timer)
  },
}

/** What a schedule goes by; times in ms since 1970. */
export interface ScheduleFacts {
  /** ms between two; 0: none are made by themselves. */
  readonly interval: number
  /** When the newest one was begun that is good; null: there is none. */
  readonly last: number | null
  /** When one failed last; null: none has, or one has succeeded since. */
  readonly failed: number | null
  readonly startedAt: number
}

const MINUTE_MS = 60_000
/** A server that has just started has clients that come back. */
const SETTLE_MS = MINUTE_MS
const RETRY_MS = 60 * MINUTE_MS

/** When the next one is due, in ms since 1970, which may be over: a missed one is made up for. null: never. */
export function nextBackupAt({ interval, last, failed, startedAt }: ScheduleFacts): number | null {
  if (interval === 0) return null
  const due = last === null ? 0 : last + interval
  const retry = failed === null ? 0 : failed + Math.min(interval, RETRY_MS)
  return Math.max(due, retry, startedAt + SETTLE_MS)
}

/** The longest time that nobody looks: the clock may be set, and the machine may sleep. */
const LOOK_MS = 10 * MINUTE_MS

export interface ScheduleOptions {
  readonly clock: WallClock
  /** Asked each time it is looked, since the configuration may change. */
  facts(): Promise<ScheduleFacts>
  /** Makes a backup. Never rejects. */
  make(): Promise<void>
}

/** Makes backups when they are due, one after the other. */
export class BackupSchedule {
  readonly #options: ScheduleOptions
  #cancel: () => void = () => undefined
  #work: Promise<void> = Promise.resolve()
  #isOver = false

  constructor(options: ScheduleOptions) {
    this.#options = options
    this.look()
  }

  /** Looks now: something has changed. */
  look(): void {
    this.#cancel()
    this.#cancel = () => undefined
    this.#work = this.#work.then(() => this.#turn())
  }

  async #turn(): Promise<void> {
    if (this.#isOver) return
    const { clock, facts, make } = this.#options
    const isDue = async () => {
      const due = nextBackupAt(await facts())
      return due === null ? LOOK_MS : due - clock.now()
    }
    let wait = await isDue()
    if (wait <= 0 && !this.#isOver) {
      await make()
      wait = Math.max(await isDue(), MINUTE_MS)
    }
    if (this.#isOver) return
    this.#cancel()
    this.#cancel = clock.after(Math.min(wait, LOOK_MS), () => this.look())
  }

  /** Resolves when it has done what it was at. */
  async close(): Promise<void> {
    this.#isOver = true
    this.#cancel()
    await this.#work
  }
}
