/** Device tokens as plain data: the secret, which is not kept, the token, and the records in which a server keeps it. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { accountKey, accountOfKey, type RecordWrite } from '../storage/records.ts'
import { type Account, ADMIN_ROLE } from './accounts.ts'
import { type DevicePosition, latestPositions, positionsOf } from './device-positions.ts'

/** Begins every secret, so that people and scanners for leaked secrets recognise it. */
const PREFIX = 'stt_'
const SECRET_BYTES = 32
const SECRET = /^stt_[A-Za-z0-9_-]{43}$/

export interface TokenGrant {
  readonly id: string
  /** The owner's name for it, such as `phone`. */
  readonly name: string
  /** Whether the token has the account's role `_admin`; it always has the other roles. */
  readonly isAdmin: boolean
  /** {@link Account.generation} when the token was made. */
  readonly generation?: number
}

/** What a token is from its making on; it never changes. */
export interface Token extends TokenGrant {
  readonly account: string
  /** SHA-256 of the secret: 256 random bits need no salt and no rounds. */
  readonly hash: Buffer
  /** Milliseconds since 1970. */
  readonly created: number
}

interface TokenUse {
  /** Milliseconds since 1970. */
  readonly time: number
  /** The client's User-Agent, shortened. */
  readonly client: string
  readonly address: string
}

/** What a token is used for. */
export interface TokenUses {
  readonly lastUse: TokenUse | null
  /** How far its device has read, the latest first. */
  readonly positions: readonly DevicePosition[]
}

export interface UsedToken extends Token, TokenUses {}

export const UNUSED: TokenUses = { lastUse: null, positions: [] }

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

/** Compares the whole hash in constant time. The lookup by the hash before it reveals nothing useful by its timing. */
export function isSecretOf(token: Token, hash: Buffer): boolean {
  return timingSafeEqual(token.hash, hash)
}

/**
 * The user of a token. An admin's token has no admin rights unless it was made with them, so that a lost phone is not a
 * lost server.
 */
export function userOfToken(account: Account, grant: Pick<TokenGrant, 'isAdmin'>): UserCtx {
  const { name, roles } = account
  return { name, roles: grant.isAdmin ? roles : roles.filter((role) => role !== ADMIN_ROLE) }
}

/** Whether a token was made for an earlier account of the same name, which was deleted since. */
export function isOfEarlier(
  { deletion = 0 }: Account,
  { generation }: Pick<TokenGrant, 'generation'>,
): boolean {
  return generation !== undefined && generation < deletion
}

// The records. Each token has one of its own, one of its uses, and two by which it is found. The migration of older
// files makes the same (storage/sqlite/record-keys.ts).

/** By id: the token. */
export const TOKEN_KIND = 'token'
/** By id: the uses. The record exists as long as the token does, so that a late use does not revive a revoked token. */
export const USE_KIND = 'token_use'
/** By the hash of the secret: the id. */
export const SECRET_KIND = 'token_secret'
/** By account and id, so in the order of creation: the name. */
export const ACCOUNT_KIND = 'token_account'
/**
 * By account: the id of the token that was made last. Whoever makes another one expects it unchanged, so that of two
 * nodes one sees what the other has made. It may be there without tokens.
 */
export const OWNER_KIND = 'token_owner'
/** The number of tokens; a single record. */
export const TOTAL_KIND = 'token_total'
export const TOTAL_KEY = 'all'

/** What the keys of an account's tokens begin with. */
export function accountPrefix(account: string): string {
  return `${accountKey(account)}/`
}

/** @returns the account and the id in the key of a record of {@link ACCOUNT_KIND} */
export function partsOfAccountKey(key: string): { readonly account: string; readonly id: string } {
  const [owner = '', id = ''] = key.split('/')
  return { account: accountOfKey(owner), id }
}

/** The records of a new token, without those that count it. */
export function recordsOfToken(token: Token, uses: TokenUses): RecordWrite[] {
  const { id, account, name, isAdmin, hash, created, generation } = token
  const digest = hash.toString('base64url')
  const value = JSON.stringify({ account, name, isAdmin, hash: digest, created, generation })
  return [
    { kind: TOKEN_KIND, key: id, value },
    { kind: SECRET_KIND, key: digest, value: id },
    { kind: ACCOUNT_KIND, key: accountPrefix(account) + id, value: name },
    { kind: USE_KIND, key: id, value: valueOfUses(uses) },
  ]
}

/**
 * The removal of a token's records, without those that count it.
 * @param value of its own record, which must be unchanged: of two nodes that remove a token, one counts it
 */
export function removalsOfToken(id: string, account: string, value: string | null): RecordWrite[] {
  const token = value === null ? null : tokenOfRecord(id, value)
  return [
    { kind: TOKEN_KIND, key: id, value: null, expected: value },
    { kind: ACCOUNT_KIND, key: accountPrefix(account) + id, value: null },
    { kind: USE_KIND, key: id, value: null },
    ...(token === null ? [] : [{ kind: SECRET_KIND, key: token.hash.toString('base64url'), value: null }]),
  ]
}

/** @returns null for a record that this version cannot read */
export function tokenOfRecord(id: string, value: string): Token | null {
  try {
    const { account, name, isAdmin, hash, created, generation } = JSON.parse(value) as Record<string, unknown>
    const digest = typeof hash === 'string' ? Buffer.from(hash, 'base64url') : Buffer.alloc(0)
    if (typeof account !== 'string' || typeof name !== 'string' || digest.length !== 32) return null
    if (typeof isAdmin !== 'boolean' || typeof created !== 'number') return null
    return {
      id,
      account,
      name,
      isAdmin,
      hash: digest,
      created,
      ...(typeof generation === 'number' && { generation }),
    }
  } catch {
    return null
  }
}

/** @returns the value of a record for {@link usesOfValue} */
export function valueOfUses({ lastUse, positions }: TokenUses): string {
  return JSON.stringify({ lastUse, positions })
}

/** @returns the uses in the value of a record; what is damaged is left out */
export function usesOfValue(value: string): TokenUses {
  try {
    const { lastUse, positions } = (JSON.parse(value) ?? {}) as Record<string, unknown>
    return { lastUse: useOf(lastUse), positions: positionsOf(positions) }
  } catch {
    return UNUSED
  }
}

/** The uses that two nodes have noted of a token: of each the later one. */
export function mergedUses(some: TokenUses, others: TokenUses): TokenUses {
  const isLater = (some.lastUse?.time ?? 0) > (others.lastUse?.time ?? 0)
  return {
    lastUse: isLater ? some.lastUse : others.lastUse,
    positions: latestPositions(some.positions, others.positions),
  }
}

/** @returns null unless the value is a use */
export function useOf(value: unknown): TokenUse | null {
  const { time, client, address } = (value ?? {}) as Record<string, unknown>
  if (typeof time !== 'number' || typeof client !== 'string' || typeof address !== 'string') return null
  return { time, client, address }
}

// Limits.

export interface TokenLimits {
  /** Tokens of all accounts. */
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

/**
 * Checks that an account may have another token, with this name.
 * @param own the names of the account's tokens; at least as many as it may have
 * @param total the number of tokens of all accounts
 * @throws bad_request for a bad name; conflict if the account has a token of this name; forbidden at a limit
 */
export function checkNewToken(
  name: string,
  own: readonly string[],
  total: number,
  limits: TokenLimits,
): void {
  checkName(name, limits.nameLength)
  if (own.includes(name)) throw new CouchError('conflict', 'The account already has a token of this name.')
  if (own.length >= limits.perAccount) {
    throw new CouchError(
      'forbidden',
      `The account already has the maximum of ${own.length} tokens (settee/tokens_per_account); revoke one first.`,
    )
  }
  if (total >= limits.total) {
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
