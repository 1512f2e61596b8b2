import { randomBytes } from 'node:crypto'
import type { Config, WriteOptions } from '../config/config.ts'
import { hashingOf } from '../config/settings.ts'
import { placeOf, readIniText, secretFromEnvironment } from '../config/sources.ts'
import { StartError } from '../config/start-error.ts'
import { CouchError } from '../core/errors.ts'
import { ADMIN_ROLE } from './access.ts'
import type { Account, Accounts } from './accounts.ts'
import { hashPassword, isHashed, looksHashed, saltOf, verifyPassword } from './password.ts'

const ADMINS = 'admins'

/** @returns whether everybody may do everything: no admin is configured (protocol.md 11.1), and the mode is not hosted */
export function isOpen(config: Config): boolean {
  return !config.isHosted && adminCount(config) === 0
}

function adminCount(config: Config): number {
  return Object.keys(config.section(ADMINS)).length
}

/**
 * Hosted mode needs somebody who may make accounts: without an admin the server would be closed to everybody.
 * @throws StartError
 */
export function requireAdminIfHosted(config: Config): void {
  if (!config.isHosted || adminCount(config) > 0) return
  throw new StartError(
    'Hosted mode needs a server admin: set COUCHDB_USER and COUCHDB_PASSWORD, or write a line "name = password" ' +
      `below [admins] in ${config.path}, and start again.`,
  )
}

/** @returns the server admins of the configuration */
export function adminAccounts(config: Config): Accounts {
  const salt = randomBytes(16).toString('hex')
  const key = randomBytes(32).toString('hex')
  return {
    find: async (name) => adminAccount(config, name),
    decoy: () => `-pbkdf2:sha256-${key},${salt},${config.integer('chttpd_auth', 'iterations')}`,
    onChange: (listener) =>
      config.onChange((section, name) => {
        // The first admin ends, and the last one that goes begins, a server that is open to everybody.
        if (section === ADMINS) listener(adminCount(config) < 2 ? 'all' : new Set([name]))
      }),
  }
}

function adminAccount(config: Config, name: string): Account | null {
  const stored = config.get(ADMINS, name)
  if (stored === undefined) return null
  return { name, roles: [ADMIN_ROLE], stored, salt: saltOf(stored) }
}

/**
 * Makes a server admin or changes the password of one. A password that is a hash in one of CouchDB's forms is kept
 * as it is, which is how set-ups copy admins from one server to another.
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
 * @returns what is to be stored for an admin
 * @throws bad_request as {@link setAdmin}
 */
export async function storedForm(config: Config, name: string, password: string): Promise<string> {
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
 * Removes a server admin; without the last one the server is open to everybody, so hosted mode keeps it.
 * @returns the old hash
 * @throws unknown_config_value when there is no such admin; forbidden for the last one of hosted mode; as
 *   `Config.delete`
 */
export async function deleteAdmin(config: Config, name: string, options: WriteOptions = {}): Promise<string> {
  return config.delete(ADMINS, name, {
    ...options,
    admit: async () => {
      await options.admit?.()
      if (!config.isHosted || adminCount(config) !== 1 || config.get(ADMINS, name) === undefined) return
      throw new CouchError(
        'forbidden',
        'Hosted mode needs a server admin: make another before the last one goes.',
      )
    },
  })
}

/**
 * For {@link WriteOptions.admit}: the admin is to be the first one.
 * @throws conflict when there is a server admin by now
 */
export function requireNoAdmin(config: Config): void {
  const [name] = Object.keys(config.section(ADMINS))
  if (name === undefined) return
  throw new CouchError('conflict', `${name} has become a server admin in the meantime.`)
}

/** Basic credentials end the name at the first colon; what else is refused, `Config.set` refuses. */
function checkAdminName(name: string): void {
  if (name.trim() === '') throw new CouchError('bad_request', 'The name of an admin must not be empty.')
  if (name.includes(':'))
    throw new CouchError('bad_request', 'The name of an admin must not contain a colon.')
}

/**
 * Brings the admins in order when the server starts, as CouchDB and its image do: plain-text passwords of local.ini
 * are hashed and written back; COUCHDB_USER with COUCHDB_PASSWORD (or their `_FILE`s) is made an admin, in local.ini
 * when it is not there yet, else for as long as the server runs.
 * @returns warnings for the log: what could not be written back
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
 * Looks at what local.ini says of an admin.
 * @param place the file and the line, for the operator
 * @returns what the text is: a hash, or a password that needs to be hashed
 * @throws StartError for one that is neither
 */
export function checkStored(name: string, stored: string, place: string): 'hash' | 'password' {
  if (stored === '') throw new StartError(`${place}: the admin ${name} has no password.`)
  if (isHashed(stored)) return 'hash'
  if (looksHashed(stored)) throw new StartError(`${place}: the hash of the admin ${name} is broken.`)
  return 'password'
}

export interface EnvironmentAdmin {
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

/** {@link setAdmin}, with a refusal told to the operator instead of a client. */
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
