import { isUtf8 } from 'node:buffer'
import { readFile } from 'node:fs/promises'
import { isSecretKey } from './defaults.ts'
import { faultOfIni, lineOf, parseIni, type Sections } from './ini-file.ts'
import { StartError } from './start-error.ts'
import { problemWith } from './values.ts'

/** What the command line may say; each beats local.ini and the environment. */
export interface ConfigFlags {
  port?: number
  bind?: string
  logLevel?: string
  logFile?: string
  /** Hosted mode for this run. */
  hosted?: boolean
  /** PEM files of settee's own TLS; a certificate turns it on. */
  tlsCert?: string
  tlsKey?: string
  tlsPort?: number
  tlsBind?: string
}

type Setting = readonly [section: string, key: string, value: string | undefined, source: string]

/** local.ini as it was read: its settings, and its text for those who must name a line of it. */
export interface LocalIni {
  readonly sections: Sections
  readonly text: string
}

/**
 * Reads local.ini; a missing file is an empty one.
 * @throws StartError, naming file and line, when it cannot be read, a line of it means nothing, or a key of ours holds
 *   nonsense
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
      // An empty value is how CouchDB's ini unsets a key.
      const problem = value === '' ? null : problemWith(section, key, value)
      if (problem === null) continue
      const place = placeOf(path, text, section, key)
      throw new StartError(`${place}: ${section}/${key} ${problemText(section, key, value, problem)}`)
    }
  }
  return { sections, text }
}

/**
 * Where a key stands, for a message to the operator.
 * @returns `Line N of PATH`; the path alone when the text does not name the key
 */
export function placeOf(path: string, text: string, section: string, key: string): string {
  const line = lineOf(text, section, key)
  return line === null ? path : `Line ${line} of ${path}`
}

/** What is wrong with a value, which is told unless it is a secret. */
function problemText(section: string, key: string, value: string, problem: string): string {
  return `${problem}${isSecretKey(section, key) ? '' : `, not "${value}"`}.`
}

function unreadable(path: string, error: NodeJS.ErrnoException): never {
  throw new StartError(`${path} cannot be read (${error.code ?? error.message}).`, { cause: error })
}

/** More than any configuration there is, and little enough to be read in a turn. */
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

/** No character of UTF-8 but the line feed itself holds its byte. */
function firstLineThatIsNoUtf8(bytes: Buffer): number | null {
  if (isUtf8(bytes)) return null
  for (let line = 1, from = 0; ; line += 1) {
    const end = bytes.indexOf(10, from)
    if (end === -1 || !isUtf8(bytes.subarray(from, end))) return line
    from = end + 1
  }
}

/**
 * The text of local.ini as it stands on the disk; empty when there is none.
 * @throws the operating system's error; a TypeError when the text is not UTF-8, since writing it back would bend it
 */
export async function readIniText(path: string): Promise<string> {
  return decode(await readIniBytes(path))
}

/**
 * Lays environment and command line over the sections, in this order. COUCHDB_USER is not ours to apply: the room
 * auth hashes its password (`prepareAdmins`).
 * @param isOverruled says of which keys environment and command line have no say any more
 * @throws StartError for nonsense, naming the variable or the flag
 */
export async function overlay(
  sections: Sections,
  env: NodeJS.ProcessEnv,
  flags: ConfigFlags,
  isOverruled: (section: string, key: string) => boolean = () => false,
): Promise<void> {
  const secret = await secretFromEnvironment(env, 'COUCHDB_SECRET')
  for (const [section, key, value, source] of settingsOf(env, flags, secret)) {
    if (value === undefined || isOverruled(section, key)) continue
    const problem = problemWith(section, key, value)
    if (problem) throw new StartError(`${source} ${problemText(section, key, value, problem)}`)
    put(sections, section, key, value)
  }
}

const PROXIES = 'SETTEE_TRUSTED_PROXIES'

/** CouchDB's image takes the host in NODENAME, and the name is `couchdb@` that. */
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
    ['chttpd', 'port', flags.port?.toString(), '--port'],
    ['chttpd', 'bind_address', flags.bind, '--bind'],
    ['log', 'level', flags.logLevel, '--log-level'],
    ['log', 'file', flags.logFile, '--log-file'],
    ...tlsSettings(env, flags),
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

/** A variable that is set to nothing counts as unset, since compose files and unit files often do that. */
function fromEnvironment(env: NodeJS.ProcessEnv, name: string): string | undefined {
  return env[name]?.trim() || undefined
}

/**
 * A secret from the environment: the variable itself or, as in CouchDB's image, the file that `<name>_FILE` names.
 * @returns undefined when neither is set
 * @throws StartError when both are set, or the file cannot be read or is empty
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
  // Editors and `echo` end a file with a line end that is no part of the secret.
  const secret = text.replace(/[\r\n]+$/, '')
  if (secret === '') throw new StartError(`${name}_FILE: ${file} is empty.`)
  return secret
}

/** Sets one key of the sections. */
export function put(sections: Sections, section: string, key: string, value: string): void {
  const keys = sections.get(section) ?? new Map<string, string>()
  sections.set(section, keys.set(key, value))
}
