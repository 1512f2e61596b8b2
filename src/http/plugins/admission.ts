/** What every request must pass before its route runs: one hook, and the order of the checks. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { checkAccess } from './access-rules.ts'
import { authenticate, noteCaller } from './authentication.ts'
import { callbackOf, setCouchHeaders } from './couch-headers.ts'
import { refuseForeignPage, setCorsHeaders } from './cross-origin.ts'
import { askToLeave } from './draining.ts'
import { faultOfRequest } from './error-replies.ts'
import { countAnswer } from './request-metrics.ts'
import { refuseOnStandby } from './standby-writes.ts'
import { applyLimits } from './tenancy.ts'

export const admission = fp(
  async (app) => {
    // What the checks note on a request.
    app.decorateRequest('setBodyTime').decorateRequest('jsonp', null)
    app.decorateRequest('leaveLimiter', null).decorateRequest('database', null)
    app.addHook('onRequest', (request, reply, done) => {
      let admitted: Promise<void> | undefined
      try {
        begin(request, reply)
        // The answer to an allowed preflight is complete.
        if (setCorsHeaders(request, reply)) return void reply.code(204).send()
        admitted = admit(request, reply)
      } catch (error) {
        done(error as Error)
        return
      }
      // After a promise Fastify would go on in a later turn, and hardly a request has to wait for anything.
      if (admitted === undefined) done()
      else admitted.then(() => done(), done)
    })
  },
  {
    name: 'admission',
    dependencies: ['draining', 'metrics', 'cors', 'errors', 'authentication', 'revocation'],
  },
)

/** What every answer has, refusals too. @throws draining */
function begin(request: FastifyRequest, reply: FastifyReply): void {
  askToLeave(request, reply)
  countAnswer(request, reply)
  setCouchHeaders(request, reply)
}

/**
 * First what needs no account: a request that is malformed or forged costs no check of a password.
 * @returns no promise if nothing had to be waited for
 * @throws the refusal
 */
function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> | undefined {
  const fault = faultOfRequest(request, reply)
  if (fault !== undefined) throw fault
  request.jsonp = callbackOf(request)
  refuseForeignPage(request)
  const login = authenticate(request, reply)
  return login === undefined ? admitCaller(request, reply) : login.then(() => admitCaller(request, reply))
}

function admitCaller(request: FastifyRequest, reply: FastifyReply): Promise<void> | undefined {
  noteCaller(request)
  const turn = applyLimits(request, reply)
  return turn === undefined ? admitToRoute(request, reply) : turn.then(() => admitToRoute(request, reply))
}

function admitToRoute(request: FastifyRequest, reply: FastifyReply): Promise<void> | undefined {
  const access = checkAccess(request)
  return access === undefined ? finish(request, reply) : access.then(() => finish(request, reply))
}

function finish(request: FastifyRequest, reply: FastifyReply): undefined {
  refuseOnStandby(request, reply)
  if (request.routeOptions.config.access !== 'public') request.server.activeRequests.add(reply)
}
