import { constants, openSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino } from 'pino'
import { sourceTrace } from '../core/source-trace.ts'
import type { Config } from './config.ts'
import type { LogTail } from './log-tail.ts'
import { StartError } from './start-error.ts'

/** The current destination of log lines. */
interface Sink extends DestinationStream {
  end(): void
  on(event: 'error' | 'close', listener: () => void): unknown
}

interface Logging {
  readonly logger: Logger
  /** Writes waiting lines, and stops following the configuration. */
  close(): Promise<void>
}

interface LoggerOptions {
  /** Whether the standard output is a terminal: readable lines instead of JSON, unless log/file is set. */
  readonly tty: boolean
  /** Gets every line, too. */
  readonly tail?: Pick<LogTail, 'add'>
}

/** Between pino's own info (30) and warn (40), as in CouchDB. */
const NOTICE = 35

const PINO_LEVELS: Readonly<Record<string, string>> = {
  debug: 'debug',
  info: 'info',
  notice: 'notice',
  warning: 'warn',
  warn: 'warn',
  error: 'error',
  err: 'error',
  critical: 'fatal',
  crit: 'fatal',
  alert: 'fatal',
  emergency: 'fatal',
  emerg: 'fatal',
  none: 'silent',
}

/** Bytes that may wait for a slow disk or reader; further lines are dropped to save memory. */
const MAX_WAITING = 8_388_608
const MAX_CLOSING_MS = 1000

/** Takes lines after the end, when the real destination would throw. */
const NOWHERE: Sink = { write: () => undefined, end: () => undefined, on: () => undefined }

/** A second line of defence: no caller should pass secrets to the logger. */
const REDACTED = [
  'req.headers.authorization',
  'req.headers.cookie',
  'headers.authorization',
  'headers.cookie',
]

/**
 * Makes the server's logger: JSON lines on the standard output or in log/file. Changes of log/level and log/file
 * take effect with the next line. If a new file cannot be opened, the log says so and stays where it was.
 * @throws StartError if log/file cannot be opened at the start
 */
export function makeLogger(config: Config, { tty, tail }: LoggerOptions): Logging {
  let sink = openSinkAtStart(config, tty)
  const logger = pino(
    {
      level: pinoLevel(config.get('log', 'level')),
      customLevels: { notice: NOTICE },
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: REDACTED,
      serializers: { err: loggedFault },
    },
    {
      write: (line: string) => {
        tail?.add(line)
        sink.write(line)
      },
    },
  )
  const reopen = (): void => {
    try {
      const old = sink
      sink = openSink(config, tty)
      old.end()
    } catch (error) {
      logger.error({ err: error }, 'log/file cannot be opened; the log stays where it was')
    }
  }
  const forget = config.onChange((section, key, value) => {
    if (section !== 'log') return
    if (key === 'level') logger.level = pinoLevel(value)
    if (key === 'file') reopen()
  })
  const close = (): Promise<void> => {
    forget()
    const last = sink
    sink = NOWHERE
    return ended(last)
  }
  return { logger: logger as unknown as Logger, close }
}

/** As pino logs it, with the positions in the sources. A fault of a thread may come as a text. */
function loggedFault(fault: unknown): unknown {
  if (typeof fault === 'string') return sourceTrace(fault)
  const logged = pino.stdSerializers.err(fault as Error)
  if (logged !== fault) logged.stack = sourceTrace(logged.stack)
  return logged
}

function pinoLevel(name: string | undefined): string {
  return PINO_LEVELS[name ?? ''] ?? 'info'
}

function openSinkAtStart(config: Config, tty: boolean): Sink {
  try {
    return openSink(config, tty)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`log/file: ${config.get('log', 'file')} cannot be opened (${code}).`, {
      cause: error,
    })
  }
}

function openSink(config: Config, tty: boolean): Sink {
  const file = config.get('log', 'file')
  if (file)
    return quiet(pino.destination({ fd: openForAppending(file), sync: false, maxLength: MAX_WAITING }))
  if (tty) return prettySink()
  return quiet(pino.destination({ fd: 1, sync: false, maxLength: MAX_WAITING }))
}

/** The library is loaded only for a terminal, since it takes 1 MB. */
function prettySink(): Sink {
  const pretty: typeof import('pino-pretty') = createRequire(import.meta.url)('pino-pretty')
  return pretty({ colorize: true, ignore: 'pid,hostname', sync: true })
}

/** Opens the file itself, since pino would report a failure later, as an event. */
function openForAppending(file: string): number {
  return openSync(file, constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY, 0o600)
}

/** A full disk or a closed pipe must not end the server. */
function quiet(sink: Sink): Sink {
  sink.on('error', () => undefined)
  return sink
}

function ended(sink: Sink): Promise<void> {
  if (sink === NOWHERE) return Promise.resolve()
  return new Promise((resolve) => {
    // A pipe without a reader never emits `close`.
    const timer = setTimeout(resolve, MAX_CLOSING_MS)
    sink.on('close', () => {
      clearTimeout(timer)
      resolve()
    })
    sink.end()
  })
}
