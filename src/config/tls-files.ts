/** The certificate and the key of TLS: section `[ssl]`, as CouchDB has it. */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import type { Config } from './config.ts'
import { StartError } from './start-error.ts'

/** Options for Node's `tls`. */
export interface TlsPair {
  /** The server's certificate, then intermediate certificates. */
  readonly cert: string
  readonly key: string
  readonly passphrase?: string
}

/** Facts about a certificate. */
interface CertificateFacts {
  readonly names: string
  /** When it ends, in milliseconds since 1970. */
  readonly validTo: number
}

/** Far more than any certificate has, in bytes. */
const MAX_BYTES = 1_048_576

/** @returns whether settee serves TLS itself */
export function isTlsEnabled(config: Config): boolean {
  return config.get('ssl', 'enable') === 'true'
}

/**
 * Reads the configured files, and checks that they belong together.
 * @throws StartError with the configuration's key and the file, but without any content of the files
 */
export async function readTlsPair(config: Config): Promise<TlsPair> {
  const own = await readNamed(config, 'cert_file')
  const key = await readNamed(config, 'key_file')
  const chain = config.get('ssl', 'cacert_file') ? await readNamed(config, 'cacert_file') : ''
  const passphrase = config.get('ssl', 'password')
  const pair = { cert: `${own}\n${chain}`, key, ...(passphrase && { passphrase }) }
  try {
    createSecureContext(pair)
    requireMatch(pair)
  } catch (error) {
    const { cert_file, key_file } = config.section('ssl')
    const why = reasonOf(error as NodeJS.ErrnoException, pair)
    throw new StartError(`ssl/cert_file ${cert_file} and ssl/key_file ${key_file} cannot be used: ${why}.`, {
      cause: error,
    })
  }
  return pair
}

/** OpenSSL accepts a certificate and a key of different kinds (RSA, ECDSA), but then every handshake fails. */
function requireMatch({ cert, key, passphrase }: TlsPair): void {
  const privateKey = createPrivateKey({ key, ...(passphrase !== undefined && { passphrase }) })
  if (new X509Certificate(cert).checkPrivateKey(privateKey)) return
  throw Object.assign(new Error(), { code: 'ERR_OSSL_X509_KEY_VALUES_MISMATCH' })
}

/** Security level 2 of OpenSSL, its default and Node's since Node 24: 112 bits. */
const TOO_SHORT = 'is too short: RSA needs at least 2,048 bits'

/** Messages for the most common errors of OpenSSL. */
const REASONS: Readonly<Record<string, string>> = {
  ERR_OSSL_X509_KEY_VALUES_MISMATCH: 'the key does not belong to the certificate',
  ERR_OSSL_PEM_NO_START_LINE: 'one of them is not a PEM file',
  ERR_SSL_EE_KEY_TOO_SMALL: `the certificate's key ${TOO_SHORT}`,
  ERR_SSL_CA_KEY_TOO_SMALL: `the key of a certificate of ssl/cacert_file ${TOO_SHORT}`,
}

/** For a wrong password, OpenSSL's error depends on the bytes that the decryption yields. */
function reasonOf({ code = '', message }: NodeJS.ErrnoException, { key, passphrase }: TlsPair): string {
  const known = REASONS[code]
  if (known !== undefined || !key.includes('ENCRYPTED')) return known ?? message
  if (passphrase === undefined) return 'the key needs a password (ssl/password)'
  return 'the password of the key is wrong (ssl/password)'
}

async function readNamed(config: Config, key: string): Promise<string> {
  const path = config.get('ssl', key)
  if (!path) throw new StartError(`ssl/enable is true, but ssl/${key} does not name a file.`)
  try {
    const { size } = await stat(path)
    if (size > MAX_BYTES) throw Object.assign(new Error(), { code: 'EFBIG' })
    return await readFile(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`ssl/${key}: ${path} cannot be read (${code ?? 'unknown'}).`, { cause: error })
  }
}

/** @returns facts about the first certificate of the pair */
export function factsOf({ cert }: TlsPair): CertificateFacts {
  const { subject, subjectAltName, validTo } = new X509Certificate(cert)
  return { names: subjectAltName ?? subject, validTo: Date.parse(validTo) }
}

/**
 * The hosts of the certificate: names before addresses, without wildcards.
 * @returns hosts as in URLs, IPv6 in brackets; none if the certificate cannot be read
 */
export async function certificateHosts(config: Config): Promise<string[]> {
  try {
    const { subjectAltName = '' } = new X509Certificate(await readNamed(config, 'cert_file'))
    const names = [...subjectAltName.matchAll(/\bDNS:([\w.-]+)(?=,|$)/g)].map(([, name = '']) => name)
    const addresses = [...subjectAltName.matchAll(/\bIP Address:([\da-fA-F.:]+)(?=,|$)/g)]
    return [...names, ...addresses.map(([, ip = '']) => shortForm(ip))]
  } catch {
    return []
  }
}

function shortForm(address: string): string {
  return address.includes(':') ? new URL(`http://[${address}]/`).hostname : address
}

/**
 * A version of the files: it changes when one of them changes, or a link points to another file.
 */
export async function tlsFilesState(config: Config): Promise<string> {
  const paths = ['cert_file', 'key_file', 'cacert_file'].map((key) => config.get('ssl', key) ?? '')
  try {
    const states = await Promise.all(paths.map((path) => (path === '' ? null : stat(path))))
    return states.map((each) => (each === null ? '' : `${each.ino}:${each.size}:${each.mtimeMs}`)).join(' ')
  } catch {
    return 'not all of them are there'
  }
}
