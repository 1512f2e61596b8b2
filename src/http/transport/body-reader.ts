/**
 * Request bodies: from the socket into memory or a file, inflated on the way, bounded, and handed on whole or not
 * at all. Fastify reads none of them (plugins/methods.ts).
 */
import type { IncomingMessage } from 'node:http'
import { finished, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type { FastifyRequest } from 'fastify'
import { isAnonymous, isServerAdmin } from '../../auth/accounts.ts'
import type { Config } from '../../config/config.ts'
import { CouchError } from '../../core/errors.ts'
import { holdsAccounts } from '../../core/ids.ts'
import { isTooDeep } from '../../core/json.ts'
import { addressKey } from '../../core/network.ts'
import { Yielder } from '../../core/yielder.ts'
import type { Body } from '../../documents/database.ts'
import { inTurn } from '../plugins/tenancy.ts'
import { readmit } from '../readmit.ts'
import { BodyCollector, bytesOf, MAX_IN_MEMORY, sendContinue, watchProgress } from './body-collector.ts'
import { StreamRequest } from './http2-messages.ts'

/** How large a body may be, inflated, and the configuration key that says so. */
export interface SizeLimit {
  readonly bytes: number
  readonly key: string
  /** What a larger body is refused with; by default `too_large`. */
  refusal?(): CouchError
}

const INFLATE_CHUNK = 64 * 1024
/** zlib takes no smaller one. */
const LEAST_CHUNK = 64
/**
 * How much larger than what was sent a body may be once it is inflated, and from which size on. Deflate itself ends at
 * 1,032; notes come to 10, and the same note again and again to 100.
 */
const MAX_INFLATION = 200
const INFLATES_FREELY = 1024 * 1024
/** What streams throw when the other side went away. */
const CUT_OFF = new Set(['ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'])

declare module 'fastify' {
  interface FastifyRequest {
    /** Says how long reading the body took, for the header X-CouchDB-Body-Time. */
    tellBodyTime: ((ms: number) => void) | null
    /** While the body is read: ends that, and whoever waits for the body gets the error. */
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
 * Reads the request's body and calls `use` with it. The body's memory is given back, or its file closed, when
 * what `use` returns has settled.
 * @throws missing_body, invalid_json for an empty one, too_large, gzip_body, bad_content_type for another
 *   encoding and for gzip of strangers, incomplete_body, request_timeout, insufficient_storage, forbidden beyond a quota; and as `use`
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

/** The same for calls whose body may be missing or empty: then `use` gets null. */
export async function withOptionalBody<T>(
  request: FastifyRequest,
  limit: SizeLimit,
  use: (body: Body | null) => Promise<T>,
): Promise<T> {
  return useBody(request, limit, false, use)
}

/** The same for calls that keep the body as it comes: coded or not, it is not looked into. */
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
  const place = bodyFiles.place(caller, request.user)
  const refusal = announced > MAX_IN_MEMORY ? place.refusalOf(announced) : null
  if (refusal !== null) throw refusal
  const folder = spoolFolder(request, isRaw)
  const collector = new BodyCollector(bodyMemory.of(caller), folder, (bytes) => place.take(bytes), announced)
  try {
    await read(request, encoding, collector, limit)
    if (request.admittedAt !== request.server.doubts.count) await readmit(request)
    const { length } = collector
    const work = () => inTurn(request, length, () => use(length === 0 ? null : collector.finish()))
    // Content that is kept as it came is moved a piece at a time, and takes no memory of its own.
    return await (isRaw ? work() : largeBodies.take(caller, length, work))
  } finally {
    await collector.close()
    place.leave()
  }
}

/** Where a body may be spooled to; null: nowhere, since documents of `_users` bring passwords as they are. */
function spoolFolder(request: FastifyRequest, isRaw: boolean): string | null {
  const { db } = request.params as { readonly db?: string }
  const { databases, tmpDir } = request.server.services
  const isSecret = db !== undefined && holdsAccounts(db, databases.usersDatabase)
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
    // No client sends it without credentials, and inflating costs more than sending.
    if (!isAnonymous(request.user)) return encoding
    throw new CouchError(
      'bad_content_type',
      'gzip is taken from those who have logged in: send the body as it is.',
    )
  }
  throw new CouchError('bad_content_type', `${encoding} is not a supported content encoding.`)
}

function requireWithin(limit: SizeLimit, length: number): void {
  if (length > limit.bytes) throw tooLarge(limit)
}

/** @param sent how many bytes of gzip have become `length` bytes */
function requireModestInflation(sent: number, length: number): void {
  if (length <= INFLATES_FREELY || length <= MAX_INFLATION * sent) return
  throw new CouchError(
    'too_large',
    `the request entity is inflated to more than ${MAX_INFLATION} times its size`,
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
  // Most bodies came with their heads; waiting for them would cost more than all else (10 us).
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
    // Its client is gone, and maybe hundreds of others as well: to refuse a request that nobody waits for takes 0.1 ms.
    if (failure instanceof CouchError && failure.code === 'incomplete_body') await new Yielder().yieldNow()
    throw failure
  } finally {
    stopWatch()
    // What is still to come is thrown away, or the connection could serve nobody else.
    raw.resume()
    request.tellBodyTime?.(Math.round(performance.now() - started))
  }
}

/** Reads a body that is here already. */
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
  // Restores may bring anything, and are an admin's.
  const isTrusted = isServerAdmin(request.user)
  // A small body is stopped as soon as it is larger, not after the first 64 kB.
  const gunzip = createGunzip({ chunkSize: Math.min(INFLATE_CHUNK, Math.max(LEAST_CHUNK, limit.bytes + 1)) })
  // pipe() alone would leave the inflater waiting for ever after a cut.
  const forget = finished(raw, { writable: false }, (error) => {
    if (error) gunzip.destroy(error)
  })
  try {
    await readChunks(request, raw.pipe(gunzip), collector, (length) => {
      requireWithin(limit, length)
      if (!isTrusted) requireModestInflation(gunzip.bytesWritten, length)
    })
  } finally {
    forget()
    raw.unpipe(gunzip)
    gunzip.destroy()
  }
}

/**
 * Reads a stream to its end; events, since an async iterator costs a small body more than all else. The stream is left
 * open: destroying the request would close the socket before a refusal can be sent over it.
 * @param requireAllowed throws what a body of so many bytes is refused with
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
      const tell = () => (error === undefined ? resolve() : reject(error))
      // The collector must not be closed while it is at its file.
      spooling.then(tell, tell)
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
 * HTTP thread, so that its size bounds that turn.
 */
export const SMALL_BODY = 8 * 1024
/** The largest list of names: a hundred of 238 characters, each with its quotes, have 25 kB. */
export const LIST_BODY = 32 * 1024
/** The largest list of anything: the security object, the documents of a rewind. Parsing takes a millisecond or two. */
export const LARGE_LIST_BODY = 64 * 1024

/**
 * Reads a small JSON body here, on the HTTP thread: one that is about the server, and no document.
 * @param bytes the largest that the call takes
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
