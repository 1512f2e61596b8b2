/**
 * Device tokens in the records of the server, which several nodes share: each call reads what it needs by key and holds
 * nothing. A change is decided on what was read, and written only if that has not changed; otherwise it is decided again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { newUuid } from '../core/ids.ts'
import {
  accountKey,
  accountOfKey,
  allRecords,
  type Records,
  type RecordWrite,
  readRecord,
  type ServerRecord,
} from '../storage/records.ts'
import {
  ACCOUNT_KIND,
  accountPrefix,
  checkNewToken,
  hashOfSecret,
  newSecret,
  OWNER_KIND,
  partsOfAccountKey,
  recordsOfToken,
  removalsOfToken,
  SECRET_KIND,
  TOKEN_KIND,
  TOTAL_KEY,
  TOTAL_KIND,
  type Token,
  type TokenLimits,
  tokenOfRecord,
  UNUSED,
} from './token-record.ts'

/** Tokens that one write revokes. */
const REVOKED_AT_ONCE = 100
/** Changes that may wait for others of this process; the account with the most loses its newest. */
const MAX_WAITING = 1000
/** How often a change is decided at most, if other nodes change the same records meanwhile. */
const ATTEMPTS = 20
/** The longest wait before a change is decided again, in ms. */
const MAX_WAIT_MS = 50

export type NewToken = Pick<Token, 'account' | 'name' | 'isAdmin' | 'generation'>

/** A change as it was decided on what is stored now. */
export interface TokenChange<R> {
  /** Empty: nothing is to be changed. */
  readonly writes: readonly RecordWrite[]
  /** The change of the number of all tokens. */
  readonly added: number
  readonly result: R
}

/** Some tokens, and the last id that was looked at; null: there are no more. */
export interface PageOf<T extends Token> {
  readonly tokens: readonly T[]
  readonly last: string | null
}

export interface StoredTokensOptions {
  /** Read each time, since they can change while the server runs. */
  limits(): TokenLimits
  /** Milliseconds since 1970; replaced in tests. */
  now?(): number
  /** Called for a damaged record: its token gives no access, and the record is left as it is. */
  onDamaged(id: string): void
}

export class StoredTokens {
  readonly #records: Records
  readonly #options: StoredTokensOptions
  readonly #limiter = new Limiter(1, MAX_WAITING)
  /** Milliseconds since 1970 in the id that was made last. */
  #lastIdTime = 0

  constructor(records: Records, options: StoredTokensOptions) {
    this.#records = records
    this.#options = options
  }

  /** @returns null if there is none */
  async get(id: string): Promise<Token | null> {
    return this.parse(id, await readRecord(this.#records, TOKEN_KIND, id))
  }

  /** @param hash of the secret @returns the id of its token; null if there is none */
  idOfSecret(hash: Buffer): Promise<string | null> {
    return readRecord(this.#records, SECRET_KIND, hash.toString('base64url'))
  }

  /** @param value of the token's record; null: there is none */
  parse(id: string, value: string | null): Token | null {
    if (value === null) return null
    const token = tokenOfRecord(id, value)
    if (token === null) this.#options.onDamaged(id)
    return token
  }

  /**
   * A page of an account's tokens, oldest first.
   * @param after the id of the last token of the page before; empty: from the first
   */
  async list(account: string, after: string, limit: number): Promise<PageOf<Token>> {
    const prefix = accountPrefix(account)
    const range = { prefix, after: prefix + after }
    const entries = await this.#records.listRecords(ACCOUNT_KIND, range, limit + 1)
    const ids = entries.map(({ key }) => partsOfAccountKey(key).id)
    return { tokens: await this.#getAll(ids.slice(0, limit)), last: lastOf(ids, limit) }
  }

  async #getAll(ids: readonly string[]): Promise<readonly Token[]> {
    const values = await this.#records.readRecords(TOKEN_KIND, ids)
    return ids.flatMap((id, at) => this.parse(id, values[at] ?? null) ?? [])
  }

  /**
   * A page of the tokens of all accounts, in the order of their ids, so oldest first.
   * @param after the id of the last token of the page before; empty: from the first
   */
  async page(after: string, limit: number): Promise<PageOf<Token>> {
    const found = await this.#records.listRecords(TOKEN_KIND, { after }, limit + 1)
    const tokens = found.slice(0, limit).flatMap(({ key, value }) => this.parse(key, value) ?? [])
    const ids = found.map(({ key }) => key)
    return { tokens, last: lastOf(ids, limit) }
  }

  /** @returns the names of an account's tokens, oldest first; at most `limit` */
  async names(account: string, limit: number): Promise<readonly string[]> {
    const names: string[] = []
    if (limit === 0) return names
    for await (const { value } of this.#entries(account)) if (names.push(value) >= limit) break
    return names
  }

  /** @returns the id of the account's token of this name; null if there is none */
  async idOfName(account: string, name: string): Promise<string | null> {
    for await (const { key, value } of this.#entries(account)) {
      if (value === name) return partsOfAccountKey(key).id
    }
    return null
  }

  #entries(account: string): AsyncGenerator<ServerRecord> {
    return allRecords(this.#records, ACCOUNT_KIND, { prefix: accountPrefix(account) })
  }

  /** Checks that an account may have another token, with this name. @throws as {@link make} */
  async check(account: string, name: string): Promise<void> {
    await this.#check(account, name, await this.#total())
  }

  async #check(account: string, name: string, total: number): Promise<void> {
    const limits = this.#options.limits()
    checkNewToken(name, await this.names(account, limits.perAccount), total, limits)
  }

  /**
   * Makes a token; durable when resolved.
   * @returns the token, and its secret, which cannot be shown again
   * @throws bad_request for a bad name; conflict if the account has a token of this name; forbidden at a limit;
   *   unavailable if too many changes wait
   */
  make(wanted: NewToken): Promise<{ readonly token: Token; readonly secret: string }> {
    const secret = newSecret()
    const { now = Date.now } = this.#options
    return this.change(wanted.account, async (total) => {
      const key = accountKey(wanted.account)
      const expected = await readRecord(this.#records, OWNER_KIND, key)
      await this.#check(wanted.account, wanted.name, total)
      const created = now()
      // Of tokens that are made within a millisecond, the later one has the greater id as well.
      this.#lastIdTime = Math.max(created, this.#lastIdTime + 1)
      const token = { ...wanted, id: newUuid(this.#lastIdTime), hash: hashOfSecret(secret), created }
      const owner = { kind: OWNER_KIND, key, value: token.id, expected }
      return { writes: [...recordsOfToken(token, UNUSED), owner], added: 1, result: { token, secret } }
    })
  }

  /**
   * Revokes a token; durable when resolved.
   * @param caller who revokes it, whose changes take turns with those of others
   * @returns the token; null if there is none with this id
   * @throws unavailable if too many changes wait
   */
  revoke(id: string, caller = ''): Promise<Token | null> {
    return this.change(caller, async () => {
      const expected = await readRecord(this.#records, TOKEN_KIND, id)
      const token = this.parse(id, expected)
      if (token === null) return { writes: [], added: 0, result: null }
      return { writes: removalsOfToken(id, token.account, expected), added: -1, result: token }
    })
  }

  /**
   * Revokes all tokens of an account, in steps; durable when resolved.
   * @returns their number
   * @throws unavailable if too many changes wait; some tokens may already be revoked then
   */
  async revokeAll(account: string): Promise<number> {
    for (let revoked = 0; ; ) {
      const some = await this.change(account, () => this.#revocation(account))
      revoked += some
      if (some < REVOKED_AT_ONCE) return revoked
    }
  }

  /**
   * Revokes the tokens of an account that are of an earlier one; as {@link revokeAll}.
   * @param isRevoked which ones
   */
  async revokeSome(account: string, isRevoked: (token: Token) => boolean): Promise<number> {
    let revoked = 0
    for (let after: string | null = ''; after !== null; ) {
      const page: PageOf<Token> = await this.list(account, after, REVOKED_AT_ONCE)
      for (const token of page.tokens.filter(isRevoked)) {
        if ((await this.revoke(token.id, account)) !== null) revoked += 1
      }
      after = page.last
    }
    return revoked
  }

  /** With the last tokens the account's own record is removed, unless a token is made meanwhile. */
  async #revocation(account: string): Promise<TokenChange<number>> {
    const owner = { kind: OWNER_KIND, key: accountKey(account) }
    const expected = await readRecord(this.#records, OWNER_KIND, owner.key)
    const range = { prefix: accountPrefix(account) }
    const entries = await this.#records.listRecords(ACCOUNT_KIND, range, REVOKED_AT_ONCE)
    const ids = entries.map(({ key }) => partsOfAccountKey(key).id)
    const values = await this.#records.readRecords(TOKEN_KIND, ids)
    const removals = ids.flatMap((id, at) => removalsOfToken(id, account, values[at] ?? null))
    const isLast = ids.length < REVOKED_AT_ONCE && expected !== null
    const writes = isLast ? [...removals, { ...owner, value: null, expected }] : removals
    return { writes, added: -ids.length, result: ids.length }
  }

  /**
   * Accounts that have or had tokens, in the order of the bytes of their names.
   * @param after the account before the first; null: from the first
   */
  async owners(after: string | null, limit: number): Promise<readonly string[]> {
    const range = after === null ? {} : { after: accountKey(after) }
    const found = await this.#records.listRecords(OWNER_KIND, range, limit)
    return found.map(({ key }) => accountOfKey(key))
  }

  /**
   * Decides a change and writes it; again if what was read has changed meanwhile. Durable when resolved.
   * @param caller whose changes take turns with those of others
   * @param decide gets the number of all tokens
   * @throws unavailable if too many changes wait, or others change the same all the time; what `decide` throws
   */
  change<R>(caller: string, decide: (total: number) => Promise<TokenChange<R>>): Promise<R> {
    return this.#limiter.run(async () => {
      for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
        const total = await this.#total()
        const { writes, added, result } = await decide(total)
        const count = added === 0 ? [] : [counted(total, total + added)]
        if (writes.length === 0 || (await this.#records.writeRecords([...writes, ...count]))) return result
        await sleep(Math.random() * Math.min(MAX_WAIT_MS, 2 ** attempt))
      }
      throw new CouchError('unavailable')
    }, caller)
  }

  async #total(): Promise<number> {
    return Number((await readRecord(this.#records, TOTAL_KIND, TOTAL_KEY)) ?? 0)
  }
}

/** @param ids those of the page, and one more if there are more @returns as {@link PageOf.last} */
function lastOf(ids: readonly string[], limit: number): string | null {
  return ids.length > limit ? (ids[limit - 1] ?? null) : null
}

function counted(before: number, after: number): RecordWrite {
  const text = (total: number) => (total === 0 ? null : String(total))
  return { kind: TOTAL_KIND, key: TOTAL_KEY, value: text(after), expected: text(before) }
}
