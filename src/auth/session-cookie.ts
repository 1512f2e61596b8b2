/**
 * The value of the cookie `AuthSession`, as CouchDB makes it, so that sessions outlive a move: base64url of
 * `name:HEXTIME:MAC`, the MAC's bytes as they are; protocol.md 11.3.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'

/** A value that has the form; whether it is genuine, {@link isSealed} says. */
export interface SessionText {
  /** Empty where it is no UTF-8, which no account's name is. */
  readonly name: string
  /** When it was made, in seconds since 1970; NaN where that is no number. */
  readonly time: number
  /** `name:HEXTIME`, what the MAC is of. */
  readonly signed: Buffer
  readonly mac: Buffer
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/
const HEX_TIME = /^[0-9A-Fa-f]{1,64}$/
const COLON = 0x3a

/** @returns null when the value is not of the form */
export function parseSession(value: string): SessionText | null {
  if (!BASE64.test(value)) return null
  const bytes = Buffer.from(value, 'base64')
  const nameEnd = bytes.indexOf(COLON)
  const timeEnd = nameEnd === -1 ? -1 : bytes.indexOf(COLON, nameEnd + 1)
  if (timeEnd === -1) return null
  const time = bytes.toString('latin1', nameEnd + 1, timeEnd)
  return {
    name: utf8(bytes.subarray(0, nameEnd)),
    time: HEX_TIME.test(time) ? Number.parseInt(time, 16) : Number.NaN,
    signed: bytes.subarray(0, timeEnd),
    mac: bytes.subarray(timeEnd + 1),
  }
}

function utf8(bytes: Buffer): string {
  const text = bytes.toString()
  return text.includes('\ufffd') ? '' : text
}

/**
 * @param hexTime upper-case hex of seconds since 1970
 * @param key the server's secret and the account's salt
 * @param digest in Node's name
 */
export function sealSession(name: string, hexTime: string, key: string, digest: string): string {
  const signed = Buffer.from(`${name}:${hexTime}`)
  const mac = createHmac(digest, key).update(signed).digest()
  return Buffer.concat([signed, Buffer.from(':'), mac]).toString('base64url')
}

/** @returns whether the value was made with the key, by one of the digests; in constant time */
export function isSealed({ signed, mac }: SessionText, key: string, digests: readonly string[]): boolean {
  return digests.some((digest) => {
    const computed = createHmac(digest, key).update(signed).digest()
    return computed.length === mac.length && timingSafeEqual(computed, mac)
  })
}

/** CouchDB's names of digests (`chttpd_auth/hash_algorithms`), and Node's. */
const DIGESTS: Readonly<Record<string, string>> = {
  sha: 'sha1',
  sha224: 'sha224',
  sha256: 'sha256',
  sha384: 'sha384',
  sha512: 'sha512',
}

/** @returns the digests that a list like `sha256, sha` names, in Node's names; what it does not know is left out */
export function digestsOf(list: string): readonly string[] {
  const known = list.split(',').flatMap((name) => DIGESTS[name.trim()] ?? [])
  return known.length > 0 ? known : ['sha256', 'sha1']
}
