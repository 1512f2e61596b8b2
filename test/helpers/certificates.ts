/** Makes certificates for tests. */
import 'reflect-metadata'
import { webcrypto } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  BasicConstraintsExtension,
  cryptoProvider,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'
import type { Test } from 'tap'
import { temporaryFolder } from './server.ts'

export interface CertificateOptions {
  /** DNS names; default `localhost`. */
  readonly names?: readonly string[]
  /** IP addresses; default 127.0.0.1. */
  readonly addresses?: readonly string[]
  /** Default: from yesterday until a month from now. */
  readonly notBefore?: Date
  readonly notAfter?: Date
  /** The bits of an RSA key; by default, the key is an ECDSA key. */
  readonly rsaBits?: number
}

/** PEM texts. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}

const DAY_MS = 86_400_000
const ECDSA = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const RSA = { name: 'RSASSA-PKCS1-v1_5', publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' } as const

cryptoProvider.set(webcrypto as never)

/** A self-signed certificate. A client that trusts it as an authority trusts its server. */
export async function makeCertificate(options: CertificateOptions = {}): Promise<Certificate> {
  const { names = ['localhost'], addresses = ['127.0.0.1'] } = options
  const algorithm = options.rsaBits === undefined ? ECDSA : { ...RSA, modulusLength: options.rsaBits }
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: `CN=${names[0] ?? addresses[0] ?? 'test'}`,
    notBefore: options.notBefore ?? new Date(Date.now() - DAY_MS),
    notAfter: options.notAfter ?? new Date(Date.now() + 30 * DAY_MS),
    keys: keys as never,
    signingAlgorithm: algorithm,
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      new SubjectAlternativeNameExtension([
        ...names.map((value) => ({ type: 'dns' as const, value })),
        ...addresses.map((value) => ({ type: 'ip' as const, value })),
      ]),
    ],
  })
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey))
  return { cert: certificate.toString('pem'), key: pem('PRIVATE KEY', pkcs8) }
}

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? []
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`
}

/** The same as files, which are removed at the end of the test. */
export interface CertificateFiles extends Certificate {
  readonly certFile: string
  readonly keyFile: string
}

export async function certificateFiles(
  t: Pick<Test, 'teardown'>,
  options: CertificateOptions = {},
): Promise<CertificateFiles> {
  const folder = await temporaryFolder(t)
  const made = await makeCertificate(options)
  const certFile = join(folder, 'cert.pem')
  const keyFile = join(folder, 'key.pem')
  await writeFile(certFile, made.cert)
  await writeFile(keyFile, made.key, { mode: 0o600 })
  return { ...made, certFile, keyFile }
}
