import type { FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify'

/**
 * A hook from a function that seldom waits. After an async hook, Fastify waits for a promise, for every request.
 * @param check may throw, or return a promise if it must wait
 */
export function hookOf(
  check: (request: FastifyRequest, reply: FastifyReply) => Promise<void> | undefined | void,
): onRequestHookHandler {
  return (request, reply, done) => {
    let checked: Promise<void> | undefined | void
    try {
      checked = check(request, reply)
    } catch (error) {
      done(error as Error)
      return
    }
    if (checked === undefined) done()
    else checked.then(() => done(), done)
  }
}
