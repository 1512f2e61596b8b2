/** Checks certificates and TLS versions as phones do. */
import { advise, type CheckContext } from './advice.ts'
import { adviceToUser, describeFailure, type Finding, fine, note, wrong } from './finding.ts'

/** A certificate of the chain that the server sent. */
export interface CertificateFacts {
  readonly subject: string
  readonly issuer: string
  /** Both in ms since 1970. */
  readonly from: number
  readonly to: number
  /** Whether it names its hosts in subjectAltName. */
  readonly hasNames: boolean
  /** Whether it links to its issuer's certificate, as certificates of public authorities do. */
  readonly linksToIssuer: boolean
  /** null: not an RSA key. */
  readonly rsaBits: number | null
  /** Whether its extended key usage includes servers. */
  readonly isForServers: boolean
}

export interface ChainFacts {
  /** OpenSSL's code for why well-known authorities do not vouch for it; null: trusted. */
  readonly distrust: string | null
  /** Whether it is trusted only because of `--ca`. */
  readonly isByFile: boolean
  /** The fault of its name; null: none. */
  readonly nameFault: string | null
  readonly chain: readonly CertificateFacts[]
  /** In ms since 1970. */
  readonly now: number
}

const DAY = 86_400_000
/** Remaining days that cause a note: Let's Encrypt's clients renew 30 days before the end. */
const SOON_DAYS = 14
/**
 * Apple's limits since 2019: for RSA keys, and for the days that a certificate of a manually installed authority is
 * valid.
 */
const MIN_RSA_BITS = 2048
const MAX_OWN_DAYS = 825

/** Checks a chain as phones do. Each fault is one finding. */
export function checkCertificate(facts: ChainFacts, context: CheckContext): Finding[] {
  const faults = [
    ...dateFaults(facts, context),
    ...trustFaults(facts, context),
    ...nameFaults(facts, context),
  ]
  const more = context.mobile ? phoneFaults(facts, context) : []
  const found = faults.length + more.length > 0 ? [...faults, ...more] : validCertificate(facts, context)
  const names = ownNames(facts).map(context.quote)
  return found.map((each) => ({ ...each, names }))
}

/** Names that identify the owner. Names of public authorities do not. */
function ownNames({ chain, distrust }: ChainFacts): string[] {
  if (distrust === null) return chain.slice(0, 1).map(({ subject }) => subject)
  return [...new Set(chain.flatMap(({ subject, issuer }) => [subject, issuer]))]
}

function validCertificate(facts: ChainFacts, context: CheckContext): Finding[] {
  const [leaf] = facts.chain
  if (leaf === undefined) return [fine('certificate', 'Trusted.')]
  const by = facts.isByFile ? 'Trusted through the given file' : 'Trusted'
  return [fine('certificate', `${by}; issued by ${context.quote(leaf.issuer)}, valid until ${day(leaf.to)}.`)]
}

/** Whether anything may be sent to this server. */
export function isTrusted({ distrust, isByFile, nameFault, chain }: ChainFacts): boolean {
  return (distrust === null || isByFile) && nameFault === null && chain[0]?.hasNames !== false
}

function dateFaults(
  { distrust, isByFile, chain, now }: ChainFacts,
  { quote, stack }: CheckContext,
): Finding[] {
  const isWhole = distrust === null || isByFile
  return chain.flatMap(({ subject, from, to }) => {
    const cure = advise('certificate', stack)
    const whose = quote(subject)
    // OpenSSL has found another chain to an authority, as phones do. Usually this one is a cross-signed root.
    if (to < now && isWhole) {
      const text = `The server also sends a certificate of ${whose} that expired on ${day(to)}: old devices may refuse it.`
      return [note('certificate', text, adviceToUser('Remove it from the chain file.'))]
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

const CLOCK = adviceToUser("Set this machine's clock and the server's: timedatectl set-ntp true")

function trustFaults(
  { distrust, isByFile, chain, now }: ChainFacts,
  { stack, quote }: CheckContext,
): Finding[] {
  if (distrust === null || isByFile) return []
  // The finding about dates already names this fault.
  if (/EXPIRED|NOT_YET_VALID/.test(distrust) && chain.some(({ from, to }) => to < now || from > now))
    return []
  return [wrong('certificate', describeDistrust(distrust, chain, quote), advise('certificate', stack))]
}

function describeDistrust(
  code: string,
  chain: readonly CertificateFacts[],
  quote: CheckContext['quote'],
): string {
  if (code === 'DEPTH_ZERO_SELF_SIGNED_CERT') {
    return 'The certificate is self-signed: devices refuse it, and Obsidian and iOS on phones have no setting to accept it.'
  }
  if (code === 'SELF_SIGNED_CERT_IN_CHAIN') {
    return 'The certificate comes from an authority of your own: devices refuse it until you install that authority; Android apps refuse it even then.'
  }
  if (/UNABLE_TO_(?:VERIFY_LEAF|GET_ISSUER)/.test(code)) {
    const last = chain.at(-1)
    const issuer = quote(last?.issuer ?? 'its issuer')
    return last?.linksToIssuer === true
      ? `The chain is incomplete: the server does not send the certificate of ${issuer}. Some browsers find it, phones do not.`
      : `The server does not send the certificate of ${issuer}, and no device knows it: the chain is incomplete, or the authority is your own.`
  }
  return `The certificate is refused: ${quote(code)}.`
}

function nameFaults({ nameFault, chain }: ChainFacts, { address, stack, quote }: CheckContext): Finding[] {
  if (nameFault !== null) {
    const text = `The certificate is not for ${address.host}: ${quote(nameFault)}`
    return [wrong('certificate', text, advise('certificate', stack))]
  }
  if (chain[0]?.hasNames !== false) return []
  const text = 'The certificate names its host only in CN, which browsers and phones ignore.'
  return [wrong('certificate', text, adviceToUser('Create it again, with the host in subjectAltName.'))]
}

/** Further rules of phones. */
function phoneFaults({ chain, isByFile }: ChainFacts, { stack }: CheckContext): Finding[] {
  const found: Finding[] = []
  const [leaf] = chain
  if (isByFile) {
    const text =
      'Phones trust this certificate only if its authority is installed; Android apps, including Obsidian, do not even then.'
    found.push(note('certificate', text, advise('certificate', stack)))
  }
  const short = chain.find(({ rsaBits }) => rsaBits !== null && rsaBits < MIN_RSA_BITS)
  if (short !== undefined) {
    const text = `The RSA key has ${short.rsaBits} bits: iOS requires ${MIN_RSA_BITS}.`
    found.push(wrong('certificate', text, adviceToUser('Create a new key and certificate.')))
  }
  if (leaf?.isForServers === false) {
    const text = 'The certificate does not say that it is for servers, which iOS requires.'
    found.push(
      wrong('certificate', text, adviceToUser('Create it again, with extendedKeyUsage = serverAuth.')),
    )
  }
  if (leaf !== undefined && isByFile && leaf.to - leaf.from > MAX_OWN_DAYS * DAY) {
    const text = `The certificate is valid for more than ${MAX_OWN_DAYS} days: iOS refuses it.`
    found.push(wrong('certificate', text, adviceToUser('Create it again, for fewer days.')))
  }
  return found
}

function day(at: number): string {
  return new Date(at).toISOString().slice(0, 10)
}

export interface ProtocolFacts {
  /** Why a phone's handshake failed; null: it succeeded. */
  readonly failure: string | null
  /** Whether the port answers without TLS. */
  readonly isPlain: boolean
  /** Such as `TLSv1.3`; null without a handshake. */
  readonly version: string | null
  /** OpenSSL's name. */
  readonly cipher: string | null
  /** The highest insecure version that is accepted; null: none. */
  readonly old: string | null
}

/** Ciphers with forward secrecy: iOS accepts no others. */
const FORWARD_SECRET = /^(?:TLS_|ECDHE|DHE)/

export function checkProtocols(
  facts: ProtocolFacts,
  { address, mobile, stack, quote }: CheckContext,
): Finding {
  const { failure, isPlain, version, cipher, old } = facts
  if (isPlain) {
    const cure = adviceToUser(
      `Use http://, or turn on TLS on port ${address.port}; or does TLS have another port?`,
    )
    return wrong('protocols', `Port ${address.port} does not use TLS.`, cure)
  }
  if (failure !== null && old !== null) {
    const text = `The server supports ${old} at most: browsers and phones refuse it.`
    return wrong('protocols', text, advise('protocols', stack))
  }
  if (failure !== null)
    return wrong(
      'protocols',
      `TLS fails: ${describeFailure(failure, quote)}.`,
      advise('certificate', stack, 'proxy'),
    )
  if (cipher !== null && !FORWARD_SECRET.test(cipher)) {
    const text = `The cipher ${quote(cipher)} has no forward secrecy, which iOS requires.`
    return (mobile ? wrong : note)('protocols', text, advise('ciphers', stack))
  }
  if (old !== null) {
    const text = `${version}, but the server also accepts ${old}, which is no longer safe.`
    return note('protocols', text, advise('protocols', stack))
  }
  return fine('protocols', `${version}; versions before TLS 1.2 are refused.`)
}
