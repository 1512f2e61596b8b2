import { parseArgs } from 'node:util'
import type { ConfigFlags } from '../config/sources.ts'
import { type AccountCommand, accountCommand } from './account-arguments.ts'
import { checkNone, checkOptions } from './argument-checks.ts'
import {
  DOCTOR_FLAGS,
  DOCTOR_HELP,
  DOCTOR_OPTIONS,
  type DoctorCommand,
  doctorCommand,
} from './doctor-arguments.ts'
import {
  HISTORY_OPTIONS,
  historyCommand,
  REWIND_OPTIONS,
  rewindCommand,
  TIME_MACHINE_HELP,
  type TimeMachineCommand,
} from './time-machine-arguments.ts'
import { portOf, TLS_NAMES, TLS_OPTIONS, tlsFlags } from './tls-arguments.ts'
import { TRANSFER_HELP, type TransferCommand, transferCommand } from './transfer-arguments.ts'
import { UsageError } from './usage-error.ts'
import {
  SETUP_OPTIONS,
  type SetupCommand,
  setupCommand,
  VAULT_HELP,
  VAULT_OPTIONS,
  type VaultCommand,
  vaultCommand,
} from './vault-arguments.ts'

export interface ServeArguments {
  /** The folder given with --data. */
  readonly data: string | undefined
  readonly flags: ConfigFlags
}

/** Where the bytes of databases are. */
export interface SizeCommand {
  readonly name: 'size'
  readonly data: string | undefined
  /** null: all of them. */
  readonly database: string | null
  readonly json: boolean
}
/** Going back to what databases were, on the folder given with --data. */
export type RestoreCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'restore'
      readonly backup: string
      /** null: all that the backup has. */
      readonly databases: readonly string[] | null
      readonly as: string | null
      /** Also what belongs to the server itself. */
      readonly server: boolean
      readonly yes: boolean
    }
  | { readonly name: 'adopt'; readonly databases: readonly string[] | null }
)
/** `settee backup`, on the folder given with --data. */
export interface BackupCommand {
  readonly name: 'backup'
  readonly data: string | undefined
  /** Where to make it; undefined: where the server keeps its backups. */
  readonly to: string | undefined
  /** Empty: all databases. */
  readonly databases: readonly string[]
  readonly json: boolean
}

export type Command =
  | { readonly name: 'help' }
  | { readonly name: 'version' }
  | { readonly name: 'serve'; readonly arguments: ServeArguments }
  | AccountCommand
  | SizeCommand
  | TransferCommand
  | RestoreCommand
  | BackupCommand
  | TimeMachineCommand
  | DoctorCommand
  | SetupCommand
  | VaultCommand

export const HELP = `settee - a small CouchDB-compatible sync server

Usage: settee [serve] [options]
       settee setup [--admin <name>] [--stdin] [--vault <name> --for <app> | --no-vault]
              [--host <address>] [--json] [--data <folder>]
       settee vault add <name> --for inkdrop|livesync|pouchdb [--host <address>]
              [--device <name>] [--mobile-filter] [--json] [--data <folder>]
       settee passwd <name> [--create] [--stdin] [--data <folder>]
       settee account add <name> [--role <role>]... [--stdin] [--data <folder>]
       settee account list [--data <folder>]
       settee account delete <name> [--data <folder>]
       settee size [<database>] [--json] [--data <folder>]
       settee export <database> [--to <file>] [--data <folder>]
       settee import <database> [--from <file>] [--merge] [--data <folder>]
       settee restore <backup> [--all] [--db <name>]... [--as <name>] [--server] [--yes] [--json]
       settee adopt [<database>]... [--all] [--json]
       settee backup [--to <folder>] [--db <name>]... [--json] [--data <folder>]
       settee history <database> [--since <time>] [--limit <number>] [--json] [--data <folder>]
       settee history <database> <id> [--at <time>] [--rev <revision>] [--limit <number>] [--json]
              [--data <folder>]
       settee rewind <database> --to <time> [--id <id>]... [--dry-run] [--yes] [--json]
              [--data <folder>]
       settee doctor <address> [--quick | --long] [--mobile] [--json | --report] [--stdin]
              [--origin <origin>]... [--ca <file>]

serve runs the server:
  --port <number>      port to listen on (default 5984; 0 takes a free one)
  --bind <address>     address to listen on (default 127.0.0.1; 0.0.0.0 for every network)
  --tls-cert <file>    speak TLS as well, with this certificate (PEM, the whole chain), by HTTP/2 and
                       HTTP/1.1; a file that is replaced is taken within seconds
  --tls-key <file>     its key
  --tls-port <number>  port for TLS (default 6984)
  --tls-bind <address> address for TLS (default: that of --bind)
  --data <folder>      where databases and local.ini are kept (default ./data)
  --log-level <level>  debug, info, notice, warning, error, critical, alert, emergency or none
  --log-file <file>    log to this file instead of the standard output
  --hosted             for tenants who do not know each other: takes no design documents and no
                       attachments, runs no functions, and needs a server admin

${VAULT_HELP}
passwd and account change who may come in, whether the server runs or not:
  --create             make a server admin when there is neither an admin nor an account of this name
  --role <role>        a role of the new account; may be given several times
  --stdin              read the password from the standard input instead of asking for it
  --data <folder>      as with serve

size shows what the bytes of databases are, whether the server runs or not:
  --json               a line of JSON for each, with counts, instead of a table
  --data <folder>      as with serve

${TRANSFER_HELP}
restore puts databases back to what they were, whether the server runs or not; devices notice, and
bring back what they have and the backup has not. <backup> is a backup's name or folder, or a single
file of a database. What is replaced is kept in the data folder, below replaced/:
  --all                all databases of the backup
  --db <name>          this one; may be given several times
  --as <name>          as a new database of this name, beside the one that is there
  --server             also accounts' tokens, the server's identity and local.ini; the server must not run
  --yes                do not ask
adopt makes devices notice that files of databases were put back by hand.
  --json               print what was done as JSON

backup copies the databases and what else belongs to the server, whether it runs or not, and
verifies each copy; exit code 0 when all of it is in the backup:
  --to <folder>        the folder that keeps backups (default: settee/backup_folder, or backups in
                       the data folder)
  --db <name>          this database alone; may be given several times
  --json               print what was made as JSON
  --data <folder>      as with serve

${TIME_MACHINE_HELP}
${DOCTOR_HELP}
  --help, -h           show this text
  --version, -v        show the version

Environment: COUCHDB_USER and COUCHDB_PASSWORD make a server admin; COUCHDB_SECRET; each also as
..._FILE, the name of a file that holds it. SETTEE_PORT, SETTEE_BIND, SETTEE_DATA, SETTEE_LOG_LEVEL,
SETTEE_LOG_FILE, SETTEE_TRUSTED_PROXIES, SETTEE_TLS_CERT, SETTEE_TLS_KEY, SETTEE_TLS_PORT,
SETTEE_TLS_BIND. The command line beats the environment, which beats local.ini.
`

const OPTIONS = {
  all: { type: 'boolean' },
  as: { type: 'string' },
  db: { type: 'string', multiple: true },
  server: { type: 'boolean' },
  yes: { type: 'boolean' },
  create: { type: 'boolean' },
  json: { type: 'boolean' },
  role: { type: 'string', multiple: true },
  stdin: { type: 'boolean' },
  to: { type: 'string' },
  id: { type: 'string', multiple: true },
  limit: { type: 'string' },
  since: { type: 'string' },
  at: { type: 'string' },
  rev: { type: 'string' },
  'dry-run': { type: 'boolean' },
  from: { type: 'string' },
  merge: { type: 'boolean' },
  admin: { type: 'string' },
  vault: { type: 'string' },
  'no-vault': { type: 'boolean' },
  for: { type: 'string' },
  host: { type: 'string' },
  account: { type: 'string' },
  device: { type: 'string' },
  renew: { type: 'boolean' },
  'mobile-filter': { type: 'boolean' },
  'passphrase-file': { type: 'string' },
  qr: { type: 'boolean' },
  port: { type: 'string' },
  bind: { type: 'string' },
  data: { type: 'string' },
  'log-level': { type: 'string' },
  'log-file': { type: 'string' },
  hosted: { type: 'boolean' },
  ...DOCTOR_FLAGS,
  ...TLS_OPTIONS,
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
  const [command = 'serve', ...rest] = positionals
  switch (command) {
    case 'help':
      checkNone(rest)
      return { name: 'help' }
    case 'serve':
      return serveCommand(rest, values)
    case 'passwd':
    case 'account':
      return accountCommand(positionals, values)
    case 'size':
      return sizeCommand(rest, values)
    case 'export':
    case 'import':
      checkOptions(values, command, command === 'export' ? ['data', 'to'] : ['data', 'from', 'merge'])
      return transferCommand(command, rest, values)
    case 'restore':
      return restoreCommand(rest, values)
    case 'adopt':
      return adoptCommand(rest, values)
    case 'backup':
      return backupCommand(rest, values)
    case 'history':
      checkOptions(values, command, HISTORY_OPTIONS)
      return historyCommand(rest, values)
    case 'rewind':
      checkOptions(values, command, REWIND_OPTIONS)
      return rewindCommand(rest, values)
    case 'doctor':
      checkOptions(values, command, DOCTOR_OPTIONS)
      return doctorCommand(rest, values)
    case 'setup':
      checkOptions(values, command, SETUP_OPTIONS)
      return setupCommand(rest, values)
    case 'vault':
      checkOptions(values, 'vault add', VAULT_OPTIONS)
      return vaultCommand(rest, values)
    default:
      throw new UsageError(`Unknown command "${command}".`)
  }
}

const SERVE_OPTIONS = ['port', 'bind', 'data', 'log-level', 'log-file', 'hosted'] as const

function serveCommand(rest: readonly string[], values: Values): Command {
  checkNone(rest)
  checkOptions(values, 'serve', [...SERVE_OPTIONS, ...TLS_NAMES])
  const flags: ConfigFlags = tlsFlags(values)
  if (values.port !== undefined) flags.port = portOf('port', values.port)
  if (values.bind !== undefined) flags.bind = values.bind
  if (values['log-level'] !== undefined) flags.logLevel = values['log-level']
  if (values['log-file'] !== undefined) flags.logFile = values['log-file']
  if (values.hosted) flags.hosted = true
  return { name: 'serve', arguments: { data: values.data, flags } }
}

function sizeCommand([database, ...extra]: readonly string[], values: Values): SizeCommand {
  checkOptions(values, 'size', ['data', 'json'])
  checkNone(extra)
  return { name: 'size', data: values.data, database: database ?? null, json: values.json ?? false }
}

function backupCommand(rest: readonly string[], values: Values): BackupCommand {
  checkNone(rest)
  checkOptions(values, 'backup', ['data', 'to', 'db', 'json'])
  const { data, to, db: databases = [], json = false } = values
  return { name: 'backup', data, to, databases, json }
}

function restoreCommand([backup, ...rest]: readonly string[], values: Values): RestoreCommand {
  checkOptions(values, 'restore', ['data', 'all', 'db', 'as', 'server', 'yes', 'json'])
  if (backup === undefined || backup === '') throw new UsageError('settee restore needs a backup.')
  checkNone(rest)
  const { data, all = false, db = null, as = null, server = false, yes = false, json = false } = values
  if (all === (db !== null)) throw new UsageError('settee restore needs either --all or --db.')
  if (as !== null && db?.length !== 1) throw new UsageError('--as goes with one --db.')
  return { name: 'restore', data, backup, databases: db, as, server, yes, json }
}

function adoptCommand(databases: readonly string[], values: Values): RestoreCommand {
  checkOptions(values, 'adopt', ['data', 'all', 'json'])
  const { data, all = false, json = false } = values
  if (all === databases.length > 0) throw new UsageError('settee adopt needs either --all or databases.')
  return { name: 'adopt', data, databases: all ? null : databases, json }
}

type Values = ReturnType<typeof parse>['values']

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    // Node explains at length; its first sentence says what is wrong.
    throw new UsageError((error as Error).message.split(/\n|(?<=['"])\. /)[0]!.replace(/\.?$/, '.'))
  }
}
