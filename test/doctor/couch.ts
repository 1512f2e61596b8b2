/** A server that answers the doctor's requests like CouchDB 3 (protocol.md), and records them. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

export interface CouchOptions {
  /** Its answer to `GET /`. */
  readonly welcome?: unknown
  readonly server?: string | null
  /** The allowed origins, as in `[cors] origins`; null: CORS is off. */
  readonly origins?: readonly string[] | null
  /** Whether it sends no `Date`. */
  readonly dateless?: boolean
  /** How far its clock is ahead, in seconds. */
  readonly ahead?: number
  /** The heartbeat interval in ms, instead of the requested one. */
  readonly beats?: number
  /** JSON of design documents by id. */
  readonly designs?: Readonly<Record<string, string>>
  /** Whether it acts like PouchDB Server: sends no `Location`, and requires a revision to delete. */
  readonly isPouch?: boolean
  readonly security?: unknown
  readonly roles?: readonly string[]
}

const USER = 'anna'
const BASIC = `Basic ${Buffer.from(`${USER}:secret`).toString('base64')}`
const METHODS = 'CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE'
const APPS = ['app://obsidian.md', 'capacitor://localhost', 'http://localhost']

/** The database is `notes`, the account `anna`, its password `secret`. @param stored ids of `_local` documents */
export function answerAsCouch(
  options: CouchOptions = {},
  stored = new Map<string, string>(),
): RequestListener {
  return (request, response) => {
    new Exchange(options, stored, request, response).answer()
  }
}

class Exchange {
  readonly #options: CouchOptions
  readonly #stored: Map<string, string>
  readonly #request: IncomingMessage
  readonly #response: ServerResponse

  constructor(
    options: CouchOptions,
    stored: Map<string, string>,
    request: IncomingMessage,
    response: ServerResponse,
  ) {
    this.#options = options
    this.#stored = stored
    this.#request = request
    this.#response = response
  }

  answer(): undefined {
    this.#setHeaders()
    const { method, url = '' } = this.#request
    const [path = ''] = url.split('?')
    if (method === 'OPTIONS') return this.#preflight()
    const { authorization } = this.#request.headers
    if (authorization !== undefined && authorization !== BASIC) {
      return this.#json(401, { error: 'unauthorized', reason: 'Name or password is incorrect.' })
    }
    if (path === '/') return this.#json(200, this.#options.welcome ?? WELCOME)
    if (path === '/_session') return this.#session(authorization)
    if (!/^\/notes(\/|$)/.test(path))
      return this.#json(404, { error: 'not_found', reason: 'Database does not exist.' })
    if (authorization === undefined) {
      return this.#json(401, { error: 'unauthorized', reason: 'You are not authorized to access this db.' })
    }
    this.#database(path.slice('/notes'.length))
  }

  #setHeaders(): void {
    const { server = 'CouchDB/3.5.0 (Erlang OTP/26)', dateless = false, ahead } = this.#options
    if (server !== null) this.#response.setHeader('Server', server)
    if (dateless) this.#response.sendDate = false
    else if (ahead !== undefined) {
      this.#response.setHeader('Date', new Date(Date.now() + ahead * 1000).toUTCString())
    }
    if (this.#isAllowed()) {
      this.#response.setHeader('Access-Control-Allow-Origin', this.#request.headers.origin!)
      this.#response.setHeader('Access-Control-Allow-Credentials', 'true')
    }
  }

  #isAllowed(): boolean {
    const { origins = APPS } = this.#options
    const { origin } = this.#request.headers
    return origin !== undefined && origins?.includes(origin) === true
  }

  #preflight(): undefined {
    if (!this.#isAllowed())
      return this.#json(405, { error: 'method_not_allowed', reason: 'Only GET,HEAD allowed' })
    const asked = this.#request.headers['access-control-request-headers'] ?? ''
    this.#response.writeHead(204, {
      'Access-Control-Allow-Methods': METHODS,
      'Access-Control-Allow-Headers': asked,
    })
    this.#response.end()
  }

  #session(authorization: string | undefined): undefined {
    const name = authorization === undefined ? null : USER
    const roles = name === null ? [] : (this.#options.roles ?? [])
    this.#json(200, { ok: true, userCtx: { name, roles }, info: {} })
  }

  #database(rest: string): undefined {
    const { designs = {}, security = {} } = this.#options
    if (rest === '' || rest === '/') return this.#json(200, { db_name: 'notes', update_seq: '0-x' })
    if (rest === '/_security') return this.#json(200, security)
    if (rest.startsWith('/_local/')) return this.#local(rest.slice('/_local/'.length))
    if (rest === '/_bulk_docs') return this.#swallow()
    if (rest === '/_changes') return this.#changes()
    const design = designs[rest.slice(1)]
    if (design === undefined) return this.#json(404, { error: 'not_found', reason: 'missing' })
    this.#response.setHeader('Content-Type', 'application/json')
    this.#response.end(design)
  }

  #local(encoded: string): undefined {
    if (encoded.includes('/')) {
      return this.#json(400, { error: 'bad_request', reason: '_local documents do not accept attachments.' })
    }
    const id = `_local/${decodeURIComponent(encoded)}`
    const { method } = this.#request
    const before = this.#stored.get(id)
    if (method === 'PUT') return this.#put(id, encoded)
    if (before === undefined) return this.#json(404, { error: 'not_found', reason: 'missing' })
    if (method === 'GET') return this.#json(200, { _id: id, _rev: '0-1', ...(JSON.parse(before) as object) })
    if (this.#options.isPouch && !this.#request.url?.includes('rev=0-1')) {
      return this.#json(409, { error: 'conflict', reason: 'Document update conflict.' })
    }
    this.#stored.delete(id)
    this.#json(200, { ok: true, id, rev: '0-0' })
  }

  #put(id: string, encoded: string): undefined {
    this.#body((text) => {
      this.#stored.set(id, text)
      const { host } = this.#request.headers
      if (!this.#options.isPouch)
        this.#response.setHeader('Location', `http://${host}/notes/_local/${encoded}`)
      this.#json(201, { ok: true, id, rev: '0-1' })
    })
  }

  #swallow(): undefined {
    this.#body((text) => {
      const { docs } = JSON.parse(text) as { docs: unknown[] }
      this.#json(
        201,
        docs.map(() => ({ ok: true })),
      )
    })
  }

  /** A longpoll or continuous feed without changes; a normal feed is empty. */
  #changes(): undefined {
    const query = new URL(this.#request.url!, 'http://x').searchParams
    this.#response.setHeader('Content-Type', 'application/json')
    if (!['longpoll', 'continuous'].includes(query.get('feed') ?? '')) {
      this.#response.end('{"results":[\n\n],"last_seq":"0-x","pending":0}\n')
      return
    }
    this.#request.resume()
    this.#response.write(query.get('feed') === 'longpoll' ? '{"results":[\n' : '\n')
    const every = this.#options.beats ?? Number(query.get('heartbeat') ?? Number.NaN)
    if (Number.isNaN(every)) return
    const timer = setInterval(() => this.#response.write('\n'), every)
    this.#response.on('close', () => clearInterval(timer))
  }

  #body(then: (text: string) => void): void {
    const chunks: Buffer[] = []
    this.#request.on('data', (chunk: Buffer) => chunks.push(chunk))
    this.#request.on('end', () => then(Buffer.concat(chunks).toString()))
  }

  #json(status: number, value: unknown): undefined {
    this.#request.resume()
    this.#response.writeHead(status, { 'Content-Type': 'application/json' })
    this.#response.end(`${JSON.stringify(value)}\n`)
  }
}

const WELCOME = {
  couchdb: 'Welcome',
  version: '3.5.0',
  git_sha: 'a1b2c3d',
  uuid: 'a'.repeat(32),
  features: ['access-ready', 'partitioned', 'pluggable-storage-engines', 'reshard', 'scheduler'],
  vendor: { name: 'The Apache Software Foundation' },
}
