/** A whole server over threads and files, as src/server.ts makes it, with accounts that are not admins. */
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import type { Test } from 'tap'
import { buildApp } from '../../src/app.ts'
import type { Accounts } from '../../src/auth/accounts.ts'
import { adminAccounts } from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { hashPassword } from '../../src/auth/password.ts'
import { defaultPolicy } from '../../src/auth/policy.ts'
import { openConfig } from '../../src/config/config.ts'
import { LogTail } from '../../src/config/log-tail.ts'
import { settingsOf } from '../../src/config/settings.ts'
import { openServerDatabases } from '../../src/threads/open-databases.ts'
import { withReplicator } from '../helpers/replicator.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { timeMachineOver } from '../helpers/time-machine.ts'
import { tokensOver } from '../helpers/tokens.ts'
import type { Ask, Listening } from './table.ts'

/**
 * As in protocol.md 19.7: the server admin, one to be a database's admin, one its member, one neither; `r` has the
 * role `staff`. The password is the name.
 */
export type User = 's' | 'd' | 'm' | 'o' | 'r' | 'anonymous'

/** Makes `d` the admin of the row's database and `m` its member. */
export const SECURED: Ask = [
  'PUT /{db}/_security',
  { json: { admins: { names: ['d'] }, members: { names: ['m'] } } },
]

/** Listens on a free port. */
export async function startServerWithUsers(
  t: Pick<Test, 'teardown' | 'fail'>,
): Promise<Required<Pick<Listening, 'url' | 'authorization'>>> {
  const dataDir = await temporaryFolder(t)
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  const plain = { iterations: 10, prf: 'sha256' } as const
  await config.set('admins', 's', await hashPassword('s', plain))
  const databases = await openServerDatabases({
    location: { kind: 'files', dataDir },
    settings: settingsOf(config),
    maxOpen: 100,
    threads: 1,
    threadEntry: new URL('../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../helpers/sandbox-thread.mjs', import.meta.url),
    onFault: (fault) => t.fail('a thread has died', { fault }),
    onCompactionFault: (database, fault) => t.fail(`compaction of ${database}`, { fault }),
  })
  const admins = adminAccounts(config)
  const stored = new Map<string, string>()
  for (const name of ['d', 'm', 'o', 'r']) stored.set(name, await hashPassword(name, plain))
  const accounts: Accounts = {
    ...admins,
    find: async (name) => {
      const hash = stored.get(name)
      if (hash === undefined) return admins.find(name)
      return { name, stored: hash, roles: name === 'r' ? ['staff'] : [], salt: name }
    },
    decoy: () => stored.get('o') as string,
  }
  const credentials = new CredentialChecker(accounts)
  const logger = pino({ level: 'silent' })
  const tokens = tokensOver(databases, accounts)
  const made = {
    config,
    accounts,
    credentials,
    tokens,
    databases,
    policy: defaultPolicy(config, databases),
    hosted: null,
  }
  const services = {
    ...made,
    ...(await timeMachineOver(databases, logger)),
    logger,
    log: new LogTail(),
    version: '0.0.1',
    tmpDir: dataDir,
  }
  const app = await buildApp(withReplicator(services))
  await app.listen({ port: 0, host: '127.0.0.1' })
  t.teardown(async () => {
    databases.endFeeds()
    await app.close()
    await tokens.close()
    await databases.close()
  })
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, authorization }
}

function authorization(user: User): string | undefined {
  return user === 'anonymous' ? undefined : `Basic ${Buffer.from(`${user}:${user}`).toString('base64')}`
}
