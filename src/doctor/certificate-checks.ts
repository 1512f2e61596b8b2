import { advise } from './advice.ts'
import type { Scene } from './examination.ts'
import { type Finding, fine, note, toldFailure, toYou, wrong } from './finding.ts'

/** One certificate of those that the server sent, its own first. */
export interface CertificateFacts {
  readonly subject: string
  readonly issuer: string
  /** Both in ms since 1970. */
  readonly from: number
  readonly to: number
  /** Whether it names hosts where they belong, in subjectAltName. */
  readonly hasNames: boolean
  /** Whether it says where its issuer's certificate is: those of public authorities do. */
  readonly namesIssuersPlace: boolean
  /** Of an RSA key; null for others. */
  readonly rsaBits: number | null
  /** Whether its extended key usage says that it is a server's. */
  readonly isForServers: boolean
}

export interface ChainFacts {
  /** OpenSSL's code, against the authorities that every device knows; null: it is trusted. */
  readonly distrust: string | null
  /** It is trusted, but by a file that was given. */
  readonly isByFile: boolean
  /** What is wrong with the name; null: nothing. */
  readonly nameFault: string | null
  readonly chain: readonly CertificateFacts[]
  /** In ms since 1970. */
  readonly now: number
}

const DAY = 86_400_000
/** What is left when something should have renewed it: Let's Encrypt's clients do with 30 days left. */
const SOON_DAYS = 14
/** Apple's bounds: since 2019 for all, RSA keys and days of a certificate that was installed by hand. */
const MIN_RSA_BITS = 2048
const MAX_OWN_DAYS = 825

/** Judges a chain as phones do. Each fault is a line of its own. */
export function judgeCertificate(facts: ChainFacts, scene: Scene): Finding[] {
  const faults = [...datesOf(facts, scene), ...trustOf(facts, scene), ...namesOf(facts, scene)]
  const more = scene.mobile ? phonesOf(facts, scene) : []
  const found = faults.length + more.length > 0 ? [...faults, ...more] : goodOf(facts, scene)
  const names = ownNames(facts).map(scene.quote)
  return found.map((each) => ({ ...each, names }))
}

/** Those of the owner's making: a public authority's name tells nothing of anybody. */
function ownNames({ chain, distrust }: ChainFacts): string[] {
  if (distrust === null) return chain.slice(0, 1).map(({ subject }) => subject)
  return [...new Set(chain.flatMap(({ subject, issuer }) => [subject, issuer]))]
}

function goodOf(facts: ChainFacts, scene: Scene): Finding[] {
  const [leaf] = facts.chain
  if (leaf === undefined) return [fine('certificate', 'Trusted.')]
  const by = facts.isByFile ? 'Trusted through the given file' : 'Trusted'
  return [fine('certificate', `${by}; issued by ${scene.quote(leaf.issuer)}, valid until ${day(leaf.to)}.`)]
}

/** Whether anything may be sent to this server. */
export function isTrusted({ distrust, isByFile, nameFault, chain }: ChainFacts): boolean {
  return (distrust === null || isByFile) && nameFault === null && chain[0]?.hasNames !== false
}

function datesOf({ distrust, isByFile, chain, now }: ChainFacts, { quote, stage }: Scene): Finding[] {
  const isWhole = distrust === null || isByFile
  return chain.flatMap(({ subject, from, to }) => {
    const cure = advise('certificate', stage)
    const whose = quote(subject)
    // There is another way to an authority, which OpenSSL has found, as phones do: a cross-signed root, mostly.
    if (to < now && isWhole) {
      const text = `The server also sends a certificate of ${whose} that expired on ${day(to)}: old devices may refuse it.`
      return [note('certificate', text, toYou('Remove it from the chain file.'))]
    }
    if (to < now)
      return [wrong('certificate', `The certificate of ${whose} expired on ${day(to)}: renew it.`, cure)]
    if (from > now) {
      return [
        wrong(
          'certificate',
          `The certificate of ${whose} is valid only from ${day(from)}: a clock is wrong.`,
          CLOCK,
        ),
      ]
    }
    const left = (to - now) / DAY
    if (left > Math.min(SOON_DAYS, (to - from) / DAY / 3)) return []
    return [
      note(
        'certificate',
        `The certificate of ${whose} expires on ${day(to)} and has not been renewed.`,
        cure,
      ),
    ]
  })
}

const CLOCK = toYou("Set this machine's clock and the server's: timedatectl set-ntp true")

function trustOf({ distrust, isByFile, chain, now }: ChainFacts, { stage, quote }: Scene): Finding[] {
  if (distrust === null || isByFile) return []
  // What is told of the dates already, and hides what else may be.
  if (/EXPIRED|NOT_YET_VALID/.test(distrust) && chain.some(({ from, to }) => to < now || from > now))
    return []
  return [wrong('certificate', distrustOf(distrust, chain, quote), advise('certificate', stage))]
}

function distrustOf(code: string, chain: readonly CertificateFacts[], quote: Scene['quote']): string {
  if (code === 'DEPTH_ZERO_SELF_SIGNED_CERT') {
    return 'The certificate is self-signed: devices refuse it, and Obsidian and iOS on phones cannot be told to accept it.'
  }
  if (code === 'SELF_SIGNED_CERT_IN_CHAIN') {
    return 'The certificate comes from an authority of your own: devices refuse it until you install that authority; Android apps refuse it even then.'
  }
  if (/UNABLE_TO_(?:VERIFY_LEAF|GET_ISSUER)/.test(code)) {
    const last = chain.at(-1)
    const issuer = quote(last?.issuer ?? 'its issuer')
    return last?.namesIssuersPlace === true
      ? `The chain is incomplete: the server does not send the certificate of ${issuer}. Some browsers find it, phones do not.`
      : `The server does not send the certificate of ${issuer}, and no device knows it: the chain is incomplete, or the authority is your own.`
  }
  return `The certificate is refused: ${quote(code)}.`
}

function namesOf({ nameFault, chain }: ChainFacts, { address, stage, quote }: Scene): Finding[] {
  if (nameFault !== null) {
    const text = `The certificate is not for ${address.host}: ${quote(nameFault)}`
    return [wrong('certificate', text, advise('certificate', stage))]
  }
  if (chain[0]?.hasNames !== false) return []
  const text = 'The certificate names its host only in CN, which browsers and phones ignore.'
  return [wrong('certificate', text, toYou('Create it again, with the host in subjectAltName.'))]
}

/** What holds on phones beyond all that. */
function phonesOf({ chain, isByFile }: ChainFacts, { stage }: Scene): Finding[] {
  const found: Finding[] = []
  const [leaf] = chain
  if (isByFile) {
    const text =
      'Phones trust this certificate only if its authority is installed; Android apps, including Obsidian, do not even then.'
    found.push(note('certificate', text, advise('certificate', stage)))
  }
  const short = chain.find(({ rsaBits }) => rsaBits !== null && rsaBits < MIN_RSA_BITS)
  if (short !== undefined) {
    const text = `The RSA key has ${short.rsaBits} bits: iOS requires ${MIN_RSA_BITS}.`
    found.push(wrong('certificate', text, toYou('Create a new key and certificate.')))
  }
  if (leaf?.isForServers === false) {
    const text = 'The certificate does not say that it is for servers, which iOS requires.'
    found.push(wrong('certificate', text, toYou('Create it again, with extendedKeyUsage = serverAuth.')))
  }
  if (leaf !== undefined && isByFile && leaf.to - leaf.from > MAX_OWN_DAYS * DAY) {
    const text = `The certificate is valid for more than ${MAX_OWN_DAYS} days: iOS refuses it.`
    found.push(wrong('certificate', text, toYou('Create it again, for fewer days.')))
  }
  return found
}

function day(at: number): string {
  return new Date(at).toISOString().slice(0, 10)
}

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
    const cure = toYou(`Use http://, or turn on TLS on port ${address.port}; or does TLS have another port?`)
    return wrong('protocols', `Port ${address.port} does not use TLS.`, cure)
  }
  if (failure !== null && old !== null) {
    const text = `The server supports ${old} at most: browsers and phones refuse it.`
    return wrong('protocols', text, advise('protocols', stage))
  }
  if (failure !== null)
    return wrong(
      'protocols',
      `TLS fails: ${toldFailure(failure, quote)}.`,
      advise('certificate', stage, 'proxy'),
    )
  if (cipher !== null && !FORWARD_SECRET.test(cipher)) {
    const text = `The cipher ${quote(cipher)} has no forward secrecy, which iOS requires.`
    return (mobile ? wrong : note)('protocols', text, advise('ciphers', stage))
  }
  if (old !== null) {
    const text = `${version}, but the server also accepts ${old}, which is no longer safe.`
    return note('protocols', text, advise('protocols', stage))
  }
  return fine('protocols', `${version}; versions before TLS 1.2 are refused.`)
}
