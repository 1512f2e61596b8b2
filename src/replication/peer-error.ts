/** The failures of one end of a replication. */
import { CouchError, ERRORS, type ErrorName, isFunctionFault, persistenceOf } from '../core/errors.ts'

/** What went wrong, in CouchDB's words where it has them. */
export type PeerFault =
  | 'db_not_found'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'too_large'
  /** What was sent is refused because of its content. */
  | 'rejected'
  /** Status 400, for what was sent or for what came of it on the way. */
  | 'bad_request'
  /** Status 500, for a document or for anything else. */
  | 'unknown_error'
  | 'not_supported'
  | 'too_many_requests'
  | 'invalid_json'
  | 'invalid_answer'
  | 'forbidden_address'
  | 'unreachable'
  | 'timeout'
  | 'server_error'
  | 'changed_database'

/** Faults that another try may not have. */
const TEMPORARY: ReadonlySet<PeerFault> = new Set([
  'too_many_requests',
  'invalid_json',
  'invalid_answer',
  'bad_request',
  'unknown_error',
  'unreachable',
  'timeout',
  'server_error',
])

const CONTENT: ReadonlySet<PeerFault> = new Set(['too_large', 'rejected', 'conflict'])
const PERHAPS_CONTENT: ReadonlySet<PeerFault> = new Set(['bad_request', 'unknown_error'])

export class PeerError extends Error {
  readonly fault: PeerFault
  /** How long the peer asks to wait, in ms; null: it does not say. */
  readonly retryAfterMs: number | null

  /** @param reason for users; without credentials */
  constructor(
    fault: PeerFault,
    reason: string,
    { retryAfterMs = null, cause }: { readonly retryAfterMs?: number | null; readonly cause?: unknown } = {},
  ) {
    super(reason, cause === undefined ? undefined : { cause })
    this.name = 'PeerError'
    this.fault = fault
    this.retryAfterMs = retryAfterMs
  }

  get isTemporary(): boolean {
    return TEMPORARY.has(this.fault)
  }

  /**
   * Whether a part of what was sent may be accepted without the rest.
   * @param isLastTry whether the same was sent often enough to rule out a fault of the way or of the moment
   */
  isAboutContent(isLastTry: boolean): boolean {
    return CONTENT.has(this.fault) || (isLastTry && PERHAPS_CONTENT.has(this.fault))
  }
}

/** @returns what an error of this server means to a replication */
export function faultOf(code: ErrorName): PeerFault {
  const [status, word] = ERRORS[code]
  switch (status) {
    case 401:
      return 'unauthorized'
    case 403:
      return 'forbidden'
    case 404:
      return 'not_found'
    case 409:
    case 412:
      return 'conflict'
    case 413:
      return 'too_large'
  }
  if (persistenceOf(word) === 'lasting') return 'rejected'
  return isFunctionFault(code) ? 'unknown_error' : 'server_error'
}

/** Runs work of a call. @throws CouchError in place of PeerError */
export async function withRefusals<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw error instanceof PeerError ? refusalOf(error) : error
  }
}

/** The answer for what ended a replication, protocol.md 14.1. */
function refusalOf(error: PeerError): CouchError {
  switch (error.fault) {
    case 'db_not_found':
      return new CouchError('replication_no_database', error.message)
    case 'unauthorized':
      return new CouchError('unauthorized', error.message)
    case 'forbidden':
    case 'forbidden_address':
      return new CouchError('forbidden', error.message)
    case 'not_found':
      return new CouchError('not_found', error.message)
  }
  return new CouchError('replication_failed', error.message)
}
