import type { Records } from '../storage/records.ts'
import { StoredTokens } from './stored-tokens.ts'
import type { TokenLimits } from './token-record.ts'

/** Makes device tokens for the operator, whether a server runs or not. */
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

/** More than `settee/tokens_per_account` may allow. */
const MAX_NAMES = 10_000

/** @param changer makes and revokes tokens; a running server tells those who follow them */
export function tokenMaker(
  stored: StoredTokens,
  changer: Pick<StoredTokens, 'make'> & { revoke(id: string): Promise<unknown> } = stored,
): TokenMaker {
  return {
    names: (account) => stored.names(account, MAX_NAMES),
    check: (account, name) => stored.check(account, name),
    make: async (account, name) => (await changer.make({ account, name, isAdmin: false })).secret,
    revoke: async (account, name) => {
      const id = await stored.idOfName(account, name)
      if (id !== null) await changer.revoke(id)
    },
  }
}

/** The tokens of a data folder without a running server. */
export function tokensWithoutServer(
  records: Records,
  limits: () => TokenLimits,
): { readonly maker: TokenMaker; revokeAll(account: string): Promise<void> } {
  // What is damaged gives no access, and stays as it is.
  const stored = new StoredTokens(records, { limits, onDamaged: () => undefined })
  return {
    maker: tokenMaker(stored),
    revokeAll: async (account) => {
      await stored.revokeAll(account)
    },
  }
}
