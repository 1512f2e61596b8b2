/**
 * The address of a database as a note app stores it:
 * `<scheme>://[<user>:<password>@]<host>:<port>[/<prefix>]/<database>`. The database is the last segment, as PouchDB and
 * LiveSync read it. It is parsed by hand: URL drops the default port of a scheme and repairs addresses that other clients
 * do not accept. Also runs in browsers.
 */

/** A legal database name, decoded; system databases aside (protocol.md 2.1). */
export const DATABASE_NAME = /^[a-z][a-z0-9_$()+/-]*$/

/** The parts of an address, decoded. */
export interface AddressParts {
  readonly scheme: 'http' | 'https'
  /** Present exactly when the password is. */
  readonly username?: string
  readonly password?: string
  /** In lower case; an IPv6 address without brackets. */
  readonly host: string
  readonly port: number
  /** The path at which a proxy serves the server, such as `/couchdb`; absent: the server is at `/`. */
  readonly prefix?: string
  readonly database: string
}

export interface Address extends AddressParts {
  /** Without credentials, with the port. */
  readonly url: string
  /** The whole address as {@link formatAddress} writes it; a secret if it has a password. */
  readonly text: string
}

/** A fault of an address. Both texts are sentences and repeat no part of the address. */
export interface AddressFault {
  readonly code: AddressFaultCode
  readonly reason: string
  readonly mend: string
}

export type AddressResult =
  | { readonly ok: true; readonly address: Address }
  | { readonly ok: false; readonly faults: readonly AddressFault[] }

const MAX_LENGTH = 4096
/** RFC 3986 3.2.1 without the colon, since PouchDB splits at every colon. */
const CREDENTIAL = /^[\w.~!$&'()*+,;=%-]*$/
const ESCAPES = /^(?:[^%]|%[0-9A-Fa-f]{2})*$/
const HOST_NAME = /^(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?$/
const IPV6 = /^[0-9a-f:.]*:[0-9a-f:.]*$/i
/** Unreserved characters (RFC 3986 2.3), which no client and no proxy encodes. */
const PREFIX_SEGMENT = /^(?!\.{1,2}$)[\w.~-]+$/

/**
 * Parses an address; white space around it is ignored.
 * @param options.mobile whether it is for a phone or a tablet, which require TLS
 * @returns the address, or all of its faults
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
 * Writes an address. {@link parseAddress} reads valid parts back unchanged.
 * @param parts decoded
 */
export function formatAddress(parts: AddressParts): string {
  const { scheme, username, password, host, port, prefix = '', database } = parts
  const credentials = username === undefined ? '' : `${encoded(username)}:${encoded(password ?? '')}@`
  const shownHost = host.includes(':') ? `[${host}]` : host
  return `${scheme}://${credentials}${shownHost}:${port}${prefix}/${encoded(database)}`
}

function addressFault(code: AddressFaultCode): AddressFault {
  const [reason, mend] = ADDRESS_FAULTS[code]
  return { code, reason, mend }
}

/** Also encodes characters that are special in a shell and that encodeURIComponent leaves. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

/** The parts as far as they can be recognised; they are valid only if no fault was added. */
function partsOf(text: string, faults: Set<AddressFaultCode>): AddressParts {
  const scheme = /^(https?):\/\//i.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined) faults.add('scheme')
  const rest = text.replace(/^(?:[^/@]*:\/\/|(?:https?:)?\/+)/i, '')
  // Hosts and databases contain no @, so everything before the last one is meant as credentials.
  const at = rest.lastIndexOf('@')
  const credentials = at === -1 ? {} : credentialsOf(rest.slice(0, at), faults)
  const [, authority = '', path = '', query = ''] = /^([^/?#]*)([^?#]*)(.*)$/s.exec(rest.slice(at + 1)) ?? []
  const place = placeOf(authority, faults)
  const within = pathOf(path, faults)
  if (query !== '') faults.add('query')
  return { scheme: scheme === 'http' ? 'http' : 'https', ...credentials, ...place, ...within }
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
  // URL also accepts 127.1 and 0x7f.1 as addresses; other clients do not.
  const isPlain = /^[!-~]*$/.test(text)
  if (host === null || !HOST_NAME.test(host) || (isPlain && host !== text.toLowerCase())) faults.add('host')
  return host ?? ''
}

function ipv6Of(text: string, faults: Set<AddressFaultCode>): string {
  const host = IPV6.test(text) ? normalHost(`[${text}]`) : null
  if (host === null) faults.add('host')
  return host?.slice(1, -1) ?? ''
}

/** In lower case, other alphabets in Punycode, IPv6 in its short form; null if the text is not a host. */
function normalHost(text: string): string | null {
  try {
    return new URL(`http://${text}:1/`).hostname
  } catch {
    return null
  }
}

function pathOf(path: string, faults: Set<AddressFaultCode>): Pick<AddressParts, 'prefix' | 'database'> {
  const segments = path.slice(1).split('/')
  if (path === '' || path === '/') faults.add('database_missing')
  else if (segments.at(-1) === '') {
    faults.add('database_slash')
    segments.pop()
  }
  const last = segments.pop() ?? ''
  if (!segments.every((segment) => PREFIX_SEGMENT.test(segment))) faults.add('path')
  const database = decoded(last)
  if (last !== '' && (database === null || !DATABASE_NAME.test(database))) faults.add('database')
  const prefix = segments.map((segment) => `/${segment}`).join('')
  return { ...(prefix !== '' && { prefix }), database: database ?? '' }
}

/**
 * The faults of an address: code -> what is wrong, what to do. No text repeats a part of the address, since a misplaced
 * part may be the password.
 */
export const ADDRESS_FAULTS = {
  empty: ['There is no address.', 'Write it as https://user:password@host:port/database.'],
  too_long: [
    'The address is longer than 4096 characters.',
    'Check whether something else was pasted with it.',
  ],
  scheme: [
    'The address does not begin with http:// or https://.',
    'Write https:// in front of it, or http:// for a server that has no certificate.',
  ],
  mobile_http: [
    'Phones and tablets do not connect over http: iOS and Android require TLS.',
    'Write https://, with the port on which the server or its proxy accepts TLS.',
  ],
  credentials: [
    'The user name or the password contains a character that must be percent-encoded.',
    'Encode both: @ is %40, : is %3A, / is %2F, % is %25, # is %23, ? is %3F, a space is %20.',
  ],
  percent: [
    'A % in the user name or the password is not followed by two hex digits of a UTF-8 character.',
    'Write a literal % as %25.',
  ],
  username: ['There is no user name before the password.', 'Write user:password before the @.'],
  username_colon: [
    'The user name contains a colon, and HTTP would read the rest as the password.',
    'Choose an account with a name without a colon.',
  ],
  password: ['There is no password after the user name.', 'Write user:password before the @.'],
  control: [
    'The user name or the password contains a control character, which HTTP does not allow.',
    'Remove it, or choose another password.',
  ],
  host_missing: ['There is no host.', "Write the server's name or IP address before the port."],
  host: [
    'The host is neither a name nor an IP address.',
    'Write a name such as notes.example.com, or an address such as 192.168.1.10.',
  ],
  host_brackets: [
    'The host is an IPv6 address without brackets.',
    'Write it in brackets, followed by the port: [2001:db8::1]:5984.',
  ],
  port_missing: [
    'There is no port.',
    'Write it after the host, even if it is the default: :443 for https, :80 for http, :5984 for settee itself.',
  ],
  port: [
    'The port is not a number from 1 to 65535.',
    'Write only digits after the colon, such as :443 or :5984.',
  ],
  database_missing: ['There is no database.', 'Write its name after the port: /my-notes.'],
  database_slash: ['There is a slash after the database.', 'Remove the last slash.'],
  path: [
    'The path before the database has an empty part, or a character that is not a letter, a digit or one of - . _ ~.',
    "Write the path at which the proxy serves the server, then the database; a slash in the database's name is %2F.",
  ],
  database: [
    'The database name is not valid.',
    'It starts with a lower-case letter; lower-case letters, digits and any of _ $ ( ) + - / may follow. Write a slash as %2F.',
  ],
  query: ['There is a ? or # after the database.', 'Remove it and everything after it.'],
} as const

export type AddressFaultCode = keyof typeof ADDRESS_FAULTS
