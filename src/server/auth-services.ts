/** Opens the auth services: policy, accounts, passwords, device tokens. */
import { CredentialChecker } from '../auth/credentials.ts'
import { loginGuard } from '../auth/lockout.ts'
import { defaultPolicy } from '../auth/policy.ts'
import { tokenLimitsOf } from '../auth/token-record.ts'
import { openTokens, type Tokens } from '../auth/tokens.ts'
import { openUsers } from '../auth/users.ts'
import { type Hosted, openHosted } from '../hosted/hosted.ts'
import type { Services } from '../http/services.ts'
import type { Databases } from '../threads/databases.ts'
import type { ServerContext } from './server-context.ts'

export type AuthServices = Pick<Services, 'accounts' | 'credentials' | 'tokens' | 'policy' | 'hosted'>

/** Opens them; shutdown closes them before the databases. */
export async function openAuthServices(context: ServerContext, databases: Databases): Promise<AuthServices> {
  const { config, logger, shutdown } = context
  const hosted = await hostedMode(context, databases, (account) => revokeTokens(tokens, account))
  const policy = hosted?.policy ?? defaultPolicy(config, databases)
  const users = await openUsers({ config, databases, registry: policy.databases, logger })
  shutdown.add(() => users.close())
  const accounts = policy.accounts(users.accounts)
  const credentials = new CredentialChecker(accounts, {
    lockout: loginGuard(config, logger),
    onVerified: (account, password) => users.upgrades.consider(account, password),
  })
  const tokens: Tokens = await openTokens({
    records: databases,
    accounts,
    limits: () => tokenLimitsOf(config),
    onFault: (fault) =>
      logger.error({ err: fault }, 'device tokens: a record is damaged, or could not be written'),
  })
  shutdown.add(() => tokens.close())
  void hosted?.resume()
  return { accounts, credentials, tokens, policy, hosted }
}

/** @returns null in single mode */
async function hostedMode(
  { config, logger, shutdown }: ServerContext,
  databases: Databases,
  deleteTokens: (account: string) => Promise<number>,
): Promise<Hosted | null> {
  if (!config.isHosted) return null
  const onFault = (fault: unknown) =>
    logger.error({ err: fault }, 'work for a tenant failed; it will be tried again')
  const hosted = await openHosted({ config, databases, deleteTokens, onFault })
  shutdown.add(() => hosted.close())
  return hosted
}

/** @returns the number of revoked tokens */
async function revokeTokens(tokens: Tokens, account: string): Promise<number> {
  const { length } = tokens.list(account)
  await tokens.revokeAll(account)
  return length
}
