/** What the operator and server admins manage in a running server: accounts and vaults. */
import type { FastifyInstance } from 'fastify'
import { localOperator, type Operator } from '../auth/operator.ts'
import type { UserCtx } from '../core/types.ts'
import type { Services } from '../http/services.ts'
import type { Databases } from '../threads/databases.ts'
import { ownVaultControl } from '../vaults/own-vaults.ts'
import type { VaultControl } from '../vaults/vault-control.ts'
import { localVaultControl } from '../vaults/vaults.ts'
import { urlOf } from './listening.ts'
import type { ServerContext } from './server-context.ts'

export interface OperatorControls {
  readonly operator: Operator
  /** For the operator and server admins. */
  readonly vaults: VaultControl
  /** For an account that is not a server admin. */
  ownVaults(user: UserCtx): VaultControl
}

/** @param app the HTTP layer, once there is one */
export function operatorControls(
  { env, config }: Pick<ServerContext, 'env' | 'config'>,
  databases: Databases,
  { policy, tokens }: Pick<Services, 'policy' | 'tokens'>,
  app: () => FastifyInstance | undefined,
): OperatorControls {
  const revokeTokens = async (account: string) => {
    await tokens.revokeAll(account)
  }
  const operator = localOperator({ config, databases, env, revokeTokens })
  const services = {
    config,
    databases,
    tokenMaker: tokens.maker,
    createDatabase: (name: string, account: string) => policy.databases.create(name, account),
    createOwn: (name: string, user: UserCtx) => policy.createDatabase(name, user, undefined),
    adminNames: async () => Object.keys(config.section('admins')).sort(),
    listening: () => {
      const running = app()
      const url = running === undefined ? null : urlOf(running)
      return url === null ? null : { url, secureUrl: running?.secure?.url ?? null }
    },
    ownerOf: async (name: string) => policy.ownerOf(name),
  }
  return {
    operator,
    vaults: localVaultControl(services, operator),
    ownVaults: (user) => ownVaultControl(services, user),
  }
}
