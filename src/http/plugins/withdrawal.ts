import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { CouchError } from '../../core/errors.ts'
import { CallsInFlight } from '../calls-in-flight.ts'
import { onDoubt } from '../doubts.ts'
import { recheck } from '../readmit.ts'
import { answerInstead } from './errors.ts'
import { factsOf } from './request-log.ts'

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
