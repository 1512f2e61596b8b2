/** Requests to other servers: connection pools that all replications share, redirects, gzip, and faults in words. */
import type { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { Agent, type Dispatcher, ProxyAgent, request } from 'undici'
import { isLoopback } from '../core/network.ts'
import { PeerError, type PeerFault } from './peer-error.ts'
import { checkLiteralAddress, PrivateAddressError, publicLookup } from './remote-addresses.ts'

export interface RemoteOptions {
  /** Whether private addresses are allowed, which they are for server admins. */
  readonly mayBePrivate: boolean
  /** The URL of an HTTP proxy. */
  readonly proxy: string | undefined
  /** How long an answer may be silent, in ms. */
  readonly timeoutMs: number
  /** Verify the certificates of servers. */
  readonly verifiesCertificates: boolean
}

export interface RemoteRequest {
  readonly method: 'GET' | 'POST' | 'PUT'
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** A stream is made for each try; `content-length` is among the headers then. */
  readonly body?: Uint8Array | (() => Readable)
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
/** Enough for any error answer. */
const MAX_TEXT = 64 * 1024
const MAX_WAIT_MS = 5 * 60_000

/** The connection pools of one server. */
export class RemoteConnections {
  readonly #pools = new Map<string, Dispatcher>()

  /** Sends a request, and follows redirects. @throws PeerError if there is no answer */
  async send(asked: RemoteRequest, options: RemoteOptions): Promise<RemoteAnswer> {
    let { method, url, body } = asked
    let headers = asked.headers
    for (let redirects = 0; ; redirects++) {
      const answer = await this.#sendOnce({ ...asked, method, url, headers, ...(body && { body }) }, options)
      const location = redirectOf(answer, method)
      if (location === null) return toAnswer(answer)
      await answer.body.dump()
      if (redirects >= MAX_REDIRECTS)
        throw new PeerError('invalid_answer', `${shown(url)} redirects too often`)
      const next = locationOf(location, url)
      if (next.origin !== url.origin) headers = withoutCredentials(headers)
      if (answer.statusCode === 303) {
        method = 'GET'
        body = undefined
      }
      url = next
    }
  }

  async #sendOnce(asked: RemoteRequest, options: RemoteOptions): Promise<Dispatcher.ResponseData> {
    const { method, url, headers, body, signal } = asked
    try {
      if (!options.mayBePrivate) checkLiteralAddress(url.hostname)
      return await request(url, {
        dispatcher: this.#pool(options),
        method,
        headers: { 'accept-encoding': acceptedEncoding(url), ...headers },
        body: typeof body === 'function' ? body() : (body ?? null),
        signal,
        headersTimeout: options.timeoutMs,
        bodyTimeout: options.timeoutMs,
      })
    } catch (error) {
      throw faultOf(error, url)
    }
  }

  #pool({ mayBePrivate, proxy, verifiesCertificates, timeoutMs }: RemoteOptions): Dispatcher {
    const key = JSON.stringify([mayBePrivate, proxy, verifiesCertificates])
    const known = this.#pools.get(key)
    if (known !== undefined) return known
    const tls = { rejectUnauthorized: verifiesCertificates }
    const connect = { timeout: timeoutMs, ...tls, ...(!mayBePrivate && { lookup: publicLookup }) }
    const pool =
      proxy === undefined
        ? new Agent({ connect, keepAliveTimeout: 10_000 })
        : new ProxyAgent({ uri: proxy, requestTls: tls })
    this.#pools.set(key, pool)
    return pool
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()))
    this.#pools.clear()
  }
}

/** Between two servers on one machine, compression only takes processor time: a third of that of a pull. */
function acceptedEncoding({ protocol, hostname }: URL): string {
  return protocol === 'http:' && isLoopback(hostname.replace(/[[\]]/g, '')) ? 'identity' : 'gzip'
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

/** Credentials are for the server that the user named. */
function withoutCredentials(headers: Readonly<Record<string, string>>): Record<string, string> {
  const secret = new Set(['authorization', 'cookie', 'proxy-authorization'])
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !secret.has(name.toLowerCase())))
}

function toAnswer({ statusCode, headers, body }: Dispatcher.ResponseData): RemoteAnswer {
  const type = headers['content-type']
  const isGzip = headers['content-encoding'] === 'gzip'
  const chunks = readable(isGzip ? inflated(body) : body)
  return {
    status: statusCode,
    type: typeof type === 'string' ? type : '',
    retryAfterMs: retryAfter(headers),
    chunks,
    text: () => textOf(chunks),
  }
}

function inflated(body: Readable): Readable {
  const gunzip = createGunzip()
  body.on('error', (error) => gunzip.destroy(error))
  gunzip.on('close', () => body.destroy())
  return body.pipe(gunzip)
}

async function* readable(body: Readable): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) yield chunk as Uint8Array
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

/**
 * Reads `Retry-After`: seconds or a date (RFC 9110 10.2.3). A date is compared with the remote's own clock, since one of the
 * clocks may be wrong.
 * @returns ms, at most five minutes
 */
function retryAfter({ 'retry-after': value, date }: Dispatcher.ResponseData['headers']): number | null {
  if (typeof value !== 'string') return null
  const now = Date.parse(String(date)) || Date.now()
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), MAX_WAIT_MS)
}

/** @param url null while a body is read */
function faultOf(error: unknown, url: URL | null): PeerError {
  if (error instanceof PeerError) return error
  const where = url === null ? 'the answer' : shown(url)
  const reasons = causes(error)
  if (reasons.some((cause) => cause instanceof PrivateAddressError)) {
    const reason = `${where}: only server admins may replicate with private addresses`
    return new PeerError('forbidden_address', reason)
  }
  const code = reasons.map((cause) => (cause as { code?: unknown }).code).find((each) => each !== undefined)
  const [fault, words]: [PeerFault, string] = String(code).includes('TIMEOUT')
    ? ['timeout', 'took too long']
    : ['unreachable', url === null ? 'ended before it was complete' : 'could not be reached']
  return new PeerError(fault, `${where} ${words}${code === undefined ? '' : ` (${String(code)})`}`, {
    cause: error,
  })
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
