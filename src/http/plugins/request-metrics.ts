/**
 * Counts requests as they end, and connections. Counting runs for every request, so it allocates nothing:
 * each route has its own counters from its registration on, and labels are composed only when the metrics are read.
 */
import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Histogram } from '../../core/histogram.ts'
import { REQUEST_SECONDS } from '../../metrics/couch-stats.ts'
import type { HttpCounts, Measurements, RequestCount } from '../../metrics/metric.ts'
import { ProcessWatch } from '../../metrics/process-metrics.ts'
import { logRequest } from './request-log.ts'

/** Methods that have a name in the metrics; all others are `OTHER`. */
const METHODS = [
  'OTHER',
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'DELETE',
  'COPY',
  'PATCH',
  'OPTIONS',
  'TRACE',
] as const
const METHOD_PLACES: ReadonlyMap<string, number> = new Map(METHODS.map((method, at) => [method, at]))

/** The route of requests that match none. */
const NO_ROUTE = 'none'
/** The status of a request whose client left before the answer. */
const ABORTED = 0
/** Above any status. */
const STATUSES = 1000

/** Classes of routes that take about the same time, by pattern; the first match counts. */
const CLASSES: readonly (readonly [RegExp, string])[] = [
  [/^\/:db\/_bulk_docs$/, 'bulk_docs'],
  [/^\/:db\/_bulk_get$/, 'bulk_get'],
  [/^\/:db\/_(?:revs_diff|missing_revs)$/, 'revs_diff'],
  [/^\/:db\/_(?:all|design|local)_docs(?:\/|$)/, 'all_docs'],
  [/^\/:db\/_find$/, 'find'],
  [/^\/(?::db\/_changes|_db_updates)$/, 'changes'],
  [/^\/:db\/_design\/:ddoc\/_view\//, 'view'],
  [/^\/:db\/_local\/:local$/, 'local_document'],
  [/^\/:db\/(?::docid|_design\/:ddoc)$/, 'document'],
  [/^\/:db\/(?::docid|_design\/:ddoc)\/\*$/, 'attachment'],
  [/^\/:db(?:\/|$)/, 'database'],
  [/^\//, 'server'],
]

type Durations = Map<string, Histogram>

/** The counters of one route. */
class RouteTally {
  readonly route: string
  /** By method and status. */
  readonly #counts = new Map<number, number>()
  /** By method; shared by the routes of a class. */
  readonly #durations: Durations

  constructor(route: string, durations: Durations) {
    this.route = route
    this.#durations = durations
  }

  /**
   * Counts a request that is over.
   * @param status null: it was not answered
   * @param ms from its head to the end of its answer; null: it waited for changes, so that its time means nothing
   */
  add(method: string, status: number | null, ms: number | null): void {
    const place = METHOD_PLACES.get(method) ?? 0
    const key = place * STATUSES + (status ?? ABORTED)
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1)
    if (ms === null) return
    const name = METHODS[place] as string
    let durations = this.#durations.get(name)
    if (durations === undefined) {
      durations = new Histogram(REQUEST_SECONDS)
      this.#durations.set(name, durations)
    }
    durations.add(ms / 1000)
  }

  counts(): RequestCount[] {
    return [...this.#counts].map(([key, count]) => {
      const status = key % STATUSES
      const method = METHODS[Math.floor(key / STATUSES)] as string
      return { route: this.route, method, status: status === ABORTED ? null : status, count }
    })
  }
}

export class RequestTally {
  readonly #routes = new Map<string, RouteTally>()
  readonly #classes = new Map<string, Durations>()
  readonly #feeds = new Map<string, number>()
  /** For requests without a route. */
  readonly noRoute: RouteTally = this.route(NO_ROUTE)
  broken = 0
  invalid = 0
  underWay = 0

  /** The counters of a route, shared by its methods. @param pattern the registered path */
  route(pattern: string): RouteTally {
    const known = this.#routes.get(pattern)
    if (known !== undefined) return known
    const made = new RouteTally(pattern, this.#durationsOf(classOf(pattern)))
    this.#routes.set(pattern, made)
    return made
  }

  #durationsOf(name: string): Durations {
    const known = this.#classes.get(name) ?? new Map<string, Histogram>()
    this.#classes.set(name, known)
    return known
  }

  /** Counts a feed as open while it is sent. */
  async whileOpen(kind: string, send: () => Promise<void>): Promise<void> {
    this.#feeds.set(kind, this.#feed(kind) + 1)
    try {
      await send()
    } finally {
      this.#feeds.set(kind, this.#feed(kind) - 1)
    }
  }

  #feed(kind: string): number {
    return this.#feeds.get(kind) ?? 0
  }

  counts(): Pick<HttpCounts, 'requests' | 'durations' | 'openFeeds' | 'broken' | 'invalid' | 'underWay'> {
    const durations = [...this.#classes].flatMap(([name, methods]) =>
      [...methods].map(([method, seconds]) => ({ class: name, method, seconds: seconds.counts() })),
    )
    const { broken, invalid, underWay } = this
    const requests = [...this.#routes.values()].flatMap((route) => route.counts())
    return { requests, durations, openFeeds: this.#openFeeds(), broken, invalid, underWay }
  }

  #openFeeds(): Record<string, number> {
    const { normal = 0, longpoll = 0, continuous = 0, eventsource = 0 } = Object.fromEntries(this.#feeds)
    return { normal, longpoll, continuous, eventsource }
  }
}

function classOf(pattern: string): string {
  return CLASSES.find(([fits]) => fits.test(pattern))?.[1] ?? NO_ROUTE
}

/** Counts connections and their bytes, at no cost for a request. */
class ConnectionTally {
  readonly #open = new Set<Socket>()
  readonly #listeners = new Map<Socket, Set<() => void>>()
  #count = 0
  /** Of connections that are closed. */
  #received = 0
  #sent = 0

  /** Counts from now on. */
  constructor(server: Server) {
    server.on('connection', (socket) => this.add(socket))
  }

  /** Counts a connection for which the server emits no event. */
  add(socket: Socket): void {
    this.#count += 1
    this.#open.add(socket)
    socket.once('close', () => {
      this.#open.delete(socket)
      this.#received += socket.bytesRead
      this.#sent += socket.bytesWritten
      for (const listener of this.#listeners.get(socket) ?? []) listener()
      this.#listeners.delete(socket)
    })
  }

  /** Calls `listener` when a connection has closed. @returns cancels the call */
  onClosed(socket: Socket, listener: () => void): () => void {
    const listeners = this.#listeners.get(socket) ?? new Set()
    this.#listeners.set(socket, listeners.add(listener))
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0) this.#listeners.delete(socket)
    }
  }

  counts(): { openConnections: number; connections: number; receivedBytes: number; sentBytes: number } {
    let receivedBytes = this.#received
    let sentBytes = this.#sent
    for (const socket of this.#open) {
      receivedBytes += socket.bytesRead
      sentBytes += socket.bytesWritten
    }
    return { openConnections: this.#open.size, connections: this.#count, receivedBytes, sentBytes }
  }
}

declare module 'fastify' {
  interface FastifyInstance {
    requestTally: RequestTally
    connectionTally: ConnectionTally
    /** Measures the whole server. Calls at the same time share the result. Never rejects. */
    measure(): Promise<Measurements>
  }
  interface FastifyRequest {
    /** The answer is a waiting feed: its time means nothing, and it handles revocations itself. */
    isWaitingFeed: boolean
  }
  interface FastifyContextConfig {
    tally?: RouteTally
  }
}

/** Node's codes for requests that its parser refuses, and for heads that take too long. */
const INVALID = /^(?:HPE_|ERR_HTTP_)/

/**
 * Counts every request once, when its answer is sent or its connection has closed. Fastify's hook onResponse is not called
 * for clients that leave, and costs two more listeners.
 */
export const metrics = fp(
  async (app) => {
    const tally = new RequestTally()
    const connections = new ConnectionTally(app.server)
    app.decorate('requestTally', tally)
    app.decorate('connectionTally', connections)
    app.decorate('measure', shared(measuring(app)))
    app.decorateRequest('isWaitingFeed', false).decorateRequest('bytesBefore', 0)
    app.addHook('onRoute', (route) => {
      route.config = { ...route.config, tally: tally.route(route.url) }
    })
    app.server.on('clientError', ({ code }: NodeJS.ErrnoException) => {
      // A client that merely leaves has sent nothing invalid.
      if (INVALID.test(code ?? '')) tally.invalid += 1
    })
  },
  { name: 'metrics' },
)

/** An answer that is being counted. */
interface CountedResponse extends ServerResponse {
  [REPLY]?: FastifyReply
  /** When the request began, in ms of `performance.now`. */
  [BEGAN]?: number
  /** For an answer that waits behind another: stops listening to the connection. */
  [STOP_LISTENING]?: () => void
}

const REPLY = Symbol('reply')
const BEGAN = Symbol('began')
const STOP_LISTENING = Symbol('stopListening')

/** Counts and logs one request when it is over. */
export function countAnswer(request: FastifyRequest, reply: FastifyReply): void {
  const { requestTally, connectionTally } = request.server
  const raw: CountedResponse = reply.raw
  requestTally.underWay += 1
  raw[REPLY] = reply
  raw[BEGAN] = performance.now()
  request.bytesBefore = request.raw.socket.bytesWritten
  // One function for all requests: a closure for each takes four times as long.
  raw.on('close', onClose)
  // Without a listener, an error would end the process; `close` follows it.
  raw.on('error', ignore)
  // A pipelined answer that waits for its turn has no socket yet, and gets no event when the connection closes.
  if (raw.socket === null)
    raw[STOP_LISTENING] = connectionTally.onClosed(request.raw.socket, () => onClose.call(raw))
}

function ignore(): void {}

/** Counts a request no longer, because another one is served in its place with the same answer. */
export function passCount(reply: FastifyReply): void {
  const raw: CountedResponse = reply.raw
  reply.server.requestTally.underWay -= 1
  raw[STOP_LISTENING]?.()
  raw.off('close', onClose)
  raw.once('close', () => reply.request.active?.remove())
}

/** Called once, when the answer is complete or never will be. */
function onClose(this: CountedResponse): void {
  const reply = this[REPLY] as FastifyReply
  if (this[STOP_LISTENING] !== undefined) {
    this[STOP_LISTENING]()
    this.off('close', onClose)
  }
  const { request } = reply
  const { requestTally } = request.server
  requestTally.underWay -= 1
  if (!this.writableFinished) requestTally.broken += 1
  const route = request.routeOptions.config?.tally
  const ms = performance.now() - (this[BEGAN] as number)
  const isTimed = route !== undefined && !request.isWaitingFeed
  const tally = route ?? requestTally.noRoute
  tally.add(request.method, this.headersSent ? this.statusCode : null, isTimed ? ms : null)
  request.active?.remove()
  logRequest(request, reply, ms)
}

function measuring(app: FastifyInstance): () => Promise<Measurements> {
  const { databases, credentials, version, tmpDir } = app.services
  const watch = new ProcessWatch(tmpDir)
  app.addHook('onClose', async () => watch.close())
  return async () => {
    const [stats, process, count] = await Promise.all([databases.stats(), watch.facts(), databases.count()])
    const { bodyFiles, bodyMemory, requestTally, connectionTally } = app
    return {
      version,
      http: {
        ...requestTally.counts(),
        ...connectionTally.counts(),
        bodyMemory: { used: bodyMemory.used, size: bodyMemory.size },
        bodyFiles: { used: bodyFiles.used, size: bodyFiles.size },
      },
      credentials: credentials.counts,
      databases: { count, compactions: databases.tasks().length },
      ...stats,
      process,
    }
  }
}

/** Calls share a result that is still being made. */
function shared<T>(make: () => Promise<T>): () => Promise<T> {
  let making: Promise<T> | undefined
  return () => {
    making ??= make().finally(() => {
      making = undefined
    })
    return making
  }
}
