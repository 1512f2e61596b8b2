import { createHash, pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'

/*
 * Stored passwords in CouchDB's three forms (protocol.md 11.7, couch_passwords.erl):
 *   -pbkdf2:<prf>-<derived hex>,<salt>,<iterations>
 *   -pbkdf2-<derived hex>,<salt>,<iterations>         SHA-1, CouchDB before 3.4
 *   -hashed-<sha1 hex of password + salt>,<salt>      CouchDB 1.0
 * The salt's text, not what its hex stands for, is what goes into the hash.
 */

// On libuv's threads: rounds in the hundred thousands would hold the HTTP thread for a quarter of a second.
const derive = promisify(pbkdf2)

export interface HashOptions {
  readonly iterations: number
  /** CouchDB's name of the digest, one of PBKDF2_PRFS. */
  readonly prf: string
}

interface Pbkdf2 {
  readonly scheme: 'pbkdf2'
  readonly digest: string
  readonly derived: Buffer
  readonly salt: string
  readonly iterations: number
}

interface Simple {
  readonly scheme: 'simple'
  readonly derived: Buffer
  readonly salt: string
}

const PRFS: Readonly<Record<string, { readonly digest: string; readonly length: number }>> = {
  sha: { digest: 'sha1', length: 20 },
  sha224: { digest: 'sha224', length: 28 },
  sha256: { digest: 'sha256', length: 32 },
  sha384: { digest: 'sha384', length: 48 },
  sha512: { digest: 'sha512', length: 64 },
}
const SALT_BYTES = 16
// The same bound as chttpd_auth/iterations: a stored value must not keep a thread busy for minutes.
const MAX_ITERATIONS = 10_000_000

/**
 * Hashes a password as CouchDB writes admins into `[admins]`, with a new salt.
 * @returns `-pbkdf2:<prf>-<derived hex>,<salt hex>,<iterations>`
 */
export async function hashPassword(password: string, { iterations, prf }: HashOptions): Promise<string> {
  const form = PRFS[prf]
  if (!form) throw new Error(`Unknown PBKDF2 digest ${prf}.`)
  const salt = randomBytes(SALT_BYTES).toString('hex')
  const derived = await derive(password, salt, iterations, form.length, form.digest)
  return `-pbkdf2:${prf}-${derived.toString('hex')},${salt},${iterations}`
}

/**
 * Compares in constant time, on another thread.
 * @param stored a value of `[admins]`
 * @returns false also for a stored text that is no hash
 */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const hash = parseHash(stored)
  if (!hash) return false
  const computed =
    hash.scheme === 'simple'
      ? createHash('sha1').update(password).update(hash.salt).digest()
      : await derive(password, hash.salt, hash.iterations, hash.derived.length, hash.digest)
  return timingSafeEqual(computed, hash.derived)
}

/** @returns whether the text is a password hash that {@link verifyPassword} understands */
export function isHashed(value: string): boolean {
  return parseHash(value) !== null
}

/** @returns the salt of a stored hash; empty for a text that is none */
export function saltOf(stored: string): string {
  return parseHash(stored)?.salt ?? ''
}

/** @returns whether the text means to be a hash, well-formed or not: CouchDB's own test of `[admins]` values */
export function looksHashed(value: string): boolean {
  return /^-(?:pbkdf2[-:]|hashed-)/.test(value)
}

function parseHash(stored: string): Pbkdf2 | Simple | null {
  const [, prf = 'sha', key, salt, rounds] =
    /^-pbkdf2(?::([a-z0-9]+))?-([0-9a-f]+),([^,]*),(\d{1,8})$/i.exec(stored) ?? []
  if (key !== undefined && salt !== undefined) return pbkdf2Hash(prf, key, salt, Number(rounds))
  const [, digest, simpleSalt] = /^-hashed-([0-9a-f]{40}),([^,]*)$/i.exec(stored) ?? []
  return digest === undefined || simpleSalt === undefined
    ? null
    : { scheme: 'simple', derived: Buffer.from(digest, 'hex'), salt: simpleSalt }
}

function pbkdf2Hash(prf: string, key: string, salt: string, iterations: number): Pbkdf2 | null {
  const form = PRFS[prf]
  if (!form || key.length !== form.length * 2 || iterations < 1 || iterations > MAX_ITERATIONS) return null
  return { scheme: 'pbkdf2', digest: form.digest, derived: Buffer.from(key, 'hex'), salt, iterations }
}
