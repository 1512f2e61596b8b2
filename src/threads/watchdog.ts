/**
 * Ends database threads that hang (docs/decisions/0037). A thread hangs when its event loop has handled no message for
 * 10 s while calls wait, and it has used the processor for at least half of that time. A thread that waits for a slow
 * disk, or was stopped with its process or machine, uses no processor time, and is ended after 60 checks.
 */
import { readFileSync } from 'node:fs'
import type { Heartbeat } from '../core/event-loop.ts'

/** How often threads are checked while calls wait, in ms. */
const CHECK_INTERVAL_MS = 1000
/** A silent thread hangs after this many checks, if it has used this much processor time since the first, in ms. */
const SILENT_CHECKS = 10
const SILENT_CPU_MS = 5000
/** A silent thread hangs after this many checks, if it uses no processor time, or the time is unknown. */
const IDLE_CHECKS = 60

/** The part of a thread that the watchdog needs. */
export interface WatchedThread {
  readonly isRunning: boolean
  /** Calls and streams under way. */
  readonly callsUnderWay: number
  pulse(): Heartbeat
  /** Sends a message that does nothing. */
  ping(): void
  /** Ends the thread; all calls fail at once. */
  endHung(fault: Error): void
}

interface WatchdogOptions {
  readonly threads: () => Iterable<WatchedThread>
  /** Processor time of a thread in ms, by its number in the operating system; null if unknown. For tests. */
  readonly cpuMs?: (systemId: number) => number | null
  /** For tests. */
  readonly checkIntervalMs?: number
}

/** A thread that has been silent since a check. */
interface Silence {
  readonly turns: number
  readonly cpuMs: number | null
  checks: number
}

export class Watchdog {
  readonly #options: WatchdogOptions
  readonly #silences = new WeakMap<WatchedThread, Silence>()
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: WatchdogOptions) {
    this.#options = options
  }

  /** Starts checking, because a thread is about to be called. */
  wake(): void {
    if (this.#isClosed) return
    this.#timer ??= setInterval(
      () => this.check(),
      this.#options.checkIntervalMs ?? CHECK_INTERVAL_MS,
    ).unref()
  }

  /**
   * Checks each thread once. Checks are counted instead of seconds, so that the time while the process was stopped or
   * the machine asleep counts as one check.
   */
  check(): void {
    let isWaiting = false
    for (const thread of this.#options.threads()) {
      if (!thread.isRunning || thread.callsUnderWay === 0) {
        this.#silences.delete(thread)
        continue
      }
      isWaiting = true
      this.#checkThread(thread)
    }
    if (!isWaiting) this.#stopTimer()
  }

  #checkThread(thread: WatchedThread): void {
    const { turns, isInLongCall, systemId } = thread.pulse()
    const cpuMs = systemId === 0 ? null : (this.#options.cpuMs ?? processorMs)(systemId)
    const silence = this.#silences.get(thread)
    // A thread that has not started yet is loading settee's code, which takes a small machine a while.
    if (silence === undefined || silence.turns !== turns || turns === 0 || isInLongCall) {
      this.#silences.set(thread, { turns, cpuMs, checks: 0 })
      thread.ping()
      return
    }
    silence.checks += 1
    const used = cpuMs === null || silence.cpuMs === null ? 0 : cpuMs - silence.cpuMs
    const isHanging = silence.checks >= (used >= SILENT_CPU_MS ? SILENT_CHECKS : IDLE_CHECKS)
    if (!isHanging) return
    this.#silences.delete(thread)
    thread.endHung(new HangError(silence.checks, used))
  }

  #stopTimer(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Stops checking. Idempotent. */
  close(): void {
    this.#isClosed = true
    this.#stopTimer()
  }
}

/** Why a thread was ended. */
export class HangError extends Error {
  constructor(checks: number, cpuMs: number) {
    super(
      `a database thread was silent for ${checks} s while calls waited, with ${Math.round(cpuMs / 100) / 10} s of processor time, and was ended`,
    )
    this.name = 'HangError'
  }
}

/** A tick of Linux's counters, in ms: USER_HZ is 100 on all platforms that Node has binaries for. */
const TICK_MS = 10

/** Processor time that a thread of this process has used, in ms; null where the system does not report it. */
export function processorMs(systemId: number): number | null {
  return processorMsIn(`/proc/self/task/${systemId}/stat`)
}

/** The same for any thread or process. @param path of its file `stat` in /proc */
export function processorMsIn(path: string): number | null {
  try {
    const stat = readFileSync(path, 'latin1')
    // The name, in brackets, may contain any character. utime and stime are the 14th and 15th fields (proc(5)).
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const ticks = Number(fields[11]) + Number(fields[12])
    return Number.isFinite(ticks) ? ticks * TICK_MS : null
  } catch {
    return null
  }
}

/** How long a database is refused after its second hang, in ms. The pause doubles with each further hang. */
const FIRST_PAUSE_MS = 10_000
const MAX_PAUSE_MS = 10 * 60_000
/** How long after its last hang the next one counts as the first again, in ms. */
const FORGIVEN_MS = 60 * 60_000
/** The most databases in quarantine; further ones stay on their threads. */
const MAX_RECORDS = 1000

interface Record {
  readonly times: number
  readonly last: number
}

/**
 * Databases that were being served when their thread hung or ran out of memory. A separate thread serves them, so that
 * the same request, sent again, blocks no other database. After a second hang, a database is refused for a time. It stays
 * until it is deleted or the server stops: the thread that has it open must go on to own it.
 */
export class Quarantine {
  readonly #now: () => number
  readonly #records = new Map<string, Record>()

  /** @param now in ms of a clock that only goes forward; for tests */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Adds a database whose thread has hung or run out of memory, and is closed. */
  add(database: string): void {
    const known = this.#records.get(database)
    if (known === undefined && this.#records.size >= MAX_RECORDS) return
    const now = this.#now()
    const times = known === undefined || now - known.last >= FORGIVEN_MS ? 1 : known.times + 1
    this.#records.set(database, { times, last: now })
  }

  /** Removes a deleted database. */
  remove(database: string): void {
    this.#records.delete(database)
  }

  has(database: string): boolean {
    return this.#records.has(database)
  }

  /** Whether calls to the database are refused now. */
  isPaused(database: string): boolean {
    const record = this.#records.get(database)
    if (record === undefined || record.times < 2) return false
    const pause = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (record.times - 2))
    return this.#now() - record.last < pause
  }
}
