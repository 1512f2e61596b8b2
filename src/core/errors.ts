/**
 * Every error that a client can get: name -> status, `error`, default `reason`.
 * Sources: protocol.md 1.2; rows that CouchDB does not have are marked "ours". docs/errors.md lists the same
 * rows, and a test keeps the two equal.
 */
export const ERRORS = {
  invalid_json: [400, 'bad_request', 'invalid UTF-8 JSON'],
  missing_body: [400, 'bad_request', 'Missing request body'],
  body_not_object: [400, 'bad_request', 'Request body must be a JSON object'],
  document_not_object: [400, 'bad_request', 'Document must be a JSON object'],
  invalid_rev: [400, 'bad_request', 'Invalid rev format'],
  invalid_revs_list: [400, 'bad_request', 'Invalid list of revisions'],
  bad_request: [400, 'bad_request', 'The request is not valid.'],
  too_deep: [400, 'bad_request', 'JSON is nested deeper than 512 levels'], // ours
  invalid_url: [400, 'bad_request', 'invalid_url_encoding'],
  gzip_body: [400, 'bad_request', 'Request body is not properly gzipped.'],
  incomplete_body: [400, 'bad_request', 'The request body ended before it was complete.'], // ours
  invalid_base64_credentials: [400, 'bad_request', 'Authorization header has invalid base64 value'],
  malformed_cookie: [400, 'bad_request', 'Malformed AuthSession cookie. Please clear your cookies.'],
  bad_token: [400, 'bad_request', 'Malformed authentication token'],
  json_string_expected: [400, 'bad_request', 'a JSON string expected'],
  query_parse_error: [400, 'query_parse_error', 'A query parameter is not valid.'],
  illegal_database_name: [400, 'illegal_database_name', 'The database name is not legal.'],
  database_name_too_long: [400, 'database_name_too_long', 'At least one path segment is too long.'],
  illegal_docid: [400, 'illegal_docid', 'The document id is not legal.'],
  doc_validation: [400, 'doc_validation', 'The document is not valid.'],
  invalid_design_doc: [400, 'invalid_design_doc', 'The design document is not valid.'],
  view_compilation: [400, 'compilation_error', 'A function of a view does not compile.'],
  invalid_filter: [400, 'bad_request', 'The selector of the filter is not valid.'],
  invalid_selector: [400, 'invalid_selector', 'The selector is not valid.'],
  invalid_selector_json: [400, 'invalid_selector_json', 'Selector must be a JSON object'],
  invalid_field_name: [400, 'invalid_field_name', 'Invalid field name'],
  invalid_operator: [400, 'invalid_operator', 'Invalid operator'],
  not_supported: [400, 'not_supported', 'Unsupported operator'],
  bad_arg: [400, 'bad_arg', 'Bad argument for an operator'],
  invalid_replication: [400, 'invalid_replication', 'endpoint has an invalid url'],
  missing_required_key: [400, 'missing_required_key', 'Missing required key: selector'],
  invalid_key: [400, 'invalid_key', 'Invalid key for this request.'],
  key_too_long: [400, 'key_too_long', 'A key takes more than 65536 bytes in an index'], // ours
  invalid_boolean: [400, 'invalid_boolean', 'Invalid boolean value'],
  invalid_pos_integer: [400, 'invalid_pos_integer', 'A value is not an integer greater than zero'],
  invalid_non_neg_integer: [
    400,
    'invalid_non_neg_integer',
    'A value is not an integer greater than or equal to zero',
  ],
  invalid_string: [400, 'invalid_string', 'Invalid string'],
  invalid_empty_string: [400, 'invalid_empty_string', 'Index name or ddoc cannot be empty string'],
  invalid_value: [400, 'invalid_value', 'Invalid value'],
  invalid_bookmark: [400, 'invalid_bookmark', 'Invalid bookmark value'],
  invalid_fields: [400, 'invalid_fields', 'Fields must be an array of strings'],
  invalid_field: [400, 'invalid_field', 'Invalid JSON for field spec'],
  invalid_sort_json: [400, 'invalid_sort_json', 'Sort must be an array of sort specs'],
  invalid_sort_field: [400, 'invalid_sort_field', 'Invalid sort field'],
  unsupported_mixed_sort: [
    400,
    'unsupported_mixed_sort',
    'Sorts currently only support a single direction for all fields.',
  ],
  invalid_index_name: [400, 'invalid_index_name', 'Invalid index name'],
  illegal_partition: [400, 'illegal_partition', 'Partition must be a string'],
  no_usable_index: [
    400,
    'no_usable_index',
    'No index exists for this sort, try indexing by the sort fields.',
  ],
  invalid_index: [400, 'invalid_index', 'The index that was requested does not exist or is not suitable.'],
  invalid_list_index_params: [
    400,
    'invalid_list_index_params',
    'Index parameter ranges: limit > 1, skip > 0',
  ],
  index_service_unavailable: [
    400,
    'required index service unavailable',
    'This server has only indexes of the type json.',
  ], // CouchDB's words, with 503
  invalid_ddoc_lang: [400, 'invalid_ddoc_lang', 'Existing design doc has an invalid language'],
  invalid_partitioned_option: [
    400,
    'invalid_partitioned_option',
    'Requested partitioned option does not match existing value on the design document',
  ],
  invalid_bulk_docs: [400, 'invalid_bulk_docs', 'Bulk Delete requires an array of docids.'],
  md5_mismatch: [400, 'bad_request', 'md5_mismatch'],
  unauthorized: [401, 'unauthorized', 'You are not authorized to access this db.'],
  wrong_credentials: [401, 'unauthorized', 'Name or password is incorrect.'],
  account_conflicts: [
    401,
    'unauthorized',
    'User document conflicts must be resolved before the document is used for authentication purposes.',
  ],
  session_expired: [401, 'unauthorized', 'The session has expired: log in again.'], // ours
  not_server_admin: [401, 'unauthorized', 'You are not a server admin.'],
  forbidden: [403, 'forbidden', 'You are not allowed to access this db.'],
  hosted_design: [
    403,
    'forbidden',
    'This server does not accept design documents (hosted mode). All other documents are stored.',
  ], // ours
  hosted_attachment: [
    403,
    'forbidden',
    'This server does not accept attachments (hosted mode). Send the document without them to store it.',
  ], // ours
  hosted_function: [
    403,
    'forbidden',
    'This server runs no functions of design documents (hosted mode). ' +
      'There are no views, and _changes accepts only the filters _doc_ids, _selector and _design.',
  ], // ours
  hosted_replication: [
    403,
    'forbidden',
    'This server replicates only for its admins (hosted mode). Replicate from the device or the other server instead.',
  ], // ours
  no_couchapps: [
    403,
    'forbidden',
    'This server runs no shows, lists, updates and rewrites: settee/couchapps is false.',
  ], // ours
  unsafe_rewrite: [
    403,
    'forbidden',
    'A rewrite may not turn a GET, HEAD or OPTIONS into a request that may change something.',
  ], // ours
  too_many_leaves: [403, 'forbidden', 'The document has too many conflicting revisions.'], // ours
  account_locked: [403, 'forbidden', 'Account is temporarily locked due to multiple authentication failures'],
  config_read_only: [403, 'forbidden', 'Config section blacklisted for modification over HTTP API.'],
  not_found: [404, 'not_found', 'missing'],
  deleted: [404, 'not_found', 'deleted'],
  no_database: [404, 'not_found', 'Database does not exist.'],
  no_attachment: [404, 'not_found', 'Document is missing attachment'],
  unknown_config_value: [404, 'not_found', 'unknown_config_value'],
  no_such_node: [404, 'not_found', 'no such node'],
  no_rewrite: [404, 'rewrite_error', 'Invalid path.'],
  show_error: [404, 'show_error', 'Invalid path.'],
  list_error: [404, 'list_error', 'Invalid path.'],
  update_error: [404, 'update_error', 'Invalid path.'],
  method_not_allowed: [405, 'method_not_allowed', 'The method is not allowed.'],
  not_acceptable: [406, 'not_acceptable', 'The function has no answer of a type that the client accepts.'],
  request_timeout: [
    408,
    'request_timeout',
    'The request arrived too slowly, so the server stopped reading it.',
  ], // ours
  conflict: [409, 'conflict', 'Document update conflict.'],
  missing_rev: [409, 'not_found', 'missing_rev'],
  gone: [410, 'gone', 'Temporary views are not supported in CouchDB'],
  file_exists: [412, 'file_exists', 'The database could not be created, the file already exists.'],
  missing_stub: [412, 'missing_stub', 'An attachment stub does not match a stored attachment.'],
  precondition: [412, 'precondition_failed', 'The file is not the one that the request asks for.'],
  too_large: [413, 'too_large', 'the request entity is too large'],
  document_too_large: [413, 'document_too_large', ''],
  bulk_docs_count: [413, 'max_bulk_docs_count_exceeded', ''],
  bulk_get_count: [413, 'max_bulk_get_count_exceeded', ''],
  attachment_too_large: [413, 'attachment_too_large', ''],
  uri_too_long: [414, 'too_long', 'the request uri is too long'],
  bad_content_type: [415, 'bad_content_type', 'Content-Type must be application/json'],
  range: [416, 'requested_range_not_satisfiable', 'Requested range not satisfiable'],
  all_or_nothing: [417, 'expectation_failed', 'all_or_nothing is not supported'],
  too_many_requests: [429, 'too_many_requests', 'Too many requests at once; try again later.'], // ours
  headers_too_large: [431, 'too_large', 'the request header fields are too large'], // ours
  internal_server_error: [
    500,
    'internal_server_error',
    'Something went wrong on the server; the log has the details.',
  ],
  damaged_file: [
    500,
    'file_corruption',
    'The file of this database is damaged, and this part of it cannot be read. ' +
      'Restore the database from a backup. All other databases still work.',
  ], // CouchDB's word, our reason
  damaged_document: [
    500,
    'file_corruption',
    'A document of this database is damaged: the disk has changed what was stored. All other documents still work.',
  ], // CouchDB's word, our reason
  damaged_server_file: [
    500,
    'file_corruption',
    "A part of the server's own data is damaged: the disk has changed what was stored. " +
      'Restart settee: it then starts from the newest copy of the file.',
  ], // CouchDB's word, our reason
  incomplete_export: [
    500,
    'file_corruption',
    'The export has everything except what is damaged in the database.',
  ], // CouchDB's word, our reason
  disk_fault: [
    500,
    'disk_fault',
    "The server's disk failed to read or write the file of this database. All other databases still work.",
  ], // ours
  replication_no_database: [
    500,
    'db_not_found',
    'The source or the target of the replication does not exist.',
  ],
  replication_failed: [500, 'replication_failed', 'The replication has failed.'], // ours
  compilation_error: [500, 'compilation_error', 'A function of a design document does not compile.'],
  function_error: [500, 'unknown_error', 'A function of a design document failed.'],
  render_error: [500, 'render_error', 'A show, list or update function has failed.'],
  rewrite_error: [500, 'rewrite_error', 'A rewrite of a design document has failed.'],
  insecure_rewrite_rule: [500, 'insecure_rewrite_rule', 'too many ../.. segments'],
  external_response_error: [
    500,
    'external_response_error',
    'The result of a function cannot be sent as an answer.',
  ],
  unknown_query_language: [500, 'unknown_query_language', 'Functions in this language are not supported.'],
  function_timeout: [500, 'timeout', 'A function of a design document ran longer than allowed.'], // ours
  function_memory: [500, 'out_of_memory', 'A function of a design document used more memory than allowed.'], // ours
  no_copies: [
    501,
    'not_implemented',
    'The storage engine of this server has no files: its store makes and restores the backups (docs/scaling.md).',
  ], // ours
  draining: [502, 'bad_gateway', 'This server is about to stop; another one answers.'], // ours
  unavailable: [503, 'service_unavailable', 'The server is busy or stopping; try again.'],
  store_unavailable: [
    503,
    'service_unavailable',
    'The store of this server cannot be reached; try again. What was not acknowledged may or may not be stored.',
  ], // ours
  standby: [
    503,
    'service_unavailable',
    'This server is a standby: it accepts changes once it is promoted. Write to its primary, or try again.',
  ], // ours
  contended: [
    503,
    'service_unavailable',
    'The document changed too often while it was being written; try again.',
  ], // ours
  insufficient_storage: [507, 'insufficient_storage', 'The disk is full.'],
} as const satisfies Record<string, readonly [status: number, error: string, reason: string]>

export type ErrorName = keyof typeof ERRORS

/** The body of an error answer; `reason` may be any JSON that a validate function throws. */
interface ErrorBody {
  error: string
  reason: unknown
}

/**
 * An error for the client. All layers throw only these. Anything else that is thrown is a bug in settee, and the client
 * gets `internal_server_error` without its text.
 */
export class CouchError extends Error {
  readonly code: ErrorName
  readonly reason: unknown

  /**
   * @param code a row of ERRORS
   * @param reason replaces the row's reason when given
   * @param options.cause the underlying error, only for the log
   */
  constructor(code: ErrorName, reason?: unknown, options?: { cause?: unknown }) {
    const said = reason ?? ERRORS[code][2]
    super(typeof said === 'string' ? said : JSON.stringify(said), options)
    this.name = 'CouchError'
    this.code = code
    this.reason = said
  }

  get status(): number {
    return ERRORS[this.code][0]
  }

  get error(): string {
    return ERRORS[this.code][1]
  }

  /** The body of the answer, protocol.md 1.1. */
  toBody(): ErrorBody {
    return { error: this.error, reason: this.reason }
  }
}

/** Failures of a design document's function, whatever their status. */
const FUNCTION_FAULTS: ReadonlySet<ErrorName> = new Set([
  'view_compilation',
  'compilation_error',
  'function_error',
  'function_timeout',
  'function_memory',
])

/** Whether a function of a design document has failed, and not the server. */
export function isFunctionFault(code: ErrorName): boolean {
  return FUNCTION_FAULTS.has(code)
}

const MOMENTARY_STATUSES: ReadonlySet<number> = new Set([408, 429, 503, 507])

/** Whether the server is at fault for now, so that the same request may succeed when it is sent again. */
export function isMomentary(code: ErrorName): boolean {
  return MOMENTARY_STATUSES.has(ERRORS[code][0]) || code === 'disk_fault'
}

/**
 * How long an error stays that a database answers for one document:
 * `lasting`, however often the document is sent; `momentary`, the server is at fault for now; `uncertain`, it can be
 * either.
 */
export type Persistence = 'lasting' | 'uncertain' | 'momentary'

const ROWS = Object.keys(ERRORS) as ErrorName[]

/** The last four are CouchDB's, of a cluster that cannot write. */
const MOMENTARY: ReadonlySet<string> = new Set([
  ...ROWS.filter(isMomentary).map((code) => ERRORS[code][1]),
  'service unavailable',
  'nodedown',
  'write_quorum_not_met',
  'security_migration',
])

/** A function may run too long because the server is busy; nobody knows what is behind an internal error. */
const UNCERTAIN: ReadonlySet<string> = new Set(
  ROWS.filter(
    (code) => ERRORS[code][0] >= 500 && code !== 'function_error' && code !== 'compilation_error',
  ).map((code) => ERRORS[code][1]),
)

/**
 * @param error the `error` of a document's row, of this server or another one
 * @returns `lasting` for a word that nobody knows: CouchDB uses the name of what a validate function throws, such as
 * `TypeError`, and its replicator counts any error of a row as final (couch_replicator_worker)
 */
export function persistenceOf(error: string): Persistence {
  if (MOMENTARY.has(error)) return 'momentary'
  return UNCERTAIN.has(error) ? 'uncertain' : 'lasting'
}

/** Any thrown value as a CouchError: one that is not ours becomes `internal_server_error` with it as the cause. */
export function asCouchError(thrown: unknown): CouchError {
  return thrown instanceof CouchError
    ? thrown
    : new CouchError('internal_server_error', undefined, { cause: thrown })
}

/** A {@link CouchError} as plain data, for a message to another thread. */
export interface PackedError {
  readonly code: ErrorName
  readonly reason: unknown
  /** The underlying error's stack, for the log. */
  readonly cause: string | undefined
}

export function packError(thrown: unknown): PackedError {
  const { code, reason, cause } = asCouchError(thrown)
  const text = cause instanceof Error ? (cause.stack ?? cause.message) : cause
  return { code, reason, cause: text === undefined ? undefined : String(text) }
}

export function unpackError({ code, reason, cause }: PackedError): CouchError {
  return new CouchError(code, reason, cause === undefined ? undefined : { cause })
}

const FILE_FAULTS: ReadonlySet<ErrorName> = new Set([
  'damaged_file',
  'damaged_document',
  'disk_fault',
  'internal_server_error',
])

/** Whether an engine's error means that a database's file cannot be read: a fault of the file, of the disk, or unknown. */
export function isFileFault(error: unknown): error is CouchError {
  return error instanceof CouchError && FILE_FAULTS.has(error.code)
}

/** Whether a part of a document does not say what was written; other documents are not affected. */
export function isDamage(error: unknown): error is CouchError {
  return error instanceof CouchError && error.code === 'damaged_document'
}

/** Escapes control and formatting characters, which could move the cursor or fake another line. */
export function shown(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (each) => `\\u{${each.codePointAt(0)?.toString(16)}}`)
}

/** The text in one line, with control characters escaped. */
export function oneLine(text: string): string {
  return shown(text.replaceAll(/\s*[\r\n]+\s*/g, ' ').trim())
}
