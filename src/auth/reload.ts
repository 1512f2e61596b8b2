/** Reading the configuration anew, with the rules that keep a server from losing its admins by it. */
import type { Config, FreshConfig } from '../config/config.ts'
import { placeOf, put } from '../config/sources.ts'
import { StartError } from '../config/start-error.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import { checkStored, environmentAdmin, storedForm } from './admins.ts'
import { verifyPassword } from './password.ts'

const ADMINS = 'admins'
/** How many names of keys one line of the log takes. */
const MAX_TOLD = 100

/** Where the outcome is told; no value of a key is ever handed to it. */
export interface ReloadLog {
  info(facts: object, message: string): void
  warn(facts: object, message: string): void
}

/**
 * Reads the configuration anew, from local.ini, the environment and the command line; protocol.md 12.1,
 * architecture.md, "Configuration".
 * Passwords of admins that stand in local.ini in plain text are hashed and written back, as at the start. A file with
 * an error, and one in which admins are missing that were cut off rather than removed, changes nothing.
 * @throws bad_request, naming file and line
 */
export async function reloadConfig(config: Config, log: ReloadLog): Promise<void> {
  const hashed = new Map<string, string>()
  try {
    const changed = await config.reload((fresh) => admitAdmins(config, fresh, hashed))
    log.info({ changed: changed.slice(0, MAX_TOLD) }, 'the configuration was read anew')
  } catch (error) {
    log.warn({ reason: (error as Error).message }, 'the configuration has an error and stays as it was')
    throw refusal(error)
  }
  for (const [name, stored] of hashed) {
    await config.writeBack(ADMINS, name, stored).catch((error: unknown) => {
      const { message } = asCouchError(error)
      log.warn({ admin: name, reason: message }, 'a password in local.ini stays in plain text')
    })
  }
}

function refusal(error: unknown): CouchError {
  if (!(error instanceof StartError)) return asCouchError(error)
  return new CouchError('bad_request', `${error.message} The configuration stays as it was.`, {
    cause: error,
  })
}

/**
 * Brings the admins of a configuration that is to take effect in order.
 * @param hashed takes the hashes of passwords that stand in local.ini in plain text
 * @throws StartError
 */
async function admitAdmins(config: Config, fresh: FreshConfig, hashed: Map<string, string>): Promise<void> {
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

/** The hash of a password; the one in effect where it fits, or every session of the admin would end for nothing. */
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
 * A file that is still being written, or was cut off, must not take admins away or give them half a password; the last
 * one that goes would leave the server open to everybody. Such a file mostly ends in the midst of a line, so admins
 * are changed by hand only in one that does not.
 */
function refuseLoss(config: Config, { sections, text }: FreshConfig): void {
  const old = config.section(ADMINS)
  const fresh = sections.get(ADMINS) ?? new Map<string, string>()
  if (fresh.size === 0 && Object.keys(old).length > 0) {
    throw new StartError(
      `${config.path} names no admin any more, and the server would be open to everybody; to have it so, remove ` +
        'the last one with DELETE /_node/_local/_config/admins/NAME.',
    )
  }
  const isSame =
    Object.keys(old).length === fresh.size && [...fresh].every(([name, form]) => old[name] === form)
  if (isSame || /[\r\n]$/.test(text)) return
  throw new StartError(
    `Line ${text.split(/\r\n|\n|\r/).length} of ${config.path} has no end, and admins have changed: the file may be half-written.`,
  )
}
