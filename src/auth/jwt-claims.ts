/** Checks the claims of JSON web tokens, and finds the keys that sign them; protocol.md 11.5. Pure. */
import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto'
import type { Config } from '../config/config.ts'
import type { RequiredClaim } from '../config/value-rules.ts'
import { CouchError } from '../core/errors.ts'
import { rolesIn } from './credentials.ts'

/** The claims of a token, as its JSON has them. */
export type Claims = Readonly<Record<string, unknown>>

/** Members that CouchDB expects in the token's header instead of its claims. */
const IN_HEADER = new Set(['alg', 'kid', 'typ'])
const PARAMETERS = new Set(['alg', 'typ'])

/**
 * Checks that the token has all required claims, with the required values.
 * @throws bad_token `Missing exp claim`, `Invalid iss claim` and their like
 */
export function checkRequired(header: Claims, claims: Claims, required: readonly RequiredClaim[]): void {
  for (const { name, value } of required) {
    const found = (IN_HEADER.has(name) ? header : claims)[name]
    const what = PARAMETERS.has(name) ? `${name} header parameter` : `${name} claim`
    if (found === undefined || found === null) throw new CouchError('bad_token', `Missing ${what}`)
    if (value !== undefined && found !== value) throw new CouchError('bad_token', `Invalid ${what}`)
  }
}

/** The time in which a token is valid, in seconds since 1970; from `nbf` and `exp`, if it has them. */
export interface Period {
  readonly from: number
  readonly until: number
}

/** @throws bad_token if a time is not a number */
export function periodOf(claims: Claims): Period {
  return {
    from: timeOf(claims, 'nbf') ?? Number.NEGATIVE_INFINITY,
    until: timeOf(claims, 'exp') ?? Number.POSITIVE_INFINITY,
  }
}

function timeOf(claims: Claims, name: string): number | undefined {
  const time = claims[name]
  if (time === undefined || typeof time === 'number') return time
  throw new CouchError('bad_token', `Invalid ${name} claim`)
}

/**
 * CouchDB checks the times only if they are required. settee also checks them if they are present.
 * @param now in seconds since 1970
 * @throws unauthorized
 */
export function checkPeriod({ from, until }: Period, now: number): void {
  if (until <= now) throw new CouchError('unauthorized', 'exp not in future')
  if (from > now) throw new CouchError('unauthorized', 'nbf not in past')
}

/**
 * @returns the name of the account that the token is for
 * @throws unauthorized
 */
export function subjectOf({ sub }: Claims): string {
  if (typeof sub === 'string' && sub !== '') return sub
  throw new CouchError('unauthorized', 'Token missing sub claim.')
}

/**
 * @param path to a nested claim, its steps parted by dots (`\.` is a dot in a name); undefined: the claim `name`
 * @returns the roles that the token claims, from an array or a comma list
 */
export function rolesOf(claims: Claims, name: string, path: string | undefined): readonly string[] {
  const claimed = path === undefined ? claims[name] : path.split(/(?<!\\)\./).reduce(step, claims as unknown)
  if (typeof claimed === 'string') return rolesIn(claimed)
  return Array.isArray(claimed) ? claimed.filter((role) => typeof role === 'string') : []
}

function step(value: unknown, name: string): unknown {
  const key = name.replaceAll('\\.', '.')
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? (value as Claims)[key]
    : undefined
}

// Keys that sign JSON web tokens: section `[jwt_keys]` in CouchDB's text form; protocol.md 11.5.

/** The kind of key for each algorithm. Other algorithms, such as `none`, are refused. */
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
 * Finds a key. Its name begins with its kind, so that an algorithm never uses a key of another kind.
 * @param algorithm one of {@link isAlgorithm}
 * @param kid as the token's header names it; undefined: the key `_default`
 * @returns null if there is none, or its text is not a key of its kind
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
