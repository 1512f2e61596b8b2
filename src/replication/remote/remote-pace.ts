/**
 * Interceptors of undici for requests to other servers: the pauses that a server asks for, which count for all replications
 * with it, and another try when a connection that was kept open turns out to be closed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import type { Dispatcher } from 'undici'
import { atMost } from '../../core/cache.ts'

type Headers = Dispatcher.ResponseData['headers']
type Interceptor = Dispatcher.DispatcherComposeInterceptor

interface Pause {
  /** In ms of `performance.now()`. */
  readonly until: number
  /** Refusals in a row. */
  readonly refusals: number
}

const MAX_WAIT_MS = 5 * 60_000
const MAX_SERVERS = 1000
/** The pause after a first refusal that names none, in ms; each further one is twice as long, up to a minute. */
const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 60_000
/** Requests that have waited for the same pause are spread over this time, in ms. */
const SPREAD_MS = 500

/**
 * Makes requests wait while their server has asked for it, with 429 or with 503 and `Retry-After`.
 * @returns an interceptor that remembers the pauses of all servers
 */
export function pausing(): Interceptor {
  const pauses = new LRUCache<string, Pause>(atMost(MAX_SERVERS))
  const note = (server: string, status: number, headers: Headers) => {
    const asked = retryAfter(headers)
    if (status !== 429 && (status !== 503 || asked === null)) {
      // An answer to an earlier request does not end a pause.
      if ((pauses.get(server)?.until ?? 0) <= performance.now()) pauses.delete(server)
      return
    }
    const refusals = (pauses.get(server)?.refusals ?? 0) + 1
    const wait = asked ?? Math.min(FIRST_PAUSE_MS * 2 ** (refusals - 1), LONGEST_PAUSE_MS)
    pauses.set(server, { until: performance.now() + wait, refusals })
  }
  return (dispatch) => (options, handler) => {
    const server = String(options.origin)
    const noting = new Watched(handler, { onStart: (status, headers) => note(server, status, headers) })
    if ((pauses.get(server)?.until ?? 0) <= performance.now()) return dispatch(options, noting)
    void waited(() => pauses.get(server)?.until ?? 0, signalOf(options))
      .then(() => dispatch(options, noting))
      .catch((error: Error) => handler.onResponseError?.(ended(error), error))
    return true
  }
}

async function waited(until: () => number, signal: AbortSignal | undefined): Promise<void> {
  for (;;) {
    const wait = until() - performance.now()
    if (wait <= 0) return
    await sleep(wait + Math.random() * Math.min(wait, SPREAD_MS), undefined, { ...(signal && { signal }) })
  }
}

/** What undici's `request` passes on. */
function signalOf(options: Dispatcher.DispatchOptions): AbortSignal | undefined {
  return (options as { readonly signal?: AbortSignal }).signal
}

/** The controller of a request that was never sent. */
function ended(reason: Error): Dispatcher.DispatchController {
  return { aborted: true, paused: false, reason, abort() {}, pause() {}, resume() {} }
}

/** The codes of connections that the other side has closed. */
const CLOSED = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'])

/**
 * Repeats a request once, at once, when its connection has ended without an answer. All requests of a replication may be
 * sent twice. A body that is a stream cannot.
 */
export function repeating(): Interceptor {
  return (dispatch) => (options, handler) => {
    const { body } = options
    const canRepeat = body === null || body === undefined || body instanceof Uint8Array
    if (!canRepeat) return dispatch(options, handler)
    return dispatch(
      options,
      new Watched(handler, {
        onFailure: (error) => {
          if (!CLOSED.has(String((error as { code?: unknown }).code))) return false
          dispatch(options, handler)
          return true
        },
      }),
    )
  }
}

interface Hooks {
  readonly onStart?: (status: number, headers: Headers) => void
  /** There was no answer. @returns whether the request is sent again */
  readonly onFailure?: (error: Error) => boolean
}

/** Passes everything on, and lets hooks see the start of the answer. */
class Watched implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler
  readonly #hooks: Hooks
  #hasStarted = false

  constructor(handler: Dispatcher.DispatchHandler, hooks: Hooks) {
    this.#handler = handler
    this.#hooks = hooks
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    this.#handler.onRequestStart?.(controller, context)
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Headers,
    message?: string,
  ): void {
    this.#hasStarted = true
    this.#hooks.onStart?.(status, headers)
    this.#handler.onResponseStart?.(controller, status, headers, message)
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#handler.onResponseData?.(controller, chunk)
  }

  onResponseEnd(controller: Dispatcher.DispatchController, trailers: Headers): void {
    this.#handler.onResponseEnd?.(controller, trailers)
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    if (!this.#hasStarted && this.#hooks.onFailure?.(error)) return
    this.#handler.onResponseError?.(controller, error)
  }
}

/**
 * Reads `Retry-After`: seconds or a date (RFC 9110 10.2.3). A date is compared with the server's own clock, since one of the
 * clocks may be wrong.
 * @returns ms, at most five minutes; null without the header
 */
export function retryAfter({ 'retry-after': value, date }: Headers): number | null {
  if (typeof value !== 'string') return null
  const now = Date.parse(String(date)) || Date.now()
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), MAX_WAIT_MS)
}
