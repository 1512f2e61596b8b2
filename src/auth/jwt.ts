import { createHash, type KeyObject } from 'node:crypto'
import { compactVerify, decodeProtectedHeader, errors } from 'jose'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { parseClaims } from '../config/required-claims.ts'
import { CouchError } from '../core/errors.ts'
import { isTooDeep } from '../core/json-depth.ts'
import { FairTurns } from './fair-turns.ts'
import {
  type Claims,
  checkPeriod,
  checkRequired,
  type Period,
  periodOf,
  rolesOf,
  subjectOf,
} from './jwt-claims.ts'
import { findKey, isAlgorithm } from './jwt-keys.ts'

/** Who a token is for, and what it claims for him; what the server grants of that is another matter. */
export interface VerifiedToken {
  readonly name: string
  readonly roles: readonly string[]
  readonly period: Period
}

const REMEMBERED = 1000
const KEYS = 100
/** A signature takes libuv's threads up to a millisecond, and file reads need them as well. */
const AT_ONCE = 2
const MAY_WAIT = 64
const SECTIONS: ReadonlySet<string> = new Set(['jwt_keys', 'jwt_auth'])

/**
 * Verifies JSON web tokens with the library `jose`. Clients send the same one with every request, so tokens that were
 * verified are remembered by their digest, until the configuration changes; their times are looked at every time.
 */
export class JwtVerifier {
  readonly #config: Config
  readonly #verified = new LRUCache<string, VerifiedToken>({ max: REMEMBERED })
  readonly #keys = new LRUCache<string, KeyObject>({ max: KEYS })
  readonly #turns = new FairTurns(AT_ONCE, MAY_WAIT)

  constructor(config: Config) {
    this.#config = config
  }

  /**
   * Has the verifier follow the configuration.
   * @returns what ends that
   */
  watch(): () => void {
    return this.#config.onChange((section) => {
      if (!SECTIONS.has(section)) return
      this.#verified.clear()
      this.#keys.clear()
    })
  }

  /**
   * @param now in milliseconds since 1970
   * @param asker on whose account the work goes: an address
   * @throws bad_token, unauthorized, with CouchDB's reasons (protocol.md 11.5); unavailable when too many wait
   */
  async verify(token: string, now: number, asker: string): Promise<VerifiedToken> {
    const digest = createHash('sha256').update(token).digest('base64')
    const known = this.#verified.get(digest) ?? (await this.#verifyNew(token, digest, asker))
    checkPeriod(known.period, now / 1000)
    return known
  }

  async #verifyNew(token: string, digest: string, asker: string): Promise<VerifiedToken> {
    const header = headerOf(token)
    const key = this.#keyOf(header)
    const claims = await this.#turns.take(asker, () => claimsOf(token, key, header.alg))
    const config = this.#config
    checkRequired(header, claims, parseClaims(config.get('jwt_auth', 'required_claims') || 'exp') ?? [])
    const verified = {
      name: subjectOf(claims),
      roles: rolesOf(
        claims,
        config.get('jwt_auth', 'roles_claim_name') || '_couchdb.roles',
        config.get('jwt_auth', 'roles_claim_path') || undefined,
      ),
      period: periodOf(claims),
    }
    // The configuration may have changed while the signature was computed.
    if (this.#keys.get(keyName(header)) === key) this.#verified.set(digest, verified)
    return verified
  }

  #keyOf(header: Header): KeyObject {
    const name = keyName(header)
    const known = this.#keys.get(name)
    if (known !== undefined) return known
    const key = findKey(this.#config, header.alg, header.kid)
    if (key === null) throw new CouchError('bad_token', 'Unknown kid')
    this.#keys.set(name, key)
    return key
  }
}

interface Header {
  readonly alg: string
  readonly kid: string | undefined
  readonly [other: string]: unknown
}

function keyName({ alg, kid }: Header): string {
  return JSON.stringify([alg, kid])
}

function headerOf(token: string): Header {
  if (token.split('.', 4).length !== 3) throw new CouchError('bad_token')
  let header: ReturnType<typeof decodeProtectedHeader>
  try {
    header = decodeProtectedHeader(token)
  } catch (error) {
    throw new CouchError('bad_token', undefined, { cause: error })
  }
  if (header.alg === undefined) throw new CouchError('bad_token', 'Missing alg header parameter')
  if (!isAlgorithm(header.alg)) throw new CouchError('bad_token', 'Invalid alg header parameter')
  if (header.typ !== undefined && header.typ !== 'JWT') {
    throw new CouchError('bad_token', 'Invalid typ header parameter')
  }
  if (header.kid !== undefined && typeof header.kid !== 'string') {
    throw new CouchError('bad_token', 'Unknown kid')
  }
  return { ...header, alg: header.alg, kid: header.kid }
}

async function claimsOf(token: string, key: KeyObject, algorithm: string): Promise<Claims> {
  const payload = await compactVerify(token, key, { algorithms: [algorithm] }).then(
    (verified) => verified.payload,
    (error: unknown) => {
      throw refusalOf(error, algorithm)
    },
  )
  try {
    const claims = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload)) as unknown
    if (typeof claims === 'object' && claims !== null && !isTooDeep(claims)) return claims as Claims
  } catch {
    // Refused as what is no object.
  }
  throw new CouchError('bad_token')
}

/** A key that does not fit (a curve of another size, an RSA key that is too short) is told as a bad signature. */
function refusalOf(error: unknown, algorithm: string): CouchError {
  const isForm = error instanceof errors.JWSInvalid || error instanceof errors.JOSENotSupported
  if (isForm) return new CouchError('bad_token', undefined, { cause: error })
  const what = algorithm.startsWith('HS') ? 'HMAC' : 'signature'
  return new CouchError('bad_token', `Bad ${what} in authentication token`, { cause: error })
}
