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
    /** The answer waits for changes: how long it takes says nothing of the server. */
    waitsForChanges: boolean
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
    app.decorateRequest('waitsForChanges', false)
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

/** Counts one request when it is over; the hook does not reach those that no route was looked for. */
export function countAnswer(request: FastifyRequest, reply: FastifyReply): void {
  const { raw } = reply
  const { requestTally, connectionTally } = request.server
  let forget: (() => void) | undefined
  const over = () => {
    if (forget !== undefined) {
      forget()
      raw.off('close', over)
    }
    requestTally.underWay -= 1
    if (!raw.writableFinished) requestTally.broken += 1
    const route = request.routeOptions.config?.tally ?? requestTally.noRoute
    route.add(request.method, raw.headersSent ? raw.statusCode : null, durationOf(request, reply))
  }
  requestTally.underWay += 1
  // Node emits it once, when the answer is done or can never be; but an answer that waits behind another of its
  // connection, and so has no socket yet, is not told that the connection is gone.
  raw.on('close', over)
  if (raw.socket === null) forget = connectionTally.onClosed(request.raw.socket, over)
}

/** In ms; null where it says nothing. Fastify counts it from the request's head, and not at all without a route. */
function durationOf(request: FastifyRequest, reply: FastifyReply): number | null {
  return request.waitsForChanges ? null : reply.elapsedTime || null
}

function measuring(app: FastifyInstance): () => Promise<Measurements> {
  const { databases, credentials, version, tmpDir } = app.services
  const watch = new ProcessWatch(tmpDir)
  app.addHook('onClose', async () => watch.close())
  return async () => {
    const [stats, process] = await Promise.all([databases.stats(), watch.facts()])
    const { bodyMemory, requestTally, connectionTally } = app
    return {
      version,
      http: {
        ...requestTally.counts(),
        ...connectionTally.counts(),
        bodyMemory: { used: bodyMemory.used, size: bodyMemory.size },
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
