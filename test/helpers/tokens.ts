/** Device tokens for tests, without reports of faults. */
import type { Accounts } from '../../src/auth/accounts.ts'
import { Tokens, type TokensOptions } from '../../src/auth/tokens.ts'
import type { WatchedRecords } from '../../src/storage/records.ts'

const LIMITS = { total: 100, perAccount: 10, nameLength: 50 }

/** @param options override the defaults */
export function tokensOver(
  records: WatchedRecords,
  accounts: Pick<Accounts, 'find' | 'onChange'>,
  options: Partial<TokensOptions> = {},
): Tokens {
  return new Tokens({
    records,
    accounts,
    limits: () => LIMITS,
    duty: { isHeld: true, onChange: () => () => undefined },
    onFault: (fault) => {
      throw fault
    },
    ...options,
  })
}
