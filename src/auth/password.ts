import { createHash, timingSafeEqual } from 'node:crypto'
import { deriveKey, type HashOptions, MAX_SALT, newSalt, PRFS } from '../documents/password-hashing.ts'

/*
 * Stored passwords in CouchDB's three forms (protocol.md 11.7, couch_passwords.erl), and a fourth of our own:
 *   -pbkdf2:<prf>-<derived hex>,<salt>,<iterations>
 *   -pbkdf2-<derived hex>,<salt>,<iterations>         SHA-1, CouchDB before 3.4
 *   -hashed-<sha1 hex of password + salt>,<salt>      CouchDB 1.0
 *   -simple+pbkdf2:<prf>-<derived hex>,<salt>,<iterations>   PBKDF2 of the hex digits of a 1.0 hash, which CouchDB 3.5
 *                                                            knows in documents of `_users` only
 * The text of the salt goes into the hash, not the bytes that its hex digits mean.
 */

/** The parts of a stored password. */
export interface PasswordHash {
  readonly scheme: 'simple' | 'pbkdf2' | 'simple+pbkdf2'
  readonly derived: Buffer
  readonly salt: string
  /** 1 for `simple`. */
  readonly iterations: number
  /** CouchDB's name of the digest; `sha` for `simple`. */
  readonly prf: string
}

// The same bound as chttpd_auth/iterations: a stored value must not keep a thread busy for minutes.
const MAX_ITERATIONS = 10_000_000

/**
 * Hashes a password as CouchDB writes admins into `[admins]`, with a new salt.
 * @returns `-pbkdf2:<prf>-<derived hex>,<salt hex>,<iterations>`
 */
export async function hashPassword(password: string, options: HashOptions): Promise<string> {
  const salt = newSalt()
  const derived = await deriveKey(password, salt, options)
  return `-pbkdf2:${options.prf}-${derived.toString('hex')},${salt},${options.iterations}`
}

/**
 * Compares a password in constant time, on another thread.
 * @param stored a value of `[admins]`, or one of a document of `_users` (accounts.ts)
 * @returns false also if the stored text is not a hash
 */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const hash = parseHash(stored)
  return hash !== null && timingSafeEqual(await computed(password, hash), hash.derived)
}

async function computed(password: string, hash: PasswordHash): Promise<Buffer> {
  if (hash.scheme === 'pbkdf2') return deriveKey(password, hash.salt, hash)
  const simple = createHash('sha1').update(password).update(hash.salt).digest()
  return hash.scheme === 'simple' ? simple : deriveKey(simple.toString('hex'), hash.salt, hash)
}

/** @returns whether the text is a password hash that {@link verifyPassword} understands */
export function isHashed(value: string): boolean {
  return parseHash(value) !== null
}

/** @returns the salt of a stored hash; empty if the text is not a hash */
export function saltOf(stored: string): string {
  return parseHash(stored)?.salt ?? ''
}

/** @returns whether the text looks like a hash, complete or not: CouchDB's own test of `[admins]` values */
export function looksHashed(value: string): boolean {
  return /^-(?:pbkdf2[-:]|hashed-)/.test(value)
}

/** @returns the parts of a stored password; null for a text that {@link verifyPassword} does not understand */
export function parseHash(stored: string): PasswordHash | null {
  // A salt may contain commas; the number follows the last one.
  const [, plus, prf = 'sha', key, salt, rounds] =
    /^-(simple\+)?pbkdf2(?::([a-z0-9]+))?-([0-9a-f]+),(.*),(\d{1,8})$/is.exec(stored) ?? []
  if (key !== undefined && salt !== undefined) {
    return pbkdf2Hash(plus === undefined ? 'pbkdf2' : 'simple+pbkdf2', prf, key, salt, Number(rounds))
  }
  const [, digest, simpleSalt] = /^-hashed-([0-9a-f]{40}),(.*)$/is.exec(stored) ?? []
  if (digest === undefined || simpleSalt === undefined) return null
  const derived = Buffer.from(digest, 'hex')
  return { scheme: 'simple', derived, salt: simpleSalt, iterations: 1, prf: 'sha' }
}

function pbkdf2Hash(
  scheme: 'pbkdf2' | 'simple+pbkdf2',
  prf: string,
  key: string,
  salt: string,
  iterations: number,
): PasswordHash | null {
  const form = Object.hasOwn(PRFS, prf) ? PRFS[prf] : undefined
  if (!form || key.length !== form.length * 2 || salt.length > MAX_SALT) return null
  if (iterations < 1 || iterations > MAX_ITERATIONS) return null
  return { scheme, derived: Buffer.from(key, 'hex'), salt, iterations, prf }
}
