/** Keys that sign JSON web tokens: section `[jwt_keys]` in CouchDB's text form; protocol.md 11.5. */
import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto'
import type { Config } from '../config/config.ts'

/** Which kind of key an algorithm is verified with; an algorithm that is not here is none, `none` included. */
const KINDS: Readonly<Record<string, 'hmac' | 'rsa' | 'ec'>> = {
  HS256: 'hmac',
  HS384: 'hmac',
  HS512: 'hmac',
  RS256: 'rsa',
  RS384: 'rsa',
  RS512: 'rsa',
  ES256: 'ec',
  ES384: 'ec',
  ES512: 'ec',
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/

/** @returns whether tokens may be signed by this algorithm */
export function isAlgorithm(name: unknown): name is string {
  return typeof name === 'string' && Object.hasOwn(KINDS, name)
}

/**
 * Finds a key. Its name begins with its kind, so that no algorithm ever meets a key of another.
 * @param algorithm one of {@link isAlgorithm}
 * @param kid as the token's header names it; undefined: the key `_default`
 * @returns null when there is none, or its text is no key of its kind
 */
export function findKey(config: Config, algorithm: string, kid: string | undefined): KeyObject | null {
  const kind = KINDS[algorithm]
  const text = config.get('jwt_keys', `${kind}:${kid ?? '_default'}`)
  if (!text || kind === undefined) return null
  return kind === 'hmac' ? sharedKey(text) : publicKey(text, kind)
}

function sharedKey(text: string): KeyObject | null {
  return BASE64.test(text) ? createSecretKey(Buffer.from(text, 'base64')) : null
}

/** A PEM whose line ends are written as `\n`, since a value of local.ini is one line. */
function publicKey(text: string, kind: 'rsa' | 'ec'): KeyObject | null {
  try {
    const key = createPublicKey(text.replaceAll('\\n', '\n'))
    return key.asymmetricKeyType === kind ? key : null
  } catch {
    return null
  }
}
