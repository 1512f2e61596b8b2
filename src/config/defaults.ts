import { APP_ORIGINS } from '../core/app-origins.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../core/types.ts'
import { UUID_ALGORITHMS, UUID_FORMATS } from '../core/uuids.ts'
import { AUTHENTICATION_KEYS } from './authentication-keys.ts'
import { REPLICATOR_KEYS } from './replicator-keys.ts'
import {
  AT_START,
  BOOLEAN,
  bytes,
  integer,
  type KnownKey,
  row,
  SETTEE_KEYS,
  TEXT,
  type ValueKind,
} from './settee-keys.ts'

/** CouchDB's names of log levels, most detailed first (its default.ini, section `[log]`). */
export const LOG_LEVELS = [
  'debug',
  'info',
  'notice',
  'warning',
  'warn',
  'error',
  'err',
  'critical',
  'crit',
  'alert',
  'emergency',
  'emerg',
  'none',
] as const

/** The digests that CouchDB offers for PBKDF2, by its names; `sha` is SHA-1 (couch_passwords). */
const PBKDF2_PRFS = ['sha', 'sha224', 'sha256', 'sha384', 'sha512'] as const

const { find } = DEFAULT_RULES
const SCAN_RATIO = 'documents that _find may read for each one it finds before it warns; 0: no warning'
const { maxDocumentSize, maxAttachmentSize, maxDocumentIdLength } = DEFAULT_LIMITS
const { maxPurgedDocuments, maxPurgedRevisions, functionTimeout } = DEFAULT_LIMITS
const { maxBulkDocs, maxBulkGet } = DEFAULT_LIMITS

/** settee's own TLS; the names are CouchDB's (its default.ini, section `[ssl]`), except for the address. */
const TLS_KEYS: readonly KnownKey[] = [
  row('ssl', 'enable', 'false', BOOLEAN, 'true: settee speaks TLS itself', AT_START),
  row('ssl', 'port', 6984, integer(0, 65_535), 'TCP port of TLS; 0 picks a free one', AT_START),
  row('settee', 'tls_bind_address', null, TEXT, 'address of TLS, chttpd/bind_address if unset', AT_START),
  row('ssl', 'cert_file', null, TEXT, 'PEM file of the certificate, followed by intermediate certificates'),
  row('ssl', 'key_file', null, TEXT, "PEM file of the certificate's key"),
  row('ssl', 'cacert_file', null, TEXT, 'PEM file of intermediate certificates that are not in cert_file'),
  row('ssl', 'password', null, TEXT, 'password of the key, if it has one'),
  row(
    'ssl',
    'verify_ssl_certificates',
    'false',
    { type: 'choice', of: ['false'] },
    'settee does not ask clients for certificates',
  ),
]

/** What HTTP allows in a header: RFC 9110 5.5, without bytes beyond ASCII. */
const HEADER: ValueKind = {
  type: 'checked',
  problem: (text) => (/^[\t\x20-\x7e]*$/.test(text) ? null : 'must be one line of ASCII characters'),
}

/** CouchDB's names and defaults, except for the console's own policy (http/transport/page-policy.ts). */
const CSP_KEYS: readonly KnownKey[] = (
  [
    ['attachments', 'sandbox', 'attachments'],
    ['showlist', 'sandbox', 'answers of functions of design documents'],
    ['utils', null, "the console; unset: settee's own policy"],
  ] as const
).flatMap(([kind, preset, what]) => [
  row('csp', `${kind}_enable`, 'true', BOOLEAN, `false: no Content-Security-Policy for ${what}`),
  row('csp', `${kind}_header_value`, preset, HEADER, `the Content-Security-Policy of ${what}`),
])

const PREFER_MINIMAL =
  'Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary'

/**
 * Every key that settee reads. Names and defaults are CouchDB's (protocol.md 2.5, 12.2). Exceptions are section `[settee]`,
 * for keys that CouchDB does not have, and `max_document_id_length`, which is unlimited in CouchDB.
 */
export const KNOWN_KEYS: readonly KnownKey[] = [
  row('couchdb', 'max_document_size', maxDocumentSize, bytes(1), 'bytes of JSON in one document'),
  row('couchdb', 'max_attachment_size', maxAttachmentSize, bytes(0), 'bytes in one attachment'),
  row('couchdb', 'max_document_id_length', maxDocumentIdLength, bytes(1), 'bytes in a document id'),
  row('couchdb', 'max_bulk_docs_count', maxBulkDocs, integer(1, 1_000_000), 'documents in one _bulk_docs'),
  row('couchdb', 'max_bulk_get_count', maxBulkGet, integer(1, 100_000), 'documents in one _bulk_get'),
  row(
    'couchdb',
    'max_dbs_open',
    500,
    integer(1, 100_000),
    'databases open at once; idle ones are closed',
    AT_START,
  ),
  row(
    'couchdb',
    'default_security',
    'admin_only',
    { type: 'choice', of: ['admin_only', 'admin_local', 'everyone'] },
    'who has access to a new database; admin_local and everyone: everybody',
  ),
  row('couchdb', 'database_dir', null, { type: 'shown' }, 'the folder of the databases; read-only'),
  row('couchdb', 'single_node', null, BOOLEAN, 'true: GET /_cluster_setup says that the server is set up'),
  row('cluster', 'n', null, integer(1, 100), 'for GET /_cluster_setup; 1 once the server is set up'),
  row(
    'couchdb',
    'os_process_timeout',
    functionTimeout,
    integer(1, 86_400_000),
    "milliseconds that one call of a design document's function may take",
  ),
  row(
    'purge',
    'max_document_id_number',
    maxPurgedDocuments,
    integer(1, 1_000_000),
    'documents in one _purge',
  ),
  row('purge', 'max_revisions_number', maxPurgedRevisions, integer(1, 1_000_000), 'revisions in one _purge'),
  row('mango', 'default_limit', find.defaultLimit, integer(0, 1e9), 'documents in one answer of _find'),
  row('mango', 'index_scan_warning_threshold', find.scanRatio, integer(0, 1e9), SCAN_RATIO),
  row('chttpd', 'port', 5984, integer(0, 65_535), 'TCP port; 0 picks a free one', AT_START),
  row(
    'chttpd',
    'bind_address',
    '127.0.0.1',
    TEXT,
    'address to listen on; `any`: all addresses of the machine',
    AT_START,
  ),
  ...TLS_KEYS,
  row('chttpd', 'max_http_request_size', 4_294_967_296, bytes(1), 'bytes of one request body, inflated'),
  // A lower value would also refuse the request that changes it back.
  row('chttpd', 'max_uri_length', 'infinity', bytes(1024), 'bytes of a request address'),
  row('chttpd', 'rewrite_limit', 100, integer(1, 1000), 'how often one request may be rewritten'),
  row('chttpd', 'secure_rewrites', 'true', BOOLEAN, 'whether rewrites must stay in their database'),
  row('chttpd', 'allow_jsonp', 'false', BOOLEAN, 'true: GET with ?callback=NAME answers with a script'),
  ...CSP_KEYS,
  row('chttpd', 'decode_plus_to_space', 'true', BOOLEAN, 'whether + in a path is a space'),
  ...['host', 'proto', 'ssl'].map((what) =>
    row(
      'chttpd',
      `x_forwarded_${what}`,
      `X-Forwarded-${what.charAt(0).toUpperCase()}${what.slice(1)}`,
      TEXT,
      `the header in which trusted proxies send the ${what}`,
    ),
  ),
  row(
    'chttpd',
    'prefer_minimal',
    PREFER_MINIMAL,
    TEXT,
    'headers that answers to Prefer: return=minimal keep',
  ),
  row(
    'chttpd',
    'changes_timeout',
    60_000,
    integer(1, 86_400_000),
    'milliseconds that a feed waits by default',
  ),
  row('chttpd', 'enable_cors', null, BOOLEAN, 'false: pages of other origins have no access; on if unset'),
  row('httpd', 'enable_cors', null, BOOLEAN, 'used if chttpd/enable_cors is not set'),
  row('cors', 'origins', APP_ORIGINS.join(','), TEXT, 'origins of web pages that have access; * for all'),
  row(
    'cors',
    'credentials',
    null,
    BOOLEAN,
    'whether pages of other origins may send credentials; unset: only the default origins',
  ),
  row('cors', 'methods', null, TEXT, 'methods that pages of other origins may use; unset: all'),
  row('cors', 'headers', null, TEXT, 'headers that requests of other origins may have; unset: all'),
  row('cors', 'exposed_headers', null, TEXT, 'headers of answers that pages of other origins may read'),
  row(
    'cors',
    'max_age',
    null,
    integer(0, 31_536_000),
    'seconds that browsers remember a preflight; 600 if unset',
  ),
  row('chttpd_auth', 'iterations', 600_000, integer(1, 10_000_000), 'PBKDF2 rounds of new password hashes'),
  row('chttpd_auth', 'pbkdf2_prf', 'sha256', { type: 'choice', of: PBKDF2_PRFS }, 'digest of new hashes'),
  ...AUTHENTICATION_KEYS,
  row(
    'chttpd_auth',
    'password_regexp',
    null,
    { type: 'passwordRules' },
    'patterns that new passwords must match',
  ),
  row('chttpd_auth', 'public_fields', null, TEXT, 'members of user documents that others may see'),
  row(
    'chttpd_auth',
    'users_db_public',
    'false',
    BOOLEAN,
    'whether others may see the public_fields of user documents',
  ),
  row(
    'chttpd_auth',
    'upgrade_hash_on_auth',
    'true',
    BOOLEAN,
    'true: weak password hashes are replaced when users log in',
  ),
  row(
    'couchdb',
    'users_db_security_editable',
    'false',
    BOOLEAN,
    'whether the security object of `_users` can be changed',
  ),
  row('couch_peruser', 'enable', 'false', BOOLEAN, 'true: each user gets a database of their own'),
  row('couch_peruser', 'delete_dbs', 'false', BOOLEAN, "true: a user's database is deleted with the user"),
  row(
    'couch_peruser',
    'database_prefix',
    'userdb-',
    { type: 'databasePrefix' },
    'prefix of the names of these databases',
  ),
  row('log', 'level', 'info', { type: 'choice', of: LOG_LEVELS }, 'least severe level that is logged'),
  row('log', 'file', null, { type: 'logFile' }, 'log to this file instead of the standard output'),
  row(
    'attachments',
    'compression_level',
    0,
    integer(0, 9),
    'compression level of new attachments, 1 to 9; 0: no compression',
  ),
  row(
    'attachments',
    'compressible_types',
    'text/*, application/javascript, application/json, application/xml',
    TEXT,
    'media types of attachments that are compressed',
  ),
  ...REPLICATOR_KEYS,
  row('uuids', 'algorithm', 'uuid_v7', { type: 'choice', of: UUID_ALGORITHMS }, 'how new ids are made'),
  row(
    'uuids',
    'format',
    'base_16',
    { type: 'choice', of: UUID_FORMATS },
    'format of uuid_v4 and uuid_v7 ids',
  ),
  row('uuids', 'utc_id_suffix', null, TEXT, 'suffix of utc_id ids'),
  row('uuids', 'max_count', 1000, integer(1, 1_000_000), 'the largest count in one GET /_uuids'),
  ...SETTEE_KEYS,
]

/**
 * Sections that cannot be changed over HTTP, since they name code to run or routes; protocol.md 12.1. settee reads none
 * of them, but refuses changes as CouchDB does.
 */
export const READ_ONLY_SECTIONS: ReadonlySet<string> = new Set([
  'daemons',
  'external',
  'httpd_design_handlers',
  'httpd_db_handlers',
  'httpd_global_handlers',
  'native_query_servers',
  'os_daemons',
  'query_servers',
  'feature_flags',
])

const ROWS: ReadonlyMap<string, KnownKey> = new Map(
  KNOWN_KEYS.map((known) => [`${known.section}/${known.key}`, known]),
)

/** @returns the row of a key that settee reads, undefined for any other */
export function knownKey(section: string, key: string): KnownKey | undefined {
  return ROWS.get(`${section}/${key}`)
}

/** Replaces secrets wherever the configuration is shown; it is never stored as a value. */
export const SECRET_MASK = '**********'

/**
 * Keys whose values the configuration API never shows, not even to server admins: a regular expression for the whole key
 * in each section. Hashes in `[admins]` are shown as in CouchDB, since installations copy admins with them.
 */
const SECRET_KEYS: Readonly<Record<string, RegExp>> = {
  chttpd_auth: /^secret$/,
  couch_httpd_auth: /^secret$/,
  // The other kinds, `rsa:` and `ec:`, are public keys.
  jwt_keys: /^hmac:/,
  replicator: /^password$/,
  ssl: /^password$/,
}

/** @returns whether the value of a key is a secret */
export function isSecretKey(section: string, key: string): boolean {
  return Object.hasOwn(SECRET_KEYS, section) && SECRET_KEYS[section]!.test(key)
}
