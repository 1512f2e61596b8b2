import { advise } from '../advice.ts'
import { type Answer, isAnswer, isJson, type Reply } from '../client.ts'
import { type Finding, fine, toYou, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** Statuses of a proxy that did not reach the server; 520 to 530 are Cloudflare's. */
export const GATEWAY: ReadonlySet<number> = new Set([502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 530])

/** Judges who answers at the address. @param reply to `GET /` */
export function judgeServer(reply: Reply, scene: Scene): Finding {
  const { address, quote } = scene
  if (isAnswer(reply)) return judgeAnswer(reply, scene)
  const mayBeTls = address.scheme === 'http' && reply.failure !== 'TIMEOUT'
  const cure = mayBeTls
    ? 'Is it a port of TLS? Then write https://. Else look whether a CouchDB listens there.'
    : 'Look whether the server behind it runs, and answers there: curl -m 5 http://127.0.0.1:5984/'
  return wrong('server', `Nobody answers: ${told(reply, quote)}.`, toYou(cure))
}

function judgeAnswer(answer: Answer, scene: Scene): Finding {
  const { status, headers, text } = answer
  const { stage, quote } = scene
  if (status >= 300 && status < 400 && headers.location !== undefined) {
    return wrong(
      'server',
      `Everything is sent on to ${quote(headers.location)}: apps lose the password there.`,
      toYou('Give the address that is meant.'),
    )
  }
  if (/plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server/i.test(text)) {
    return wrong('server', 'This port speaks TLS.', toYou('Write https:// in place of http://.'))
  }
  if (headers['cf-mitigated'] !== undefined) {
    return wrong(
      'server',
      'Cloudflare asks for a human: apps are none.',
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
    return fine('server', `${stage.server ?? 'A CouchDB'}${by}: it tells strangers nothing.`)
  return wrong(
    'server',
    `This is no CouchDB: GET / answers ${told(answer, quote)}.`,
    toYou("Look at the port, and at where the proxy leads; the database's server must be at /."),
  )
}

interface Welcome {
  readonly version?: unknown
  readonly vendor?: { readonly version?: unknown }
  readonly error?: unknown
}
