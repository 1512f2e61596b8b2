/** Answers as bytes, for where no reply will carry them. */
import { createRequire } from 'node:module'
import { CouchError } from '../core/errors.ts'

// An import of node:http reads all that it exports, and so loads Node's whole fetch: 2 MB.
const { METHODS, STATUS_CODES }: typeof import('node:http') = createRequire(import.meta.url)('node:http')

/** The methods that Node's parser of HTTP/1 knows. */
export const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS)

/** What is no request, whatever kept it from being one. */
export function notHttp(): CouchError {
  return new CouchError('bad_request', 'The request is not valid HTTP.')
}

/** The body of an error's answer; protocol.md 1.1. */
export function errorBody(error: CouchError): Buffer {
  return Buffer.from(`${JSON.stringify(error.toBody())}\n`)
}

/**
 * A whole answer, the last one of its connection.
 * @param lines header fields beside those that every such answer has
 * @param isBare the request was a HEAD
 */
export function rawAnswer(error: CouchError, lines: readonly string[], isBare = false): string {
  const body = errorBody(error).toString()
  return [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: must-revalidate',
    'Connection: close',
    ...lines,
    '',
    isBare ? '' : body,
  ].join('\r\n')
}
