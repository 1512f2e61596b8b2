import { closeSync, openSync } from 'node:fs'
import { isatty } from 'node:tty'
import { startFailureLine } from '../config/start-error.ts'

/** What can be stopped once it has started. */
export interface Running {
  close(): Promise<void>
  /** Reads the configuration anew, and tells the log how that went. */
  reload?(): Promise<void>
  /** Tells the log why the process is about to end. */
  fatal?(fault: unknown): void
}

/** The process, as far as starting and stopping touch it. */
export interface Host {
  /** At SIGTERM and SIGINT, and when the terminal that it was started on goes away. */
  onSignal(listener: () => void): void
  /** At SIGHUP that somebody sent. */
  onHangUp?(listener: () => void): void
  /** At an exception that nobody caught, or a rejection that nobody handled: a fault of settee. */
  onFault?(listener: (fault: unknown) => void): void
  /** Prints a line for the operator. */
  error(line: string): void
  exit(code: number): void
}

export interface LifecycleOptions {
  readonly host?: Host
  /** How long close() may take, in milliseconds. Default 10 s. */
  readonly graceMs?: number
}

/** Ctrl-C below `npm start` arrives twice at the same moment: from the terminal, and passed on by npm. */
const SAME_SIGNAL_MS = 250

// What nohup has started has no stream of the terminal left, and is to outlive it.
const STARTED_ON_TERMINAL = [0, 1, 2].some((stream) => isatty(stream)) && hasTerminal()

/** A closed terminal sends SIGHUP as well, and who closes it means the server to end with it. */
function hasLostTerminal(): boolean {
  return STARTED_ON_TERMINAL && !hasTerminal()
}

function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'))
    return true
  } catch {
    return false
  }
}

const PROCESS: Host = {
  onSignal: (listener) => {
    process.on('SIGTERM', listener)
    process.on('SIGINT', listener)
    process.on('SIGHUP', () => {
      if (hasLostTerminal()) listener()
    })
  },
  onHangUp: (listener) => {
    process.on('SIGHUP', () => {
      if (!hasLostTerminal()) listener()
    })
  },
  // Node makes an unhandled rejection one of these.
  onFault: (listener) => {
    process.on('uncaughtException', listener)
  },
  error: (line) => console.error(line),
  exit: (code) => {
    if (!hasLostTerminal()) process.exit(code)
    // Node aborts when it cannot give a terminal back as it found it; the signal ends it without a trial.
    process.removeAllListeners('SIGHUP')
    process.kill(process.pid, 'SIGHUP')
  },
}

/**
 * Starts something and stops it at SIGTERM or SIGINT: exit code 0 when it closed, 1 when it did not start, did not
 * close in time, or a second signal came. SIGHUP has it read its configuration anew. A fault that nobody has caught ends
 * it with exit code 1: what is in memory is not to be trusted any more, but what can be closed in order is.
 * @returns when it has started, or has failed to
 */
export async function runUntilSignalled(
  start: () => Promise<Running>,
  { host = PROCESS, graceMs = 10_000 }: LifecycleOptions = {},
): Promise<void> {
  let stoppingSince: number | null = null
  const started = start()
  host.onSignal(() => {
    if (stoppingSince === null) {
      stoppingSince = performance.now()
      void stop(started, host, graceMs)
    } else if (performance.now() - stoppingSince > SAME_SIGNAL_MS) {
      host.exit(1)
    }
  })
  host.onFault?.((fault) => {
    host.error(`settee ends after a fault of its own: ${stackOf(fault)}`)
    const isFirst = stoppingSince === null
    stoppingSince ??= performance.now()
    void started.then((running) => running.fatal?.(fault)).catch(() => undefined)
    if (isFirst) void stop(started, host, graceMs, 1)
  })
  host.onHangUp?.(() => {
    if (stoppingSince === null) void started.then((running) => running.reload?.()).catch(() => undefined)
  })
  try {
    await started
  } catch (error) {
    host.error(startFailureLine(error))
    host.exit(1)
  }
}

function stackOf(fault: unknown): string {
  return fault instanceof Error ? (fault.stack ?? fault.message) : String(fault)
}

/** @param code what the process exits with when everything was closed */
async function stop(started: Promise<Running>, host: Host, graceMs: number, code = 0): Promise<void> {
  const timer = setTimeout(() => {
    host.error(`settee did not stop within ${graceMs / 1000} s; it ends now.`)
    host.exit(1)
  }, graceMs)
  const running = await started.catch(() => null) // its failure is reported where it is awaited
  try {
    await running?.close()
    if (running) host.exit(code)
  } catch (error) {
    host.error(`settee did not stop cleanly: ${(error as Error).message}`)
    host.exit(1)
  } finally {
    clearTimeout(timer)
  }
}
