import { Listeners } from '../core/listeners.ts'
import type { CatalogChange, WatchedRecords } from '../storage/records.ts'
import type { AccountListener } from './accounts.ts'
import { type NewToken, type PageOf, StoredTokens } from './stored-tokens.ts'
import { copyTokens, type TokenPage } from './token-copies.ts'
import { TokenLookup } from './token-lookup.ts'
import { type TokenMaker, tokenMaker } from './token-maker.ts'
import { type OwnerOptions, TokenOwnerCheck } from './token-owners.ts'
import {
  ACCOUNT_KIND,
  partsOfAccountKey,
  type Token,
  type TokenGrant,
  type TokenLimits,
  type UsedToken,
} from './token-record.ts'
import { UseNotes, type UseOptions } from './token-uses.ts'

export interface TokensOptions extends UseOptions, OwnerOptions {
  readonly records: WatchedRecords
  /** Read each time, since they can change while the server runs. */
  limits(): TokenLimits
  /** Called if background work fails, which is tried again, or if a record is damaged. */
  onFault(fault: unknown): void
}

/**
 * The device tokens of all accounts. Each gives one device access to its account and can be revoked by itself. They are
 * in the records that all nodes share, and only what is in use is in memory.
 */
export class Tokens {
  readonly #records: WatchedRecords
  readonly #accounts: TokensOptions['accounts']
  readonly #stored: StoredTokens
  readonly #lookup: TokenLookup
  readonly #uses: UseNotes
  readonly #owners: TokenOwnerCheck
  readonly #listeners = new Listeners<Parameters<AccountListener>>()
  readonly #unwatch: () => void

  constructor(options: TokensOptions) {
    const { records } = options
    this.#records = records
    this.#accounts = options.accounts
    this.#stored = new StoredTokens(records, {
      limits: () => options.limits(),
      ...(options.now && { now: options.now }),
      onDamaged: (id) => options.onFault(new Error(`The record of the device token ${id} is damaged.`)),
    })
    this.#lookup = new TokenLookup(records, this.#stored)
    this.#unwatch = records.watchCatalog((change) => this.#follow(change))
    this.#uses = new UseNotes(records, options)
    this.#owners = new TokenOwnerCheck(this.#stored, options, (account) => this.#tellRevoked(account))
  }

  /**
   * Tells the listeners of tokens that another node has revoked. Own changes come here as well, and for a revocation the
   * listeners are then called twice.
   */
  #follow(change: CatalogChange): void {
    if (change.type === 'any') this.#listeners.tell('all')
    else if (change.type === 'records' && change.kind === ACCOUNT_KIND) void this.#findRevoked(change.keys)
  }

  /** @param keys of tokens that were made or revoked */
  async #findRevoked(keys: readonly string[]): Promise<void> {
    // If they cannot be read, all of them may be revoked.
    const values = await this.#records.readRecords(ACCOUNT_KIND, keys).catch(() => [])
    const revoked = keys.filter((_, at) => (values[at] ?? null) === null)
    const accounts = new Set(revoked.map((key) => partsOfAccountKey(key).account))
    if (accounts.size > 0) this.#listeners.tell(accounts)
  }

  #tellRevoked(account: string): void {
    this.#listeners.tell(new Set([account]))
  }

  /** @see TokenLookup.check */
  check(name: string, secret: string, caller: string): TokenGrant | null | Promise<TokenGrant | null> {
    const pending = this.#owners.pending(name)
    if (pending === null) return this.#lookup.check(name, secret, caller)
    return pending.then((counts) => (counts ? this.#lookup.check(name, secret, caller) : null))
  }

  /** Whether a token that was accepted still is; false as well if that must be looked up. */
  isKnown(name: string, id: string): boolean {
    return this.#owners.pending(name) === null && this.#lookup.isKnown(id)
  }

  /**
   * Notes the use of a token, at most once a minute.
   * @param client the header User-Agent
   */
  noteUse(id: string, client: string | undefined, address: string): void {
    this.#uses.note(id, client, address)
  }

  /**
   * Notes how far a device has read the feed of a database.
   * @param position the sequence token at the end of what was sent
   */
  notePosition(id: string, database: string, position: string): void {
    this.#uses.notePosition(id, database, position)
  }

  /** @returns null if there is none */
  get(id: string): Promise<Token | null> {
    return this.#stored.get(id)
  }

  /**
   * A page of the tokens of all accounts, in the order of their ids, so oldest first.
   * @param after the id of the last token of the page before; empty: from the first
   */
  async page(after: string, limit: number): Promise<PageOf<UsedToken>> {
    const { tokens, last } = await this.#stored.page(after, limit)
    return { tokens: await this.#withUses(tokens), last }
  }

  /** A page of an account's tokens, as {@link page}. */
  async list(account: string, after: string, limit: number): Promise<PageOf<UsedToken>> {
    const { tokens, last } = await this.#stored.list(account, after, limit)
    return { tokens: await this.#withUses(tokens), last }
  }

  async #withUses(tokens: readonly Token[]): Promise<readonly UsedToken[]> {
    const uses = await this.#uses.of(tokens.map(({ id }) => id))
    return tokens.map((token, at) => ({ ...token, ...uses[at]! }))
  }

  /** @see StoredTokens.make */
  async make(wanted: NewToken): Promise<{ readonly token: Token; readonly secret: string }> {
    // The tokens of an earlier account of the name are revoked first, so that this one stays.
    await this.#owners.pending(wanted.account)
    const owner = await this.#accounts.find(wanted.account).catch(() => null)
    const generation = owner?.generation
    const made = await this.#stored.make({ ...wanted, ...(generation !== undefined && { generation }) })
    // The account may have been deleted meanwhile, and its other tokens revoked before this one was there.
    this.#owners.recheck(new Set([wanted.account]))
    return made
  }

  /**
   * Revokes a token; it is refused and durably gone when resolved.
   * @param caller as in {@link StoredTokens.revoke}
   * @returns false if there is no token with this id
   * @throws as `writeRecords`; then the token is still valid
   */
  async revoke(id: string, caller?: string): Promise<boolean> {
    const token = await this.#stored.revoke(id, caller)
    if (token === null) return false
    this.#uses.forget(id)
    this.#tellRevoked(token.account)
    return true
  }

  /** Revokes all tokens of an account; as {@link revoke}. @returns their number */
  async revokeAll(account: string): Promise<number> {
    const revoked = await this.#stored.revokeAll(account)
    if (revoked > 0) this.#tellRevoked(account)
    return revoked
  }

  /** @see copyTokens */
  replaceAll(pages: AsyncIterable<TokenPage>): Promise<void> {
    return copyTokens(this.#records, this.#stored, pages, (accounts) => this.#listeners.tell(accounts))
  }

  /** Makes tokens for the operator. */
  get maker(): TokenMaker {
    return tokenMaker(this.#stored, this)
  }

  /**
   * Calls the listener with the accounts of revoked tokens, once the revocation is durable. New tokens revoke no rights.
   * @returns a function that ends the calls
   */
  onChange(listener: AccountListener): () => void {
    return this.#listeners.add(listener)
  }

  /** Writes the latest uses, and stops following the accounts and other nodes. */
  async close(): Promise<void> {
    this.#unwatch()
    this.#lookup.close()
    await this.#owners.close()
    await this.#uses.close()
  }
}
