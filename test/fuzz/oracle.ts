/** What must hold of every answer, whatever was asked. */
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib'
import { ERRORS, type ErrorName } from '../../src/core/errors.ts'
import type { Answer } from './answer-reader.ts'
import type { FuzzRequest } from './requests.ts'
import type { Outcome } from './sender.ts'

/** Failures of functions of design documents, and of what they may take: docs/errors.md. */
export const MEANT_FAILURES: readonly ErrorName[] = [
  'replication_no_database',
  'replication_failed',
  'function_error',
  'compilation_error',
  'function_timeout',
  'function_memory',
  'unknown_query_language',
  'render_error',
  'rewrite_error',
  'insecure_rewrite_rule',
  'external_response_error',
  'contended',
]

/** How a stack, or a place in the sources or in the file system, would show. */
const LEAKS =
  /\n\s*at |\.[cm]?[jt]s:\d|node_modules|node:internal|file:\/\/|\/src\/|\/data\/|\/tmp\/|SQLITE|SqliteError/

/** A frame of a user's own function, which the author of a design document may see. */
const SANDBOX_FRAME = /\s+at (?:\S+ )?\(?(?:native|<input>(?::\d+)*)\)?/g
/** An error that a function in documents.ts names itself. */
const NAMED_BY_FUNCTION = 'odd'

/** @returns what is wrong with the outcome; null when nothing is */
export function faultOf({ request, answers, fault, hasLeft, isRepeated }: Outcome): string | null {
  if (fault !== undefined) return fault
  for (const answer of answers) {
    const found = faultOfAnswer(request, answer, hasLeft === true)
    if (found !== null) return `${found}: ${shown(answer)}`
  }
  if (request.isHonest && !hasLeft && answers.length !== 1) return `${answers.length} answers`
  const [answer] = answers
  if (answer === undefined) return null
  if (request.keeps && answer.status !== 201 && !isRepeated) return `a document is refused: ${shown(answer)}`
  if (request.mustFail && answer.status < 400) return `a kept document was changed: ${shown(answer)}`
  return null
}

/** Answers that broke off after their head, and not since the client left; the server must say in its log why. */
export function brokenOff({ request, answers, hasLeft }: Outcome): readonly Answer[] {
  return request.isHonest && !hasLeft ? answers.filter(({ isWhole }) => !isWhole) : []
}

function faultOfAnswer(request: FuzzRequest, answer: Answer, hasLeft: boolean): string | null {
  const { status, headers, isWhole } = answer
  if (!isWhole) return status < 300 ? null : 'an error that is not whole'
  const body = decoded(answer)
  if (body === null) return 'its coding is broken'
  if (status >= 400) return faultOfError(request, answer, body)
  if (body.length === 0 || hasLeft) return null
  if (headers['content-type'] === 'application/json' && !isContentOfAttachment(request)) {
    return faultOfJson(request, body)
  }
  return null
}

function faultOfError(request: FuzzRequest, { status, headers }: Answer, body: Buffer): string | null {
  if (headers['content-type'] !== 'application/json') return 'an error that is not JSON'
  if (status === 405 && !headers.allow && !isMinimal(request)) return '405 without Allow'
  if (request.method === 'HEAD') return status >= 500 && !mayFail(status) ? 'a failure' : null
  const said = parsed(body.toString()) as { error?: unknown; reason?: unknown } | undefined
  if (status === 417) return Array.isArray(said) ? null : 'no list of refusals'
  if (said === undefined || said === null || typeof said.error !== 'string' || !('reason' in said)) {
    return 'an error without its members'
  }
  if (Object.keys(said).length !== 2) return 'an error with more members'
  if (LEAKS.test(`${said.error} ${leakable(request, said.reason)}`)) return 'an error that tells too much'
  if (status === 500 && said.error === NAMED_BY_FUNCTION) return null
  if (!isListed(status, said.error)) return 'an error that is not in the table'
  return status < 500 || mayFail(status, said.error) ? null : 'a failure'
}

/** It asked for few headers; CouchDB's list of them has no Allow. */
function isMinimal({ bytes }: FuzzRequest): boolean {
  return bytes.includes('return=minimal')
}

/** What the request itself said is no secret. */
function leakable(request: FuzzRequest, reason: unknown): string {
  const text = typeof reason === 'string' ? reason : JSON.stringify(reason)
  return request.bytes.toString().includes(text) ? '' : text.replaceAll(SANDBOX_FRAME, '')
}

function isListed(status: number, error: string): boolean {
  return Object.values(ERRORS).some(([listed, name]) => listed === status && name === error)
}

function mayFail(status: number, error?: string): boolean {
  return MEANT_FAILURES.some((name) => {
    const [listed, said] = ERRORS[name]
    return listed === status && (error === undefined || said === error)
  })
}

/** One value, or, in a feed that goes on, one a line. */
function faultOfJson(request: FuzzRequest, body: Buffer): string | null {
  const text = body.toString()
  if (parsed(text) !== undefined) return null
  const lines = text.split('\n').filter((line) => line !== '')
  const isFeed = /_changes|_db_updates|_settee\/log/.test(request.target)
  return isFeed && lines.every((line) => parsed(line) !== undefined) ? null : 'JSON that does not parse'
}

/** Whose type is what somebody said it was. */
function isContentOfAttachment({ route }: FuzzRequest): boolean {
  return route.endsWith('*') || route.includes(':docid') || route.includes(':ddoc')
}

function decoded({ headers, body }: Answer): Buffer | null {
  if (body.length === 0) return body
  try {
    switch (headers['content-encoding']) {
      case undefined:
        return body
      case 'gzip':
        return gunzipSync(body)
      case 'br':
        return brotliDecompressSync(body)
      case 'deflate':
        return inflateSync(body)
      default:
        return null
    }
  } catch {
    return null
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export function shown({ status, headers, body }: Answer): string {
  return `${status} ${JSON.stringify(headers)} ${JSON.stringify(body.toString('latin1', 0, 600))}`
}

/** A request as it can be sent again, and read. */
export function replay({ bytes, index, route }: FuzzRequest, seed: number, port: number): string {
  const sent =
    bytes.length > 20_000 ? `${bytes.length} bytes, which the seed makes again` : bytes.toString('base64')
  return [
    `request ${index} of seed ${seed}, to ${route}:`,
    JSON.stringify(bytes.toString('latin1', 0, 1500)),
    `echo ${sent} | base64 -d | nc -q 5 127.0.0.1 ${port}`,
  ].join('\n')
}
