import { closeSync, openSync } from 'node:fs'
import { extname } from 'node:path'
import { isatty } from 'node:tty'
import { fileURLToPath } from 'node:url'
import { startFailureLine } from '../config/start-error.ts'
import { dataFolder } from './operate.ts'
import type { ServeCommand } from './serve-arguments.ts'

/** `settee serve`: runs the server until a signal ends it. */
export async function runServeCommand(
  { data, flags }: ServeCommand,
  env: NodeJS.ProcessEnv,
): Promise<undefined> {
  restartWithMemorySettings()
  const dataDir = dataFolder(data, env)
  // Not imported above: a process that begins anew would load it for nothing.
  const { startServer } = await import('../server.ts')
  await runUntilSignalled(() => startServer({ dataDir, env, flags }))
}

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

interface LifecycleOptions {
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
    host.error(`settee stops after an internal error: ${stackOf(fault)}`)
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
    host.error(`settee did not stop within ${graceMs / 1000} s and exits now.`)
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

// How V8 and glibc are to use memory. Both read it when a process starts, so the process begins anew with it: in its own
// place, with the same number, after some 30 ms.

/** Half of the main thread's room for young objects, in MB: V8 lets it grow to 64, and keeps that under load. */
const SEMI_SPACE = '--max-semi-space-size'
const SEMI_SPACE_MB = 8

/**
 * From which size on glibc takes a piece of memory from the system for itself, and how much free memory it keeps at the
 * end of each arena, in bytes. Without them it learns both from the largest piece that was ever freed: after one body of
 * 8 MB it keeps up to 16 MB for each of some ten threads.
 */
const GLIBC: Readonly<Record<string, string>> = {
  MALLOC_MMAP_THRESHOLD_: '1048576',
  MALLOC_TRIM_THRESHOLD_: '2097152',
}

/** What a process was started with. */
interface Started {
  readonly execArgv: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

/**
 * What a process is to be started with instead, for it to use less memory. What whoever started it has chosen stays.
 * @returns null when it was started so
 */
export function memorySettings({ execArgv, env }: Started): Started | null {
  const flags = [...execArgv, env.NODE_OPTIONS ?? ''].join(' ')
  const hasChosen = flags.includes(SEMI_SPACE) || Object.keys(GLIBC).some((name) => env[name] !== undefined)
  if (hasChosen) return null
  return { execArgv: [...execArgv, `${SEMI_SPACE}=${SEMI_SPACE_MB}`], env: { ...env, ...GLIBC } }
}

/** Begins the command line anew with settings for memory; returns where it runs with them, or the system cannot do it. */
function restartWithMemorySettings(): void {
  const wanted = memorySettings(process)
  // Node 22.15 has it, and Windows does not.
  if (wanted === null || process.execve === undefined || process.platform === 'win32') return
  const main = fileURLToPath(new URL(`./main${extname(import.meta.url)}`, import.meta.url))
  const args = [process.execPath, ...wanted.execArgv, main, ...process.argv.slice(2)]
  process.execve(process.execPath, args, wanted.env)
}
