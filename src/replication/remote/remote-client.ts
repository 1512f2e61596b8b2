/** Calls to one address of another server: paths, credentials, and refusals in words. */
import { persistenceOf } from '../../core/errors.ts'
import { isJsonObject } from '../../core/json.ts'
import { jsonParts, parsed } from '../json-parts.ts'
import { PeerError, type PeerFault } from '../peer-error.ts'
import type { RemoteEndpoint } from '../requests/replication-request.ts'
import type { FeedTurn } from './feed-turns.ts'
import type { RemoteOptions } from './remote-pools.ts'
import type { RemoteAnswer, RemoteConnections, RemoteRequest } from './remote-requests.ts'

export type Query = Readonly<Record<string, string>>

export interface RemoteCall {
  readonly method: RemoteRequest['method']
  /** Below the address, with its slash; empty for the address itself. */
  readonly path: string
  readonly query?: Query
  readonly json?: Uint8Array | object
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: RemoteRequest['body']
  readonly isFeed?: boolean
  readonly mayWait?: boolean
  readonly signal: AbortSignal
}

const STATUS_FAULTS: Readonly<Record<number, PeerFault>> = {
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  412: 'conflict',
  413: 'too_large',
  429: 'too_many_requests',
}

/** The most bytes of one member of an answer that is read as an object, and of all of them. */
const MAX_MEMBER = 1024 * 1024
const MAX_OBJECT = 4 * 1024 * 1024
/** What a member counts besides its text, in bytes. */
const MEMBER_COST = 32

export class RemoteClient {
  /** For people, without credentials. */
  readonly address: string
  readonly url: URL
  /** How long an answer may be silent, in ms. */
  readonly timeoutMs: number
  readonly #headers: Readonly<Record<string, string>>
  readonly #connections: RemoteConnections
  readonly #options: RemoteOptions

  constructor(endpoint: RemoteEndpoint, connections: RemoteConnections, options: RemoteOptions) {
    this.url = new URL(endpoint.url)
    this.address = endpoint.shown
    this.timeoutMs = options.timeoutMs
    const { headers, authorization } = endpoint
    this.#headers = { ...headers, ...(authorization !== null && { authorization }) }
    this.#connections = connections
    this.#options = options
  }

  /** @throws PeerError if there is no answer; any status is an answer */
  send(call: RemoteCall): Promise<RemoteAnswer> {
    return this.sendTo(this.url, call)
  }

  /** As {@link send}, to another address of the same server. */
  sendTo(base: URL, call: RemoteCall): Promise<RemoteAnswer> {
    const { method, path, query = {}, json, headers, body, isFeed = false, mayWait, signal } = call
    const url = new URL(base)
    url.pathname = base.pathname.replace(/\/$/, '') + (path === '' && base.pathname !== '/' ? '/' : path)
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
    const bytes = json === undefined || json instanceof Uint8Array ? json : Buffer.from(JSON.stringify(json))
    return this.#connections.send(
      {
        method,
        url,
        headers: {
          accept: 'application/json',
          ...this.#headers,
          ...(bytes && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...((bytes ?? body) && { body: bytes ?? body }),
        isFeed,
        mayWait,
        signal,
      } as RemoteRequest,
      this.#options,
    )
  }

  /** See {@link RemoteConnections.feedTurn}. */
  feedTurn(signal: AbortSignal): Promise<FeedTurn> {
    return this.#connections.feedTurn(this.url, this.#options, signal)
  }

  /** @throws PeerError unless the answer is a success */
  async expect(answer: RemoteAnswer): Promise<void> {
    const { status, retryAfterMs } = answer
    if (status >= 200 && status < 300) return
    const { error, reason } = errorOf(await answer.text())
    const fault = STATUS_FAULTS[status] ?? faultOf(status, error)
    const text = error === null ? `status ${status}` : `${error}: ${reason} (status ${status})`
    throw new PeerError(fault, `${this.address}: ${text}`, { retryAfterMs })
  }

  /**
   * Reads a successful answer whose members have at most 1 MB each.
   * @param most bytes of all members together; by default 4 MB
   * @throws PeerError
   */
  async object(answer: RemoteAnswer, most = MAX_OBJECT): Promise<Record<string, unknown>> {
    await this.expect(answer)
    const members: [string, unknown][] = []
    let size = 0
    for await (const { member, bytes } of jsonParts(answer.chunks, { maxPart: MAX_MEMBER })) {
      if (member === null) throw new PeerError('invalid_json', `${this.address} answers with a list`)
      members.push([member, parsed(bytes)])
      size += bytes.length + member.length + MEMBER_COST
      if (size > most) {
        throw new PeerError('invalid_answer', `${this.address} answers with more than ${most} bytes`)
      }
    }
    return Object.fromEntries(members)
  }
}

/** Reads `instance_start_time` of a database, which is a text, or a number of old servers. */
export function instanceOf(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '0'
}

/** Reads an answer that nobody needs, so that its connection can be used again. */
export async function discard(answer: RemoteAnswer): Promise<void> {
  await answer.text()
}

/** @param error of a database's answer; null: the answer may be that of a proxy */
function faultOf(status: number, error: string | null): PeerFault {
  if (error === 'compilation_error') return 'rejected'
  if (error === 'unknown_error') return 'unknown_error'
  if (status >= 500) return 'server_error'
  if (error === null) return 'invalid_answer'
  if (persistenceOf(error) !== 'lasting') return 'server_error'
  // CouchDB says `bad_request` also for a body that was cut off on its way.
  return status === 400 && error === 'bad_request' ? 'bad_request' : 'rejected'
}

function errorOf(text: string): { readonly error: string | null; readonly reason: string } {
  try {
    const answer: unknown = JSON.parse(text)
    if (isJsonObject(answer) && typeof answer.reason === 'string') {
      return { error: typeof answer.error === 'string' ? answer.error : 'error', reason: answer.reason }
    }
  } catch {
    // A proxy answers with HTML.
  }
  return { error: null, reason: '' }
}
