/**
 * Reads request bodies from the socket into memory or a file, inflates them, and enforces their limits. A body is passed on
 * whole or not at all. Fastify reads none (plugins/couch-headers.ts).
 */

import type { IncomingMessage } from 'node:http'
import { finished, type Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createGunzip } from 'node:zlib'
import type { FastifyRequest } from 'fastify'
import { isAnonymous, isServerAdmin } from '../../auth/accounts.ts'
import type { WriteKind } from '../../auth/policy.ts'
import type { Config } from '../../config/config.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { holdsAccounts, holdsReplications } from '../../core/ids.ts'
import { isTooDeep } from '../../core/json.ts'
import { addressKey } from '../../core/network.ts'
import { BodyCollector, bytesOf, MAX_IN_MEMORY } from '../../documents/body-collector.ts'
import type { Body } from '../../documents/database.ts'
import { reauthorize } from '../plugins/revocation.ts'
import { setAllowance } from '../plugins/tenancy.ts'
import { pathParams } from '../request-params.ts'
import { sendContinue, watchProgress } from './body-progress.ts'
import { StreamRequest } from './http2-messages.ts'

/** How large a body may be, inflated, and the key of that setting. */
export interface SizeLimit {
  readonly bytes: number
  readonly key: string
  /** The refusal of a larger body; default `too_large`. */
  refusal?(): CouchError
}

const CHUNK = 64 * 1024
/** The smallest that zlib accepts. */
const LEAST_CHUNK = 64
/**
 * How many times larger than its gzip a body may be, and from which size on this is checked, in bytes. Deflate itself
 * reaches 1,032; notes reach 10, and one note over and over reaches 100.
 */
const MAX_INFLATION = 200
const INFLATES_FREELY = 1024 * 1024
/** Errors of streams whose other side has gone. */
const CUT_OFF = new Set(['ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'])

declare module 'fastify' {
  interface FastifyRequest {
    /** Sets the header X-CouchDB-Body-Time: how long reading the body took. */
    setBodyTime: ((ms: number) => void) | null
    /** Set while the body is read: ends the reading, which fails with the error. */
    endBody: ((error: CouchError) => void) | null
  }
}

/** How long the next part of a body may take, in milliseconds: `settee/body_timeout`. */
export function bodyWindowMs(config: Config): number {
  return config.integer('settee', 'body_timeout') * 1000
}

/** The limit of whole requests now: `chttpd/max_http_request_size`. */
export function requestSizeLimit(request: FastifyRequest): SizeLimit {
  const bytes = request.server.services.config.bytes('chttpd', 'max_http_request_size')
  return { bytes, key: 'chttpd/max_http_request_size' }
}

/**
 * Reads the request's body and calls `use` with it. The body's memory is released, or its file closed, when the promise
 * of `use` has settled.
 * @throws missing_body, invalid_json for an empty one, too_large, gzip_body, bad_content_type for another
 *   encoding and for gzip of anonymous callers, incomplete_body, request_timeout, insufficient_storage, forbidden beyond a quota; and as `use`
 */
export async function withBody<T>(
  request: FastifyRequest,
  limit: SizeLimit,
  use: (body: Body) => Promise<T>,
): Promise<T> {
  if (!hasBody(request)) throw new CouchError('missing_body')
  return withOptionalBody(request, limit, (body) => {
    if (body === null) throw new CouchError('invalid_json')
    return use(body)
  })
}

/** The same for calls whose body may be missing or empty; `use` then gets null. */
export async function withOptionalBody<T>(
  request: FastifyRequest,
  limit: SizeLimit,
  use: (body: Body | null) => Promise<T>,
): Promise<T> {
  return useBody(request, limit, false, use)
}

/** The same for calls that store the body as it was sent, encoded or not. */
export async function withRawBody<T>(
  request: FastifyRequest,
  limit: SizeLimit,
  use: (body: Body | null) => Promise<T>,
): Promise<T> {
  return useBody(request, limit, true, use)
}

async function useBody<T>(
  request: FastifyRequest,
  limit: SizeLimit,
  isRaw: boolean,
  use: (body: Body | null) => Promise<T>,
): Promise<T> {
  if (!hasBody(request)) return use(null)
  const encoding = isRaw ? 'identity' : contentEncoding(request)
  const announced = Number(request.headers['content-length'])
  if (announced > limit.bytes) throw tooLarge(limit)
  const { bodyFiles, bodyMemory, largeBodies } = request.server
  const caller = request.user.name ?? addressKey(request.address)
  const allocation = bodyFiles.allocation(caller, request.user)
  const refusal = announced > MAX_IN_MEMORY ? allocation.refusalOf(announced) : null
  if (refusal !== null) throw refusal
  const folder = spoolFolder(request, isRaw)
  const collector = new BodyCollector(bodyMemory.of(caller), folder, allocation, announced)
  try {
    await read(request, encoding, collector, limit)
    if (request.revocationsSeen !== request.server.revocations.count) await reauthorize(request)
    const { length } = collector
    const work = () => inTurn(request, length, () => use(length === 0 ? null : collector.finish()))
    // Raw content is stored a piece at a time, and takes little memory.
    return await (isRaw ? work() : largeBodies.take(caller, length, work))
  } finally {
    await collector.close()
  }
}

/** The calls that write documents. */
const DOCUMENT_WRITES: ReadonlyMap<string, WriteKind> = new Map([
  ['/:db', 'document'],
  ['/:db/_bulk_docs', 'list'],
  ['/:db/_index', 'index'],
  ['/:db/:docid', 'document'],
  ['/:db/_local/:local', 'document'],
])

/**
 * Runs a write with an allowance in its turn, with the allowance that is left then. Runs anything else at once.
 * @param length of the body, in bytes
 * @throws as `work`
 */
export function inTurn<T>(request: FastifyRequest, length: number, work: () => Promise<T>): Promise<T> {
  const kind = DOCUMENT_WRITES.get(request.routeOptions.url ?? '')
  if (request.user.allowance === undefined || kind === undefined) return work()
  const { db } = request.params as { db: string }
  return request.server.services.policy.write(db, length, kind, async () => {
    await setAllowance(request)
    return work()
  })
}

/** The folder for the body's file; null: it must not reach the disk, since documents of `_users` and `_replicator` hold plain passwords. */
function spoolFolder(request: FastifyRequest, isRaw: boolean): string | null {
  const { db } = pathParams(request)
  const { databases, tmpDir } = request.server.services
  const isSecret = db !== undefined && (holdsAccounts(db, databases.usersDatabase) || holdsReplications(db))
  return isSecret && !isRaw ? null : tmpDir
}

function hasBody({ headers, raw }: FastifyRequest): boolean {
  if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) return true
  return (raw as object) instanceof StreamRequest && (raw as unknown as StreamRequest).hasBody
}

function contentEncoding(request: FastifyRequest): 'gzip' | 'identity' {
  const encoding = request.headers['content-encoding']?.trim().toLowerCase() || 'identity'
  if (encoding === 'identity') return encoding
  if (encoding === 'gzip') {
    // Inflating costs more than sending, and no real client sends it without credentials.
    if (!isAnonymous(request.user)) return encoding
    throw new CouchError(
      'bad_content_type',
      'gzip is accepted from logged-in users only. Send the body without it.',
    )
  }
  throw new CouchError('bad_content_type', `${encoding} is not a supported content encoding.`)
}

function requireWithin(limit: SizeLimit, length: number): void {
  if (length > limit.bytes) throw tooLarge(limit)
}

/** @param sent the bytes of gzip that inflate to `length` bytes */
function requireModestInflation(sent: number, length: number): void {
  if (length <= INFLATES_FREELY || length <= MAX_INFLATION * sent) return
  throw new CouchError(
    'too_large',
    `the request entity inflates to more than ${MAX_INFLATION} times its size`,
  )
}

function tooLarge({ bytes, key, refusal }: SizeLimit): CouchError {
  if (refusal !== undefined) return refusal()
  return new CouchError('too_large', `the request entity is too large: the limit is ${bytes} bytes (${key})`)
}

async function read(
  request: FastifyRequest,
  encoding: 'gzip' | 'identity',
  collector: BodyCollector,
  limit: SizeLimit,
): Promise<void> {
  const { raw } = request
  // Most short bodies arrive with their heads, but are parsed after this turn. Listening for one, with a timer, takes longer.
  if (!raw.complete && isShort(request)) await nextTurn()
  if (raw.complete && !raw.destroyed && encoding === 'identity') return readArrived(raw, collector, limit)
  const started = performance.now()
  const stopWatch = watchProgress(
    raw,
    bodyWindowMs(request.server.services.config),
    () => request.endBody?.(new CouchError('request_timeout')),
    () => collector.length,
  )
  sendContinue(raw)
  try {
    if (encoding === 'gzip') await readInflated(request, collector, limit)
    else await readChunks(request, raw, collector, (length) => requireWithin(limit, length))
  } catch (error) {
    const failure = readFailure(error)
    // Hundreds of clients may leave at once, and each refusal takes 0.1 ms.
    if (failure instanceof CouchError && failure.code === 'incomplete_body') await new Yielder().yieldNow()
    throw failure
  } finally {
    stopWatch()
    // Discards the rest, so that the connection can serve further requests.
    raw.resume()
    request.setBodyTime?.(Math.round(performance.now() - started))
  }
}

/** Whether the body may have arrived with its head: Node reads 64 kB at once. */
function isShort({ headers }: FastifyRequest): boolean {
  return !(Number(headers['content-length']) > CHUNK)
}

/** Reads a body that has arrived already. */
async function readArrived(raw: IncomingMessage, collector: BodyCollector, limit: SizeLimit): Promise<void> {
  try {
    for (let chunk: Buffer | null = raw.read(); chunk !== null; chunk = raw.read()) {
      requireWithin(limit, collector.length + chunk.length)
      await collector.add(chunk)
    }
  } catch (error) {
    raw.resume()
    throw error
  }
}

async function readInflated(
  request: FastifyRequest,
  collector: BodyCollector,
  limit: SizeLimit,
): Promise<void> {
  const { raw } = request
  // Restores may inflate to anything, and an admin runs them.
  const isTrusted = isServerAdmin(request.user)
  // The limit of a small body is checked after so many bytes, not after the first 64 kB.
  const gunzip = createGunzip({ chunkSize: Math.min(CHUNK, Math.max(LEAST_CHUNK, limit.bytes + 1)) })
  // After a cut, pipe() alone would leave the inflater waiting forever.
  const stop = finished(raw, { writable: false }, (error) => {
    if (error) gunzip.destroy(error)
  })
  try {
    await readChunks(request, raw.pipe(gunzip), collector, (length) => {
      requireWithin(limit, length)
      if (!isTrusted) requireModestInflation(gunzip.bytesWritten, length)
    })
  } finally {
    stop()
    raw.unpipe(gunzip)
    gunzip.destroy()
  }
}

/**
 * Reads a stream to its end, by events, since an async iterator would double the cost of a small body. The stream stays
 * open: destroying the request would close the socket before a refusal can be sent.
 * @param requireAllowed throws the refusal of a body of so many bytes
 */
function readChunks(
  request: FastifyRequest,
  source: Readable,
  collector: BodyCollector,
  requireAllowed: (length: number) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let spooling = Promise.resolve()
    const settle = (error?: unknown) => {
      request.endBody = null
      source.off('data', take).off('end', settle).off('error', settle).off('close', cut)
      const finish = () => (error === undefined ? resolve() : reject(error))
      // The collector must not be closed while it writes to its file.
      spooling.then(finish, finish)
    }
    const cut = () => settle(new CouchError('incomplete_body'))
    const take = (chunk: Buffer) => {
      try {
        requireAllowed(collector.length + chunk.length)
      } catch (error) {
        return settle(error)
      }
      const spooled = collector.add(chunk)
      if (spooled === undefined) return
      source.pause()
      spooling = spooled
      spooled.then(() => source.resume(), settle)
    }
    if (source.destroyed) return cut()
    request.endBody = settle
    source.on('data', take).on('end', settle).on('error', settle).on('close', cut)
  })
}

function readFailure(error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? ''
  if (error instanceof CouchError) return error
  if (code.startsWith('Z_')) return new CouchError('gzip_body', undefined, { cause: error })
  if (CUT_OFF.has(code)) return new CouchError('incomplete_body', undefined, { cause: error })
  return error
}

/**
 * The largest body of a call about the server, in bytes: a name, a password, a value. It is parsed in one turn of the
 * HTTP thread, which its size bounds.
 */
export const SMALL_BODY = 8 * 1024
/** The largest list of names, in bytes: a hundred of 238 characters with their quotes have 25 kB. */
export const LIST_BODY = 32 * 1024
/** The largest list of any kind, in bytes: a security object, the documents of a rewind. Parsing takes up to 2 ms. */
export const LARGE_LIST_BODY = 64 * 1024

/**
 * Reads a small JSON body on the HTTP thread: one about the server, not a document.
 * @param bytes the limit of the call
 * @throws invalid_json, too_deep, and as `withBody`
 */
export function readSmallJson(request: FastifyRequest, bytes = SMALL_BODY): Promise<unknown> {
  const limit = { bytes, key: 'the largest body of this call' }
  return withBody(request, limit, async (body) => parse(await bytesOf(body)))
}

function parse(bytes: Uint8Array): unknown {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) as unknown
  } catch {
    throw new CouchError('invalid_json')
  }
  if (isTooDeep(value)) throw new CouchError('too_deep')
  return value
}
