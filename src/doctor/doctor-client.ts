/** The doctor's HTTP client: keeps headers as they arrived, even duplicates, and has a time-out for every wait. */
import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request as sendHttp } from 'node:http'
import { Agent as HttpsAgent, request as sendHttps } from 'node:https'
import { isIP } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Address } from '../core/address.ts'

/** The maximum number of bytes to read of an answer: enough for a long design document. */
const MAX_TEXT = 1_048_576

interface RequestOptions {
  readonly method: string
  /** Encoded, and below the prefix of the address. */
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Whether to leave out the credentials of the address. */
  readonly anonymous?: boolean
}

export interface Answer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  /** The lowercase name and the value of each header, as it arrived. */
  readonly raw: readonly (readonly [name: string, value: string])[]
  readonly text: string
  /** undefined: not JSON. */
  readonly json: unknown
  /** When the head arrived, in ms since 1970. */
  readonly at: number
  /** Milliseconds until the end of the answer. */
  readonly ms: number
}

/** A missing or incomplete answer. `failure` is a code of Node's, such as ECONNRESET, or TIMEOUT. */
interface Failure {
  readonly failure: string
}

export type Reply = Answer | Failure

export function isAnswer(reply: Reply): reply is Answer {
  return 'status' in reply
}

/** Whether an answer is JSON. CouchDB's answers are; those of proxies are not. */
export function isJson({ json }: Pick<Answer, 'json'>): boolean {
  return typeof json === 'object' && json !== null
}

/** The header that PouchDB sends with the credentials of its address: Basic, in UTF-8. */
export function basicOf({ username, password }: Address): string | undefined {
  if (username === undefined) return undefined
  return `Basic ${Buffer.from(`${username}:${password ?? ''}`).toString('base64')}`
}

/** The database's path at its server, with its name as one segment. */
export function databasePath({ database }: Address): string {
  return `/${encodeURIComponent(database)}`
}

interface ClientOptions {
  /** The trusted authorities, made once for all connections; undefined: Node's own. */
  readonly trust: SecureContext | undefined
  /** The time-out of one answer, in ms. */
  readonly timeoutMs: number
  /** Sent with all requests, as apps send them for a proxy; in lower case. May hold secrets. */
  readonly headers?: Readonly<Record<string, string>>
}

export class Client {
  readonly address: Address
  readonly #options: ClientOptions
  readonly #agent: HttpAgent | HttpsAgent
  #hasCredentials = true

  constructor(address: Address, options: ClientOptions) {
    this.address = address
    this.#options = options
    const isTls = address.scheme === 'https'
    this.#agent = isTls ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true })
  }

  /** The headers that an app sends for a proxy. */
  get appHeaders(): Readonly<Record<string, string>> {
    return this.#options.headers ?? {}
  }

  get trust(): SecureContext | undefined {
    return this.#options.trust
  }

  /** The Authorization header; undefined: there are no credentials, or they were dropped. */
  get authorization(): string | undefined {
    return this.#hasCredentials ? basicOf(this.address) : undefined
  }

  /** Begins a request. The caller sends its body, reads its answer and bounds its time. */
  begin({ method, path, headers, anonymous = false }: Omit<RequestOptions, 'body'>): ClientRequest {
    const { scheme, host, port, prefix = '' } = this.address
    const authorization = anonymous ? undefined : this.authorization
    const options = {
      agent: this.#agent,
      host,
      port,
      method,
      path: `${prefix}${path}`,
      headers: {
        host: `${isIP(host) === 6 ? `[${host}]` : host}:${port}`,
        accept: 'application/json',
        'user-agent': 'settee-doctor',
        // A browser sends none of them with a preflight.
        ...(method !== 'OPTIONS' && this.appHeaders),
        ...(authorization !== undefined && { authorization }),
        ...headers,
      },
    }
    if (scheme === 'http') return sendHttp(options)
    const { trust } = this.#options
    return sendHttps({
      ...options,
      ...(trust !== undefined && { secureContext: trust }),
      ...(isIP(host) === 0 && { servername: host }),
    })
  }

  /** All further requests are anonymous. */
  forgetCredentials(): void {
    this.#hasCredentials = false
  }

  /** Never rejects. */
  ask(options: RequestOptions): Promise<Reply> {
    const started = performance.now()
    const body = options.body === undefined ? undefined : Buffer.from(options.body)
    const headers = {
      ...(body !== undefined && {
        'content-type': 'application/json',
        'content-length': String(body.length),
      }),
      ...options.headers,
    }
    return new Promise((resolve) => {
      const request = this.begin({ ...options, headers })
      const finish = (reply: Reply) => {
        clearTimeout(timer)
        resolve(reply)
        if (!isAnswer(reply)) request.destroy()
      }
      const timer = setTimeout(() => finish({ failure: 'TIMEOUT' }), this.#options.timeoutMs)
      request.on('error', (error) => finish({ failure: codeOf(error) }))
      request.on('response', (response) => {
        void readAnswer(response, started).then(finish, (error: unknown) =>
          finish({ failure: codeOf(error) }),
        )
      })
      request.end(body)
    })
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** @param started the time of the request, in ms of `performance.now()` */
export async function readAnswer(response: IncomingMessage, started: number): Promise<Answer> {
  const at = Date.now()
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response) {
    chunks.push(chunk as Buffer)
    length += (chunk as Buffer).length
    if (length > MAX_TEXT) break
  }
  const text = Buffer.concat(chunks).toString()
  const { statusCode: status = 0, headers, rawHeaders } = response
  const ms = performance.now() - started
  return { status, headers, raw: pairsOf(rawHeaders), text, json: parsed(text), at, ms }
}

/** @returns a code of Node's or OpenSSL's, or the message if there is no code */
export function codeOf(error: unknown): string {
  const { code, message } = error as { readonly code?: string; readonly message?: string }
  return code ?? message ?? 'UNKNOWN'
}

function pairsOf(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, at): [string, string][] =>
    at % 2 === 0 ? [[name.toLowerCase(), flat[at + 1] ?? '']] : [],
  )
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The doctor's time limits, in milliseconds, and the size of its requests. */
export interface ProbeLimits {
  readonly requestMs: number
  /** For a look-up, and for a connection. */
  readonly connectMs: number
  /** The requested heartbeat interval of the feed. */
  readonly heartbeatMs: number
  /** How long the feed is watched if nothing arrives. */
  readonly feedMs: number
  /** How many heartbeats prove that the feed is not buffered. */
  readonly beats: number
  /** For all bodies together. */
  readonly bodiesMs: number
  /** Additional time for one body, because the connection may get slower. */
  readonly bodyGraceMs: number
  /** Bytes of the bodies that are tried, smallest first. */
  readonly bodies: readonly number[]
  /** How long the long feeds are kept open; null: they are not tried. */
  readonly longMs: number | null
  /** The requested heartbeat interval of the long feed. */
  readonly longHeartbeatMs: number
}

const MIB = 1_048_576
/**
 * Just above whole mebibytes, which are common limits of proxies: by default, nginx accepts up to 1 MiB
 * (`client_max_body_size 1m`).
 */
const SIZES = [1, 10, 64].map((mebibytes) => mebibytes * MIB + 1024)

const USUAL: ProbeLimits = {
  requestMs: 5000,
  connectMs: 3000,
  heartbeatMs: 1000,
  feedMs: 3500,
  beats: 2,
  bodiesMs: 6000,
  bodyGraceMs: 4000,
  bodies: SIZES,
  longMs: null,
  longHeartbeatMs: 10_000,
}

/** Longer than the time-outs of nginx, 60 s, and Cloudflare, 100 s. */
const LONG_MS = 115_000

/** @returns the limits for `--quick`, for `--long` or for neither */
export function limitsFor({ quick, long }: { readonly quick: boolean; readonly long: boolean }): ProbeLimits {
  if (quick)
    return { ...USUAL, feedMs: 2800, beats: 1, bodies: SIZES.slice(0, 1), bodiesMs: 2000, bodyGraceMs: 500 }
  return long ? { ...USUAL, bodiesMs: 300_000, bodyGraceMs: 60_000, longMs: LONG_MS } : USUAL
}

/**
 * Waits for a promise, with a time-out, which does not stop its work.
 * @throws Error with the code TIMEOUT; and as the promise
 */
export async function withTimeout<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error('no answer in time'), { code: 'TIMEOUT' })), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
