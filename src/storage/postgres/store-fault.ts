/** Translates the errors of PostgreSQL and of the connections to it into those of the error table. */
import pg from 'pg'
import { CouchError, type ErrorName } from '../../core/errors.ts'

/**
 * The connection broke after a write was sent and before it was answered: it may be stored, or not. Whoever wrote finds
 * out, or rejects with store_unavailable (storage/engine.ts).
 */
export class LostAnswer extends Error {
  constructor(cause: unknown) {
    super('The connection was lost before the answer came.', { cause })
  }
}

/** The server has ended the connection with an error: it shuts down, has failed, or removes a client. It may have committed before. */
export class EndedByServer extends Error {
  /** @param cause the error */
  constructor(cause: pg.DatabaseError) {
    super(`The server has ended the connection: ${cause.message}`, { cause })
  }
}

/** PostgreSQL: "Appendix A. Error Codes". Codes that are not listed here are faults of settee. */
const BY_CODE: Readonly<Record<string, ErrorName>> = {
  '53100': 'insufficient_storage',
  '58030': 'disk_fault',
  XX001: 'damaged_file',
  XX002: 'damaged_file',
}

/**
 * Classes and codes of a server that is there but does not serve: connections (08), authentication (28), resources (53),
 * shutdown and cancellation (57), locks that are not granted in time (55), conflicts with other transactions (40), an idle
 * transaction that was ended (25P03), and a server that has become a standby (25006).
 */
const UNAVAILABLE = /^(?:08|28|40|53|55|57|25006|25P03)/

/** Whether it is an error that the server has sent. Of a statement, the connection can be used further. */
export function isAnswer(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError
}

/** Whether a transaction can be tried again at once: a deadlock, or a conflict with another transaction. */
export function isConflict(error: unknown): boolean {
  return isAnswer(error) && (error.code === '40001' || error.code === '40P01')
}

/** Whether a value was too long for an index (54000, program_limit_exceeded). @param error as {@link storeFault} returns it */
export function isTooLong(error: unknown): boolean {
  return error instanceof CouchError && isAnswer(error.cause) && error.cause.code === '54000'
}

/** The server shuts down, recovers after a crash, or starts (57P01 to 57P03); it has no free connection. */
const SOON = /^(?:57P0[1-3]|53300)$/
/** Nobody is there, or the name of the host is not known yet. */
const ABSENT = /^(?:ECONN\w+|E\w*UNREACH|ETIMEDOUT|EPIPE|ENOTFOUND|EAI_AGAIN|ENOENT)$/
/** pg's own errors have no codes. */
const BROKEN = /^(?:timeout expired|Connection terminated)/

/**
 * Whether a server that did not let a client in may do so a little later, as it is. Wrong names, passwords and certificates stay wrong.
 * @param cause an error of pg or of the network
 */
export function mayAnswerSoon(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false
  const { code = '' } = cause as NodeJS.ErrnoException
  return isAnswer(cause) ? SOON.test(code) : ABSENT.test(code) || BROKEN.test(cause.message)
}

/**
 * The error for the caller of a storage engine.
 * @param cause an error of pg, of the network, or one of the table, which is returned as it is
 */
export function storeFault(cause: unknown): CouchError {
  if (cause instanceof CouchError) return cause
  return new CouchError(nameOf(cause), undefined, { cause })
}

function nameOf(cause: unknown): ErrorName {
  // Everything else that pg reports is a connection that was lost or not made.
  if (!isAnswer(cause)) return isMistake(cause) ? 'internal_server_error' : 'store_unavailable'
  const code = cause.code ?? ''
  return BY_CODE[code] ?? (UNAVAILABLE.test(code) ? 'store_unavailable' : 'internal_server_error')
}

/** A fault of the code, such as a wrong argument. */
function isMistake(cause: unknown): boolean {
  return cause instanceof TypeError || cause instanceof RangeError || cause instanceof ReferenceError
}
