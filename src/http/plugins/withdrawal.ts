import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { CouchError } from '../../core/errors.ts'
import { CallsInFlight } from '../calls-in-flight.ts'
import { onDoubt } from '../doubts.ts'
import { checkAccess } from './access.ts'
import { authenticate } from './authentication.ts'
import { answerInstead } from './errors.ts'
import { factsOf } from './request-log.ts'
import { refuseClosedAccount } from './tenancy.ts'

declare module 'fastify' {
  interface FastifyInstance {
    callsInFlight: CallsInFlight
  }
  interface FastifyRequest {
    /** What let the caller in was withdrawn while the body was still coming. */
    isWithdrawn: boolean
  }
}

/**
 * Ends requests under way, whatever they do, within 5 s after what let their callers in was withdrawn: the account, its
 * password, a device token, a session, membership. (Feeds that wait end at once and in order; changes/hub.ts.)
 */
export const withdrawal = fp(
  async (app) => {
    app.decorateRequest('isWithdrawn', false)
    app.decorateRequest('endBody', null)
    const calls = new CallsInFlight({ recheck, cut })
    app.decorate('callsInFlight', calls)
    const forget = [
      onDoubt(app, (names) => calls.doubtAccounts(names)),
      app.services.databases.watchSecurity((name) => calls.doubtDatabase(name)),
    ]
    app.addHook('preClose', async () => {
      for (const each of forget) each()
      calls.close()
    })
    app.addHook('onRequest', (request, reply, done) => {
      if (request.routeOptions.config.access !== 'public') calls.add(reply)
      done()
    })
  },
  { name: 'withdrawal', dependencies: ['authentication', 'access'] },
)

/** As the hooks did at the beginning, on a request of which nobody else sees what they find. */
async function recheck(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const probe = Object.create(request) as FastifyRequest
  await authenticate(probe, withoutHeaders(reply))
  refuseClosedAccount(probe)
  await checkAccess(probe)
}

/** A reply on which nothing can be set: a cookie that is renewed would be in an answer to somebody else. */
function withoutHeaders(reply: FastifyReply): FastifyReply {
  const deaf = Object.create(reply) as FastifyReply
  deaf.header = () => deaf
  deaf.headers = () => deaf
  return deaf
}

/**
 * A client that is still sending gets a proper answer, and so does one that was sent nothing yet; else the connection is
 * cut, so that what the client has does not pass for the whole.
 */
function cut(request: FastifyRequest, reply: FastifyReply, error: CouchError): void {
  // It was answered, and what it still sends is thrown away for a moment.
  if (request.isWithdrawn) return
  const { headersSent } = reply.raw
  const what = headersSent
    ? 'an answer broke off while it was sent'
    : 'a request was refused while it was served'
  request.server.services.logger.warn(factsOf(request), `${what}: what let its caller in was withdrawn`)
  request.isWithdrawn = true
  if (request.endBody !== null) request.endBody(error)
  else if (headersSent || reply.raw.socket === null) request.raw.socket.destroy()
  else answerInstead(error, request, reply)
}
