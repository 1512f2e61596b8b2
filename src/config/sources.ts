import { isUtf8 } from 'node:buffer'
import { readFile } from 'node:fs/promises'
import { isSecretKey, knownKey } from './defaults.ts'
import { faultOfIni, lineOf, parseIni, type Sections } from './ini-file.ts'
import { StartError } from './start-error.ts'
import { problemWith } from './values.ts'

/** Flags of the command line; each overrides local.ini and the environment. */
export interface ConfigFlags {
  port?: number
  bind?: string
  logLevel?: string
  logFile?: string
  /** The PostgreSQL with the databases. */
  store?: string
  /** Hosted mode for this run. */
  hosted?: boolean
  /** PEM files for TLS; a certificate turns it on. */
  tlsCert?: string
  tlsKey?: string
  tlsPort?: number
  tlsBind?: string
}

type Setting = readonly [section: string, key: string, value: string | undefined, source: string]

/**
 * Where a value comes from. `memory`: it was set while the server runs, until the next start or reload. `shared`: all
 * nodes of the server have it (shared-settings.ts).
 */
export interface Origin {
  readonly from: 'local.ini' | 'shared' | 'environment' | 'command line' | 'memory'
  /** The name of the variable or of the flag; null for the others. */
  readonly name: string | null
}

/** Values with their origins, where these are not local.ini. */
export type Origins = Map<string, Origin>

/** The key of {@link Origins}. */
export function originKey(section: string, key: string): string {
  return JSON.stringify([section, key])
}

/** The settings of local.ini, and its text for messages that name a line. */
export interface LocalIni {
  readonly sections: Sections
  readonly text: string
}

/**
 * Reads local.ini; a missing file counts as empty.
 * @throws StartError with file and line if it cannot be read, or has an invalid line or value
 */
export async function readLocalIni(path: string): Promise<LocalIni> {
  const bytes = await readIniBytes(path).catch((error: NodeJS.ErrnoException) => unreadable(path, error))
  const bad = firstLineThatIsNoUtf8(bytes)
  if (bad !== null) throw new StartError(`Line ${bad} of ${path} is not UTF-8.`)
  const text = decode(bytes)
  const fault = faultOfIni(text)
  if (fault !== null) throw new StartError(`Line ${fault.line} of ${path} ${fault.problem}.`)
  const sections = parseIni(text)
  for (const [section, keys] of sections) {
    for (const [key, value] of keys) {
      // An empty value unsets a key, as in CouchDB.
      const problem = value === '' ? null : problemWith(section, key, value)
      if (problem === null) continue
      const place = placeOf(path, text, section, key)
      throw new StartError(`${place}: ${section}/${key} ${problemText(section, key, value, problem)}`)
    }
  }
  return { sections, text }
}

/**
 * The place of a key, for a message to the operator.
 * @returns `Line N of PATH`; only the path if the text does not have the key
 */
export function placeOf(path: string, text: string, section: string, key: string): string {
  const line = lineOf(text, section, key)
  return line === null ? path : `Line ${line} of ${path}`
}

/** The error of a value, with the value unless it is a secret, or an address that may have one. */
function problemText(section: string, key: string, value: string, problem: string): string {
  const isHidden = isSecretKey(section, key) || knownKey(section, key)?.kind.type === 'local'
  return `${problem}${isHidden ? '' : `, not "${value}"`}.`
}

function unreadable(path: string, error: NodeJS.ErrnoException): never {
  throw new StartError(`${path} cannot be read (${error.code ?? error.message}).`, { cause: error })
}

/** More than any real configuration, and small enough to be read at once. */
const MAX_INI_BYTES = 1_048_576

async function readIniBytes(path: string): Promise<Buffer> {
  const bytes = await readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return Buffer.alloc(0)
    throw error
  })
  if (bytes.length <= MAX_INI_BYTES) return bytes
  throw Object.assign(new Error(`${path} is larger than ${MAX_INI_BYTES} bytes.`), { code: 'EFBIG' })
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
}

/** In UTF-8 only a line feed has this byte. */
function firstLineThatIsNoUtf8(bytes: Buffer): number | null {
  if (isUtf8(bytes)) return null
  for (let line = 1, from = 0; ; line += 1) {
    const end = bytes.indexOf(10, from)
    if (end === -1 || !isUtf8(bytes.subarray(from, end))) return line
    from = end + 1
  }
}

/**
 * The text of local.ini on disk; empty if there is no file.
 * @throws the operating system's error; a TypeError if the text is not UTF-8, since writing it back would change it
 */
export async function readIniText(path: string): Promise<string> {
  return decode(await readIniBytes(path))
}

/**
 * Applies the environment and then the command line to the sections. Notes in `origins` which values they are. COUCHDB_USER is applied later, since its password
 * must be hashed (`prepareAdmins` in auth/admins.ts).
 * @param isOverruled returns true for keys that environment and command line no longer override
 * @throws StartError for an invalid value, with the variable or the flag
 */
export async function overlay(
  sections: Sections,
  env: NodeJS.ProcessEnv,
  flags: ConfigFlags,
  isOverruled: (section: string, key: string) => boolean = () => false,
  origins: Origins = new Map(),
): Promise<void> {
  const secret = await secretFromEnvironment(env, 'COUCHDB_SECRET')
  for (const [section, key, value, source] of settingsOf(env, flags, secret)) {
    if (value === undefined || isOverruled(section, key)) continue
    const problem = problemWith(section, key, value)
    if (problem) throw new StartError(`${source} ${problemText(section, key, value, problem)}`)
    put(sections, section, key, value)
    const from = source.startsWith('--') ? 'command line' : 'environment'
    origins.set(originKey(section, key), { from, name: source })
  }
}

const PROXIES = 'SETTEE_TRUSTED_PROXIES'
const PASSWORD_FILE = 'SETTEE_STORE_PASSWORD_FILE'

/** As in CouchDB's image, NODENAME is the host, and the name is `couchdb@HOST`. */
function nodeNameFrom(env: NodeJS.ProcessEnv): string | undefined {
  const host = fromEnvironment(env, 'NODENAME')
  return host === undefined || host.includes('@') ? host : `couchdb@${host}`
}

function settingsOf(env: NodeJS.ProcessEnv, flags: ConfigFlags, secret: string | undefined): Setting[] {
  return [
    ['chttpd_auth', 'secret', secret, 'COUCHDB_SECRET'],
    ['chttpd', 'port', fromEnvironment(env, 'SETTEE_PORT'), 'SETTEE_PORT'],
    ['chttpd', 'bind_address', fromEnvironment(env, 'SETTEE_BIND'), 'SETTEE_BIND'],
    ['settee', 'node_name', nodeNameFrom(env), 'NODENAME'],
    ['settee', 'trusted_proxies', fromEnvironment(env, PROXIES), PROXIES],
    ['log', 'level', fromEnvironment(env, 'SETTEE_LOG_LEVEL'), 'SETTEE_LOG_LEVEL'],
    ['log', 'file', fromEnvironment(env, 'SETTEE_LOG_FILE'), 'SETTEE_LOG_FILE'],
    ['settee', 'store', fromEnvironment(env, 'SETTEE_STORE'), 'SETTEE_STORE'],
    ['settee', 'store_password_file', fromEnvironment(env, PASSWORD_FILE), PASSWORD_FILE],
    ['chttpd', 'port', flags.port?.toString(), '--port'],
    ['chttpd', 'bind_address', flags.bind, '--bind'],
    ['log', 'level', flags.logLevel, '--log-level'],
    ['log', 'file', flags.logFile, '--log-file'],
    ...tlsSettings(env, flags),
    ['settee', 'store', flags.store, '--store'],
    ['settee', 'mode', flags.hosted ? 'hosted' : undefined, '--hosted'],
  ]
}

function tlsSettings(env: NodeJS.ProcessEnv, flags: ConfigFlags): Setting[] {
  const cert = fromEnvironment(env, 'SETTEE_TLS_CERT')
  return [
    ['ssl', 'enable', cert && 'true', 'SETTEE_TLS_CERT'],
    ['ssl', 'cert_file', cert, 'SETTEE_TLS_CERT'],
    ['ssl', 'key_file', fromEnvironment(env, 'SETTEE_TLS_KEY'), 'SETTEE_TLS_KEY'],
    ['ssl', 'port', fromEnvironment(env, 'SETTEE_TLS_PORT'), 'SETTEE_TLS_PORT'],
    ['settee', 'tls_bind_address', fromEnvironment(env, 'SETTEE_TLS_BIND'), 'SETTEE_TLS_BIND'],
    ['ssl', 'enable', flags.tlsCert && 'true', '--tls-cert'],
    ['ssl', 'cert_file', flags.tlsCert, '--tls-cert'],
    ['ssl', 'key_file', flags.tlsKey, '--tls-key'],
    ['ssl', 'port', flags.tlsPort?.toString(), '--tls-port'],
    ['settee', 'tls_bind_address', flags.tlsBind, '--tls-bind'],
  ]
}

/** An empty variable counts as unset, since compose files and unit files often have some. */
function fromEnvironment(env: NodeJS.ProcessEnv, name: string): string | undefined {
  return env[name]?.trim() || undefined
}

/**
 * A secret from the environment: the variable itself or, as in CouchDB's image, the file in `<name>_FILE`.
 * @returns undefined if neither is set
 * @throws StartError if both are set, or the file cannot be read or is empty
 */
export async function secretFromEnvironment(
  env: NodeJS.ProcessEnv,
  name: string,
): Promise<string | undefined> {
  const value = env[name] || undefined
  const file = fromEnvironment(env, `${name}_FILE`)
  if (file === undefined) return value
  if (value !== undefined) throw new StartError(`${name} and ${name}_FILE are both set; keep one of them.`)
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new StartError(`${name}_FILE: ${file} cannot be read (${error.code}).`, { cause: error })
  })
  // Editors and `echo` add a line break that is not part of the secret.
  const secret = text.replace(/[\r\n]+$/, '')
  if (secret === '') throw new StartError(`${name}_FILE: ${file} is empty.`)
  return secret
}

/** Sets one key of the sections. */
export function put(sections: Sections, section: string, key: string, value: string): void {
  const keys = sections.get(section) ?? new Map<string, string>()
  sections.set(section, keys.set(key, value))
}
