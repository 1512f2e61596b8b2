/** Device tokens for tests, without reports of faults. */
import type { Accounts } from '../../src/auth/accounts.ts'
import { Tokens, type TokensOptions } from '../../src/auth/tokens.ts'
import { CouchError } from '../../src/core/errors.ts'
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
      // A test lets its store be unreachable, which work in the background meets as well.
      if (!(fault instanceof CouchError) || fault.code !== 'store_unavailable') throw fault
    },
    ...options,
  })
}
