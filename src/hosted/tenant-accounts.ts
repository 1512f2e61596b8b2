/** Accounts as hosted mode has them: some are suspended, or about to be deleted, and are let in nowhere. */
import { isServerAdmin } from '../auth/access.ts'
import type { Accounts } from '../auth/accounts.ts'
import type { Tenants } from './tenants.ts'

/**
 * Wraps accounts. One that is not to be let in is found with its `refusal`, which only whoever has its password is
 * told: others shall not learn who has an account. Server admins are no tenants.
 */
export function tenantAccounts(accounts: Accounts, tenants: Tenants): Accounts {
  return {
    find: async (name) => {
      const account = await accounts.find(name)
      const refusal = tenants.refusalOf(name)
      return account === null || refusal === null || isServerAdmin(account)
        ? account
        : { ...account, refusal }
    },
    decoy: () => accounts.decoy(),
    onChange: (listener) => {
      const ends = [accounts.onChange(listener), tenants.onChange(listener)]
      return () => {
        for (const end of ends) end()
      }
    },
  }
}
