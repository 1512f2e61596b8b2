/** HTTP as the doctor needs it: headers as they came, also twice, and every wait bounded. */
import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request as sendHttp } from 'node:http'
import { Agent as HttpsAgent, request as sendHttps } from 'node:https'
import { isIP } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Address } from '../core/address.ts'

/** Bytes of an answer that are read: a design document may be this long. */
const MAX_TEXT = 1_048_576

interface Asked {
  readonly method: string
  /** Encoded; without it, what is behind it is asked of the server itself. */
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Without the credentials of the address. */
  readonly anonymous?: boolean
}

export interface Answer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  /** Name, in small letters, and value of each header as it came. */
  readonly raw: readonly (readonly [name: string, value: string])[]
  readonly text: string
  /** undefined: it is no JSON. */
  readonly json: unknown
  /** When the head came, in ms since 1970. */
  readonly at: number
  /** Milliseconds to its end. */
  readonly ms: number
}

/** No answer came, or not the whole of one: a code of Node's, such as ECONNRESET, or TIMEOUT. */
interface Failure {
  readonly failure: string
}

export type Reply = Answer | Failure

export function isAnswer(reply: Reply): reply is Answer {
  return 'status' in reply
}

/** Whether it is in JSON: CouchDB's are, and what stands before it has none. */
export function isJson({ json }: Pick<Answer, 'json'>): boolean {
  return typeof json === 'object' && json !== null
}

/** @returns all values of a header as a page sees them: Node keeps the first `Server` alone, and Caddy sends two */
export function headerOf({ raw }: Pick<Answer, 'raw'>, name: string): string {
  return raw.flatMap(([each, value]) => (each === name ? [value] : [])).join(', ')
}

/** What PouchDB sends with the credentials of its address: Basic, in UTF-8. */
export function basicOf({ username, password }: Address): string | undefined {
  if (username === undefined) return undefined
  return `Basic ${Buffer.from(`${username}:${password ?? ''}`).toString('base64')}`
}

/** The database's path: its name is one segment. */
export function databasePath({ database }: Address): string {
  return `/${encodeURIComponent(database)}`
}

interface ClientOptions {
  /** Who is trusted, made once for all connections; undefined: whom Node knows. */
  readonly trust: SecureContext | undefined
  /** Milliseconds for one answer. */
  readonly timeoutMs: number
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

  get trust(): SecureContext | undefined {
    return this.#options.trust
  }

  /** What is sent with each request; undefined: there are no credentials, or they were forgotten. */
  get authorization(): string | undefined {
    return this.#hasCredentials ? basicOf(this.address) : undefined
  }

  /** Begins a request whose body and answer are the caller's to move and to bound. */
  begin({ method, path, headers, anonymous = false }: Omit<Asked, 'body'>): ClientRequest {
    const { scheme, host, port } = this.address
    const authorization = anonymous ? undefined : this.authorization
    const options = {
      agent: this.#agent,
      host,
      port,
      method,
      path,
      headers: {
        host: `${isIP(host) === 6 ? `[${host}]` : host}:${port}`,
        accept: 'application/json',
        'user-agent': 'settee-doctor',
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

  /** From here on all requests go without them. */
  forgetCredentials(): void {
    this.#hasCredentials = false
  }

  /** Never rejects. */
  ask(asked: Asked): Promise<Reply> {
    const started = performance.now()
    const body = asked.body === undefined ? undefined : Buffer.from(asked.body)
    const headers = {
      ...(body !== undefined && {
        'content-type': 'application/json',
        'content-length': String(body.length),
      }),
      ...asked.headers,
    }
    return new Promise((resolve) => {
      const request = this.begin({ ...asked, headers })
      const settle = (reply: Reply) => {
        clearTimeout(timer)
        resolve(reply)
        if (!isAnswer(reply)) request.destroy()
      }
      const timer = setTimeout(() => settle({ failure: 'TIMEOUT' }), this.#options.timeoutMs)
      request.on('error', (error) => settle({ failure: codeOf(error) }))
      request.on('response', (response) => {
        void readAnswer(response, started).then(settle, (error: unknown) =>
          settle({ failure: codeOf(error) }),
        )
      })
      request.end(body)
    })
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** @param started of `performance.now()` */
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

/** @returns a code of Node's or OpenSSL's, or the message where there is none */
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
