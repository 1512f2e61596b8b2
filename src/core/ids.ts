import { randomFillSync } from 'node:crypto'
import { DATABASE_NAME } from './address.ts'
import { CouchError } from './errors.ts'

export const DESIGN_PREFIX = '_design/'
export const LOCAL_PREFIX = '_local/'

const SYSTEM_DATABASES = new Set(['_users', '_replicator', '_global_changes', '_dbs', '_nodes', '_metadata'])
/** What a file system allows a name (255 bytes), less the longest suffix that SQLite appends to ours. */
const MAX_NAME_BYTES = 255 - '.sqlite-journal'.length

/**
 * Checks the name of a database that is to be made; protocol.md 2.1.
 * @throws illegal_database_name, database_name_too_long
 */
export function checkDatabaseName(name: string): void {
  if (!isLegalDatabaseName(name)) {
    throw new CouchError(
      'illegal_database_name',
      `Name: '${name.slice(0, 256)}'. Only lowercase characters (a-z), digits (0-9), and any of the characters ` +
        '_, $, (, ), +, -, and / are allowed. Must begin with a letter.',
    )
  }
  if (databaseFileName(name).length > MAX_NAME_BYTES) {
    throw new CouchError(
      'database_name_too_long',
      `At least one path segment of \`${name.slice(0, 256)}\` is too long.`,
    )
  }
}

function isLegalDatabaseName(name: string): boolean {
  const slash = name.lastIndexOf('/')
  const last = name.slice(slash + 1)
  if (!SYSTEM_DATABASES.has(last)) return DATABASE_NAME.test(name)
  return slash === -1 || DATABASE_NAME.test(name.slice(0, slash))
}

/** Names that open a device on Windows, whatever suffix follows. */
const DEVICE_NAME = /^(?:con|prn|aux|nul|com\d|lpt\d)$/
const ESCAPED_START = /^%([67][0-9A-F])/

/**
 * A database's name as a file's name. `/` is the one legal character that a file system cannot hold; names have no
 * capitals and no dots, so that none is another's in a system that folds case, and none leads elsewhere.
 */
export function databaseFileName(name: string): string {
  if (DEVICE_NAME.test(name)) return `%${name.charCodeAt(0).toString(16).toUpperCase()}${name.slice(1)}`
  return name.replaceAll('/', '%2F')
}

/** The inverse of {@link databaseFileName}; null when no database can have that file. */
export function databaseOfFileName(fileName: string): string | null {
  const name = fileName
    .replace(ESCAPED_START, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
    .replaceAll('%2F', '/')
  return isLegalDatabaseName(name) && databaseFileName(name) === fileName ? name : null
}

export function isDesignId(id: string): boolean {
  return id.startsWith(DESIGN_PREFIX)
}

export function isLocalId(id: string): boolean {
  return id.startsWith(LOCAL_PREFIX)
}

/**
 * Checks a document id that is to be written; protocol.md 2.2.
 * @param maxBytes the longest id, in bytes of UTF-8
 * @throws illegal_docid, bad_request for a bad `_local` id
 */
export function checkDocId(id: unknown, maxBytes: number): string {
  if (typeof id !== 'string') throw new CouchError('illegal_docid', 'Document id must be a string')
  if (id === '') throw new CouchError('illegal_docid', 'Document id must not be empty')
  if (!id.isWellFormed()) throw new CouchError('illegal_docid', 'Document id must be valid UTF-8')
  if (Buffer.byteLength(id) > maxBytes) throw new CouchError('illegal_docid', 'Document id is too long')
  if (id.startsWith('_')) checkReservedId(id)
  return id
}

function checkReservedId(id: string): void {
  if (id === DESIGN_PREFIX || id === LOCAL_PREFIX) {
    throw new CouchError('illegal_docid', `Illegal document id \`${id}\``)
  }
  if (!isDesignId(id) && !isLocalId(id)) {
    throw new CouchError('illegal_docid', 'Only reserved document ids may start with underscore.')
  }
}

/**
 * A new id of 32 hex digits whose first 12 are the time in milliseconds (uuid version 7, RFC 9562 5.7), so that
 * ids made one after the other stand side by side in an index.
 */
export function newUuid(now: number = Date.now()): string {
  const bytes = randomFillSync(Buffer.allocUnsafe(16))
  bytes.writeUIntBE(now, 0, 6)
  bytes[6] = 0x70 | ((bytes[6] as number) & 0x0f)
  bytes[8] = 0x80 | ((bytes[8] as number) & 0x3f)
  return bytes.toString('hex')
}

// Where accounts are kept, and how their documents are named; protocol.md 11.7.

/** The database of accounts, unless `chttpd_auth/authentication_db` names another. */
export const USERS_DATABASE = '_users'

/**
 * Whether documents of a database are accounts, with the hashes of their passwords. Those of `_users` stay guarded
 * also where accounts are in another, as in CouchDB (fabric_util:is_users_db).
 * @param usersDatabase the one that accounts are in
 */
export function holdsAccounts(database: string, usersDatabase: string): boolean {
  return database === USERS_DATABASE || database === usersDatabase
}

const USER_PREFIX = 'org.couchdb.user:'

/** @returns the id of the document in `_users` that describes the account of this name */
export function userDocId(name: string): string {
  return USER_PREFIX + name
}

/** @returns the name of the account that a document of `_users` describes; null for an id of any other form */
export function userNameOf(id: string): string | null {
  return id.startsWith(USER_PREFIX) ? id.slice(USER_PREFIX.length) : null
}
