/** The grammar of `settee serve`. */
import type { ConfigFlags } from '../config/sources.ts'
import { checkNone, DATA, grammar, UsageError, type Values } from './grammar.ts'

const TLS_OPTIONS = {
  'tls-cert': { type: 'string' },
  'tls-key': { type: 'string' },
  'tls-port': { type: 'string' },
  'tls-bind': { type: 'string' },
} as const

/** @throws UsageError */
function tlsFlags(values: Values<typeof TLS_OPTIONS>): ConfigFlags {
  const { 'tls-cert': cert, 'tls-key': key, 'tls-port': port, 'tls-bind': bind } = values
  // Otherwise the server would silently start without TLS.
  if (key !== undefined && cert === undefined) throw new UsageError('--tls-key needs --tls-cert.')
  const flags: ConfigFlags = {}
  if (cert !== undefined) flags.tlsCert = cert
  if (key !== undefined) flags.tlsKey = key
  if (port !== undefined) flags.tlsPort = portOf('tls-port', port)
  if (bind !== undefined) flags.tlsBind = bind
  return flags
}

/**
 * @param name the name of the option
 * @throws UsageError for an invalid port
 */
function portOf(name: string, text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
    throw new UsageError(`--${name} must be a whole number from 0 to 65535, not "${text}".`)
  }
  return Number(text)
}

export interface ServeCommand {
  readonly name: 'serve'
  /** The folder given with --data. */
  readonly data: string | undefined
  readonly flags: ConfigFlags
}

const OPTIONS = {
  ...DATA,
  ...TLS_OPTIONS,
  port: { type: 'string' },
  bind: { type: 'string' },
  'log-level': { type: 'string' },
  'log-file': { type: 'string' },
  store: { type: 'string' },
  hosted: { type: 'boolean' },
} as const

export const SERVE = grammar({
  name: 'serve',
  usage: '[--port <number>] [--bind <address>] [--data <folder>] [--hosted] [options]',
  about: 'run the server; this is the default command',
  details: `Runs the server until it is stopped:
  --port <number>      port to listen on (default 5984; 0 picks a free one)
  --bind <address>     address to listen on (default 127.0.0.1; 0.0.0.0 for all networks)
  --tls-cert <file>    serve TLS as well (HTTP/2 and HTTP/1.1), with this certificate: PEM, the whole
                       chain; a replaced file is read again within seconds
  --tls-key <file>     the certificate's private key
  --tls-port <number>  port for TLS (default 6984)
  --tls-bind <address> address for TLS (default: the address of --bind)
  --data <folder>      folder of the databases and local.ini (default ./data)
  --store <address>    keep the databases in PostgreSQL, postgres://user@host/database, for several
                       nodes (docs/scaling.md); the password comes from SETTEE_STORE_PASSWORD_FILE,
                       PGPASSFILE, ~/.pgpass or PGPASSWORD
  --log-level <level>  debug, info, notice, warning, error, critical, alert, emergency or none
  --log-file <file>    log to this file instead of standard output
  --hosted             hosted mode, for tenants who do not know each other: no design documents, no
                       attachments and no functions; needs a server admin

Environment: COUCHDB_USER and COUCHDB_PASSWORD create a server admin; COUCHDB_SECRET signs sessions.
Each also works as ..._FILE, the name of a file that holds the value. The others are SETTEE_PORT,
SETTEE_BIND, SETTEE_DATA, SETTEE_STORE, SETTEE_LOG_LEVEL, SETTEE_LOG_FILE, SETTEE_TRUSTED_PROXIES,
SETTEE_TLS_CERT, SETTEE_TLS_KEY, SETTEE_TLS_PORT and SETTEE_TLS_BIND. The command line overrides the
environment, which overrides local.ini.
`,
  options: OPTIONS,
  read: serveCommand,
})

function serveCommand(words: readonly string[], values: Values<typeof OPTIONS>): ServeCommand {
  checkNone(words)
  const flags: ConfigFlags = tlsFlags(values)
  if (values.port !== undefined) flags.port = portOf('port', values.port)
  if (values.bind !== undefined) flags.bind = values.bind
  if (values['log-level'] !== undefined) flags.logLevel = values['log-level']
  if (values['log-file'] !== undefined) flags.logFile = values['log-file']
  if (values.store !== undefined) flags.store = values.store
  if (values.hosted) flags.hosted = true
  return { name: 'serve', data: values.data, flags }
}
