import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { isOpen } from '../../auth/admins.ts'
import { CouchError } from '../../core/errors.ts'
import { hostOf } from '../client-address.ts'
import { absoluteUrl } from '../replies.ts'
import { pageOf } from './cors.ts'

/** Methods that change nothing: RFC 9110 9.2.1. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const LOOPBACK_HOST = /^(?:(?:[\w-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\])\.?(?::\d*)?$/i
const LOOPBACK_ADDRESS = /^(?:127\.|::1$|::ffff:127\.)/
/** Characters of what the client has sent that a reason repeats. */
const SHOWN = 256

/**
 * Refuses what a web page does behind its reader's back, before anybody is asked who he is: a request that is not of
 * a page (curl, replicators, apps on their native network) has no `Origin`, or an empty one, and passes.
 */
export const origin = fp(
  async (app) => {
    const isBoundHere = boundToLoopback(app)
    app.addHook('onRequest', (request, _reply, done) => {
      done(foreignHost(request, isBoundHere) ?? foreignPage(request))
    })
  },
  { name: 'origin', dependencies: ['cors', 'errors'] },
)

/** Whether the app listens on this machine only; asked when it does, since the configuration may have changed since. */
function boundToLoopback(app: FastifyInstance): () => boolean {
  let answer: boolean | undefined
  return () => {
    if (answer !== undefined) return answer
    const addresses = app.addresses()
    if (addresses.length === 0) return false
    if (app.secure !== null) addresses.push(app.secure.address)
    answer = addresses.every((at) => typeof at === 'object' && LOOPBACK_ADDRESS.test(at.address))
    return answer
  }
}

/**
 * While there is no admin, a server that only this machine reaches is open to every page that a browser here shows, if
 * the page's own name leads to 127.0.0.1 ("DNS rebinding"): then the browser takes the server for the page's. Such a
 * request names the page's host, whatever else it says.
 */
function foreignHost(request: FastifyRequest, isBoundHere: () => boolean): CouchError | undefined {
  const { host } = request.headers
  if (host === undefined || LOOPBACK_HOST.test(host) || !isBoundHere()) return undefined
  if (!isOpen(request.server.services.config)) return undefined
  return new CouchError(
    'forbidden',
    `While there is no admin, this server answers to localhost and 127.0.0.1 only, not to ${shown(host)}. ` +
      'Make one: PUT /_node/_local/_config/admins/{name}.',
  )
}

/** A page may send some requests with its reader's cookies to anywhere; it cannot hide where it comes from. */
function foreignPage(request: FastifyRequest): CouchError | undefined {
  const page = pageOf(request)
  if (page === undefined || SAFE.has(request.method)) return undefined
  if (request.server.cors.of(hostOf(request)).allows(page) || isOwn(request, page)) return undefined
  return new CouchError(
    'forbidden',
    `Pages of ${shown(page)} may change nothing here: the origin is not in cors/origins, and is not the server's own.`,
  )
}

/**
 * Whether the page is of this very host and port, as the client named them. Where a proxy that does not say so has
 * ended TLS the page's scheme is the safer one, and that will do.
 */
function isOwn(request: FastifyRequest, page: string): boolean {
  const own = absoluteUrl(request)
  const asked = originOf(page)
  if (asked === null) return false
  return asked === originOf(own) || asked === originOf(own.replace(/^http:/, 'https:'))
}

/** With the default port left out, as browsers do. */
function originOf(address: string): string | null {
  const { origin: found } = URL.canParse(address) ? new URL(address) : { origin: 'null' }
  return found === 'null' ? null : found
}

function shown(text: string): string {
  return text.slice(0, SHOWN)
}
