/**
 * The address by which a note app knows its database: `<scheme>://[<user>:<password>@]<host>:<port>/<database>`. It is
 * taken apart by hand, since URL drops a port that is the scheme's own, and mends what other clients do not understand.
 * Runs in a page as well.
 */

/** The names that a user's database may have, decoded (protocol.md 2.1). */
export const DATABASE_NAME = /^[a-z][a-z0-9_$()+/-]*$/

/** What an address consists of, all of it decoded. */
export interface AddressParts {
  readonly scheme: 'http' | 'https'
  /** Absent together with the password. */
  readonly username?: string
  readonly password?: string
  /** In small letters; an IPv6 address without brackets. */
  readonly host: string
  readonly port: number
  readonly database: string
}

export interface Address extends AddressParts {
  /** Without credentials, with the port. */
  readonly url: string
  /** The whole of it, as {@link formatAddress} writes it: a secret where there is a password. */
  readonly text: string
}

/** What is wrong with an address. Both texts are sentences, and repeat nothing of the address. */
export interface AddressFault {
  readonly code: AddressFaultCode
  readonly reason: string
  readonly mend: string
}

export type AddressResult =
  | { readonly ok: true; readonly address: Address }
  | { readonly ok: false; readonly faults: readonly AddressFault[] }

const MAX_LENGTH = 4096
/** RFC 3986 3.2.1 without the colon, at which PouchDB splits wherever it stands. */
const CREDENTIAL = /^[\w.~!$&'()*+,;=%-]*$/
const ESCAPES = /^(?:[^%]|%[0-9A-Fa-f]{2})*$/
const HOST_NAME = /^(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?$/
const IPV6 = /^[0-9a-f:.]*:[0-9a-f:.]*$/i

/**
 * Reads an address; white space around it does not count.
 * @param options.mobile whether it is for a phone or a tablet, which demand TLS
 * @returns the address, or all that is wrong with it
 */
export function parseAddress(
  text: string,
  { mobile = false }: { readonly mobile?: boolean } = {},
): AddressResult {
  const trimmed = text.trim()
  if (trimmed === '') return { ok: false, faults: [addressFault('empty')] }
  if (trimmed.length > MAX_LENGTH) return { ok: false, faults: [addressFault('too_long')] }
  const codes = new Set<AddressFaultCode>()
  const parts = partsOf(trimmed, codes)
  if (mobile && parts.scheme === 'http') codes.add('mobile_http')
  if (codes.size > 0) return { ok: false, faults: [...codes].map(addressFault) }
  const { username, password, ...place } = parts
  const url = formatAddress(place)
  const address = username === undefined ? place : parts
  return { ok: true, address: { ...address, url, text: formatAddress(address) } }
}

/**
 * Writes an address that {@link parseAddress} reads back as the same parts, where these are an address's.
 * @param parts decoded
 */
export function formatAddress({ scheme, username, password, host, port, database }: AddressParts): string {
  const credentials = username === undefined ? '' : `${encoded(username)}:${encoded(password ?? '')}@`
  const shownHost = host.includes(':') ? `[${host}]` : host
  return `${scheme}://${credentials}${shownHost}:${port}/${encoded(database)}`
}

function addressFault(code: AddressFaultCode): AddressFault {
  const [reason, mend] = ADDRESS_FAULTS[code]
  return { code, reason, mend }
}

/** Also what encodeURIComponent leaves as it is and a shell does not. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

/** The parts as far as they can be told; `faults` says what they are worth. */
function partsOf(text: string, faults: Set<AddressFaultCode>): AddressParts {
  const scheme = /^(https?):\/\//i.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined) faults.add('scheme')
  const rest = text.replace(/^(?:[^/@]*:\/\/|(?:https?:)?\/+)/i, '')
  // No host and no database holds an @: what stands before the last one is meant as credentials.
  const at = rest.lastIndexOf('@')
  const credentials = at === -1 ? {} : credentialsOf(rest.slice(0, at), faults)
  const [, authority = '', path = '', query = ''] = /^([^/?#]*)([^?#]*)(.*)$/s.exec(rest.slice(at + 1)) ?? []
  const place = placeOf(authority, faults)
  const database = databaseOf(path, faults)
  if (query !== '') faults.add('query')
  return { scheme: scheme === 'http' ? 'http' : 'https', ...credentials, ...place, database }
}

function credentialsOf(
  text: string,
  faults: Set<AddressFaultCode>,
): { readonly username: string; readonly password: string } {
  const [user = '', ...behind] = text.split(':')
  const username = credentialOf(user, faults)
  const password = credentialOf(behind.join(':'), faults)
  if (user === '') faults.add('username')
  if (username.includes(':')) faults.add('username_colon')
  if (password === '') faults.add('password')
  return { username, password }
}

function credentialOf(text: string, faults: Set<AddressFaultCode>): string {
  if (!CREDENTIAL.test(text)) faults.add('credentials')
  const value = decoded(text)
  if (value === null) faults.add('percent')
  else if (/\p{Cc}/u.test(value)) faults.add('control')
  return value ?? text
}

function decoded(text: string): string | null {
  if (!ESCAPES.test(text)) return null
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}

function placeOf(
  authority: string,
  faults: Set<AddressFaultCode>,
): { readonly host: string; readonly port: number } {
  const [, bracketed, name = '', portText] = /^(?:\[([^\]]*)\]|([^:]*))(?::(.*))?$/s.exec(authority) ?? []
  if (bracketed === undefined && IPV6.test(authority) && authority.split(':').length > 2) {
    faults.add('host_brackets')
    return { host: '', port: 0 }
  }
  if (portText === undefined || portText === '') faults.add('port_missing')
  const port = portOf(portText ?? '')
  if (portText && port === null) faults.add('port')
  const host = bracketed === undefined ? hostOf(name, faults) : ipv6Of(bracketed, faults)
  return { host, port: port ?? 0 }
}

function portOf(text: string): number | null {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  return port >= 1 && port <= 65_535 ? port : null
}

function hostOf(text: string, faults: Set<AddressFaultCode>): string {
  if (text === '') {
    faults.add('host_missing')
    return ''
  }
  const host = /[\s%]|\p{C}/u.test(text) ? null : normalHost(text)
  // URL also takes 127.1 and 0x7f.1 for an address, and other clients do not.
  const isPlain = /^[!-~]*$/.test(text)
  if (host === null || !HOST_NAME.test(host) || (isPlain && host !== text.toLowerCase())) faults.add('host')
  return host ?? ''
}

function ipv6Of(text: string, faults: Set<AddressFaultCode>): string {
  const host = IPV6.test(text) ? normalHost(`[${text}]`) : null
  if (host === null) faults.add('host')
  return host?.slice(1, -1) ?? ''
}

/** In small letters, names of other alphabets as DNS knows them, IPv6 in its short form; null for what is no host. */
function normalHost(text: string): string | null {
  try {
    return new URL(`http://${text}:1/`).hostname
  } catch {
    return null
  }
}

function databaseOf(path: string, faults: Set<AddressFaultCode>): string {
  const [first = '', ...more] = path.slice(1).split('/')
  if (path === '' || path === '/') faults.add('database_missing')
  else if (more.length === 1 && more[0] === '') faults.add('database_slash')
  else if (more.length > 0) faults.add('path')
  const database = decoded(first)
  if (first !== '' && (database === null || !DATABASE_NAME.test(database))) faults.add('database')
  return database ?? ''
}

/**
 * What can be wrong with an address, and how to mend it: code -> what is wrong, what to do. No text repeats a part of the
 * address, since what stands in the wrong place may be the password.
 */
export const ADDRESS_FAULTS = {
  empty: ['There is no address.', 'Write it as https://user:password@host:port/database.'],
  too_long: [
    'The address is longer than 4096 characters.',
    'Look whether something else was pasted with it.',
  ],
  scheme: [
    'The address does not begin with http:// or https://.',
    'Write https:// in front of it, or http:// for a server that has no certificate.',
  ],
  mobile_http: [
    'Phones and tablets do not connect by http: iOS and Android demand TLS.',
    'Write https://, with the port on which the server or the proxy before it speaks TLS.',
  ],
  credentials: [
    'The user name or the password holds a character that cannot stand there as it is.',
    'Percent-encode both: @ is %40, : is %3A, / is %2F, % is %25, # is %23, ? is %3F, a space is %20.',
  ],
  percent: [
    'A % in the user name or the password is not followed by the two digits of a character in UTF-8.',
    'Write a % that is meant as such as %25.',
  ],
  username: ['There is no user name before the password.', 'Write user:password before the @.'],
  username_colon: [
    'The user name holds a colon, which HTTP cannot tell from the start of the password.',
    'Choose an account whose name has none.',
  ],
  password: ['There is no password behind the user name.', 'Write user:password before the @.'],
  control: [
    'The user name or the password holds a control character, which HTTP does not carry.',
    'Leave it out, or choose another password.',
  ],
  host_missing: ['There is no host.', "Write the server's name or IP address before the port."],
  host: [
    'The host is neither a name nor an IP address.',
    'Write a name such as notes.example.com, or an address such as 192.168.1.10.',
  ],
  host_brackets: [
    'An IPv6 address does not stand in brackets by itself.',
    'Write it in brackets, and the port behind them: [2001:db8::1]:5984.',
  ],
  port_missing: [
    'There is no port.',
    'Write it behind the host, also where it is the usual one: :443 for https, :80 for http, :5984 for settee itself.',
  ],
  port: [
    'The port is no number from 1 to 65535.',
    'Write digits alone behind the colon, such as :443 or :5984.',
  ],
  database_missing: ['There is no database.', 'Write its name behind the port: /my-notes.'],
  database_slash: ['There is a slash behind the database.', 'Leave the last slash out.'],
  path: [
    'More than one name stands behind the port.',
    "Name one database; a slash that belongs to a database's name is written %2F.",
  ],
  database: [
    'No database can have this name.',
    'It begins with a small letter; small letters, digits and any of _ $ ( ) + - / may follow, and a slash is written %2F.',
  ],
  query: ['A ? or # stands behind the database.', 'Leave it out with all that follows.'],
} as const

export type AddressFaultCode = keyof typeof ADDRESS_FAULTS
