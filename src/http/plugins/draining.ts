/**
 * A node of several that is about to stop first tells load balancers to send it nothing more: by `_up` those that ask for it, and
 * by a refused read those that only see answers, such as nginx. It serves as before meanwhile, but its answers ask clients to
 * close their connections, so that few requests meet one that closes at the end.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { CouchError } from '../../core/errors.ts'

/**
 * By this header, with the value `502`, a load balancer says that it sends a read that is answered so to another node, and this
 * one nothing more for a while (deploy/nodes-nginx.conf).
 */
const NEXT_NODE = 'x-settee-next-node'

/** Whether this node is about to stop. */
export class Draining {
  #isOn = false

  get isOn(): boolean {
    return this.#isOn
  }

  /** Begins, and resolves after this time. @param ms 0: at once, and nothing changes */
  async begin(ms: number): Promise<void> {
    if (ms === 0) return
    this.#isOn = true
    await sleep(ms)
  }
}

declare module 'fastify' {
  interface FastifyInstance {
    draining: Draining
  }
}

export const draining = fp(
  async (app) => {
    app.decorate('draining', new Draining())
  },
  { name: 'draining' },
)

/** Asks the clients of a node that is about to stop to leave. @throws draining for a read that another node can answer */
export function askToLeave(request: FastifyRequest, reply: FastifyReply): void {
  if (!request.server.draining.isOn) return
  // HTTP/2 has no such header: its connections get a GOAWAY when they close.
  if (request.raw.httpVersionMajor === 1) reply.header('Connection', 'close')
  if (goesOn(request)) throw new CouchError('draining')
}

function goesOn({ method, headers }: FastifyRequest): boolean {
  return headers[NEXT_NODE] === '502' && (method === 'GET' || method === 'HEAD')
}
