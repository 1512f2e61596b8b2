/** Serves another request in the place of one that a design document has rewritten; protocol.md 9.6. */
import { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../../config/config.ts'
import { CouchError } from '../../core/errors.ts'
import { SAFE_METHODS } from '../plugins/cross-origin.ts'
import { passCount } from '../plugins/request-metrics.ts'
import { sendContinue } from './body-progress.ts'
import { MAX_HEADER_BYTES } from './client-errors.ts'
import { StreamRequest } from './http2-messages.ts'

/** What replaces the parts of a request; absent parts stay. */
export interface RewrittenParts {
  /** The path with its query, encoded. */
  readonly address: string
  readonly method?: string
  /** Added to the headers; those about the caller are ignored. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array
}

/** Listeners that the server adds to an answer for each request that it serves. */
const LISTENERS = 20

class RewrittenRequest extends IncomingMessage {
  /** How often the client's request has been rewritten. */
  readonly rewrites: number
  readonly #source: IncomingMessage
  readonly #body: Uint8Array | undefined
  #isReading = false

  /** @param id of the client's request */
  constructor(source: IncomingMessage, { address, method, headers, body }: RewrittenParts, id: string) {
    super(source.socket)
    this.rewrites = rewritesOf(source) + 1
    this.#source = source
    this.#body = body
    this.httpVersion = source.httpVersion
    this.httpVersionMajor = source.httpVersionMajor
    this.httpVersionMinor = source.httpVersionMinor
    this.url = address
    this.method = method ?? source.method ?? 'GET'
    this.headers = { ...source.headers, ...headers, 'x-couch-request-id': id }
    if (body !== undefined) {
      delete this.headers['transfer-encoding']
      delete this.headers['content-encoding']
      this.headers['content-length'] = String(body.length)
    } else if (source instanceof StreamRequest && source.hasBody) {
      // Over HTTP/2, a body needs no header.
      this.headers['transfer-encoding'] = 'chunked'
    }
    source.once('close', () => this.complete || this.emit('close'))
    // As for any request, `close` follows an error.
    this.on('error', () => undefined)
  }

  override _read(): void {
    if (this.#body !== undefined) {
      this.push(this.#body)
      this.#finish()
    } else if (this.#isReading) this.#source.resume()
    else this.#begin()
  }

  #begin(): void {
    this.#isReading = true
    sendContinue(this.#source)
    const source = this.#source
    if (source.readableEnded) {
      this.#finish()
      return
    }
    source.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) source.pause()
    })
    source.on('end', () => this.#finish())
  }

  #finish(): void {
    this.complete = true
    this.push(null)
  }
}

/** The headers that say who the caller is, and from where: a function may not speak for another one. */
const OF_CALLER = /^(?:authorization|cookie|host|origin|referer|forwarded|x-forwarded-.*|x-auth-couchdb-.*)$/
/** The settings that give such headers other names. */
const NAMED: readonly (readonly [section: string, key: string])[] = [
  ...['x_auth_username', 'x_auth_roles', 'x_auth_token'].map((key) => ['chttpd_auth', key] as const),
  ...['x_forwarded_host', 'x_forwarded_proto', 'x_forwarded_ssl'].map((key) => ['chttpd', key] as const),
]

function allowedHeaders(config: Config, headers: RewrittenParts['headers'] = {}): Record<string, string> {
  const named = new Set(NAMED.map(([section, key]) => config.get(section, key)?.toLowerCase()))
  const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const)
  return Object.fromEntries(lower.filter(([name]) => !OF_CALLER.test(name) && !named.has(name)))
}

function rewritesOf(source: IncomingMessage): number {
  return source instanceof RewrittenRequest ? source.rewrites : 0
}

/** @throws bad_request if the client's request has been rewritten so often: `chttpd/rewrite_limit` */
export function checkRewrites({ raw, server }: FastifyRequest): void {
  const limit = server.services.config.integer('chttpd', 'rewrite_limit')
  if (rewritesOf(raw) >= limit) throw new CouchError('bad_request', 'Exceeded rewrite recursion limit')
}

/** Functions make it, and each of many rewrites passes it on: megabytes would hold up the HTTP thread. */
function isTooLong({ address, headers = {} }: RewrittenParts): boolean {
  const parts = [address, ...Object.entries(headers).flat()]
  return parts.reduce((sum, { length }) => sum + length, 0) > MAX_HEADER_BYTES
}

/**
 * Has the server answer the rewritten request, with all its checks, in place of the original one.
 * @throws headers_too_large for a head that no client could send; unsafe_rewrite: otherwise a link of a database's admin could write with the rights of whoever follows it
 */
export function serveRewritten(request: FastifyRequest, reply: FastifyReply, parts: RewrittenParts): void {
  const { method = request.method } = parts
  if (isTooLong(parts)) throw new CouchError('headers_too_large')
  if (SAFE_METHODS.has(request.method) && !SAFE_METHODS.has(method)) throw new CouchError('unsafe_rewrite')
  const headers = allowedHeaders(request.server.services.config, parts.headers)
  const rewritten = new RewrittenRequest(request.raw, { ...parts, headers }, request.id)
  passCount(reply)
  reply.hijack()
  reply.raw.setMaxListeners(reply.raw.getMaxListeners() + LISTENERS)
  request.server.routing(rewritten, reply.raw)
}
