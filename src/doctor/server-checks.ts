import { advise } from './advice.ts'
import { type Answer, headerOf, isAnswer, isJson, type Reply } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Finding, fine, note, skipped, told, toYou, wrong } from './finding.ts'

/** Statuses of a proxy that did not reach the server; 520 to 530 are Cloudflare's. */
export const GATEWAY: ReadonlySet<number> = new Set([502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 530])

/** Judges who answers at the address. @param reply to `GET /` */
export function judgeServer(reply: Reply, scene: Scene): Finding {
  const { address, quote } = scene
  if (isAnswer(reply)) return judgeAnswer(reply, scene)
  const mayBeTls = address.scheme === 'http' && reply.failure !== 'TIMEOUT'
  const cure = mayBeTls
    ? 'If it is a TLS port, use https://. Otherwise check that a CouchDB listens there.'
    : 'Check that the server behind it is running and answers: curl -m 5 http://127.0.0.1:5984/'
  return wrong('server', `The server does not answer: ${told(reply, quote)}.`, toYou(cure))
}

function judgeAnswer(answer: Answer, scene: Scene): Finding {
  const { status, headers, text } = answer
  const { stage, quote } = scene
  if (status >= 300 && status < 400 && headers.location !== undefined) {
    return wrong(
      'server',
      `The server redirects to ${quote(headers.location)}: apps lose the password on the way.`,
      toYou('Use the address that it redirects to.'),
    )
  }
  if (/plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server/i.test(text)) {
    return wrong('server', 'This port uses TLS.', toYou('Use https:// instead of http://.'))
  }
  if (headers['cf-mitigated'] !== undefined) {
    return wrong(
      'server',
      'Cloudflare asks for a human check, which apps cannot pass.',
      advise('challenge', { ...stage, proxies: ['Cloudflare'] }),
    )
  }
  const isCouch = isJson(answer)
  if (!isCouch && GATEWAY.has(status)) {
    return wrong(
      'server',
      `The proxy answers ${status}: it does not reach the server behind it.`,
      advise('upstream', stage, 'proxy'),
    )
  }
  if (!isCouch && status === 401) {
    return wrong(
      'server',
      'The proxy asks for a password of its own, before the server is reached.',
      advise('proxyPassword', stage, 'proxy'),
    )
  }
  return judgeWelcome(answer, scene)
}

function judgeWelcome(answer: Answer, { stage, quote }: Scene): Finding {
  const { status, json } = answer
  const by = stage.isRecognised ? `, behind ${stage.proxies[0]}` : ''
  const isCouch = isJson(answer)
  const { version, vendor, error } = (isCouch ? json : {}) as Welcome
  if (isCouch && stage.server !== null && status === 200) {
    const number = stage.server === 'settee' ? vendor?.version : version
    return fine('server', `${stage.server} ${quote(String(number ?? ''))}${by}.`)
  }
  // Whom a server with `require_valid_user` does not know, it tells nothing; the next lines say why.
  if (status === 401 && error === 'unauthorized')
    return fine('server', `${stage.server ?? 'A CouchDB'}${by}: it tells nothing without a login.`)
  return wrong(
    'server',
    `This is not a CouchDB: GET / answers ${told(answer, quote)}.`,
    toYou('Check the port, and where the proxy leads; the database server must be at /.'),
  )
}

interface Welcome {
  readonly version?: unknown
  readonly vendor?: { readonly version?: unknown }
  readonly error?: unknown
}

/** LiveSync reads the version from the header, and asks older servers for settings by other names. */
const LEAST = [3, 2, 0] as const

/** Judges the header `Server` as LiveSync reads it. */
export function judgeVersion(answer: Answer, { stage, quote }: Scene): Finding {
  const server = headerOf(answer, 'server')
  const found = /CouchDB\/(\d+)\.(\d+)\.(\d+)/.exec(server)
  if (found !== null && isEnough(found.slice(1).map(Number)))
    return fine('version', `Server: ${quote(server)}.`)
  const says = server === '' ? 'The header Server is missing' : `The header Server is ${quote(server)}`
  const lost = `${says} and names no CouchDB 3.2 or later: LiveSync assumes an older one.`
  // A proxy that puts itself there hides the server; without one it is the server's own word.
  const isHidden = found === null && stage.server !== 'PouchDB Server'
  return note('version', lost, isHidden ? advise('serverHeader', stage, 'proxy') : [])
}

function isEnough(version: readonly number[]): boolean {
  for (const [at, least] of LEAST.entries()) {
    const part = version[at] ?? 0
    if (part !== least) return part > least
  }
  return true
}

interface HttpFacts {
  /** Whether the handshake agreed on HTTP/2; null without TLS, where browsers never do. */
  readonly offersH2: boolean | null
  /** To a request by HTTP/2, where it is offered. */
  readonly h2: Reply | null
  /** To the same request by HTTP/1.1. */
  readonly h1: Reply
}

/** Judges the version that browsers would speak: with HTTP/1.1 they open six connections to a server and no more. */
export function judgeHttp({ offersH2, h2, h1 }: HttpFacts, { stage, quote }: Scene): Finding {
  if (offersH2 === null) return fine('http', 'HTTP/1.1.')
  if (!offersH2) {
    const text = 'HTTP/1.1 only: an app with several databases gets six connections, and further feeds wait.'
    return note('http', text, advise('http2', stage, 'proxy'))
  }
  const isSame = h2 !== null && isAnswer(h2) && isAnswer(h1) && h2.status === h1.status
  if (isSame) return fine('http', 'HTTP/2.')
  const what = h2 === null ? 'no answer' : told(h2, quote)
  return wrong(
    'http',
    `HTTP/2 is offered but fails: ${what}; with HTTP/1.1: ${told(h1, quote)}.`,
    advise('http2', stage, 'proxy'),
  )
}

/** Judges whether the server knows the address by which it is reached: the `Location` of what was written says it. */
export function judgeLocation(put: Reply, { address, stage, quote }: Scene): Finding {
  const location = isAnswer(put) ? put.headers.location : undefined
  if (location === undefined) return skipped('location', 'The answer has no Location header.')
  const found = URL.canParse(location) ? new URL(location).origin : null
  if (found === null || found === new URL(address.url).origin) {
    return fine('location', 'The server knows its own address.')
  }
  return note(
    'location',
    `The server thinks that its address is ${quote(found)}: cookies may lack Secure, and it may not see the clients' addresses.`,
    advise('forwarded', stage),
  )
}
