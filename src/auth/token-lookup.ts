import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import { Limiter } from '../core/concurrency.ts'
import { RecordCache } from '../storage/record-cache.ts'
import type { WatchedRecords } from '../storage/records.ts'
import type { StoredTokens } from './stored-tokens.ts'
import { hashOfSecret, isSecretOf, TOKEN_KIND, type Token, type TokenGrant } from './token-record.ts'

/** Remembered tokens, about 0.5 kB each: those of the devices that are online. */
const REMEMBERED = 20_000
/** Secrets that are looked up at once, since a flood of wrong ones must leave the store to others. */
const AT_ONCE = 16
/** Secrets that wait for it; the client with the most loses its newest. */
const MAX_WAITING = 1024

/**
 * Finds tokens by their secrets. Those in use are remembered, and forgotten when they are revoked, on this node or another.
 * Unknown secrets are not remembered, so that a flood of them pushes out no device's token.
 */
export class TokenLookup {
  readonly #stored: Pick<StoredTokens, 'idOfSecret' | 'parse'>
  /** Ids by the hash of the secret, which never change. */
  readonly #ids = new LRUCache<string, string>(atMost(REMEMBERED))
  readonly #tokens: RecordCache<{ readonly token: Token | null }>
  readonly #limiter = new Limiter(AT_ONCE, MAX_WAITING)

  constructor(
    records: Pick<WatchedRecords, 'readRecords' | 'watchCatalog'>,
    stored: Pick<StoredTokens, 'idOfSecret' | 'parse'>,
  ) {
    this.#stored = stored
    this.#tokens = new RecordCache({
      records,
      kind: TOKEN_KIND,
      max: REMEMBERED,
      parse: (text, id) => ({ token: stored.parse(id, text) }),
    })
  }

  /**
   * Checks the secret of a token in place of a password.
   * @param caller whose look-ups take turns with those of others
   * @returns null if the account has no token with this secret; the account itself may no longer exist
   * @throws unavailable if too many look-ups wait
   */
  check(name: string, secret: string, caller: string): TokenGrant | null | Promise<TokenGrant | null> {
    const hash = hashOfSecret(secret)
    const id = this.#ids.get(hash.toString('base64url'))
    const known = id === undefined ? undefined : this.#tokens.known(id)
    if (known !== undefined) return grantOf(known.token, name, hash)
    return this.#limiter.run(() => this.#find(name, hash), caller)
  }

  /** Whether the token is remembered, so that it was not revoked. */
  isKnown(id: string): boolean {
    return (this.#tokens.known(id)?.token ?? null) !== null
  }

  async #find(name: string, hash: Buffer): Promise<TokenGrant | null> {
    const id = await this.#stored.idOfSecret(hash)
    if (id === null) return null
    const { token } = await this.#tokens.get(id)
    if (token !== null) this.#ids.set(hash.toString('base64url'), id)
    return grantOf(token, name, hash)
  }

  /** Stops following the changes of records. */
  close(): void {
    this.#tokens.close()
  }
}

function grantOf(token: Token | null, name: string, hash: Buffer): TokenGrant | null {
  return token !== null && token.account === name && isSecretOf(token, hash) ? token : null
}
