/** The tokens of a server in memory: found by id, by secret and by account, each at once. */
import { timingSafeEqual } from 'node:crypto'
import { hashOfSecret, type Token } from './token-record.ts'

export class TokenTable {
  readonly #byId = new Map<string, Token>()
  readonly #byHash = new Map<string, Token>()
  readonly #byAccount = new Map<string, Map<string, Token>>()

  get size(): number {
    return this.#byId.size
  }

  get(id: string): Token | undefined {
    return this.#byId.get(id)
  }

  all(): IterableIterator<Token> {
    return this.#byId.values()
  }

  accounts(): IterableIterator<string> {
    return this.#byAccount.keys()
  }

  hasAccount(account: string): boolean {
    return this.#byAccount.has(account)
  }

  /** @returns the account's tokens, oldest first */
  of(account: string): readonly Token[] {
    return [...(this.#byAccount.get(account)?.values() ?? [])]
  }

  /** The map is asked for the hash, of which the time of its look-up tells nothing of use; then all of it is compared. */
  bySecret(secret: string): Token | undefined {
    const hash = hashOfSecret(secret)
    const token = this.#byHash.get(hash.toString('base64url'))
    return token !== undefined && timingSafeEqual(token.hash, hash) ? token : undefined
  }

  /** Enters a token, also in the place of the one with its id. */
  set(token: Token): void {
    this.#byId.set(token.id, token)
    this.#byHash.set(token.hash.toString('base64url'), token)
    const others = this.#byAccount.get(token.account) ?? new Map<string, Token>()
    this.#byAccount.set(token.account, others.set(token.id, token))
  }

  delete({ id, hash, account }: Token): void {
    this.#byId.delete(id)
    this.#byHash.delete(hash.toString('base64url'))
    const others = this.#byAccount.get(account)
    others?.delete(id)
    if (others?.size === 0) this.#byAccount.delete(account)
  }
}
