/**
 * The configuration as a limited account sees it. Sync clients look at the server's configuration before they sync, and
 * a 401 there reads as "broken" (clients.md 1.2, pain 8; protocol.md 12.2). So an account that is no server admin is
 * shown what concerns it: the keys that clients look for, each with the value that is in effect for that account,
 * also where the key is set in another section or not at all. Everything else stays out of sight.
 */

type Sections = Readonly<Record<string, Readonly<Record<string, string>>>>

/** What is read of the configuration. */
export interface Values {
  readonly isHosted: boolean
  get(section: string, key: string): string | undefined
}

interface Member {
  readonly name: string
  /** The account's own limit, in bytes; the server's when it is left out, and never above that. */
  readonly maxDocumentSize?: number
}

/** @returns sections of keys, as `GET /_node/_local/_config` lists them; each section that clients expect is there */
export function memberView(config: Values, member: Member): Sections {
  const requireUser = text(config, 'chttpd', 'require_valid_user') === 'true' ? 'true' : 'false'
  // On where nothing is said.
  const cors = text(config, 'chttpd', 'enable_cors') ?? text(config, 'httpd', 'enable_cors') ?? 'true'
  return {
    admins: administered(config, member),
    chttpd: present({
      enable_cors: cors,
      max_http_request_size: text(config, 'chttpd', 'max_http_request_size'),
      require_valid_user: requireUser,
    }),
    // Of the two keys of this name only the other is honoured; protocol.md 12.2.
    chttpd_auth: { require_valid_user: requireUser },
    cors: present({
      // Where nothing is said, with the origins of the known apps, which are those that look here.
      credentials: text(config, 'cors', 'credentials') ?? 'true',
      // Clients cut the list at its commas and trim nothing.
      origins: text(config, 'cors', 'origins')?.replace(/\s*,\s*/g, ','),
    }),
    couchdb: present({ max_document_size: documentSize(config, member) }),
    httpd: present({ enable_cors: cors, 'WWW-Authenticate': challenge(config) }),
  }
}

/**
 * Clients take a name in this section for the right to make and delete databases. In hosted mode every account has it
 * over its own; elsewhere only server admins have, and no client is told otherwise.
 */
function administered(config: Values, { name }: Member): Record<string, string> {
  return config.isHosted ? { [name]: 'of its own databases' } : {}
}

/** What a 401 asks for; protocol.md 11.6. */
function challenge(config: Values): string | undefined {
  const asked =
    text(config, 'chttpd', 'WWW-Authenticate') ??
    text(config, 'httpd', 'WWW-Authenticate') ??
    (text(config, 'chttpd', 'require_valid_user') === 'true' ? 'Basic realm="server"' : undefined)
  return asked !== undefined && HEADER_TEXT.test(asked) ? asked : undefined
}

/** A configured text may be any, and what no header can hold is not sent. */
const HEADER_TEXT = /^[\t\x20-\x7e\x80-\xff]+$/

function documentSize(config: Values, { maxDocumentSize }: Member): string | undefined {
  const general = text(config, 'couchdb', 'max_document_size')
  if (maxDocumentSize === undefined || general === undefined) return general
  return maxDocumentSize < bytesOf(general) ? String(maxDocumentSize) : general
}

/**
 * Whether a value that an account wants to set is met already: it is the one in effect, or asks for less. Then a
 * client's "fix" and a setup script have what they want, and nothing needs to change.
 * @param asked already trimmed
 */
export function isMet(view: Sections, section: string, key: string, asked: string): boolean {
  const inEffect = valueIn(view, section, key)
  if (inEffect === undefined || section === 'admins') return false
  if (inEffect === asked) return true
  switch (key) {
    case 'max_http_request_size':
    case 'max_document_size':
      return bytesOf(asked) <= bytesOf(inEffect)
    case 'require_valid_user':
    case 'enable_cors':
    case 'credentials':
      return inEffect === 'true' && asked === 'false'
    case 'origins':
      return inEffect === '*' || isWithin(asked, inEffect)
    default:
      // Realms are labels; the scheme is what a client answers to.
      return schemeOf(inEffect) === schemeOf(asked)
  }
}

/** @returns the value of a key that the view has, undefined for any other */
export function valueIn(view: Sections, section: string, key: string): string | undefined {
  const keys = Object.hasOwn(view, section) ? view[section]! : {}
  return Object.hasOwn(keys, key) ? keys[key] : undefined
}

/** A key that is set to nothing is as good as unset. */
function text(config: Values, section: string, key: string): string | undefined {
  return config.get(section, key) || undefined
}

function present(keys: Record<string, string | undefined>): Record<string, string> {
  const set = Object.entries(keys).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return Object.fromEntries(set)
}

/** NaN, which is below nothing, for what is no number of bytes. */
function bytesOf(value: string): number {
  if (value === 'infinity') return Number.POSITIVE_INFINITY
  return /^\d+$/.test(value) ? Number(value) : Number.NaN
}

function isWithin(asked: string, inEffect: string): boolean {
  const known = new Set(inEffect.split(','))
  return asked.split(',').every((origin) => known.has(origin.trim()))
}

function schemeOf(challenge: string): string | undefined {
  return /^[^\s,]+/.exec(challenge)?.[0].toLowerCase()
}
