/**
 * The address of a PostgreSQL as operators write it: `postgres://user@host:port/database`, with the parameters of libpq
 * that settee knows ("Connection URIs" and "SSL Support" in PostgreSQL's manual). It never holds a password, since addresses are
 * shown in lists of processes and in logs.
 */
import { readFile } from 'node:fs/promises'

/** How a connection is encrypted, and what is checked of the server. */
export interface StoreTls {
  /** none: any certificate; ca: one that the roots have signed; full: which also has the name of the host. */
  readonly checks: 'none' | 'ca' | 'full'
  /** Root certificates as PEM; null: those that Node trusts. */
  readonly roots: string | null
}

/** Where a PostgreSQL is. Plain data, which every thread gets. */
export interface StoreAddress {
  /** A name, an IP address, or the absolute path of the folder with its Unix socket. */
  readonly host: string
  readonly port: number
  readonly user: string
  readonly database: string
  /** A file with the password, which is read for each connection; null: PGPASSWORD, PGPASSFILE or `~/.pgpass`. */
  readonly passwordFile: string | null
  /** null: no TLS. */
  readonly tls: StoreTls | null
}

const DEFAULT_PORT = 5432
const SCHEMES = ['postgres:', 'postgresql:']
const PARAMETERS = ['host', 'port', 'user', 'dbname', 'sslmode', 'sslrootcert']
const LOCAL = /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/

/**
 * @param url without a password
 * @param passwordFile {@link StoreAddress.passwordFile}
 * @throws Error whose message says what is wrong, in words that follow the name of the setting, without the address
 */
export async function readStoreAddress(url: string, passwordFile: string | null): Promise<StoreAddress> {
  const { tls, rootCert, ...address } = parseStoreUrl(url)
  if (tls === null || rootCert === null) return { ...address, passwordFile, tls }
  const roots = await readFile(rootCert, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new Error(`has an sslrootcert, ${rootCert}, that cannot be read (${cause.code})`, { cause })
  })
  return { ...address, passwordFile, tls: { ...tls, roots } }
}

/** @returns what is wrong with the URL, as the error of {@link readStoreAddress}; null if nothing is */
export function problemOfStoreUrl(url: string): string | null {
  try {
    parseStoreUrl(url)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

interface ParsedUrl extends Omit<StoreAddress, 'passwordFile'> {
  /** The path of a PEM file. */
  readonly rootCert: string | null
}

function parseStoreUrl(url: string): ParsedUrl {
  if (!SCHEMES.some((scheme) => url.startsWith(`${scheme}//`)) || !URL.canParse(url)) throw new Error(FORM)
  const { username, password, hostname, port, pathname, searchParams, hash } = new URL(url)
  if (password !== '') throw new Error(NO_PASSWORD)
  if (hash !== '') throw new Error('must not have a # (write %23)')
  const given = parametersOf(searchParams)
  const host = given.get('host') ?? decoded(hostname).replace(/^\[(.*)\]$/, '$1')
  const address = {
    host,
    port: portOf(given.get('port') ?? port),
    user: given.get('user') ?? decoded(username),
    database: given.get('dbname') ?? decoded(pathname.slice(1)),
  }
  if (host.includes(',')) throw new Error('must name one host: give several servers one name or one proxy')
  if (host === '' || address.user === '' || address.database === '') throw new Error(FORM)
  const rootCert = rootCertOf(given)
  return { ...address, tls: tlsOf(host, given), rootCert }
}

const FORM = 'must be of the form postgres://user@host/database'
const NO_PASSWORD =
  'must not contain a password, which others would see: use settee/store_password_file, PGPASSFILE, ~/.pgpass or PGPASSWORD'

/** @throws Error for a parameter that settee does not know, or that is there twice */
function parametersOf(found: URLSearchParams): ReadonlyMap<string, string> {
  const given = new Map<string, string>()
  for (const [name, value] of found) {
    if (name === 'password') throw new Error(NO_PASSWORD)
    if (!PARAMETERS.includes(name) || given.has(name))
      throw new Error(`has a parameter that is not one of ${PARAMETERS.join(', ')}, or is there twice`)
    given.set(name, value)
  }
  return given
}

function portOf(text: string): number {
  const port = text === '' ? DEFAULT_PORT : Number(text)
  if (Number.isInteger(port) && port > 0 && port < 65_536) return port
  throw new Error('must have a port from 1 to 65535')
}

/**
 * Without `sslmode`, the connection to another machine is checked in full. libpq's own default, `prefer`, and `allow` are
 * refused: whoever is on the network path can turn TLS off.
 */
function tlsOf(host: string, given: ReadonlyMap<string, string>): StoreTls | null {
  const isLocal = host.startsWith('/') || LOCAL.test(host)
  const hasRoots = given.has('sslrootcert')
  switch (given.get('sslmode') ?? (isLocal && !hasRoots ? 'disable' : 'verify-full')) {
    case 'disable':
      return null
    case 'require':
      // As in libpq, a root certificate is checked if there is one.
      return { checks: hasRoots ? 'ca' : 'none', roots: null }
    case 'verify-ca':
      return { checks: 'ca', roots: null }
    case 'verify-full':
      return { checks: 'full', roots: null }
    default:
      throw new Error('must have an sslmode of disable, require, verify-ca or verify-full')
  }
}

/** As in libpq, `system` means the roots that are trusted anyway. */
function rootCertOf(given: ReadonlyMap<string, string>): string | null {
  const path = given.get('sslrootcert')
  if (path === undefined || path === 'system') return null
  if (!path.startsWith('/')) throw new Error('must give sslrootcert an absolute path')
  return path
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error(FORM)
  }
}

/** The address for messages and logs. */
export function storeName({ host, port, user, database }: StoreAddress): string {
  const server = host.startsWith('/') ? encodeURIComponent(host) : host.includes(':') ? `[${host}]` : host
  return `postgres://${encodeURIComponent(user)}@${server}:${port}/${encodeURIComponent(database)}`
}
