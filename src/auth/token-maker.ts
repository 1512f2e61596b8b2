/** Makes device tokens for the operator, whether a server runs and holds the tokens in memory or not. */
import { newUuid } from '../core/ids.ts'
import {
  checkNewToken,
  hashOfSecret,
  newSecret,
  recordOfToken,
  TOKEN_KIND,
  type TokenLimits,
  TokenTable,
  tokenOfRecord,
} from './token-record.ts'
import type { TokenRecords, Tokens } from './tokens.ts'

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
  for (const record of await records.readRecords(TOKEN_KIND)) {
    const token = tokenOfRecord(record)
    if (token !== null) table.set(token)
  }
  return table
}
