/** TLS handshakes as phones and as old clients make them, and a request by HTTP/2. */
import { connect as connectHttp2 } from 'node:http2'
import { isIP } from 'node:net'
import {
  type ConnectionOptions,
  checkServerIdentity,
  connect,
  createSecureContext,
  DEFAULT_CIPHERS,
  type DetailedPeerCertificate,
  rootCertificates,
  type SecureContext,
  type TLSSocket,
} from 'node:tls'
import type { Address } from '../core/address.ts'
import type { CertificateFacts, ChainFacts, ProtocolFacts } from './certificate-checks.ts'
import { type Client, codeOf, type Reply, withTimeout } from './doctor-client.ts'

export interface TlsFacts {
  readonly protocols: ProtocolFacts
  /** null: there was no handshake. */
  readonly chain: ChainFacts | null
  readonly offersH2: boolean
}

/** RFC 5280 4.2.1.12. */
const SERVER_AUTH = '1.3.6.1.5.5.7.3.1'
/** A longer chain is circular or broken. */
const MAX_CHAIN = 10
/** Versions that OpenSSL no longer offers by default. */
const OLD: ConnectionOptions = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }
/** Level 2, Node 24's default, refuses a short key without a reason. The finding needs the reason. */
const CIPHERS = `${DEFAULT_CIPHERS}:@SECLEVEL=1`
/** OpenSSL 3's codes for an answer that is not TLS. */
const PLAIN = /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST/

/**
 * @param ca the certificate of an authority to trust besides the well-known ones, in PEM
 * @param ms time-out of each handshake
 */
export async function probeTls(address: Address, ca: string | undefined, ms: number): Promise<TlsFacts> {
  // Only the authorities on Mozilla's list: phones do not know others that this machine trusts.
  const known = createSecureContext({ ca: [...rootCertificates], ciphers: CIPHERS })
  const [now, old] = await Promise.all([handshake(address, known, {}, ms), oldVersion(address, ms)])
  if ('failure' in now) return failedHandshake(now.failure, old)
  const isByFile = now.distrust !== null && ca !== undefined && (await isTrustedWith(address, ca, ms))
  const { version, cipher, offersH2, ...chain } = now
  return {
    protocols: { failure: null, isPlain: false, version, cipher, old },
    chain: { ...chain, isByFile, now: Date.now() },
    offersH2,
  }
}

function failedHandshake(failure: string, old: string | null): TlsFacts {
  const protocols = { failure, isPlain: PLAIN.test(failure), version: null, cipher: null, old }
  return { protocols, chain: null, offersH2: false }
}

interface Handshake extends Omit<ChainFacts, 'isByFile' | 'now'> {
  readonly version: string | null
  readonly cipher: string
  readonly offersH2: boolean
}

async function handshake(
  address: Address,
  secureContext: SecureContext | undefined,
  options: ConnectionOptions,
  ms: number,
): Promise<Handshake | { readonly failure: string }> {
  const { host, port } = address
  const socket = connect({
    host,
    port,
    ...(isIP(host) === 0 && { servername: host }),
    ...(secureContext !== undefined && { secureContext }),
    ALPNProtocols: ['h2', 'http/1.1'],
    // Nothing but the handshake is sent; the check itself decides whether to trust the server.
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
    ...options,
  })
  try {
    await withTimeout(
      ms,
      new Promise<void>((resolve, reject) => {
        socket.once('secureConnect', resolve).once('error', reject)
        socket.once('close', () => reject(Object.assign(new Error(), { code: 'ECONNRESET' })))
      }),
    )
    return read(socket, host)
  } catch (error) {
    return { failure: codeOf(error) }
  } finally {
    socket.on('error', () => undefined).destroy()
  }
}

function read(socket: TLSSocket, host: string): Handshake {
  const peer = socket.getPeerCertificate(true)
  const { authorizationError } = socket
  return {
    distrust: socket.authorized || !authorizationError ? null : textOf(authorizationError),
    nameFault: checkServerIdentity(host, peer)?.message ?? null,
    chain: chainOf(peer),
    version: socket.getProtocol(),
    cipher: socket.getCipher().name,
    offersH2: socket.alpnProtocol === 'h2',
  }
}

/** Node's types declare an Error, but the value is a code. */
function textOf(error: unknown): string {
  return typeof error === 'string' ? error : codeOf(error)
}

function chainOf(leaf: DetailedPeerCertificate): CertificateFacts[] {
  const chain: CertificateFacts[] = []
  let at: DetailedPeerCertificate | undefined = leaf
  const seen = new Set<string>()
  while (at?.raw !== undefined && !seen.has(at.fingerprint256) && chain.length < MAX_CHAIN) {
    seen.add(at.fingerprint256)
    chain.push(factsOf(at))
    at = at.issuerCertificate
  }
  return chain
}

function factsOf(certificate: DetailedPeerCertificate): CertificateFacts {
  const { subject, issuer, valid_from, valid_to, subjectaltname, infoAccess, modulus, bits } = certificate
  const usages = certificate.ext_key_usage
  return {
    subject: nameOf(subject),
    issuer: nameOf(issuer),
    from: Date.parse(valid_from),
    to: Date.parse(valid_to),
    hasNames: subjectaltname !== undefined,
    linksToIssuer: infoAccess !== undefined && 'CA Issuers - URI' in infoAccess,
    rsaBits: modulus === undefined ? null : (bits ?? null),
    isForServers: usages?.includes(SERVER_AUTH) === true,
  }
}

/** Node's types promise a name, but some certificates have none. */
function nameOf(name: Partial<Record<'CN' | 'O', unknown>> | undefined): string {
  const found = name?.CN ?? name?.O
  return typeof found === 'string' ? found : 'an unnamed authority'
}

async function oldVersion(address: Address, ms: number): Promise<string | null> {
  const made = await handshake(address, undefined, OLD, ms)
  return 'failure' in made ? null : made.version
}

async function isTrustedWith(address: Address, ca: string, ms: number): Promise<boolean> {
  const context = createSecureContext({ ca: [...rootCertificates, ca], ciphers: CIPHERS })
  const made = await handshake(address, context, {}, ms)
  return !('failure' in made) && made.distrust === null
}

/** Sends a request by HTTP/2, as browsers do if it is offered. @returns an answer with only the status */
export async function requestByHttp2(
  { address, authorization, appHeaders, trust }: Client,
  path: string,
  ms: number,
): Promise<Reply> {
  const started = performance.now()
  const origin = new URL(address.url).origin
  const session = connectHttp2(origin, trust === undefined ? {} : { secureContext: trust })
  try {
    const status = await withTimeout(
      ms,
      new Promise<number>((resolve, reject) => {
        session.once('error', reject)
        session.once('close', () => reject(Object.assign(new Error(), { code: 'ECONNRESET' })))
        const stream = session.request({
          ':path': `${address.prefix ?? ''}${path}`,
          accept: 'application/json',
          ...appHeaders,
          ...(authorization !== undefined && { authorization }),
        })
        stream.once('error', reject)
        stream.once('close', () => reject(Object.assign(new Error(), { code: 'ECONNRESET' })))
        stream.once('response', (headers) => resolve(Number(headers[':status'])))
        stream.resume().end()
      }),
    )
    const at = Date.now()
    return { status, headers: {}, raw: [], text: '', json: undefined, at, ms: performance.now() - started }
  } catch (error) {
    return { failure: codeOf(error) }
  } finally {
    session.on('error', () => undefined).destroy()
  }
}
