import { createHash, type KeyObject } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { parseClaims } from '../config/value-rules.ts'
import { atMost } from '../core/cache.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import {
  checkPeriod,
  checkRequired,
  findKey,
  type Period,
  periodOf,
  rolesOf,
  subjectOf,
} from './jwt-claims.ts'
import type { Header } from './jwt-signature.ts'

/** The account that a token is for, and the roles that it claims; the server may grant fewer. */
interface VerifiedToken {
  readonly name: string
  readonly roles: readonly string[]
  readonly period: Period
}

const REMEMBERED = 1000
const KEYS = 100
/** A signature takes one of libuv's threads for up to 1 ms, and file reads need these threads as well. */
const AT_ONCE = 2
const MAY_WAIT = 64
const SECTIONS: ReadonlySet<string> = new Set(['jwt_keys', 'jwt_auth'])

/**
 * Verifies JSON web tokens. Clients send the same token with every request, so verified tokens are remembered by their
 * digest until the configuration changes. Their times are checked every time.
 */
export class JwtVerifier {
  readonly #config: Config
  readonly #verified = new LRUCache<string, VerifiedToken>(atMost(REMEMBERED))
  readonly #keys = new LRUCache<string, KeyObject>(atMost(KEYS))
  readonly #limiter = new Limiter(AT_ONCE, MAY_WAIT)

  constructor(config: Config) {
    this.#config = config
  }

  /**
   * Follows the configuration.
   * @returns a function that stops it
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
   * @param address the client's, which shares the threads with others
   * @throws bad_token, unauthorized, with CouchDB's reasons (protocol.md 11.5); unavailable if too many tokens wait
   */
  async verify(token: string, now: number, address: string): Promise<VerifiedToken> {
    const digest = createHash('sha256').update(token).digest('base64')
    const known = this.#verified.get(digest) ?? (await this.#verifyNew(token, digest, address))
    checkPeriod(known.period, now / 1000)
    return known
  }

  async #verifyNew(token: string, digest: string, address: string): Promise<VerifiedToken> {
    const { claimsOf, headerOf } = await import('./jwt-signature.ts')
    const header = headerOf(token)
    const key = this.#keyOf(header)
    const claims = await this.#limiter.run(() => claimsOf(token, key, header.alg), address)
    const config = this.#config
    checkRequired(header, claims, parseClaims(config.get('jwt_auth', 'required_claims') ?? '') ?? [])
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

function keyName({ alg, kid }: Header): string {
  return JSON.stringify([alg, kid])
}
