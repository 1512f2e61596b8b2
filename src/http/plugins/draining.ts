/**
 * A node of several that is about to stop first tells load balancers to send it nothing more. It serves as before meanwhile, but
 * its answers ask clients to close their connections, so that few requests meet one that closes at the end.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import fp from 'fastify-plugin'

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
    const state = new Draining()
    app.decorate('draining', state)
    app.addHook('onRequest', (request, reply, next) => {
      // HTTP/2 has no such header: its connections get a GOAWAY when they close.
      if (state.isOn && request.raw.httpVersionMajor === 1) reply.header('Connection', 'close')
      next()
    })
  },
  { name: 'draining' },
)
