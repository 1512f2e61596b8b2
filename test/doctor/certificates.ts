/** Certificates with every fault that phones refuse. */
import 'reflect-metadata'
import { webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

x509.cryptoProvider.set(webcrypto)

const EC = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const DAY = 86_400_000

export interface Issued {
  readonly certificate: x509.X509Certificate
  readonly keys: webcrypto.CryptoKeyPair
  readonly pem: string
  readonly key: string
}

export interface IssueOptions {
  /** Default: self-signed. */
  readonly issuer?: Issued
  readonly name: string
  /** null: no names. Default: 127.0.0.1 and localhost. */
  readonly hosts?: readonly string[] | null
  readonly isAuthority?: boolean
  /** Days from now. */
  readonly from?: number
  readonly to?: number
  /** Whether it links to its issuer's certificate, as certificates of public authorities do. */
  readonly linksToIssuer?: boolean
  /** The bits of an RSA key; by default, the key is an EC key. */
  readonly rsaBits?: number
  /** Whether its extended key usage leaves out servers. */
  readonly isForAnything?: boolean
  /** The keys; new ones by default. */
  readonly keys?: webcrypto.CryptoKeyPair
}

let serial = 0

export async function issue(options: IssueOptions): Promise<Issued> {
  const { issuer, name, from = -1, to = 90, rsaBits } = options
  const algorithm =
    rsaBits === undefined
      ? EC
      : {
          name: 'RSASSA-PKCS1-v1_5',
          modulusLength: rsaBits,
          publicExponent: new Uint8Array([1, 0, 1]),
          hash: 'SHA-256',
        }
  const keys =
    options.keys ??
    ((await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair)
  serial += 1
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serial.toString(16).padStart(4, '0'),
    subject: `CN=${name}`,
    issuer: issuer?.certificate.subject ?? `CN=${name}`,
    notBefore: new Date(Date.now() + from * DAY),
    notAfter: new Date(Date.now() + to * DAY),
    publicKey: keys.publicKey,
    signingKey: (issuer?.keys ?? keys).privateKey,
    signingAlgorithm: issuer === undefined ? algorithm : EC,
    extensions: extensionsOf(options),
  })
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey))
  return {
    certificate,
    keys,
    pem: certificate.toString('pem'),
    key: x509.PemConverter.encode(pkcs8, 'PRIVATE KEY'),
  }
}

function extensionsOf({
  hosts,
  isAuthority = false,
  linksToIssuer = false,
  isForAnything = false,
}: IssueOptions): x509.Extension[] {
  const found: x509.Extension[] = [new x509.BasicConstraintsExtension(isAuthority, undefined, true)]
  const names = hosts === undefined ? ['127.0.0.1', 'localhost'] : hosts
  if (names !== null && !isAuthority) {
    found.push(
      new x509.SubjectAlternativeNameExtension(
        names.map((each) => ({
          type: /^[\d.]+$|:/.test(each) ? ('ip' as const) : ('dns' as const),
          value: each,
        })),
      ),
    )
  }
  if (!isAuthority && !isForAnything) {
    found.push(new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]))
  }
  if (linksToIssuer) {
    found.push(new x509.AuthorityInfoAccessExtension({ caIssuers: ['http://issuer.example/ca.der'] }))
  }
  return found
}

/** A private authority, an intermediate one, and their certificates. */
export async function authority(): Promise<{ readonly root: Issued; readonly middle: Issued }> {
  const root = await issue({ name: 'Test Root', isAuthority: true, to: 3650 })
  const middle = await issue({ name: 'Test Middle', isAuthority: true, issuer: root, to: 3650 })
  return { root, middle }
}
