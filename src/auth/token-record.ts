/** Device tokens as plain data: the secret, which is not kept, the record, and a table of all tokens. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import type { RecordWrite, ServerRecord } from '../storage/records.ts'
import { type Account, ADMIN_ROLE } from './accounts.ts'
import type { DevicePosition } from './device-positions.ts'

/** The kind of the server's records of tokens. */
export const TOKEN_KIND = 'token'

/** Begins every secret, so that people and scanners for leaked secrets recognise it. */
const PREFIX = 'stt_'
const SECRET_BYTES = 32
const SECRET = /^stt_[A-Za-z0-9_-]{43}$/

interface TokenUse {
  /** Milliseconds since 1970. */
  readonly time: number
  /** The client's User-Agent, shortened. */
  readonly client: string
  readonly address: string
}

export interface Token extends TokenGrant {
  readonly account: string
  /** The owner's name for it, such as `phone`. */
  readonly name: string
  /** SHA-256 of the secret: 256 random bits need no salt and no rounds. */
  readonly hash: Buffer
  /** Milliseconds since 1970. */
  readonly created: number
  readonly lastUse: TokenUse | null
}

/** @returns a new secret: 256 random bits */
export function newSecret(): string {
  return PREFIX + randomBytes(SECRET_BYTES).toString('base64url')
}

/** Whether the text has the form of a token's secret, so that it is not checked as a password. */
export function looksLikeSecret(text: string): boolean {
  return text.length === PREFIX.length + 43 && SECRET.test(text)
}

export function hashOfSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/**
 * The user of a token. An admin's token has no admin rights unless it was made with them, so that a lost phone is not a
 * lost server.
 */
export function userOfToken(account: Account, grant: TokenGrant): UserCtx {
  const { name, roles } = account
  return { name, roles: grant.isAdmin ? roles : roles.filter((role) => role !== ADMIN_ROLE) }
}

/** @param positions how far its device has read; a standby does not copy them */
export function recordOfToken(
  { id, account, name, isAdmin, hash, created, lastUse }: Token,
  positions: readonly DevicePosition[] = [],
): RecordWrite {
  const shown = { account, name, isAdmin, hash: hash.toString('base64url'), created, lastUse }
  const value = JSON.stringify({ ...shown, ...(positions.length > 0 && { positions }) })
  return { kind: TOKEN_KIND, key: id, value }
}

/** @returns null for a record that this version cannot read */
export function tokenOfRecord({ key, value }: ServerRecord): Token | null {
  try {
    const { account, name, isAdmin, hash, created, lastUse } = JSON.parse(value) as Record<string, unknown>
    const digest = typeof hash === 'string' ? Buffer.from(hash, 'base64url') : Buffer.alloc(0)
    if (typeof account !== 'string' || typeof name !== 'string' || digest.length !== 32) return null
    if (typeof isAdmin !== 'boolean' || typeof created !== 'number') return null
    return { id: key, account, name, isAdmin, hash: digest, created, lastUse: useOf(lastUse) }
  } catch {
    return null
  }
}

function useOf(value: unknown): TokenUse | null {
  const { time, client, address } = (value ?? {}) as Record<string, unknown>
  if (typeof time !== 'number' || typeof client !== 'string' || typeof address !== 'string') return null
  return { time, client, address }
}

// Device tokens in authentication: secrets in place of a password.

export interface TokenGrant {
  readonly id: string
  /** Whether the token has the account's role `_admin`; it always has the other roles. */
  readonly isAdmin: boolean
}

export interface TokenSource {
  /** @returns null if the account has no token with this secret; the account itself may no longer exist */
  check(name: string, password: string): TokenGrant | null
}

export interface TokenLimits {
  /** Tokens of all accounts; all of them are in memory. */
  readonly total: number
  readonly perAccount: number
  /** Characters of a name. */
  readonly nameLength: number
}

/** @returns the limits for device tokens as configured now */
export function tokenLimitsOf(config: Config): TokenLimits {
  return {
    total: config.integer('settee', 'max_tokens'),
    perAccount: config.integer('settee', 'tokens_per_account'),
    nameLength: config.integer('settee', 'token_name_length'),
  }
}

// The tokens of a server in memory, indexed by id, secret and account.

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

  /**
   * A page of the tokens of all accounts, oldest first. A token with 1,000,000 others costs about 20 ms.
   * @param after the id of the last token of the page before; empty: from the first
   */
  page(after: string, limit: number): readonly Token[] {
    const page: Token[] = []
    for (const token of this.#byId.values()) {
      const isFull = page.length === limit
      if (token.id <= after || (isFull && token.id > (page.at(-1)?.id ?? ''))) continue
      if (isFull) page.pop()
      // Tokens were added in the order of their ids, with rare exceptions, so the place is nearly always the end.
      page.splice(page.findLastIndex(({ id }) => id < token.id) + 1, 0, token)
    }
    return page
  }

  /** Looks up the hash, whose timing reveals nothing useful, and then compares all of it. */
  bySecret(secret: string): Token | undefined {
    const hash = hashOfSecret(secret)
    const token = this.#byHash.get(hash.toString('base64url'))
    return token !== undefined && timingSafeEqual(token.hash, hash) ? token : undefined
  }

  /** Adds a token, or replaces the one with its id. */
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

/**
 * Checks that an account may have another token, with this name.
 * @param table all tokens
 * @throws bad_request for a bad name; conflict if the account has a token of this name; forbidden at a limit
 */
export function checkNewToken(table: TokenTable, limits: TokenLimits, account: string, name: string): void {
  const { total, perAccount, nameLength } = limits
  checkName(name, nameLength)
  const own = table.of(account)
  if (own.some((token) => token.name === name)) {
    throw new CouchError('conflict', 'The account already has a token of this name.')
  }
  if (own.length >= perAccount) {
    throw new CouchError(
      'forbidden',
      `The account already has the maximum of ${own.length} tokens (settee/tokens_per_account); revoke one first.`,
    )
  }
  if (table.size >= total) {
    throw new CouchError(
      'forbidden',
      'The server already has the maximum number of tokens (settee/max_tokens).',
    )
  }
}

function checkName(name: string, maxLength: number): void {
  if (name.trim() === '') throw new CouchError('bad_request', 'The name of a token must not be empty.')
  if (name !== name.trim() || /\p{Cc}/u.test(name) || !name.isWellFormed()) {
    throw new CouchError(
      'bad_request',
      'The name of a token must not contain control characters, nor begin or end with white space.',
    )
  }
  if (name.length > maxLength) {
    throw new CouchError(
      'bad_request',
      `The name of a token may have at most ${maxLength} characters (settee/token_name_length).`,
    )
  }
}
