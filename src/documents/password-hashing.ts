/**
 * Hashes new passwords in documents of `_users` with PBKDF2 (RFC 8018 5.2), protocol.md 11.7. The hash replaces the
 * member `password` before the document reaches validate functions, the log or the disk.
 */
import { pbkdf2, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import type { PasswordRule, Rules } from '../core/types.ts'
import { memberValue, splitMembers } from './body.ts'
import type { IncomingDoc } from './incoming-document.ts'

/** Maximum number of concurrent hashes. libuv has four threads; logins may use two, and file access needs some. */
const MAX_CONCURRENT = 1
/** Maximum number of documents that wait for their hashes. Each request has at most one. */
const MAX_WAITING = 64

/** Members that describe a password. They are ignored in a document with a new password. */
const MEMBERS = new Set([
  'password',
  'password_scheme',
  'password_sha',
  'pbkdf2_prf',
  'salt',
  'iterations',
  'derived_key',
])

/** Compiles a pattern to a test. @throws invalid_selector for an invalid pattern, or if a test takes too much work */
export type CompilePattern = (pattern: string) => (text: string) => boolean

export class PasswordHashing {
  readonly #rules: () => Rules
  readonly #compile: CompilePattern
  readonly #limiter = new Limiter(MAX_CONCURRENT, MAX_WAITING)

  constructor(rules: () => Rules, compile: CompilePattern) {
    this.#rules = rules
    this.#compile = compile
  }

  /**
   * @param isReplica whether another server has accepted the document: then a hash that costs too much is stored, and
   *   opens no account
   * @throws bad_request for a password that the configuration refuses; forbidden for one that is not a string, if the
   * configuration accepts none, and for a hash that costs too much
   */
  check(doc: IncomingDoc, isReplica: boolean): void {
    const { hashing, users } = this.#rules()
    const password = plainPassword(doc.body)
    if (password === undefined && !isReplica) checkHash(doc.body, hashing.iterations)
    if (password === undefined) return
    const { passwordRules } = users
    if (passwordRules === null) throw noPasswords()
    for (const rule of passwordRules) this.#checkRule(password, rule)
  }

  #checkRule(password: string, { pattern, reason }: PasswordRule): void {
    const test = attempt(() => this.#compile(pattern))
    if (test === null) throw noPasswords()
    // A password that takes too much work to test is refused.
    if (attempt(() => test(password)) === true) return
    const defaultReason = 'Password does not conform to requirements.'
    throw new CouchError('bad_request', reason === '' ? defaultReason : `${defaultReason} ${reason}`)
  }

  /** @returns the document with the hash of its password, if it has one. @throws unavailable */
  async prepare(doc: IncomingDoc): Promise<IncomingDoc> {
    const password = plainPassword(doc.body)
    if (password === undefined) return doc
    const { hashing } = this.#rules()
    const salt = newSalt()
    const key = await this.#limiter.run(() => deriveKey(password, salt, hashing))
    return { ...doc, body: withHash(doc.body, key, salt, hashing) }
  }
}

/**
 * Replaces all members about a password by a hash; other members stay.
 * @param body the JSON text of a document, with or without its `_` members
 * @param key the result of {@link deriveKey} for the password, with this salt and these options
 */
export function withHash(body: string, key: Buffer, salt: string, { prf, iterations }: HashOptions): string {
  const hash = JSON.stringify({
    password_scheme: 'pbkdf2',
    pbkdf2_prf: prf,
    salt,
    iterations,
    derived_key: key.toString('hex'),
  })
  const { body: rest } = splitMembers(body, (name) => MEMBERS.has(name))
  return rest === '{}' ? hash : `${rest.slice(0, -1)},${hash.slice(1)}`
}

function noPasswords(): CouchError {
  return new CouchError('forbidden', 'Server cannot hash passwords at this time.')
}

/** @returns null for a refusal, without its reason: that may contain the password */
function attempt<T>(work: () => T): T | null {
  try {
    return work()
  } catch (error) {
    if (error instanceof CouchError) return null
    throw error
  }
}

/** The new password of a document; undefined without one, and for `null`, which is stored unchanged. */
function plainPassword(body: string): string | undefined {
  // The text contains the member's name unchanged unless it is escaped.
  if (!body.includes('"password"') && !body.includes('\\u')) return undefined
  const { special } = splitMembers(body, (name) => name === 'password')
  if (!special.has('password') || special.get('password') === 'null') return undefined
  const password = memberValue(special, 'password')
  if (typeof password !== 'string') throw new CouchError('forbidden', 'The password must be a string.')
  return password
}

// Runs on libuv's threads: hundreds of thousands of iterations would block the calling thread for 0.25 s.
const derive = promisify(pbkdf2)

/** The digests that CouchDB offers, by its names (`sha` is SHA-1), and the bytes of their output. */
export const PRFS: Readonly<Record<string, { readonly digest: string; readonly length: number }>> = {
  sha: { digest: 'sha1', length: 20 },
  sha224: { digest: 'sha224', length: 28 },
  sha256: { digest: 'sha256', length: 32 },
  sha384: { digest: 'sha384', length: 48 },
  sha512: { digest: 'sha512', length: 64 },
}

/** How a new password is hashed. */
export interface HashOptions {
  readonly iterations: number
  /** CouchDB's name of the digest, one of {@link PRFS}. */
  readonly prf: string
}

const SALT_BYTES = 16

/** The longest salt in characters; CouchDB and settee make 32. */
export const MAX_SALT = 1024
/** Iterations that a document of `_users` may name, whatever new hashes have: about a second. */
const USER_ITERATIONS = 2_000_000

/**
 * Users write their own documents, so these may not say how long a login keeps a thread busy.
 * @param configured `chttpd_auth/iterations`
 * @returns the most iterations that a document of `_users` may name
 */
export function maxUserIterations(configured: number): number {
  return Math.max(USER_ITERATIONS, configured)
}

/**
 * Checks the hash that a document brings, since it may cost no more than one of this server.
 * @throws forbidden
 */
function checkHash(body: string, configured: number): void {
  const { special } = splitMembers(body, (name) => name === 'iterations' || name === 'salt')
  const most = maxUserIterations(configured)
  // Values of other types are refused by `_design/_auth`.
  if (special.has('iterations') && Number(memberValue(special, 'iterations')) > most) {
    throw new CouchError('forbidden', `iterations may be at most ${most}.`)
  }
  const salt = special.has('salt') ? memberValue(special, 'salt') : ''
  if (String(salt).length > MAX_SALT) {
    throw new CouchError('forbidden', `salt must have at most ${MAX_SALT} characters.`)
  }
}

/** @returns a new salt of 32 hex digits; their text is hashed, not the bytes that they encode */
export function newSalt(): string {
  return randomBytes(SALT_BYTES).toString('hex')
}

/**
 * Derives a password's key on another thread, with the length of the digest.
 * @throws Error for a digest that CouchDB does not know
 */
export function deriveKey(password: string, salt: string, { iterations, prf }: HashOptions): Promise<Buffer> {
  const form = Object.hasOwn(PRFS, prf) ? PRFS[prf] : undefined
  if (form === undefined) throw new Error(`Unknown PBKDF2 digest ${prf}.`)
  return derive(password, salt, iterations, form.length, form.digest)
}
