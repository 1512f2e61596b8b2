import { randomFillSync } from 'node:crypto'
import { DATABASE_NAME } from './address.ts'
import { CouchError } from './errors.ts'
import { checkPartition, splitId } from './partitions.ts'

export const DESIGN_PREFIX = '_design/'
export const LOCAL_PREFIX = '_local/'

const SYSTEM_DATABASES = new Set(['_users', '_replicator', '_global_changes', '_dbs', '_nodes', '_metadata'])
/** The maximum file name (255 bytes) less the longest suffix that settee and SQLite append to that of a new file. */
const MAX_NAME_BYTES = 255 - '.sqlite.unfinished-journal'.length

/**
 * Checks the name of a new database; protocol.md 2.1.
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

/** Whether a database can have the name: a legal one, or that of a database of the server, also below a path. */
export function isLegalDatabaseName(name: string): boolean {
  const slash = name.lastIndexOf('/')
  const last = name.slice(slash + 1)
  if (!SYSTEM_DATABASES.has(last)) return DATABASE_NAME.test(name)
  return slash === -1 || DATABASE_NAME.test(name.slice(0, slash))
}

/**
 * Checks the name of a new partitioned database: it must not be one of the server, also by the last part of its path.
 * @param usersDatabase the configured database of accounts
 * @throws bad_request
 */
export function checkPartitionable(name: string, usersDatabase: string): void {
  const last = name.slice(name.lastIndexOf('/') + 1)
  if (!SYSTEM_DATABASES.has(last) && name !== usersDatabase) return
  throw new CouchError('bad_request', 'Cannot partition a system database')
}

/** Names of devices on Windows, with any suffix. */
const DEVICE_NAME = /^(?:con|prn|aux|nul|com\d|lpt\d)$/
const ESCAPED_START = /^%([67][0-9A-F])/

/**
 * The file name of a database. `/` is the only legal character that file systems refuse. Names have no capitals and no
 * dots, so they stay distinct without case and cannot lead to another folder.
 */
export function databaseFileName(name: string): string {
  if (DEVICE_NAME.test(name)) return `%${name.charCodeAt(0).toString(16).toUpperCase()}${name.slice(1)}`
  return name.replaceAll('/', '%2F')
}

/** The inverse of {@link databaseFileName}; null if it is not the file name of a database. */
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

/** The rules for the ids of a database. */
export interface IdRules {
  /** The longest id, in bytes of UTF-8. */
  readonly maxBytes: number
  readonly partitioned: boolean
}

/**
 * Checks the id of a document to write; protocol.md 2.2.
 * @throws illegal_docid, illegal_partition
 */
export function checkDocId(id: unknown, { maxBytes, partitioned }: IdRules): string {
  if (typeof id !== 'string') throw new CouchError('illegal_docid', 'Document id must be a string')
  if (id === '') throw new CouchError('illegal_docid', 'Document id must not be empty')
  if (!id.isWellFormed()) throw new CouchError('illegal_docid', 'Document id must be valid UTF-8')
  if (Buffer.byteLength(id) > maxBytes) throw new CouchError('illegal_docid', 'Document id is too long')
  if (id.startsWith('_')) checkReservedId(id)
  else if (partitioned) checkPartitionedId(id)
  return id
}

function checkPartitionedId(id: string): void {
  const { partition, rest } = splitId(id)
  checkPartition(partition)
  if (rest === '') throw new CouchError('illegal_docid', 'Document id must not be empty')
  if (rest.startsWith('_')) checkReservedId(rest)
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
 * A new id of 32 hex digits; the first 12 are the time in milliseconds (UUID version 7, RFC 9562 5.7). Consecutive ids
 * are thus adjacent in an index.
 */
export function newUuid(now: number = Date.now()): string {
  const bytes = randomFillSync(Buffer.allocUnsafe(16))
  bytes.writeUIntBE(now, 0, 6)
  bytes[6] = 0x70 | ((bytes[6] as number) & 0x0f)
  bytes[8] = 0x80 | ((bytes[8] as number) & 0x3f)
  return bytes.toString('hex')
}

/** CouchDB's have 32 hex digits, pouchdb-server's also dashes. @throws bad_request */
export function checkServerUuid(uuid: string): void {
  if (/^[0-9A-Za-z-]{1,64}$/.test(uuid)) return
  throw new CouchError('bad_request', "A server's uuid has 1 to 64 digits, letters or dashes.")
}

/** The database of accounts (protocol.md 11.7), unless `chttpd_auth/authentication_db` names another. */
export const USERS_DATABASE = '_users'

/**
 * Whether the documents of a database are accounts, with password hashes. `_users` stays protected even if another
 * database has the accounts, as in CouchDB (fabric_util:is_users_db).
 * @param usersDatabase the configured database of accounts
 */
export function holdsAccounts(database: string, usersDatabase: string): boolean {
  return database === USERS_DATABASE || database === usersDatabase
}

const REPLICATOR_DATABASE = '_replicator'

/** Whether the documents of a database are replications (protocol.md 14.3). */
export function holdsReplications(database: string): boolean {
  return database === REPLICATOR_DATABASE || database.endsWith(`/${REPLICATOR_DATABASE}`)
}

/**
 * Whether only server admins may list the documents and the changes of a database, although its members read documents
 * (protocol.md 11.4). As in CouchDB this is a matter of the two names: members of `anna/_replicator` list theirs.
 */
export function isListedByServerAdmins(database: string): boolean {
  return database === USERS_DATABASE || database === REPLICATOR_DATABASE
}

const USER_PREFIX = 'org.couchdb.user:'

/** @returns the id of an account's document in `_users` */
export function userDocId(name: string): string {
  return USER_PREFIX + name
}

/** @returns the name of the account of a document in `_users`; null for any other id */
export function userNameOf(id: string): string | null {
  return id.startsWith(USER_PREFIX) ? id.slice(USER_PREFIX.length) : null
}
