import { readFile } from 'node:fs/promises'
import { KNOWN_KEYS } from './defaults.ts'
import { parseIni, type Sections } from './ini-file.ts'
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
}

type Setting = readonly [section: string, key: string, value: string | undefined, source: string]

/** @returns the defaults of every key that is listed by default */
export function defaultSections(): Sections {
  const sections: Sections = new Map()
  for (const { section, key, value } of KNOWN_KEYS) if (value !== null) put(sections, section, key, value)
  return sections
}

/**
 * Reads local.ini; a missing file is an empty one.
 * @throws StartError when it cannot be read or a key of ours holds nonsense
 */
export async function readLocalIni(path: string): Promise<Sections> {
  const sections = parseIni(
    await readIniText(path).catch((error: NodeJS.ErrnoException) => unreadable(path, error)),
  )
  for (const [section, keys] of sections) {
    for (const [key, value] of keys) {
      // An empty value is how CouchDB's ini unsets a key.
      const problem = value === '' ? null : problemWith(section, key, value)
      if (problem) throw new StartError(`${path}: ${section}/${key} ${problem}, not "${value}".`)
    }
  }
  return sections
}

function unreadable(path: string, error: NodeJS.ErrnoException): never {
  throw new StartError(`${path} cannot be read (${error.code ?? error.message}).`, { cause: error })
}

/**
 * The text of local.ini as it stands on the disk; empty when there is none.
 * @throws the operating system's error; a TypeError when the text is not UTF-8, since writing it back would bend it
 */
export async function readIniText(path: string): Promise<string> {
  const bytes = await readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return Buffer.alloc(0)
    throw error
  })
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
}

/**
 * Lays environment and command line over the sections, in this order. COUCHDB_USER is not ours to apply: the room
 * auth hashes its password (`prepareAdmins`).
 * @throws StartError for nonsense, naming the variable or the flag
 */
export async function overlay(sections: Sections, env: NodeJS.ProcessEnv, flags: ConfigFlags): Promise<void> {
  const secret = await secretFromEnvironment(env, 'COUCHDB_SECRET')
  for (const [section, key, value, source] of settingsOf(env, flags, secret)) {
    if (value === undefined) continue
    const problem = problemWith(section, key, value)
    if (problem) throw new StartError(`${source} ${problem}, not "${value}".`)
    put(sections, section, key, value)
  }
}

function settingsOf(env: NodeJS.ProcessEnv, flags: ConfigFlags, secret: string | undefined): Setting[] {
  return [
    ['chttpd_auth', 'secret', secret, 'COUCHDB_SECRET'],
    ['chttpd', 'port', fromEnvironment(env, 'SETTEE_PORT'), 'SETTEE_PORT'],
    ['chttpd', 'bind_address', fromEnvironment(env, 'SETTEE_BIND'), 'SETTEE_BIND'],
    ['log', 'level', fromEnvironment(env, 'SETTEE_LOG_LEVEL'), 'SETTEE_LOG_LEVEL'],
    ['log', 'file', fromEnvironment(env, 'SETTEE_LOG_FILE'), 'SETTEE_LOG_FILE'],
    ['chttpd', 'port', flags.port?.toString(), '--port'],
    ['chttpd', 'bind_address', flags.bind, '--bind'],
    ['log', 'level', flags.logLevel, '--log-level'],
    ['log', 'file', flags.logFile, '--log-file'],
    ['settee', 'mode', flags.hosted ? 'hosted' : undefined, '--hosted'],
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
