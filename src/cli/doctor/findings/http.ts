import { advise } from '../advice.ts'
import { isAnswer, type Reply } from '../client.ts'
import { type Finding, fine, note, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'

export interface HttpFacts {
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
    const text =
      'HTTP/1.1 only: an app with several databases has six connections, and feeds beyond that wait.'
    return note('http', text, advise('http2', stage, 'proxy'))
  }
  const isSame = h2 !== null && isAnswer(h2) && isAnswer(h1) && h2.status === h1.status
  if (isSame) return fine('http', 'HTTP/2.')
  const what = h2 === null ? 'no answer' : told(h2, quote)
  return wrong(
    'http',
    `HTTP/2 is offered, and fails: ${what}, where HTTP/1.1 has ${told(h1, quote)}.`,
    advise('http2', stage, 'proxy'),
  )
}
