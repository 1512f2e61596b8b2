/** Device tokens for tests, without reports of faults. */
import type { Accounts } from '../../src/auth/accounts.ts'
import { openTokens, type TokenRecords, type Tokens, type TokensOptions } from '../../src/auth/tokens.ts'

const LIMITS = { total: 100, perAccount: 10, nameLength: 50 }

/** @param options override the defaults */
export function tokensOver(
  records: TokenRecords,
  accounts: Pick<Accounts, 'find' | 'onChange'>,
  options: Partial<TokensOptions> = {},
): Promise<Tokens> {
  return openTokens({
    records,
    accounts,
    limits: () => LIMITS,
    onFault: (fault) => {
      throw fault
    },
    ...options,
  })
}
