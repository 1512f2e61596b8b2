import { randomBytes } from 'node:crypto'
import type { Config, FreshConfig, WriteOptions } from '../config/config.ts'
import { hashingOf } from '../config/settings.ts'
import { placeOf, put, readIniText, secretFromEnvironment } from '../config/sources.ts'
import { StartError } from '../config/start-error.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { Records } from '../storage/records.ts'
import { type Account, type Accounts, ADMIN_ROLE } from './accounts.ts'
import { hashPassword, isHashed, looksHashed, saltOf, verifyPassword } from './password.ts'

const ADMINS = 'admins'

/** @returns whether everybody may do everything, since there is no admin (protocol.md 11.1) and none is needed */
export function isOpen(config: Config): boolean {
  return !needsAdmin(config) && adminCount(config) === 0
}

/** In hosted mode somebody must make accounts, and without an admin the server would be closed to everybody. */
function needsAdmin({ isHosted }: Config): boolean {
  return isHosted
}

function adminCount(config: Config): number {
  return config.keyCount(ADMINS)
}

/**
 * Checks that there is an admin where the server needs one.
 * @throws StartError
 */
export function requireAdmin(config: Config): void {
  if (!needsAdmin(config) || adminCount(config) > 0) return
  throw new StartError(
    'Hosted mode needs a server admin: set COUCHDB_USER and COUCHDB_PASSWORD, or write a line "name = password" ' +
      `below [admins] in ${config.path}, and start again.`,
  )
}

/** @returns the server admins in the configuration */
export function adminAccounts(config: Config): Accounts {
  const salt = randomBytes(16).toString('hex')
  const key = randomBytes(32).toString('hex')
  return {
    find: async (name) => adminAccount(config, name),
    decoy: () => `-pbkdf2:sha256-${key},${salt},${config.integer('chttpd_auth', 'iterations')}`,
    isUpToDate: () => true,
    onChange: (listener) =>
      config.onChange((section, name) => {
        if (section !== ADMINS) return
        // Without any admin everybody has access, so the first and the last admin change everybody's rights.
        if (adminCount(config) < 2) listener('all')
        // By its name too: the tokens of a deleted admin are revoked at once, before it can be made again.
        listener(new Set([name]))
      }),
  }
}

function adminAccount(config: Config, name: string): Account | null {
  const stored = config.get(ADMINS, name)
  if (stored === undefined) return null
  return {
    name,
    roles: [ADMIN_ROLE],
    stored,
    // Parsed only for sessions: most requests have a name and a password.
    get salt() {
      return saltOf(stored)
    },
  }
}

/**
 * Makes a server admin or changes an admin's password. A hash in one of CouchDB's forms is stored as it is, because
 * installations copy admins from one server to another.
 * @param name already percent-decoded
 * @returns the old hash, `""` for a new admin (protocol.md 12.1)
 * @throws bad_request for a bad name, an empty password or a broken hash; as `Config.set`
 */
export async function setAdmin(
  config: Config,
  name: string,
  password: string,
  options: WriteOptions = {},
): Promise<string> {
  return config.set(ADMINS, name, await storedForm(config, name, password), options)
}

/**
 * @param password in plain text or hashed already
 * @returns the value to store for an admin
 * @throws bad_request as {@link setAdmin}
 */
async function storedForm(config: Config, name: string, password: string): Promise<string> {
  checkAdminName(name)
  if (password.trim() === '')
    throw new CouchError('bad_request', 'The password of an admin must not be empty.')
  if (!password.isWellFormed()) throw new CouchError('bad_request', 'The password must be valid UTF-8.')
  if (isHashed(password)) return password
  if (looksHashed(password)) {
    throw new CouchError('bad_request', 'The password looks like a hash, but is not a complete one.')
  }
  return hash(config, password)
}

/**
 * Removes a server admin. In hosted mode the last one stays, since otherwise nobody could make accounts.
 * @returns the old hash
 * @throws unknown_config_value when there is no such admin; forbidden for the last one of hosted mode; as
 *   `Config.delete`
 */
export async function deleteAdmin(config: Config, name: string, options: WriteOptions = {}): Promise<string> {
  return config.delete(ADMINS, name, {
    ...options,
    precondition: async () => {
      await options.precondition?.()
      if (!needsAdmin(config) || adminCount(config) !== 1 || config.get(ADMINS, name) === undefined) return
      throw new CouchError(
        'forbidden',
        'Hosted mode needs a server admin: make another one before you delete the last one.',
      )
    },
  })
}

/**
 * For {@link WriteOptions.precondition} when making the first admin.
 * @throws conflict if there is a server admin by now
 */
export function requireNoAdmin(config: Config): void {
  const [name] = Object.keys(config.section(ADMINS))
  if (name === undefined) return
  throw new CouchError('conflict', `${name} has become a server admin in the meantime.`)
}

/** Basic credentials end the name at the first colon. `Config.set` refuses other invalid names. */
function checkAdminName(name: string): void {
  if (name.trim() === '') throw new CouchError('bad_request', 'The name of an admin must not be empty.')
  if (name.includes(':'))
    throw new CouchError('bad_request', 'The name of an admin must not contain a colon.')
}

/**
 * Prepares the admins when the server starts, as CouchDB and its image do. Plain-text passwords in local.ini are hashed
 * and written back. COUCHDB_USER with COUCHDB_PASSWORD (or their `_FILE`s) becomes an admin: in local.ini if it is not
 * there yet, else while the server runs.
 * @returns warnings for the log about values that could not be written back
 * @throws StartError
 */
export async function prepareAdmins(config: Config, env: NodeJS.ProcessEnv): Promise<string[]> {
  const warnings: string[] = []
  const text = await readIniText(config.path)
  for (const [name, stored] of Object.entries(config.section(ADMINS))) {
    const place = placeOf(config.path, text, ADMINS, name)
    if (checkStored(name, stored, place) === 'hash') continue
    warnings.push(...(await persistIfPossible(config, name, stored, place)))
  }
  const given = await environmentAdmin(env)
  if (given) warnings.push(...(await applyEnvironment(config, given.user, given.password)))
  return warnings
}

/**
 * Checks the value of an admin in local.ini.
 * @param place the file and the line, for the operator
 * @returns whether the value is a hash, or a password that must be hashed
 * @throws StartError if it is neither
 */
function checkStored(name: string, stored: string, place: string): 'hash' | 'password' {
  if (stored === '') throw new StartError(`${place}: the admin ${name} has no password.`)
  if (isHashed(stored)) return 'hash'
  if (looksHashed(stored)) throw new StartError(`${place}: the hash of the admin ${name} is broken.`)
  return 'password'
}

interface EnvironmentAdmin {
  readonly user: string
  readonly password: string
}

/**
 * @returns the admin that COUCHDB_USER and COUCHDB_PASSWORD, or their `_FILE`s, name; null when neither is set
 * @throws StartError when only one is set, or a file cannot be read
 */
export async function environmentAdmin(env: NodeJS.ProcessEnv): Promise<EnvironmentAdmin | null> {
  const user = await secretFromEnvironment(env, 'COUCHDB_USER')
  const password = await secretFromEnvironment(env, 'COUCHDB_PASSWORD')
  if (user === undefined && password === undefined) return null
  if (user === undefined) throw new StartError('COUCHDB_PASSWORD is set, but not COUCHDB_USER.')
  if (password === undefined) throw new StartError('COUCHDB_USER is set, but not COUCHDB_PASSWORD.')
  return { user, password }
}

async function applyEnvironment(config: Config, user: string, password: string): Promise<string[]> {
  const stored = config.get(ADMINS, user)
  if (stored === undefined) return persistIfPossible(config, user, password, 'COUCHDB_USER')
  // A hash that still fits is kept: a new salt with every start would be no safer.
  if (!(await verifyPassword(password, stored))) {
    await setAtStart(config, user, password, 'COUCHDB_USER', { persist: false })
  }
  return []
}

/** A local.ini on a read-only mount is no reason not to start. */
async function persistIfPossible(
  config: Config,
  name: string,
  password: string,
  source: string,
): Promise<string[]> {
  try {
    await setAtStart(config, name, password, source, {})
    return []
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    await setAtStart(config, name, password, source, { persist: false })
    return [`The admin ${name} is kept in memory only: ${error.message}`]
  }
}

/** As {@link setAdmin}, with a StartError for the operator instead of a refusal for a client. */
async function setAtStart(
  config: Config,
  name: string,
  password: string,
  source: string,
  options: WriteOptions,
): Promise<void> {
  try {
    await setAdmin(config, name, password, { ...options, isOwn: true })
  } catch (error) {
    if (!(error instanceof CouchError) || error.status !== 400) throw error
    throw new StartError(`${source}: the admin ${name} is refused: ${error.message}`, { cause: error })
  }
}

function hash(config: Config, password: string): Promise<string> {
  return hashPassword(password, hashingOf(config))
}

// Reloading the configuration, with checks so that the server does not lose its admins.

/** Names of keys in one log line. */
const MAX_LOGGED_KEYS = 100

/** The log of a reload; values are never logged. */
interface ReloadLog {
  info(facts: object, message: string): void
  warn(facts: object, message: string): void
}

/**
 * Reloads the configuration from local.ini, the environment and the command line; protocol.md 12.1,
 * architecture.md, "Configuration".
 * Plain-text passwords of admins in local.ini are hashed and written back, as at the start. A file with an error, or one
 * that seems to have lost admins because it is incomplete, changes nothing.
 * @throws bad_request, naming file and line
 */
export async function reloadConfig(config: Config, log: ReloadLog): Promise<void> {
  const hashed = new Map<string, string>()
  try {
    const changed = await config.reload((fresh) => prepareFreshAdmins(config, fresh, hashed))
    log.info({ changed: changed.slice(0, MAX_LOGGED_KEYS) }, 'reloaded the configuration')
  } catch (error) {
    log.warn({ reason: (error as Error).message }, 'the configuration has an error; nothing changed')
    throw refusal(error)
  }
  for (const [name, stored] of hashed) {
    await config.writeBack(ADMINS, name, stored).catch((error: unknown) => {
      const { message } = asCouchError(error)
      log.warn({ admin: name, reason: message }, 'a password in local.ini is still in plain text')
    })
  }
}

function refusal(error: unknown): CouchError {
  if (!(error instanceof StartError)) return asCouchError(error)
  return new CouchError('bad_request', `${error.message} The configuration has not changed.`, {
    cause: error,
  })
}

/**
 * Prepares the admins of a configuration before it takes effect.
 * @param hashed receives the hashes of plain-text passwords in local.ini
 * @throws StartError
 */
async function prepareFreshAdmins(
  config: Config,
  fresh: FreshConfig,
  hashed: Map<string, string>,
): Promise<void> {
  const { sections, text, env } = fresh
  for (const [name, stored] of [...(sections.get(ADMINS) ?? [])]) {
    const place = placeOf(config.path, text, ADMINS, name)
    if (checkStored(name, stored, place) === 'hash') continue
    const form = await hashedPassword(config, name, stored, place)
    put(sections, ADMINS, name, form)
    hashed.set(name, form)
  }
  const given = await environmentAdmin(env)
  if (given !== null && !config.isOverruled(ADMINS, given.user)) {
    const form = await hashedPassword(config, given.user, given.password, 'COUCHDB_USER')
    put(sections, ADMINS, given.user, form)
  }
  refuseLoss(config, fresh)
}

/** The hash of a password. The current hash is kept if it matches, so that the admin's sessions do not end. */
async function hashedPassword(
  config: Config,
  name: string,
  password: string,
  place: string,
): Promise<string> {
  const current = config.get(ADMINS, name)
  if (current !== undefined && (await verifyPassword(password, current))) return current
  return storedForm(config, name, password).catch((error: unknown) => {
    if (!(error instanceof CouchError)) throw error
    throw new StartError(`${place}: the admin ${name} is refused: ${error.message}`, { cause: error })
  })
}

/**
 * Refuses an incomplete file: it must not remove admins or shorten a password, and without admins the server would be
 * open to everybody. An incomplete file mostly ends within a line, so admins change only in a file that ends with a
 * line break.
 */
function refuseLoss(config: Config, { sections, text }: FreshConfig): void {
  const old = config.section(ADMINS)
  const fresh = sections.get(ADMINS) ?? new Map<string, string>()
  if (fresh.size === 0 && Object.keys(old).length > 0) throw new StartError(lostAdmins(config))
  const isSame =
    Object.keys(old).length === fresh.size && [...fresh].every(([name, form]) => old[name] === form)
  if (isSame || /[\r\n]$/.test(text)) return
  throw new StartError(
    `Line ${text.split(/\r\n|\n|\r/).length} of ${config.path} has no line break at its end, and admins have changed: the file may be incomplete.`,
  )
}

function lostAdmins({ path }: Config): string {
  return (
    `${path} has no admins any more, so the server would be open to everybody. If you want that, remove ` +
    'the last admin with DELETE /_node/_local/_config/admins/NAME; otherwise write a line "name = password" below [admins].'
  )
}

/** A record that the server has had an admin, outside local.ini: a disk may change the line there. */
const HAD_ADMIN = { kind: 'had-admin', key: 'server' } as const

/**
 * Keeps a server that had admins from starting without one, unless the last one was removed over HTTP.
 * @param onFault the record could not be written
 * @returns a function that stops following the admins
 * @throws StartError, the errors of the records
 */
export async function refuseLostAdmins(
  config: Config,
  records: Records,
  onFault: (fault: unknown) => void,
): Promise<() => void> {
  const { kind, key } = HAD_ADMIN
  const note = (value: string | null) => records.writeRecords([{ kind, key, value }]).catch(onFault)
  const [known] = await records.readRecords(kind, [key])
  if (isOpen(config) && known != null) throw new StartError(lostAdmins(config))
  if (adminCount(config) > 0 && known == null) await note('true')
  return config.onChange((section) => {
    if (section === ADMINS && isOpen(config)) void note(null)
  })
}
