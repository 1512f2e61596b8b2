import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import { knownKey, READ_ONLY_SECTIONS } from './defaults.ts'
import type { Sections } from './ini-file.ts'
import { passwordRules } from './password-rules.ts'
import type { ValueKind } from './settee-keys.ts'

const MAX_NAME_BYTES = 1024
const MAX_VALUE_BYTES = 65_536
// Control characters, Unicode's two line separators, and lone surrogates, which UTF-8 cannot express.
const UNWRITABLE = /[\p{Cc}\u2028\u2029\p{Cs}]/u
const BRACKET = /[[\]]/

/**
 * Checks that a section, key and value may be written over HTTP; protocol.md 12.1. Unlike in CouchDB, a key must not have
 * `=` nor begin like a comment, since local.ini could not hold it.
 * @param value already trimmed
 * @throws bad_request `Invalid configuration section|key|value`, or with the error of the value;
 *   config_read_only
 */
export function checkSetting(section: string, key: string, value: string): void {
  checkNames(section, key)
  // Values may have brackets, as CouchDB's own lists do (config:validate_config_update).
  if (!isSafeText(value, MAX_VALUE_BYTES)) throw new CouchError('bad_request', 'Invalid configuration value')
  const problem = problemWith(section, key, value) ?? problemAtRuntime(section, key, value)
  if (problem)
    throw new CouchError('bad_request', `Invalid configuration value: ${section}/${key} ${problem}`)
}

/**
 * The part of {@link checkSetting} that also applies to deletions.
 * @throws bad_request, config_read_only
 */
export function checkNames(section: string, key: string): void {
  if (!isSafeName(section)) throw new CouchError('bad_request', 'Invalid configuration section')
  if (!isSafeName(key) || key.includes('=') || /^[;#]/.test(key)) {
    throw new CouchError('bad_request', 'Invalid configuration key')
  }
  if (READ_ONLY_SECTIONS.has(section)) throw new CouchError('config_read_only')
}

function isSafeName(text: string): boolean {
  return text !== '' && text === text.trim() && !BRACKET.test(text) && isSafeText(text, MAX_NAME_BYTES)
}

function isSafeText(text: string, maxBytes: number): boolean {
  return !UNWRITABLE.test(text) && Buffer.byteLength(text) <= maxBytes
}

/**
 * Checks a value of a key that settee reads, from any source.
 * @returns the error, in words that follow the key's name; null if there is none
 */
export function problemWith(section: string, key: string, value: string): string | null {
  const known = knownKey(section, key) ?? knownKey(newerSection(section, key) ?? section, key)
  return known ? problemOfKind(known.kind, value) : null
}

function problemOfKind(kind: ValueKind, value: string): string | null {
  switch (kind.type) {
    case 'integer':
      return isWithin(value, kind.min, kind.max)
        ? null
        : `must be a whole number from ${kind.min} to ${kind.max}`
    case 'bytes':
      return value === 'infinity' || isWithin(value, kind.min, Number.MAX_SAFE_INTEGER)
        ? null
        : `must be a whole number of bytes, at least ${kind.min}, or infinity`
    case 'count':
      return value === 'infinity' || isWithin(value, kind.min, Number.MAX_SAFE_INTEGER)
        ? null
        : `must be a whole number, at least ${kind.min}, or infinity`
    case 'choice':
      return kind.of.includes(value)
        ? null
        : `must be one of ${kind.of.map((each) => each || 'nothing').join(', ')}`
    case 'checked':
    case 'local':
      return kind.problem(value)
    case 'passwordRules':
      return passwordRules(value) === null ? 'must be a list of patterns, such as ["[0-9]"]' : null
    case 'databasePrefix':
      return isDatabasePrefix(value) ? null : 'must be a valid prefix for the name of a database'
    default:
      return null
  }
}

function isDatabasePrefix(value: string): boolean {
  try {
    checkDatabaseName(`${value}0`)
    return true
  } catch {
    return false
  }
}

function isWithin(value: string, min: number, max: number): boolean {
  return /^\d{1,16}$/.test(value) && Number(value) >= min && Number(value) <= max
}

/**
 * Rules for values over HTTP. An account that may write the configuration must not be able to append to any file of the
 * machine through log/file.
 */
function problemAtRuntime(section: string, key: string, value: string): string | null {
  const type = knownKey(section, key)?.kind.type
  if (type === 'shown') return 'cannot be set: the data folder determines it'
  // Else whoever may write the configuration could send the password of the store to a server of theirs.
  if (type === 'local') return 'can be set in local.ini, the environment and the command line alone'
  if (type !== 'logFile' || value === '') return null
  return value.endsWith('.log') ? null : 'must be the path of a file that ends in .log'
}

// Sections of CouchDB 1 and 2 whose keys count if the newer ones are not set, as in CouchDB 3.5 (protocol.md 12.1).

/** Keys of `[chttpd]` that CouchDB also reads from `[httpd]` (chttpd_util), without `port` and `bind_address`. */
const FROM_HTTPD: ReadonlySet<string> = new Set([
  'allow_jsonp',
  'changes_timeout',
  'enable_cors',
  'max_http_request_size',
  'max_uri_length',
  'x_forwarded_host',
  'x_forwarded_proto',
  'x_forwarded_ssl',
])

/** @returns the section of CouchDB 1 and 2 whose key counts if this one is not set (protocol.md 12.1); null: none */
function olderSection(section: string, key: string): string | null {
  if (section === 'chttpd_auth') return 'couch_httpd_auth'
  return section === 'chttpd' && FROM_HTTPD.has(key) ? 'httpd' : null
}

/** The inverse of {@link olderSection}. */
export function newerSection(section: string, key: string): string | null {
  if (section === 'couch_httpd_auth') return 'chttpd_auth'
  return section === 'httpd' && FROM_HTTPD.has(key) ? 'chttpd' : null
}

/** The values without the defaults. */
export type Own = (section: string, key: string) => string | undefined

/** @returns the values in the sections */
export function ownIn(sections: Sections): Own {
  return (section, key) => sections.get(section)?.get(key)
}

/** @returns the key's own value, that of the older section, or the default; undefined if there is none */
export function valueInEffect(own: Own, section: string, key: string): string | undefined {
  const value = own(section, key)
  if (value) return value
  const older = olderSection(section, key)
  const inherited = older === null ? undefined : own(older, key)
  return inherited || (value ?? knownKey(section, key)?.value ?? undefined)
}
