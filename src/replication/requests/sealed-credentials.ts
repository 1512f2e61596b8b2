/**
 * Credentials in documents of `_replicator`. What is stored, and so every read, feed and backup, has `*****` in their
 * place; the values are in the member `sealed_credentials`, encrypted with AES-256-GCM (NIST SP 800-38D). A sealed value
 * belongs to one owner, one endpoint and its proxies, so nobody can have it sent elsewhere. Pure.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import { isJsonObject } from '../../core/json.ts'

type Members = Readonly<Record<string, unknown>>

export const SEALED_MEMBER = 'sealed_credentials'
/** The members of a document that may hold credentials. */
export const SECRET_MEMBERS = ['source', 'target', 'proxy', 'source_proxy', 'target_proxy'] as const

type SecretMember = (typeof SECRET_MEMBERS)[number]

export const MASK = '*****'
const ALGORITHM = 'aes-256-gcm'
const IV_BYTES = 12
const TAG_BYTES = 16
const KEY_BYTES = 32

/** @returns a new key, as base64 */
export function newSealingKey(): string {
  return randomBytes(KEY_BYTES).toString('base64')
}

/** Whether a text is a key that {@link newSealingKey} could have made. */
export function isSealingKey(text: string): boolean {
  return /^[A-Za-z0-9+/]{43}=$/.test(text)
}

/** @returns {@link SECRET_MEMBERS} of a document without credentials */
export function maskCredentials(members: Members): Members {
  const given = SECRET_MEMBERS.filter((name) => members[name] !== undefined)
  return Object.fromEntries(given.map((name) => [name, maskedValue(name, members[name])]))
}

/**
 * Hides the credentials of a document.
 * @param owner of the document
 * @param key null: the server has none
 * @returns {@link SECRET_MEMBERS} as they are stored, and {@link SEALED_MEMBER} if there are credentials
 * @throws unavailable if there are credentials, but no key
 */
export function sealCredentials(members: Members, owner: string | null, key: string | null): Members {
  const masked = maskCredentials(members)
  const before = sealedOf(members)
  const sealed: Record<string, string> = {}
  for (const name of SECRET_MEMBERS) {
    const value = members[name]
    if (!hasMask(masked[name])) continue
    if (sortedJson(value) === sortedJson(masked[name])) {
      if (typeof before[name] === 'string') sealed[name] = before[name]
    } else if (key === null) {
      throw new CouchError(
        'unavailable',
        'This server has no key for credentials: it could not be written at the start.',
      )
    } else if (!hasMask(value)) {
      sealed[name] = encrypt(JSON.stringify(value), members, name, owner, key)
    }
  }
  return { ...masked, ...(Object.keys(sealed).length > 0 && { [SEALED_MEMBER]: sealed }) }
}

/**
 * The inverse of {@link sealCredentials}.
 * @returns the members with their credentials
 * @throws forbidden if hidden credentials cannot be read here
 */
export function unsealCredentials(members: Members, owner: string | null, key: string | null): Members {
  const sealed = sealedOf(members)
  const opened: Record<string, unknown> = { ...members }
  for (const name of SECRET_MEMBERS) {
    const value = members[name]
    if (value === undefined || !hasMask(value)) continue
    const text = sealed[name]
    const isWhole = sortedJson(value) === sortedJson(maskedValue(name, value))
    const isSealed = isWhole && typeof text === 'string' && key !== null
    const found = isSealed ? decrypt(text, members, name, owner, key) : null
    if (found === null) {
      throw new CouchError(
        'forbidden',
        `The credentials of \`${name}\` are hidden (${MASK}) and cannot be read here: write them again.`,
      )
    }
    opened[name] = found
  }
  return opened
}

function sealedOf(members: Members): Members {
  const sealed = members[SEALED_MEMBER]
  return isJsonObject(sealed) ? sealed : {}
}

function maskedValue(name: SecretMember, value: unknown): unknown {
  if (typeof value === 'string') return maskedUrl(value)
  if (name !== 'source' && name !== 'target') return value
  if (!isJsonObject(value)) return value
  const { url, headers, auth } = value
  return {
    ...value,
    ...(typeof url === 'string' && { url: maskedUrl(url) }),
    ...(headers !== undefined && { headers: maskedTexts(headers) }),
    ...(auth !== undefined && { auth: maskedTexts(auth, 'username') }),
  }
}

/**
 * The user and the password of an address, also in the forms that WHATWG's URL accepts beside the usual one. No two parts
 * of the pattern can match the same text, so it takes linear time.
 */
const PASSWORD = /^(\s*[a-z][a-z\d+.-]*:[\s/\\]*(?:[^/\\?#:@\s][^/\\?#:@]*)?):[^/\\?#]+@/i
const SCHEME = /^\s*h\s*t\s*t\s*p\s*(?:s\s*)?:/i

function maskedUrl(text: string): string {
  // An address without its scheme looks like a name.
  if (!SCHEME.test(text)) return maskedRoughly(text, 0)
  const masked = text.replace(PASSWORD, `$1:${MASK}@`)
  if (!URL.canParse(masked)) return maskedRoughly(masked, masked.indexOf(':') + 1)
  const url = new URL(masked)
  if (url.password === '' || url.password === MASK) return masked
  url.password = MASK
  return url.href
}

/** Masks whatever stands between the first colon and the last `@`. @param from where to look for the colon */
function maskedRoughly(text: string, from: number): string {
  const start = text.indexOf(':', from)
  const end = text.lastIndexOf('@')
  return start === -1 || end < start ? text : `${text.slice(0, start + 1)}${MASK}${text.slice(end)}`
}

/** Masks all texts of a value but those of one member. */
function maskedTexts(value: unknown, except?: string): unknown {
  if (typeof value === 'string') return MASK
  if (Array.isArray(value)) return value.map((each) => maskedTexts(each, except))
  if (!isJsonObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name,
      name === except && typeof member === 'string' ? member : maskedTexts(member, except),
    ]),
  )
}

/** Whether an endpoint or a proxy has a hidden value. */
function hasMask(value: unknown): boolean {
  if (typeof value === 'string') return value === MASK || value.includes(`:${MASK}@`)
  if (Array.isArray(value)) return value.some(hasMask)
  return isJsonObject(value) && Object.values(value).some(hasMask)
}

function encrypt(
  text: string,
  members: Members,
  name: SecretMember,
  owner: string | null,
  key: string,
): string {
  const iv = randomBytes(IV_BYTES)
  const cipher = createCipheriv(ALGORITHM, Buffer.from(key, 'base64'), iv, { authTagLength: TAG_BYTES })
  cipher.setAAD(boundTo(members, name, owner))
  const encrypted = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
  return Buffer.concat([iv, cipher.getAuthTag(), encrypted]).toString('base64')
}

/** @returns null unless the value was sealed here for the same use */
function decrypt(
  text: string,
  members: Members,
  name: SecretMember,
  owner: string | null,
  key: string,
): unknown {
  const bytes = Buffer.from(text, 'base64')
  if (bytes.length <= IV_BYTES + TAG_BYTES) return null
  const iv = bytes.subarray(0, IV_BYTES)
  const cipher = createDecipheriv(ALGORITHM, Buffer.from(key, 'base64'), iv, { authTagLength: TAG_BYTES })
  cipher.setAAD(boundTo(members, name, owner))
  cipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES))
  try {
    const opened = Buffer.concat([cipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)), cipher.final()])
    return JSON.parse(opened.toString('utf8')) as unknown
  } catch {
    return null
  }
}

/** Credentials are sent through the proxies, so they belong to the proxies as well. */
function boundTo(members: Members, name: SecretMember, owner: string | null): Buffer {
  const proxies = [members.proxy, members.source_proxy, members.target_proxy]
  const masked = proxies.map((proxy) => maskedValue('proxy', proxy) ?? null)
  return Buffer.from(sortedJson([owner, maskedValue(name, members[name]), masked]))
}

/** JSON that does not depend on the order of members, which clients may change. */
function sortedJson(value: unknown): string {
  return JSON.stringify(value, (_name, member: unknown) =>
    isJsonObject(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  )
}
