import { parseArgs } from 'node:util'
import type { ConfigFlags } from '../config/sources.ts'

export interface ServeArguments {
  /** The folder given with --data. */
  readonly data: string | undefined
  readonly flags: ConfigFlags
}

export type Command =
  | { readonly name: 'help' }
  | { readonly name: 'version' }
  | { readonly name: 'serve'; readonly arguments: ServeArguments }

/** A mistake on the command line; the message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export const HELP = `settee - a small CouchDB-compatible sync server

Usage: settee [serve] [options]

  --port <number>      port to listen on (default 5984; 0 takes a free one)
  --bind <address>     address to listen on (default 127.0.0.1; 0.0.0.0 for every network)
  --data <folder>      where databases and local.ini are kept (default ./data)
  --log-level <level>  debug, info, notice, warning, error, critical, alert, emergency or none
  --log-file <file>    log to this file instead of the standard output
  --hosted             for tenants who do not know each other: takes no design documents and no
                       attachments, runs no functions, and needs a server admin
  --help, -h           show this text
  --version, -v        show the version

Environment: COUCHDB_USER and COUCHDB_PASSWORD make a server admin; COUCHDB_SECRET; each also as
..._FILE, the name of a file that holds it. SETTEE_PORT, SETTEE_BIND, SETTEE_DATA, SETTEE_LOG_LEVEL,
SETTEE_LOG_FILE. The command line beats the environment, which beats local.ini.
`

const OPTIONS = {
  port: { type: 'string' },
  bind: { type: 'string' },
  data: { type: 'string' },
  'log-level': { type: 'string' },
  'log-file': { type: 'string' },
  hosted: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const

/**
 * Reads the command line.
 * @param args without the names of node and of the script
 * @throws UsageError
 */
export function parseCommand(args: readonly string[]): Command {
  const { values, positionals } = parse(args)
  if (values.help) return { name: 'help' }
  if (values.version) return { name: 'version' }
  const [command = 'serve', extra] = positionals
  if (command === 'help' && extra === undefined) return { name: 'help' }
  if (command !== 'serve') throw new UsageError(`Unknown command "${command}".`)
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  for (const name of ['bind', 'data', 'log-level', 'log-file'] as const) {
    if (values[name]?.trim() === '') throw new UsageError(`--${name} needs a value.`)
  }
  const flags: ConfigFlags = {}
  if (values.port !== undefined) flags.port = portOf(values.port)
  if (values.bind !== undefined) flags.bind = values.bind
  if (values['log-level'] !== undefined) flags.logLevel = values['log-level']
  if (values['log-file'] !== undefined) flags.logFile = values['log-file']
  if (values.hosted) flags.hosted = true
  return { name: 'serve', arguments: { data: values.data, flags } }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    // Node explains at length; its first sentence says what is wrong.
    throw new UsageError((error as Error).message.split(/\n|(?<=['"])\. /)[0]!.replace(/\.?$/, '.'))
  }
}

function portOf(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
    throw new UsageError(`--port must be a whole number from 0 to 65535, not "${text}".`)
  }
  return Number(text)
}
