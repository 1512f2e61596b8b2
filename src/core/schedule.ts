/** When long work is due that is done once in an interval of hours, such as a backup. */

/** A clock that tests can replace. */
export interface WallClock {
  /** ms since 1970. */
  now(): number
  /** Calls `call` once. @returns a function that cancels the timer */
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

/** The input of a schedule; times in ms since 1970. */
export interface ScheduleFacts {
  /** ms between two runs; 0: no schedule. */
  readonly interval: number
  /** When the newest complete run began; null: there is none. */
  readonly last: number | null
  /** When a run last failed; null: never, or one has succeeded since. */
  readonly failed: number | null
  readonly startedAt: number
}

const MINUTE_MS = 60_000
/** Pause after the start, while clients reconnect. */
const START_PAUSE_MS = MINUTE_MS
const RETRY_MS = 60 * MINUTE_MS

/**
 * @param now in ms since 1970: a start or a failure behind it was noted before the clock was set back, and delays nothing
 * @returns when the next run is due, in ms since 1970, possibly in the past; null: never
 */
export function nextRunAt({ interval, last, failed, startedAt }: ScheduleFacts, now: number): number | null {
  if (interval === 0) return null
  const due = last === null ? 0 : last + interval
  const after = (time: number, pause: number) => (time > now ? 0 : time + pause)
  const retry = failed === null ? 0 : after(failed, Math.min(interval, RETRY_MS))
  return Math.max(due, retry, after(startedAt, START_PAUSE_MS))
}

/** The maximum pause between two checks: the clock may be set, and the machine may sleep. */
const MAX_PAUSE_MS = 10 * MINUTE_MS

interface ScheduleOptions {
  readonly clock: WallClock
  /** Read at each check, because the configuration may change. */
  facts(): Promise<ScheduleFacts>
  /** Makes a run. Never rejects. */
  make(): Promise<void>
}

/** Makes runs of long work when they are due, one at a time. */
export class Schedule {
  readonly #options: ScheduleOptions
  #cancel: () => void = () => undefined
  #work: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: ScheduleOptions) {
    this.#options = options
    this.check()
  }

  /** Checks now, for example because the configuration has changed. */
  check(): void {
    this.#cancel()
    this.#cancel = () => undefined
    this.#work = this.#work.then(() => this.#runIfDue())
  }

  async #runIfDue(): Promise<void> {
    if (this.#isClosed) return
    const { clock, facts, make } = this.#options
    const timeUntilDue = async () => {
      const due = nextRunAt(await facts(), clock.now())
      return due === null ? MAX_PAUSE_MS : due - clock.now()
    }
    let wait = await timeUntilDue()
    if (wait <= 0 && !this.#isClosed) {
      await make()
      wait = Math.max(await timeUntilDue(), MINUTE_MS)
    }
    if (this.#isClosed) return
    this.#cancel()
    this.#cancel = clock.after(Math.min(wait, MAX_PAUSE_MS), () => this.check())
  }

  /** Resolves when a run under way has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancel()
    await this.#work
  }
}
