/** Requests to a server that may be killed under them, counted: sent, answered, and left without an answer. */
import { Agent, request } from 'undici'

export interface Sent {
  /** Bytes or streams as they are; anything else as JSON. */
  readonly body?: unknown
  readonly type?: string
}

export interface Got {
  readonly status: number
  readonly bytes: Buffer
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

/** The connection broke before the whole answer was there, or a node or balancer said that it knows none. */
export class Unanswered extends Error {}

/** Of a node that has lost its store, and of a load balancer that has lost its node. */
const UNKNOWN = new Set([502, 503, 504])

export class Client {
  readonly #url: string
  readonly #agent = new Agent({ connections: 200, keepAliveTimeout: 60_000, connect: { timeout: 60_000 } })
  /** Writes that were sent and have no answer yet. */
  inFlight = 0
  acknowledged = 0
  unanswered = 0

  readonly #isOfNodes: boolean

  /** @param isOfNodes whether answers of {@link UNKNOWN} are expected, and tell nothing */
  constructor(url: string, { isOfNodes = false } = {}) {
    this.#url = url
    this.#isOfNodes = isOfNodes
  }

  /** A request that writes. @throws Unanswered */
  async write(method: string, path: string, sent: Sent = {}): Promise<Got> {
    this.inFlight += 1
    try {
      const got = await this.ask(method, path, sent)
      this.acknowledged += 1
      return got
    } catch (error) {
      this.unanswered += 1
      throw error
    } finally {
      this.inFlight -= 1
    }
  }

  /** As {@link write}. @throws Error for another status than one of those expected */
  async succeed(method: string, path: string, sent: Sent = {}): Promise<Got> {
    const got = await this.write(method, path, sent)
    if (got.status >= 300) throw new Error(`${method} ${path}: ${got.status} ${got.bytes.subarray(0, 500)}`)
    return got
  }

  /** A request that is not counted. @throws Unanswered */
  async ask(method: string, path: string, { body, type }: Sent = {}): Promise<Got> {
    const isPlain = body === undefined || type !== undefined
    const got = await this.#asked(method, path, {
      headers: body === undefined ? {} : { 'content-type': type ?? 'application/json' },
      body: isPlain ? ((body ?? null) as Buffer | null) : JSON.stringify(body),
    })
    if (this.#isOfNodes && UNKNOWN.has(got.status)) throw new Unanswered(`${method} ${path}: ${got.status}`)
    return got
  }

  async #asked(
    method: string,
    path: string,
    sent: { readonly headers: Record<string, string>; readonly body: Buffer | string | null },
  ): Promise<Got> {
    try {
      const answer = await request(this.#url + path, {
        method: method as 'GET',
        dispatcher: this.#agent,
        ...sent,
      })
      const bytes = Buffer.from(await answer.body.arrayBuffer())
      return { status: answer.statusCode, bytes, json: parsed(bytes) }
    } catch (cause) {
      throw new Unanswered(`${method} ${path}`, { cause })
    }
  }

  /** @throws Error for any status but 200 */
  async get(path: string): Promise<Got> {
    const got = await this.ask('GET', path)
    if (got.status !== 200) throw new Error(`GET ${path}: ${got.status} ${got.bytes.subarray(0, 500)}`)
    return got
  }

  async close(): Promise<void> {
    await this.#agent.destroy()
  }
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString())
  } catch {
    return undefined
  }
}
