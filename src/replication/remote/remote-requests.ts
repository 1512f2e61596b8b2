/** Requests to other servers: redirects, gzip, and faults in words. */
import type { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type { Dispatcher } from 'undici'
import { isLoopback } from '../../core/network.ts'
import { PeerError, type PeerFault } from '../peer-error.ts'
import { AnswerPace } from './answer-pace.ts'
import type { FeedTurn } from './feed-turns.ts'
import { checkLiteralAddress, isPrivateHost, PrivateAddressError } from './remote-addresses.ts'
import { retryAfter } from './remote-pace.ts'
import { type RemoteOptions, RemotePools } from './remote-pools.ts'
import { request } from './undici-parts.ts'

export interface RemoteRequest {
  readonly method: 'GET' | 'POST' | 'PUT'
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** A stream is made for each try; `content-length` is among the headers then. */
  readonly body?: Uint8Array | (() => Readable)
  /** The request waits for news, in a turn of {@link RemoteConnections.feedTurn}. */
  readonly isFeed?: boolean
  /** The answer may have heartbeats alone until there is news; by default that of a feed. */
  readonly mayWait?: boolean
  readonly signal: AbortSignal
}

export interface RemoteAnswer {
  readonly status: number
  readonly type: string
  readonly retryAfterMs: number | null
  readonly chunks: AsyncIterable<Uint8Array>
  text(): Promise<string>
}

const MAX_REDIRECTS = 5
/** Interim answers to one request. Each lets the answer itself be late once more. */
const MAX_INTERIM = 10
/** Enough for any error answer. */
const MAX_TEXT = 64 * 1024

/** Sends the requests of all replications. */
export class RemoteConnections {
  readonly #pools: RemotePools

  /** @param maxConnections to one remote */
  constructor(maxConnections?: () => number) {
    this.#pools = new RemotePools(maxConnections)
  }

  /** Sends a request, and follows redirects. @throws PeerError if there is no answer */
  async send(asked: RemoteRequest, asker: RemoteOptions): Promise<RemoteAnswer> {
    let { method, url, body } = asked
    let headers = asked.headers
    let options = asker
    for (let redirects = 0; ; redirects++) {
      const answer = await this.#sendOnce({ ...asked, method, url, headers, ...(body && { body }) }, options)
      const location = redirectOf(answer, method)
      const { isFeed = false, mayWait = isFeed } = asked
      const windowMs = options.timeoutMs
      if (location === null) return toAnswer(answer, new AnswerPace({ windowMs, isFeed: mayWait }))
      await toAnswer(answer, new AnswerPace({ windowMs, isFeed: false })).text()
      if (redirects >= MAX_REDIRECTS)
        throw new PeerError('invalid_answer', `${shown(url)} redirects too often`)
      const next = locationOf(location, url)
      if (next.origin !== url.origin) headers = ownHeaders(headers)
      options = { ...options, mayBePrivate: options.mayBePrivate && (await mayLeadTo(next, url)) }
      if (answer.statusCode === 303) {
        method = 'GET'
        body = undefined
      }
      url = next
    }
  }

  async #sendOnce(asked: RemoteRequest, options: RemoteOptions): Promise<Dispatcher.ResponseData> {
    const { method, url, headers, body, isFeed = false, signal } = asked
    try {
      if (!options.mayBePrivate) checkLiteralAddress(url.hostname)
      const answer = request.call(this.#pools.pool(url.origin, options, isFeed), {
        origin: url.origin,
        path: url.pathname + url.search,
        method,
        headers: { 'accept-encoding': acceptedEncoding(url), ...headers },
        body: typeof body === 'function' ? body() : (body ?? null),
        signal,
        headersTimeout: options.timeoutMs,
        bodyTimeout: options.timeoutMs,
        onInfo: interimCount(url),
      })
      return await unlessAborted(answer, signal)
    } catch (error) {
      throw faultOf(error, url)
    }
  }

  /** See {@link RemotePools.feedTurn}. */
  feedTurn(url: URL, options: RemoteOptions, signal: AbortSignal): Promise<FeedTurn> {
    return this.#pools.feedTurn(url, options, signal)
  }

  close(): Promise<void> {
    return this.#pools.close()
  }
}

/** @returns to be called for each interim answer; throws PeerError for too many */
function interimCount(url: URL): () => void {
  let count = 0
  return () => {
    count += 1
    if (count > MAX_INTERIM)
      throw new PeerError('invalid_answer', `${shown(url)} sends too many interim answers`)
  }
}

/** Between two servers on one machine, compression only takes processor time: a third of that of a pull. */
function acceptedEncoding({ protocol, hostname }: URL): string {
  return protocol === 'http:' && isLoopback(hostname.replace(/[[\]]/g, '')) ? 'identity' : 'gzip'
}

/** undici ends a request whose connection is still being made only when it is made. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = () => reject(signal.reason)
  signal.addEventListener('abort', abort, { once: true })
  if (signal.aborted) abort()
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** @returns null if the answer is no redirect to follow: a request with a body must stay the same (RFC 9110 15.4) */
function redirectOf({ statusCode, headers }: Dispatcher.ResponseData, method: string): string | null {
  const { location } = headers
  if (typeof location !== 'string') return null
  if (statusCode === 307 || statusCode === 308 || statusCode === 303) return location
  return method === 'GET' && (statusCode === 301 || statusCode === 302) ? location : null
}

function locationOf(location: string, url: URL): URL {
  const next = URL.canParse(location, url.href) ? new URL(location, url) : null
  if (next !== null && (next.protocol === 'http:' || next.protocol === 'https:')) return next
  throw new PeerError('invalid_answer', `${shown(url)} redirects to an address that is not valid`)
}

/** Headers that the user has named are for the server that the user has named: they may be credentials of any kind. */
function ownHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const own = new Set(['accept', 'content-type', 'content-length'])
  return Object.fromEntries(Object.entries(headers).filter(([name]) => own.has(name.toLowerCase())))
}

/** Whether a redirect may lead to a private address: a server of the internet must not reach others through this one. */
async function mayLeadTo(next: URL, from: URL): Promise<boolean> {
  return next.hostname === from.hostname || isPrivateHost(from.hostname)
}

function toAnswer({ statusCode, headers, body }: Dispatcher.ResponseData, pace: AnswerPace): RemoteAnswer {
  const type = headers['content-type']
  const isGzip = headers['content-encoding'] === 'gzip'
  const chunks = readable(isGzip ? inflated(body, pace) : body, pace)
  return {
    status: statusCode,
    type: typeof type === 'string' ? type : '',
    retryAfterMs: retryAfter(headers),
    chunks,
    text: () => textOf(chunks),
  }
}

function inflated(body: Readable, pace: AnswerPace): Readable {
  const gunzip = createGunzip()
  body.on('error', (error) => gunzip.destroy(error))
  gunzip.on('close', () => body.destroy())
  body.on('data', () => {
    try {
      pace.check()
    } catch (error) {
      gunzip.destroy(error as PeerError)
    }
  })
  return body.pipe(gunzip)
}

async function* readable(body: Readable, pace: AnswerPace): AsyncGenerator<Uint8Array> {
  try {
    yield* pace.watch(body)
  } catch (error) {
    throw faultOf(error, null)
  }
}

async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of chunks) {
    parts.push(chunk)
    bytes += chunk.length
    if (bytes > MAX_TEXT) break
  }
  return Buffer.concat(parts).toString()
}

/** @param url null while a body is read */
function faultOf(error: unknown, url: URL | null): PeerError {
  if (error instanceof PeerError) return error
  const where = url === null ? 'the answer' : shown(url)
  const reasons = causes(error)
  if (reasons.some((cause) => cause instanceof PrivateAddressError)) {
    const reason = `${where}: only server admins may replicate with private addresses, and no redirect leads to one`
    return new PeerError('forbidden_address', reason)
  }
  const code = reasons
    .map((cause) => (cause as { code?: unknown }).code)
    .find((each) => typeof each === 'string')
  const isLate = String(code).includes('TIMEOUT') || reasons.some((cause) => isTimeout(cause))
  const [fault, words]: [PeerFault, string] = isLate
    ? ['timeout', 'took too long']
    : ['unreachable', url === null ? 'ended before it was complete' : 'could not be reached']
  return new PeerError(fault, `${where} ${words}${code === undefined ? '' : ` (${String(code)})`}`, {
    cause: error,
  })
}

/** What `AbortSignal.timeout` aborts with. */
function isTimeout(error: object): boolean {
  return error instanceof DOMException && error.name === 'TimeoutError'
}

function causes(error: unknown): object[] {
  const found: object[] = []
  for (let each = error; typeof each === 'object' && each !== null && found.length < 10; ) {
    found.push(each)
    if (each instanceof AggregateError) found.push(...(each.errors as object[]))
    each = (each as { cause?: unknown }).cause
  }
  return found
}

/** An address for people, without credentials and parameters. */
function shown(url: URL): string {
  return `${url.origin}${url.pathname}`
}
