import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { Measurements } from '../../maintenance/metrics/measurements.ts'
import { ProcessWatch } from '../../maintenance/metrics/process-watch.ts'
import { ConnectionTally } from '../connection-tally.ts'
import { RequestTally, type RouteTally } from '../request-tally.ts'

declare module 'fastify' {
  interface FastifyInstance {
    requestTally: RequestTally
    connectionTally: ConnectionTally
    /** Measures all that there is; whoever asks at the same time shares the answer. Never rejects. */
    measure(): Promise<Measurements>
  }
  interface FastifyRequest {
    /** The answer is a feed that waits: how long it takes says nothing of the server, and it hears of doubts itself. */
    isWaitingFeed: boolean
  }
  interface FastifyContextConfig {
    tally?: RouteTally
  }
}

/** Node's codes for what its parser refuses, and for heads that take too long. */
const INVALID = /^(?:HPE_|ERR_HTTP_)/

/**
 * Counts every request once, when its answer is out or its connection gone, however it was answered. Fastify's own
 * hook for that, onResponse, is not called for clients that leave.
 */
export const metrics = fp(
  async (app) => {
    const tally = new RequestTally()
    const connections = new ConnectionTally(app.server)
    app.decorate('requestTally', tally)
    app.decorate('connectionTally', connections)
    app.decorate('measure', shared(measuring(app)))
    app.decorateRequest('isWaitingFeed', false)
    app.addHook('onRoute', (route) => {
      route.config = { ...route.config, tally: tally.route(route.url) }
    })
    app.addHook('onRequest', (request, reply, done) => {
      countAnswer(request, reply)
      done()
    })
    app.server.on('clientError', ({ code }: NodeJS.ErrnoException) => {
      // Whoever merely leaves has sent nothing wrong.
      if (INVALID.test(code ?? '')) tally.invalid += 1
    })
  },
  { name: 'metrics' },
)

/** What hangs on an answer until it is over. */
interface Counted extends ServerResponse {
  [REPLY]?: FastifyReply
  /** Of an answer that waits behind another: lets go of the connection. */
  [FORGET]?: () => void
}

const REPLY = Symbol('reply')
const FORGET = Symbol('forget')

/** Counts one request when it is over; the hook does not reach those that no route was looked for. */
export function countAnswer(request: FastifyRequest, reply: FastifyReply): void {
  const { requestTally, connectionTally } = request.server
  const raw: Counted = reply.raw
  requestTally.underWay += 1
  raw[REPLY] = reply
  // One function for all: a closure for each request takes four times as long.
  raw.on('close', closed)
  // An answer that waits behind another of its connection has none yet, and is not told when that is gone.
  if (raw.socket === null) raw[FORGET] = connectionTally.onClosed(request.raw.socket, () => closed.call(raw))
}

/** Node tells it once, when the answer is done or can never be. */
function closed(this: Counted): void {
  const reply = this[REPLY] as FastifyReply
  if (this[FORGET] !== undefined) {
    this[FORGET]()
    this.off('close', closed)
  }
  const { request } = reply
  const { requestTally } = request.server
  requestTally.underWay -= 1
  if (!this.writableFinished) requestTally.broken += 1
  const route = request.routeOptions.config?.tally ?? requestTally.noRoute
  route.add(request.method, this.headersSent ? this.statusCode : null, durationOf(request, reply))
}

/** In ms; null where it says nothing. Fastify counts it from the request's head, and not at all without a route. */
function durationOf(request: FastifyRequest, reply: FastifyReply): number | null {
  return request.isWaitingFeed ? null : reply.elapsedTime || null
}

function measuring(app: FastifyInstance): () => Promise<Measurements> {
  const { databases, credentials, version, tmpDir } = app.services
  const watch = new ProcessWatch(tmpDir)
  app.addHook('onClose', async () => watch.close())
  return async () => {
    const [stats, process] = await Promise.all([databases.stats(), watch.facts()])
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
      databases: { count: databases.names().length, compactions: databases.tasks().length },
      ...stats,
      process,
    }
  }
}

/** Whoever asks while an answer is made gets that one. */
function shared<T>(make: () => Promise<T>): () => Promise<T> {
  let making: Promise<T> | undefined
  return () => {
    making ??= make().finally(() => {
      making = undefined
    })
    return making
  }
}
