/** Checks what answers at the address, its versions, its clock, and whether it knows its own address. */

import { isLoopback } from '../core/network.ts'
import { advise, type CheckContext, headerOf } from './advice.ts'
import { type Answer, type Client, isAnswer, isJson, type Reply } from './doctor-client.ts'
import { adviceToUser, type Cure, describe, type Finding, fine, note, skipped, wrong } from './finding.ts'

/** Statuses of a proxy that cannot reach the server; 520 to 530 are Cloudflare's. */
export const GATEWAY: ReadonlySet<number> = new Set([502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 530])

/** Checks what answers at the address. @param reply of `GET /` */
export function checkServer(reply: Reply, context: CheckContext): Finding {
  const { address, quote } = context
  if (isAnswer(reply)) return checkAnswer(reply, context)
  const mayBeTls = address.scheme === 'http' && reply.failure !== 'TIMEOUT'
  const cure = mayBeTls
    ? 'If it is a TLS port, use https://. Otherwise check that a CouchDB listens there.'
    : 'Check that the server behind it is running and answers: curl -m 5 http://127.0.0.1:5984/'
  return wrong('server', `The server does not answer: ${describe(reply, quote)}.`, adviceToUser(cure))
}

function checkAnswer(answer: Answer, context: CheckContext): Finding {
  const { status, headers, text } = answer
  const { stack } = context
  if (status >= 300 && status < 400 && headers.location !== undefined)
    return checkRedirect(headers.location, context)
  if (/plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server/i.test(text)) {
    return wrong('server', 'This port uses TLS.', adviceToUser('Use https:// instead of http://.'))
  }
  if (headers['cf-mitigated'] !== undefined) {
    return wrong(
      'server',
      'Cloudflare asks for a human check, which apps cannot pass.',
      advise('challenge', { ...stack, proxies: ['Cloudflare'] }),
    )
  }
  const isCouch = isJson(answer)
  if (!isCouch && GATEWAY.has(status)) {
    return wrong(
      'server',
      `The proxy answers ${status}: it does not reach the server behind it.`,
      advise('upstream', stack, 'proxy'),
    )
  }
  if (!isCouch && status === 401) {
    return wrong(
      'server',
      'The proxy asks for a password of its own, before the server is reached.',
      loginCures(context),
    )
  }
  if (!isCouch && status === 403) {
    return wrong(
      'server',
      'The proxy refuses the request with 403, before the server is reached.',
      loginCures(context),
    )
  }
  return checkWelcome(answer, context)
}

/**
 * A redirect keeps the path if the server has another address. A login page has another path, or gets the path as a parameter:
 * Cloudflare Access, Authelia, Authentik and oauth2-proxy answer so.
 */
function checkRedirect(location: string, context: CheckContext): Finding {
  const { address, quote } = context
  const asked = new URL(`${address.prefix ?? ''}/`, address.url)
  const target = URL.canParse(location, asked.href) ? new URL(location, asked) : null
  const isMoved = target !== null && target.search === '' && withSlash(target.pathname) === asked.pathname
  if (isMoved && target.href !== asked.href) {
    return wrong(
      'server',
      `The server redirects to ${quote(location)}: apps lose the password on the way.`,
      adviceToUser('Use the address that it redirects to.'),
    )
  }
  // What follows the path may name a person or a session.
  const place = target === null ? location : `${target.origin}${target.pathname}`
  return wrong(
    'server',
    `A proxy redirects to ${quote(place)}, which looks like a login page: apps cannot log in there.`,
    loginCures(context),
  )
}

function withSlash(path: string): string {
  return path.endsWith('/') ? path : `${path}/`
}

function loginCures({ stack }: CheckContext): readonly Cure[] {
  return [...advise('proxyPassword', stack, 'proxy'), ...adviceToUser(SEND_HEADERS)]
}

const SEND_HEADERS =
  "Or let the apps send what the proxy accepts instead of a login (LiveSync: Custom Headers), and check with --header 'NAME: VALUE'."

function checkWelcome(answer: Answer, { address, stack, quote }: CheckContext): Finding {
  const { status, json } = answer
  const by = stack.isRecognised ? `, behind ${stack.proxies[0]}` : ''
  const isCouch = isJson(answer)
  const { version, vendor, error } = (isCouch ? json : {}) as Welcome
  if (isCouch && stack.server !== null && status === 200) {
    const number = stack.server === 'settee' ? vendor?.version : version
    return fine('server', `${stack.server} ${quote(String(number ?? ''))}${by}.`)
  }
  // With `require_valid_user`, a server shows nothing without a login; the next findings say why.
  if (status === 401 && error === 'unauthorized')
    return fine('server', `${stack.server ?? 'A CouchDB'}${by}: it shows nothing without a login.`)
  const { prefix } = address
  return wrong(
    'server',
    `This is not a CouchDB: GET ${prefix ?? ''}/ answers ${describe(answer, quote)}.`,
    adviceToUser(
      prefix === undefined
        ? 'Check the port, and where the proxy leads; the database server must be at /.'
        : `Check whether the proxy serves the server at ${prefix}/ and removes this path; in the name of a database, write a slash as %2F.`,
    ),
  )
}

interface Welcome {
  readonly version?: unknown
  readonly vendor?: { readonly version?: unknown }
  readonly error?: unknown
}

/** LiveSync reads the version from the header, and uses other setting names for older servers. */
const MIN_VERSION = [3, 2, 0] as const

/** Checks the header `Server` as LiveSync reads it. */
export function checkVersion(answer: Answer, { stack, quote }: CheckContext): Finding {
  const server = headerOf(answer, 'server')
  const found = /CouchDB\/(\d+)\.(\d+)\.(\d+)/.exec(server)
  if (found !== null && isEnough(found.slice(1).map(Number)))
    return fine('version', `Server: ${quote(server)}.`)
  const says = server === '' ? 'The header Server is missing' : `The header Server is ${quote(server)}`
  const lost = `${says} and names no CouchDB 3.2 or later: LiveSync assumes an older one.`
  // A proxy that replaces the header hides the server's version.
  const isHidden = found === null && stack.server !== 'PouchDB Server'
  return note('version', lost, isHidden ? advise('serverHeader', stack, 'proxy') : [])
}

function isEnough(version: readonly number[]): boolean {
  for (const [at, least] of MIN_VERSION.entries()) {
    const part = version[at] ?? 0
    if (part !== least) return part > least
  }
  return true
}

interface HttpFacts {
  /** Whether the handshake agreed on HTTP/2; null without TLS, because browsers then never use it. */
  readonly offersH2: boolean | null
  /** Answer to a request by HTTP/2, if it is offered. */
  readonly h2: Reply | null
  /** Answer to the same request by HTTP/1.1. */
  readonly h1: Reply
}

/** Checks the version that browsers would use: with HTTP/1.1 they open at most six connections to a server. */
export function checkHttp({ offersH2, h2, h1 }: HttpFacts, { stack, quote }: CheckContext): Finding {
  if (offersH2 === null) return fine('http', 'HTTP/1.1.')
  if (!offersH2) {
    const text = 'HTTP/1.1 only: an app with several databases gets six connections, and further feeds wait.'
    return note('http', text, advise('http2', stack, 'proxy'))
  }
  const isSame = h2 !== null && isAnswer(h2) && isAnswer(h1) && h2.status === h1.status
  if (isSame) return fine('http', 'HTTP/2.')
  const what = h2 === null ? 'no answer' : describe(h2, quote)
  return wrong(
    'http',
    `HTTP/2 is offered but fails: ${what}; with HTTP/1.1: ${describe(h1, quote)}.`,
    advise('http2', stack, 'proxy'),
  )
}

/** Checks whether the server knows its own address, from the `Location` of a written document. */
export function checkLocation(put: Reply, { address, stack, quote }: CheckContext): Finding {
  const location = isAnswer(put) ? put.headers.location : undefined
  if (location === undefined) return skipped('location', 'The answer has no Location header.')
  const found = URL.canParse(location) ? new URL(location).origin : null
  if (found === null || found === new URL(address.url).origin) {
    return fine('location', 'The server knows its own address.')
  }
  return note(
    'location',
    `The server assumes that its address is ${quote(found)}: cookies may lack Secure, and it may not see the clients' addresses.`,
    advise('forwarded', stack),
  )
}

/** An address for documentation, which is nobody's (RFC 5737). */
const FORGED_ADDRESS = '192.0.2.77'

interface ClientFacts {
  /** Of `GET /_settee/client`. */
  readonly plain: Reply
  /** The same, with a forged X-Forwarded-For. */
  readonly forged: Reply
}

/** Asks what the server takes this machine for, with and without a forged address. */
export async function askForClient(client: Client): Promise<ClientFacts> {
  const request = { method: 'GET', path: '/_settee/client' }
  const [plain, forged] = await Promise.all([
    client.ask(request),
    client.ask({ ...request, headers: { 'x-forwarded-for': FORGED_ADDRESS } }),
  ])
  return { plain, forged }
}

interface ClientAnswer {
  readonly address?: unknown
  readonly forwarded?: unknown
  readonly trusted?: unknown
}

/** Checks whether a client can choose the address that lockouts and limits count. */
export function checkClient(
  { plain, forged }: ClientFacts,
  { address, stack, quote }: CheckContext,
): Finding {
  const [own, pretended] = [clientOf(plain), clientOf(forged)]
  if (own === null || pretended === null)
    return skipped('client', 'The server does not say which address it sees.')
  // Without a proxy in between, this machine itself is the trusted proxy.
  const isOwnProxy = own.forwarded !== true && isLoopback(address.host)
  if (pretended.address === FORGED_ADDRESS && isOwnProxy)
    return skipped(
      'client',
      'This machine is trusted as a proxy, and may name any address. Run the doctor elsewhere.',
    )
  if (pretended.address === FORGED_ADDRESS) {
    return wrong(
      'client',
      'The server believes an X-Forwarded-For of the client: guesses of passwords are never locked out.',
      advise('forgedAddress', stack),
    )
  }
  const seen = quote(String(own.address))
  if (own.forwarded === true && own.trusted !== true) {
    const text = `The server takes all clients of the proxy for one, at ${seen}: limits and lockouts hit all of them.`
    return note('client', text, advise('forwarded', stack, 'server'))
  }
  return fine('client', `The server sees this machine as ${seen}, whatever it claims.`)
}

function clientOf(reply: Reply): ClientAnswer | null {
  if (!isAnswer(reply) || reply.status !== 200 || !isJson(reply)) return null
  const found = reply.json as ClientAnswer
  return typeof found.address === 'string' ? found : null
}

/** LiveSync's web tokens are valid for five minutes. */
const MAX_DIFFERENCE_S = 300
const NOTED_DIFFERENCE_S = 60

/** Checks the server's clock by the `Date` of an answer. */
export function checkClock({ headers, at }: Pick<Answer, 'headers' | 'at'>): Finding {
  const time = Date.parse(headers.date ?? '')
  if (Number.isNaN(time)) return note('clock', 'The answer has no Date header: the clock cannot be checked.')
  // A Date has whole seconds, so it is half a second behind on average.
  const ahead = Math.round((time + 500 - at) / 1000)
  const off = Math.abs(ahead)
  if (off <= NOTED_DIFFERENCE_S)
    return fine('clock', off <= 1 ? "The same as this machine's." : `${off} s off this machine's.`)
  const text = `The server's clock is ${off} s ${ahead > 0 ? 'ahead of' : 'behind'} this machine's`
  const cure = adviceToUser('Set both clocks: timedatectl set-ntp true')
  if (off <= MAX_DIFFERENCE_S) return note('clock', `${text}.`, cure)
  return wrong('clock', `${text}: web tokens and sessions fail, and certificates may.`, cure)
}
