/**
 * The configuration for accounts without admin rights. Sync clients read the server's configuration before they sync, and
 * treat a 401 as an error (clients.md 1.2, pain 8; protocol.md 12.2). So such an account sees the keys that clients look
 * for, with the values in effect for it, even if a key is set in another section or not at all. It sees nothing else.
 */

type Sections = Readonly<Record<string, Readonly<Record<string, string>>>>

/** The part of the configuration that is read. */
export interface Values {
  readonly isHosted: boolean
  get(section: string, key: string): string | undefined
}

interface Member {
  readonly name: string
  /** The account's own limit in bytes. The server's limit applies if it is absent or lower. */
  readonly maxDocumentSize?: number
}

/** @returns sections of keys, as `GET /_node/_local/_config` lists them; each section that clients expect is there */
export function memberView(config: Values, member: Member): Sections {
  const requireUser = text(config, 'chttpd', 'require_valid_user') === 'true' ? 'true' : 'false'
  // On by default.
  const cors = text(config, 'chttpd', 'enable_cors') ?? text(config, 'httpd', 'enable_cors') ?? 'true'
  return {
    admins: administered(config, member),
    chttpd: present({
      enable_cors: cors,
      max_http_request_size: text(config, 'chttpd', 'max_http_request_size'),
      require_valid_user: requireUser,
    }),
    // Only the other key of this name is used; protocol.md 12.2.
    chttpd_auth: { require_valid_user: requireUser },
    cors: present({
      // By default with the origins of the known apps, which read this key.
      credentials: text(config, 'cors', 'credentials') ?? 'true',
      // Clients split the list at commas without trimming.
      origins: text(config, 'cors', 'origins')?.replace(/\s*,\s*/g, ','),
    }),
    couchdb: present({ max_document_size: documentSize(config, member) }),
    httpd: present({ enable_cors: cors, 'WWW-Authenticate': challenge(config) }),
  }
}

/**
 * Clients take a name in this section as the right to make and delete databases. In hosted mode every account has that
 * right for its own databases; otherwise only server admins have it.
 */
function administered(config: Values, { name }: Member): Record<string, string> {
  return config.isHosted ? { [name]: 'of its own databases' } : {}
}

/** The value of WWW-Authenticate; protocol.md 11.6. */
function challenge(config: Values): string | undefined {
  const configured =
    text(config, 'chttpd', 'WWW-Authenticate') ??
    text(config, 'httpd', 'WWW-Authenticate') ??
    (text(config, 'chttpd', 'require_valid_user') === 'true' ? 'Basic realm="server"' : undefined)
  return configured !== undefined && HEADER_TEXT.test(configured) ? configured : undefined
}

/** A configured text that a header cannot hold is not sent. */
const HEADER_TEXT = /^[\t\x20-\x7e\x80-\xff]+$/

function documentSize(config: Values, { maxDocumentSize }: Member): string | undefined {
  const general = text(config, 'couchdb', 'max_document_size')
  if (maxDocumentSize === undefined || general === undefined) return general
  return maxDocumentSize < bytesOf(general) ? String(maxDocumentSize) : general
}

/**
 * Whether a value that an account wants to set is already met: it equals the value in effect, or requires less. Then a
 * client's "fix" or a setup script succeeds without a change.
 * @param requested already trimmed
 */
export function isMet(view: Sections, section: string, key: string, requested: string): boolean {
  const inEffect = valueIn(view, section, key)
  if (inEffect === undefined || section === 'admins') return false
  if (inEffect === requested) return true
  switch (key) {
    case 'max_http_request_size':
    case 'max_document_size':
      return bytesOf(requested) <= bytesOf(inEffect)
    case 'require_valid_user':
    case 'enable_cors':
    case 'credentials':
      return inEffect === 'true' && requested === 'false'
    case 'origins':
      return inEffect === '*' || isWithin(requested, inEffect)
    default:
      // Clients only react to the scheme; the realm is a label.
      return schemeOf(inEffect) === schemeOf(requested)
  }
}

/** @returns the value of a key in the view; undefined if it is not there */
export function valueIn(view: Sections, section: string, key: string): string | undefined {
  const keys = Object.hasOwn(view, section) ? view[section]! : {}
  return Object.hasOwn(keys, key) ? keys[key] : undefined
}

/** A key that is set to nothing counts as unset. */
function text(config: Values, section: string, key: string): string | undefined {
  return config.get(section, key) || undefined
}

function present(keys: Record<string, string | undefined>): Record<string, string> {
  const set = Object.entries(keys).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return Object.fromEntries(set)
}

/** NaN, which compares false with every number, for a text that is not a number of bytes. */
function bytesOf(value: string): number {
  if (value === 'infinity') return Number.POSITIVE_INFINITY
  return /^\d+$/.test(value) ? Number(value) : Number.NaN
}

function isWithin(requested: string, inEffect: string): boolean {
  const known = new Set(inEffect.split(','))
  return requested.split(',').every((origin) => known.has(origin.trim()))
}

function schemeOf(challenge: string): string | undefined {
  return /^[^\s,]+/.exec(challenge)?.[0].toLowerCase()
}
