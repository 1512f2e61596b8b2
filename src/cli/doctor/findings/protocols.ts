import { advise } from '../advice.ts'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'

export interface ProtocolFacts {
  /** Why there was no handshake as a phone makes it; null: there was one. */
  readonly failure: string | null
  /** Whether the port answers without TLS. */
  readonly isPlain: boolean
  /** As `TLSv1.3`; null without a handshake. */
  readonly version: string | null
  /** OpenSSL's name. */
  readonly cipher: string | null
  /** The highest that is accepted of those that are no longer safe; null: none. */
  readonly old: string | null
}

/** Ciphers with keys that are forgotten after the connection: iOS takes no others. */
const FORWARD_SECRET = /^(?:TLS_|ECDHE|DHE)/

export function judgeProtocols(facts: ProtocolFacts, { address, mobile, stage, quote }: Scene): Finding {
  const { failure, isPlain, version, cipher, old } = facts
  if (isPlain) {
    const cure = toYou(
      `Write http://, or put TLS on port ${address.port}; or is the port of TLS another one?`,
    )
    return wrong('protocols', `Port ${address.port} speaks no TLS.`, cure)
  }
  if (failure !== null && old !== null) {
    const text = `The server speaks ${old} at the most: browsers and phones refuse that.`
    return wrong('protocols', text, advise('protocols', stage))
  }
  if (failure !== null)
    return wrong(
      'protocols',
      `TLS fails: ${toldFailure(failure, quote)}.`,
      advise('certificate', stage, 'proxy'),
    )
  if (cipher !== null && !FORWARD_SECRET.test(cipher)) {
    const text = `The cipher ${quote(cipher)} keeps no forward secrecy, which iOS demands.`
    return (mobile ? wrong : note)('protocols', text, advise('ciphers', stage))
  }
  if (old !== null) {
    const text = `${version}, but ${old} is accepted too, which is no longer safe.`
    return note('protocols', text, advise('protocols', stage))
  }
  return fine('protocols', `${version}; nothing older than TLS 1.2 is accepted.`)
}
