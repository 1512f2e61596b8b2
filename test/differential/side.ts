/** One of the two servers: sends the steps of a case, and keeps what later steps refer to. */
import { Agent, type IncomingHttpHeaders, request } from 'node:http'
import { setTimeout as rest } from 'node:timers/promises'
import { Kept, type Step } from './step.ts'

/** An answer as it came. */
export interface Answer {
  /** 0: the connection ended without one. */
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  /** Whether the connection ended before the body did. */
  readonly isCut: boolean
}

/** CouchDB leaves some requests without an answer. */
const MAX_MS = 20_000
/** How long a state may take that a server reaches by itself. */
const MAX_UNTIL_MS = 15_000
/** Between two questions for it. */
const PAUSE_MS = 100

/** What the account of a case is called among the revisions. */
const ACCOUNT = 'account'

export class Server {
  readonly url: string
  readonly #origin: URL
  readonly #agent = new Agent({ keepAlive: true })
  readonly #admin: string

  /** @param url with the credentials of an admin */
  constructor(url: string) {
    const { username, password, origin } = new URL(url)
    this.url = url.replace(/\/$/, '')
    this.#origin = new URL(origin)
    this.#admin = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  }

  get origin(): string {
    return this.#origin.origin
  }

  close(): void {
    this.#agent.destroy()
  }

  send(step: Step, kept: Kept): Promise<Answer> {
    const { method, path, headers = {}, auth = this.#admin } = step
    const body = typeof step.body === 'string' ? Buffer.from(kept.filled(step.body)) : step.body
    const filled = Object.entries(headers).map(([name, value]) => [name, kept.filled(value)])
    return new Promise((resolve) => {
      const sent = request({
        host: this.#origin.hostname,
        port: this.#origin.port,
        agent: this.#agent,
        method,
        path: kept.filledPath(path),
        headers: {
          ...(auth !== null && {
            Authorization: `Basic ${Buffer.from(kept.filled(auth)).toString('base64')}`,
          }),
          ...(body !== undefined && { 'Content-Length': body.length }),
          ...Object.fromEntries(filled),
        },
        signal: AbortSignal.timeout(MAX_MS),
      })
      sent.on('error', () => resolve({ status: 0, headers: {}, body: Buffer.alloc(0), isCut: true }))
      sent.on('response', (message) => {
        const { statusCode: status = 0, headers } = message
        const chunks: Buffer[] = []
        const end = (isCut: boolean) => resolve({ status, headers, body: Buffer.concat(chunks), isCut })
        message.on('data', (chunk: Buffer) => chunks.push(chunk))
        message.on('end', () => end(false))
        message.on('error', () => end(true))
      })
      sent.end(body)
    })
  }
}

/** A server in the course of one case. */
export class Side {
  readonly #server: Server
  readonly kept: Kept

  constructor(server: Server, serial: string) {
    this.#server = server
    this.kept = new Kept(serial, server.url)
  }

  get origin(): string {
    return this.#server.origin
  }

  async ask(step: Step): Promise<Answer> {
    const begun = performance.now()
    for (;;) {
      const answering = this.#server.send(step, this.kept)
      if (step.meanwhile) this.#keep(step.meanwhile, await this.#server.send(step.meanwhile, this.kept))
      const answer = await answering
      if (step.until?.test(answer.body.toString()) === false && performance.now() - begun < MAX_UNTIL_MS) {
        await rest(PAUSE_MS)
        continue
      }
      this.#keep(step, answer)
      return answer
    }
  }

  #keep({ method, path }: Step, { status, headers, body }: Answer): void {
    if (typeof headers.etag === 'string') this.kept.set('etag', headers.etag.replaceAll('"', ''))
    if (status >= 300) return
    const json = parsed(body.toString())
    if (typeof json !== 'object' || json === null) return
    const { last_seq, bookmark } = json as Record<string, unknown>
    if (typeof last_seq === 'string' && path.startsWith('/{db}/')) this.kept.set('seq', last_seq)
    if (typeof bookmark === 'string') this.kept.set('bookmark', bookmark)
    const isAccount = path.startsWith('/_users/')
    if (method === 'GET' || (!isAccount && !/^\/\{(?:db|repl)\}/.test(path))) return
    for (const row of Array.isArray(json) ? (json as unknown[]) : [json]) {
      const { id, rev } = (row ?? {}) as Record<string, unknown>
      if (typeof id === 'string' && typeof rev === 'string')
        this.kept.setRevision(isAccount ? ACCOUNT : id, rev)
    }
  }
}

export function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
