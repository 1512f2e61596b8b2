import { closeSync, openSync } from 'node:fs'
import { isatty } from 'node:tty'
import { fileURLToPath } from 'node:url'
import { startFailureLine } from '../config/start-error.ts'
import { programModule } from '../core/program-files.ts'
import { sourceTrace } from '../core/source-trace.ts'
import { dataFolder } from './operate.ts'
import type { ServeCommand } from './serve-arguments.ts'

/** `settee serve`: runs the server until a signal ends it. */
export async function runServeCommand(
  { data, flags }: ServeCommand,
  env: NodeJS.ProcessEnv,
): Promise<undefined> {
  restartWithMemorySettings()
  const dataDir = dataFolder(data, env)
  // Imported here, because a process that restarts does not need it.
  const { startServer } = await import('../server.ts')
  await runUntilSignalled((ending) => startServer({ dataDir, env, flags, ending }))
}

/** A server that has started. */
export interface Running {
  close(): Promise<void>
  /** Reloads the configuration, and logs the result. */
  reload?(): Promise<void>
  /** Logs why the process is about to end. */
  fatal?(fault: unknown): void
}

/** The parts of the process that starting and stopping need. */
export interface Host {
  /** Calls `listener` at SIGTERM and SIGINT, and when the terminal closes. */
  onSignal(listener: () => void): void
  /** Calls `listener` at a SIGHUP, unless the terminal has closed. */
  onHangUp?(listener: () => void): void
  /** Calls `listener` at an uncaught exception or unhandled rejection. */
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

/** Under `npm start`, Ctrl-C arrives twice almost at once: from the terminal and from npm. */
const SAME_SIGNAL_MS = 250

/** Whether closing the terminal must stop the server. Under nohup, none of its streams is the terminal. */
const STARTED_ON_TERMINAL = [0, 1, 2].some((stream) => isatty(stream)) && hasTerminal()

/** Whether a SIGHUP comes from a closed terminal, so that the server must stop. */
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
  // Includes unhandled rejections.
  onFault: (listener) => {
    process.on('uncaughtException', listener)
  },
  error: (line) => console.error(line),
  exit: (code) => {
    if (!hasLostTerminal()) process.exit(code)
    // Node aborts at exit if it cannot reset the terminal. The signal ends the process before that.
    process.removeAllListeners('SIGHUP')
    process.kill(process.pid, 'SIGHUP')
  },
}

/**
 * Runs a server until SIGTERM or SIGINT. The exit code is 0 after a clean stop, and 1 if the server did not start, did
 * not stop in time, or got a second signal. SIGHUP reloads the configuration. After an uncaught fault, the memory may
 * be corrupt, so the server stops with exit code 1, and closes its files if it can. Resolves when the server has
 * started, or failed to start.
 * @param start a start that waits for something ends at the signal with its reason
 */
export async function runUntilSignalled(
  start: (ending: AbortSignal) => Promise<Running>,
  { host = PROCESS, graceMs = 10_000 }: LifecycleOptions = {},
): Promise<void> {
  let stoppingSince: number | null = null
  const ending = new AbortController()
  const started = start(ending.signal)
  host.onSignal(() => {
    if (stoppingSince === null) {
      stoppingSince = performance.now()
      ending.abort()
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
    if (error === ending.signal.reason) return host.exit(0)
    host.error(startFailureLine(error))
    host.exit(1)
  }
}

function stackOf(fault: unknown): string {
  return fault instanceof Error ? sourceTrace(fault.stack ?? fault.message) : String(fault)
}

/** @param code the exit code after a clean stop */
async function stop(started: Promise<Running>, host: Host, graceMs: number, code = 0): Promise<void> {
  const timer = setTimeout(() => {
    host.error(`settee did not stop within ${graceMs / 1000} s and exits now.`)
    host.exit(1)
  }, graceMs)
  const running = await started.catch(() => null) // the caller reports its failure
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

/** The size of a semi-space of the main thread, in MB. By default it grows to 64 MB, and stays there under load. */
const SEMI_SPACE = '--max-semi-space-size'
const SEMI_SPACE_MB = 8

/**
 * The size in bytes above which glibc maps memory separately, and the free bytes that it keeps at the end of each
 * arena. By default it adapts both to the largest block that was freed: after a body of 8 MB, it keeps up to 16 MB for
 * each of about ten threads.
 */
const GLIBC: Readonly<Record<string, string>> = {
  MALLOC_MMAP_THRESHOLD_: '1048576',
  MALLOC_TRIM_THRESHOLD_: '2097152',
}

/** The arguments and environment of a process. */
interface ProcessStart {
  readonly execArgv: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

/**
 * Adds memory settings for V8 and glibc, unless the user has chosen some.
 * @returns null if the process already has such settings
 */
export function memorySettings({ execArgv, env }: ProcessStart): ProcessStart | null {
  const flags = [...execArgv, env.NODE_OPTIONS ?? ''].join(' ')
  const hasChosen = flags.includes(SEMI_SPACE) || Object.keys(GLIBC).some((name) => env[name] !== undefined)
  if (hasChosen) return null
  return { execArgv: [...execArgv, `${SEMI_SPACE}=${SEMI_SPACE_MB}`], env: { ...env, ...GLIBC } }
}

/**
 * Restarts the process with memory settings, because V8 and glibc read them only when a process starts. The restart by
 * execve keeps the process id, and takes about 30 ms. Returns if the process has the settings, or there is no execve.
 */
function restartWithMemorySettings(): void {
  const wanted = memorySettings(process)
  // execve exists since Node 22.15, except on Windows.
  if (wanted === null || process.execve === undefined || process.platform === 'win32') return
  const main = fileURLToPath(programModule('cli/main'))
  const args = [process.execPath, ...wanted.execArgv, main, ...process.argv.slice(2)]
  process.execve(process.execPath, args, wanted.env)
}
