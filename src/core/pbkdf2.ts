/** PBKDF2 (RFC 8018 5.2) as CouchDB uses it for passwords; protocol.md 11.7. */
import { pbkdf2, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'

// On libuv's threads: rounds in the hundred thousands would hold the calling thread for a quarter of a second.
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

/** @returns a new salt of 32 hex digits; its text, not what the digits stand for, goes into the hash */
export function newSalt(): string {
  return randomBytes(SALT_BYTES).toString('hex')
}

/**
 * Computes a password's key, as many bytes as the digest gives, on another thread.
 * @throws Error for a digest that CouchDB does not know
 */
export function deriveKey(password: string, salt: string, { iterations, prf }: HashOptions): Promise<Buffer> {
  const form = Object.hasOwn(PRFS, prf) ? PRFS[prf] : undefined
  if (form === undefined) throw new Error(`Unknown PBKDF2 digest ${prf}.`)
  return derive(password, salt, iterations, form.length, form.digest)
}
