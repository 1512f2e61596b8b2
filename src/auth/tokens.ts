import { isDeepStrictEqual } from 'node:util'
import { newUuid } from '../core/ids.ts'
import { allRecords, collectRecords, type Records, type RecordWrite } from '../storage/records.ts'
import type { AccountListener } from './accounts.ts'
import { type DevicePosition, positionsOfRecord } from './device-positions.ts'
import {
  checkNewToken,
  hashOfSecret,
  newSecret,
  recordOfToken,
  TOKEN_KIND,
  type Token,
  type TokenGrant,
  type TokenLimits,
  type TokenSource,
  TokenTable,
  tokenOfRecord,
} from './token-record.ts'
import { type OwnerOptions, TokenOwnerCheck, TokenUses, type UseOptions } from './token-uses.ts'

export type TokenRecords = Pick<Records, 'listRecords' | 'writeRecords'>

export interface TokensOptions extends UseOptions, OwnerOptions {
  readonly records: TokenRecords
  /** Read each time, since they can change while the server runs. */
  limits(): TokenLimits
  /** Background work failed; it is tried again. */
  onFault(fault: unknown): void
}

/**
 * Reads the stored tokens into memory, and revokes those of deleted accounts.
 * @throws as `listRecords`
 */
export async function openTokens(options: TokensOptions): Promise<Tokens> {
  const table = new TokenTable()
  const positions = new Map<string, readonly DevicePosition[]>()
  for await (const record of allRecords(options.records, TOKEN_KIND)) {
    const token = tokenOfRecord(record)
    if (token !== null) {
      table.set(token)
      positions.set(token.id, positionsOfRecord(record.value))
    } else options.onFault(new Error(`The record of the device token ${record.key} is damaged.`))
  }
  return new Tokens(table, options, positions)
}

/**
 * Removes the records of an account's tokens, if no server runs that holds them in memory.
 * @throws as `writeRecords`
 */
export async function removeTokensOf(records: TokenRecords, account: string): Promise<void> {
  const kept = await collectRecords(records, TOKEN_KIND)
  const own = kept.filter((record) => tokenOfRecord(record)?.account === account)
  await records.writeRecords(own.map(({ kind, key }) => ({ kind, key, value: null })))
}

/** The device tokens of all accounts. Each gives one device access to its account and can be revoked by itself. */
export class Tokens implements TokenSource {
  readonly #table: TokenTable
  readonly #records: TokenRecords
  readonly #limits: () => TokenLimits
  readonly #now: () => number
  readonly #uses: TokenUses
  readonly #owners: TokenOwnerCheck
  readonly #listeners = new Set<AccountListener>()
  #lastWrite: Promise<unknown> = Promise.resolve()

  /** Use {@link openTokens}. */
  constructor(
    table: TokenTable,
    options: TokensOptions,
    positions: ReadonlyMap<string, readonly DevicePosition[]>,
  ) {
    this.#table = table
    this.#records = options.records
    this.#limits = () => options.limits()
    this.#now = options.now ?? Date.now
    this.#uses = new TokenUses(table, (writes) => this.#write(writes), options)
    for (const [id, stored] of positions) this.#uses.positions.load(id, stored)
    this.#owners = new TokenOwnerCheck(table, (account) => this.revokeAll(account), options)
  }

  check(name: string, secret: string): TokenGrant | null {
    const token = this.#table.bySecret(secret)
    return token?.account === name ? token : null
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

  /** @returns how far a device has read the databases that it read last, the latest first */
  positionsOf(id: string): readonly DevicePosition[] {
    return this.#uses.positions.of(id)
  }

  /** @returns undefined if there is none */
  get(id: string): Token | undefined {
    return this.#table.get(id)
  }

  /** All tokens, in no order. */
  all(): IterableIterator<Token> {
    return this.#table.all()
  }

  /** A page of the tokens of all accounts; see {@link TokenTable.page}. */
  page(after: string, limit: number): readonly Token[] {
    return this.#table.page(after, limit)
  }

  /** @returns the account's tokens, oldest first */
  list(account: string): readonly Token[] {
    return this.#table.of(account)
  }

  /** Checks that an account may have another token, with this name. @throws as {@link make} */
  checkNew(account: string, name: string): void {
    checkNewToken(this.#table, this.#limits(), account, name)
  }

  /**
   * Makes a token; durable when resolved.
   * @returns the token, and its secret, which cannot be shown again
   * @throws bad_request for a bad name; conflict if the account has a token of this name; forbidden at a limit
   */
  async make(
    wanted: Pick<Token, 'account' | 'name' | 'isAdmin'>,
  ): Promise<{ readonly token: Token; readonly secret: string }> {
    this.checkNew(wanted.account, wanted.name)
    const secret = newSecret()
    const created = this.#now()
    const token = {
      ...wanted,
      id: newUuid(created),
      hash: hashOfSecret(secret),
      created,
      lastUse: null,
    }
    // Added before it is written, so that no other token gets its name meanwhile.
    this.#table.set(token)
    try {
      await this.#write(() => [recordOfToken(token)])
    } catch (error) {
      this.#table.delete(token)
      throw error
    }
    return { token, secret }
  }

  /**
   * Revokes a token: it is refused from this call on, and durably when resolved.
   * @returns false if there is no token with this id
   * @throws as `writeRecords`; then the token is valid again
   */
  async revoke(id: string): Promise<boolean> {
    const token = this.#table.get(id)
    if (token === undefined) return false
    await this.#revoke([token])
    return true
  }

  /** Revokes all tokens of an account; as {@link revoke}. */
  async revokeAll(account: string): Promise<void> {
    const tokens = this.#table.of(account)
    if (tokens.length > 0) await this.#revoke(tokens)
  }

  /**
   * Makes the tokens of another server, of which this one is a copy, the only ones; durable when resolved.
   * @param wanted with their uses
   * @throws as `writeRecords`; then nothing has changed
   */
  async replaceAll(wanted: readonly Token[]): Promise<void> {
    const kept = new Set(wanted.map(({ id }) => id))
    const removed = [...this.#table.all()].filter(({ id }) => !kept.has(id))
    const changed = wanted.filter((token) => !isDeepStrictEqual(token, this.#table.get(token.id)))
    if (removed.length + changed.length === 0) return
    const removals = removed.map(({ id }) => ({ kind: TOKEN_KIND, key: id, value: null }))
    await this.#write(() => [
      ...removals,
      ...changed.map((token) => recordOfToken(token, this.positionsOf(token.id))),
    ])
    for (const token of removed) {
      this.#table.delete(token)
      this.#uses.positions.delete(token.id)
    }
    for (const token of changed) this.#table.set(token)
    const accounts = new Set(removed.map(({ account }) => account))
    if (accounts.size > 0) for (const listener of this.#listeners) listener(accounts)
  }

  async #revoke(tokens: readonly Token[]): Promise<void> {
    for (const token of tokens) this.#table.delete(token)
    try {
      await this.#write(() => tokens.map(({ id }) => ({ kind: TOKEN_KIND, key: id, value: null })))
    } catch (error) {
      for (const token of tokens) this.#table.set(token)
      throw error
    }
    for (const { id } of tokens) this.#uses.positions.delete(id)
    const accounts = new Set(tokens.map(({ account }) => account))
    for (const listener of this.#listeners) listener(accounts)
  }

  /**
   * Calls the listener with the accounts of revoked tokens, once the revocation is durable. New tokens revoke no rights.
   * @returns a function that ends the calls
   */
  onChange(listener: AccountListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Writes the latest uses, and stops following the accounts. */
  async close(): Promise<void> {
    await this.#owners.close()
    await this.#uses.close()
    await this.#lastWrite
  }

  /** Writes one after the other; `writes` is called when its turn comes. */
  #write(writes: () => readonly RecordWrite[]): Promise<void> {
    const done = this.#lastWrite.then(async () => {
      await this.#records.writeRecords(writes())
    })
    this.#lastWrite = done.catch(() => undefined)
    return done
  }
}

/** Makes device tokens for the operator, whether a server runs and holds the tokens in memory or not. */
export interface TokenMaker {
  /** @returns the names of an account's tokens, oldest first */
  names(account: string): Promise<readonly string[]>
  /** Checks that an account may have another token, with this name. @throws as {@link make} */
  check(account: string, name: string): Promise<void>
  /**
   * Makes a token without admin rights; durable when resolved.
   * @returns its secret, which cannot be shown again
   * @throws bad_request for a bad name; conflict if the account has a token of this name; forbidden at a limit
   */
  make(account: string, name: string): Promise<string>
  /** Revokes the account's token of this name, if there is one. */
  revoke(account: string, name: string): Promise<void>
}

/** @param tokens of the server in this process */
export function runningTokenMaker(tokens: Pick<Tokens, 'checkNew' | 'list' | 'make' | 'revoke'>): TokenMaker {
  return {
    names: async (account) => tokens.list(account).map(({ name }) => name),
    check: async (account, name) => tokens.checkNew(account, name),
    make: async (account, name) => (await tokens.make({ account, name, isAdmin: false })).secret,
    revoke: async (account, name) => {
      for (const token of tokens.list(account)) if (token.name === name) await tokens.revoke(token.id)
    },
  }
}

/** @param records of a data folder without a running server */
export function storedTokenMaker(records: TokenRecords, limits: () => TokenLimits): TokenMaker {
  const read = () => tableOf(records)
  const check = async (account: string, name: string) => checkNewToken(await read(), limits(), account, name)
  return {
    names: async (account) => (await read()).of(account).map(({ name }) => name),
    check,
    make: async (account, name) => {
      await check(account, name)
      const secret = newSecret()
      const created = Date.now()
      const own = { id: newUuid(created), account, name, isAdmin: false, created, lastUse: null }
      await records.writeRecords([recordOfToken({ ...own, hash: hashOfSecret(secret) })])
      return secret
    },
    revoke: async (account, name) => {
      const named = (await read()).of(account).filter((token) => token.name === name)
      await records.writeRecords(named.map(({ id }) => ({ kind: TOKEN_KIND, key: id, value: null })))
    },
  }
}

async function tableOf(records: TokenRecords): Promise<TokenTable> {
  const table = new TokenTable()
  for await (const record of allRecords(records, TOKEN_KIND)) {
    const token = tokenOfRecord(record)
    if (token !== null) table.set(token)
  }
  return table
}
