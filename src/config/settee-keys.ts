import { isAbsolute } from 'node:path'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../core/types.ts'
import { problemOfStoreUrl } from '../storage/store-address.ts'

/** The type of a key's value. Keys without a row in KNOWN_KEYS (defaults.ts) can have any text. */
export type ValueKind =
  | { readonly type: 'integer'; readonly min: number; readonly max: number }
  /** A number of bytes, or `infinity`. */
  | { readonly type: 'bytes'; readonly min: number }
  /** A number, or `infinity`. */
  | { readonly type: 'count'; readonly min: number }
  | { readonly type: 'choice'; readonly of: readonly string[] }
  | { readonly type: 'logFile' }
  /** Shown only: it cannot be set over HTTP, and local.ini is ignored. */
  | { readonly type: 'shown' }
  /** As `checked`, but only local.ini, the environment and the command line can set it. */
  | { readonly type: 'local'; problem(text: string): string | null }
  /** Checks the text. @returns the error, in words that follow the key's name; null if there is none */
  | { readonly type: 'checked'; problem(text: string): string | null }
  | { readonly type: 'passwordRules' }
  /** A prefix of a legal database name. */
  | { readonly type: 'databasePrefix' }
  | { readonly type: 'text' }

export interface KnownKey {
  readonly section: string
  readonly key: string
  /** The default, as CouchDB would list it; null if the key is unset by default, and so not listed. */
  readonly value: string | null
  readonly kind: ValueKind
  /** One line that says what the key does, for `GET /_settee/configuration`. */
  readonly about: string
  /** true: a change counts from the next start. */
  readonly isReadAtStart: boolean
}

export const TEXT: ValueKind = { type: 'text' }
export const BOOLEAN: ValueKind = { type: 'choice', of: ['true', 'false'] }
export const integer = (min: number, max: number): ValueKind => ({ type: 'integer', min, max })
export const bytes = (min: number): ValueKind => ({ type: 'bytes', min })
const count = (min: number): ValueKind => ({ type: 'count', min })
/** For {@link row}: a change counts from the next start. */
export const AT_START = 'at start'
/** @param value a number is listed in decimal */
export const row = (
  section: string,
  key: string,
  value: string | number | null,
  kind: ValueKind,
  about: string,
  read?: typeof AT_START,
): KnownKey => ({
  section,
  key,
  value: value === null ? null : String(value),
  kind,
  about,
  isReadAtStart: read === AT_START,
})

/** @returns the error of a folder's path, in words that follow the key's name; null if there is none */
function problemOfFolder(text: string): string | null {
  if (text === '' || (isAbsolute(text) && !text.includes('\0'))) return null
  return 'must be the absolute path of a folder'
}

function problemOfFile(text: string): string | null {
  return isAbsolute(text) && !text.includes('\0') ? null : 'must be the absolute path of a file'
}

const { functionMemory } = DEFAULT_LIMITS

/** The name is a segment of URLs, and Erlang's names have no other characters. */
function problemOfNodeName(text: string): string | null {
  return /^[\w.-]+@[\w.:-]+$/.test(text) ? null : 'must be a name such as couchdb@192.0.2.1'
}

/** Keys that CouchDB does not have. */
export const SETTEE_KEYS: readonly KnownKey[] = [
  row(
    'settee',
    'mode',
    'single',
    { type: 'choice', of: ['single', 'hosted'] },
    'hosted: for tenants who do not share data',
    AT_START,
  ),
  row(
    'settee',
    'node_name',
    null,
    { type: 'checked', problem: problemOfNodeName },
    'the name that `GET /_node/_local` shows; unset: nonode@nohost',
  ),
  row(
    'settee',
    'store',
    null,
    { type: 'local', problem: problemOfStoreUrl },
    'the PostgreSQL with the databases, which several nodes can share; unset: SQLite in the data folder',
    AT_START,
  ),
  row(
    'settee',
    'store_password_file',
    null,
    { type: 'local', problem: problemOfFile },
    "file with the store's password; unset: PGPASSWORD, PGPASSFILE or ~/.pgpass",
    AT_START,
  ),
  row(
    'settee',
    'store_connections',
    30,
    integer(9, 10_000),
    'connections of this node to the store at most',
    AT_START,
  ),
  row(
    'settee',
    'drain_seconds',
    null,
    integer(0, 4),
    'seconds in which `_up` answers 404 before this node stops; unset: 3 with settee/store, else 0',
  ),
  row('settee', 'hosted_replication', 'false', BOOLEAN, 'true: in hosted mode tenants may replicate'),
  row('settee', 'sign_up', 'false', BOOLEAN, 'true: in hosted mode people can sign up'),
  row('quota', 'bytes', 1_073_741_824, bytes(0), 'bytes in all databases of a tenant'),
  row('quota', 'documents', 1_000_000, count(0), 'documents in all databases of a tenant'),
  row('quota', 'databases', 10, count(0), 'databases of a tenant'),
  row('quota', 'indexes', 100, count(0), 'indexes in all databases of a tenant'),
  row('quota', 'document_size', 'infinity', bytes(1), 'bytes of JSON in one document of a tenant'),
  row(
    'quota',
    'requests',
    100,
    count(1),
    'requests per second of a tenant, or of an address without an account',
  ),
  row('quota', 'feeds', 50, count(1), 'open feeds of a tenant'),
  row('quota', 'replications', 5, count(0), 'replications of a tenant, with settee/hosted_replication'),
  row('settee', 'max_connections', 20_000, integer(1, 1_000_000), 'connections open at once'),
  row(
    'settee',
    'max_network_connections',
    2500,
    integer(1, 1_000_000),
    'connections from one IPv4 address or IPv6 /64; at most a quarter of all',
  ),
  row(
    'settee',
    'stranger_requests',
    1000,
    integer(0, 1_000_000),
    'requests per second of one network without an account; 0: no limit',
  ),
  row('settee', 'body_timeout', 60, integer(1, 86_400), 'seconds in which a body must bring 100 bytes each'),
  row('settee', 'body_memory', 67_108_864, integer(1_048_576, 2 ** 40), 'bytes of request bodies in memory'),
  row(
    'settee',
    'body_disk_share',
    75,
    integer(1, 100),
    'percent of the free disk for request bodies in files; one caller gets at most half of it',
  ),
  row(
    'settee',
    'thread_heap',
    null,
    // With less, V8 collects garbage all the time when a body of 8 MB is parsed.
    integer(134_217_728, 2 ** 40),
    'bytes of JavaScript heap of a database thread; unset: a quarter of the memory, 256 to 512 MB',
  ),
  row(
    'settee',
    'database_threads',
    null,
    integer(1, 64),
    "threads for users' databases; unset: 2, or in hosted mode one for each core, 8 at most",
    AT_START,
  ),
  row(
    'settee',
    'function_memory',
    functionMemory,
    integer(16_777_216, 2 ** 32),
    'bytes that one function of a design document may take',
  ),
  row(
    'settee',
    'sandbox_memory',
    null,
    integer(67_108_864, 2 ** 40),
    'bytes that all functions of design documents may take together; unset: a quarter of the memory, 384 MiB to 1 GiB',
  ),
  row('settee', 'console', 'true', BOOLEAN, 'false: no console at `/_utils`; read at start'),
  row('settee', 'couchapps', 'true', BOOLEAN, 'false: no shows, lists, updates and rewrites'),
  row('settee', 'keep_days', 30, integer(0, 36_500), 'days that overwritten and deleted bodies are kept'),
  row(
    'settee',
    'keep_bytes',
    1_073_741_824,
    bytes(0),
    'bytes of kept bodies in one database; the oldest go first',
  ),
  row(
    'settee',
    'compaction',
    'automatic',
    { type: 'choice', of: ['automatic', 'manual'] },
    'manual: databases are compacted only on request',
  ),
  row(
    'settee',
    'compaction_share',
    20,
    integer(1, 100),
    'percent of unused bytes that make a compaction due',
  ),
  row(
    'settee',
    'compaction_bytes',
    67_108_864,
    integer(1, 2 ** 50),
    'unused bytes that make a compaction due',
  ),
  row(
    'settee',
    'compaction_quiet',
    10,
    integer(0, 86_400),
    'seconds without a write before a compaction starts',
  ),
  row(
    'settee',
    'upgrade_copies_days',
    30,
    integer(0, 36_500),
    'days that copies from before an upgrade are kept; 0: no copies',
  ),
  row('settee', 'backup_interval', 0, integer(0, 8760), 'hours between two backups; 0: no scheduled backups'),
  row(
    'settee',
    'scrub_interval',
    168,
    integer(0, 8760),
    'hours between two checks of everything that is stored; 0: no scheduled checks',
  ),
  row(
    'settee',
    'backup_folder',
    null,
    { type: 'checked', problem: problemOfFolder },
    'folder of the backups, backups in the data folder if unset',
  ),
  row('settee', 'backup_keep_daily', 7, integer(0, 10_000), 'days whose last backup is kept'),
  row('settee', 'backup_keep_weekly', 4, integer(0, 10_000), 'weeks whose last backup is kept'),
  row(
    'settee',
    'free_space_floor',
    null,
    // Less would be useless, since SQLite's log takes as much.
    integer(1_048_576, 2 ** 50),
    'bytes of the disk that are kept for deletions; unset: 64 MB or 2 % of the disk, whichever is more',
  ),
  row('settee', 'max_tokens', 100_000, integer(0, 100_000_000), 'device tokens of all accounts together'),
  row('settee', 'tokens_per_account', 50, integer(0, 10_000), 'device tokens of one account'),
  row(
    'settee',
    'replaced_days',
    30,
    integer(1, 36_500),
    'days that a database is kept which a restore replaced',
  ),
  row(
    'settee',
    'standby_max_lag',
    60,
    integer(5, 31_536_000),
    'seconds that a standby may be behind its primary before `_up?deep=1` reports a fault',
  ),
  row(
    'settee',
    'mass_deletion',
    DEFAULT_RULES.massDeletion.percent,
    integer(0, 100),
    'of a hundred documents, how many deleted within a minute raise an alarm; 0: none',
  ),
  row(
    'settee',
    'mass_deletion_documents',
    DEFAULT_RULES.massDeletion.documents,
    integer(1, 1_000_000),
    'deleted documents below which there is no alarm',
  ),
  row(
    'settee',
    'max_attachments',
    DEFAULT_RULES.maxAttachments,
    integer(1, 100_000),
    'attachments that a document may have',
  ),
  row(
    'settee',
    'max_leaves',
    null,
    integer(16, 100_000),
    'conflicting revisions that a document may have, deleted ones too; unset: 1000 in hosted mode, else 5000',
  ),
  row('settee', 'token_name_length', 100, integer(1, 1000), "characters in a device token's name"),
]
