/** A device token as plain data: its secret, which is never kept, and the record that is. */
import { createHash, randomBytes } from 'node:crypto'
import type { UserCtx } from '../core/types.ts'
import type { RecordWrite, ServerRecord } from '../storage/catalog.ts'
import { ADMIN_ROLE } from './access.ts'
import type { Account } from './accounts.ts'
import type { TokenGrant } from './token-source.ts'

/** The kind of the server's records that hold tokens. */
export const TOKEN_KIND = 'token'

/** Before every secret: so that people and scanners of leaked secrets know one when they see it. */
const PREFIX = 'stt_'
const SECRET_BYTES = 32
const SECRET = /^stt_[A-Za-z0-9_-]{43}$/

export interface TokenUse {
  /** Milliseconds since 1970. */
  readonly time: number
  /** What the client calls itself (User-Agent), cut. */
  readonly client: string
  readonly address: string
}

export interface Token extends TokenGrant {
  readonly account: string
  /** What its owner calls it: `phone`. */
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

export function looksLikeSecret(text: string): boolean {
  return text.length === PREFIX.length + 43 && SECRET.test(text)
}

export function hashOfSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/**
 * Whom a token lets in. An admin's token is no admin's unless it was made as one, so that a lost phone is not a lost
 * server.
 */
export function userOfToken(account: Account, grant: TokenGrant): UserCtx {
  const { name, roles } = account
  return { name, roles: grant.isAdmin ? roles : roles.filter((role) => role !== ADMIN_ROLE) }
}

export function recordOfToken({ id, account, name, isAdmin, hash, created, lastUse }: Token): RecordWrite {
  const value = JSON.stringify({ account, name, isAdmin, hash: hash.toString('base64url'), created, lastUse })
  return { kind: TOKEN_KIND, key: id, value }
}

/** @returns null for a record that is no token as this version writes them */
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
