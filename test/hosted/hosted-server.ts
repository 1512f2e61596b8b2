/** A whole server in hosted mode over threads and files, with the admin `root`; everybody's password is the name. */
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import type { Test } from 'tap'
import { buildApp } from '../../src/app.ts'
import { type Accounts, readUser } from '../../src/auth/accounts.ts'
import { adminAccounts } from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { hashPassword } from '../../src/auth/password.ts'
import { type Config, openConfig } from '../../src/config/config.ts'
import { LogTail } from '../../src/config/log-tail.ts'
import { settingsOf } from '../../src/config/settings.ts'
import { type Hosted, openHosted } from '../../src/hosted/hosted.ts'
import { tenantCollector } from '../../src/metrics/database-metrics.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import { openServerDatabases } from '../../src/threads/open-databases.ts'
import { withReplicator } from '../helpers/replicator.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { timeMachineOver } from '../helpers/time-machine.ts'
import { tokensOver } from '../helpers/tokens.ts'

export interface HostedServer {
  readonly url: string
  readonly dataDir: string
  readonly config: Config
  readonly hosted: Hosted
  /** Accounts whose tokens were asked to go. */
  readonly tokensDeleted: string[]
  close(): Promise<void>
}

/**
 * @param settings configuration by `section/key`
 * @param dataDir a data folder to start on
 * @param store the address of a PostgreSQL instead of files
 */
export async function startHostedServer(
  t: Pick<Test, 'teardown' | 'fail'>,
  settings: Record<string, string> = {},
  dataDir?: string,
  store?: string,
): Promise<HostedServer> {
  const folder = dataDir ?? (await temporaryFolder(t))
  const config = await openConfig({ dataDir: folder, env: {}, flags: { hosted: true } })
  await config.set('admins', 'root', await hashed('root'))
  for (const [path, value] of Object.entries(settings)) {
    const [section = '', key = ''] = path.split('/')
    await config.set(section, key, value)
  }
  const databases = await openServerDatabases({
    location:
      store === undefined
        ? { kind: 'files', dataDir: folder }
        : { kind: 'postgres', address: await readStoreAddress(store, null), poolSize: 4, dataDir: folder },
    settings: settingsOf(config),
    maxOpen: 100,
    threadEntry: new URL('../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../helpers/sandbox-thread.mjs', import.meta.url),
    threads: 1,
    onFault: (fault) => t.fail('a thread has died', { fault }),
    onCompactionFault: (database, fault) => t.fail(`compaction of ${database}`, { fault }),
  })
  if (!(await databases.has('_users'))) await databases.create('_users')
  const tokensDeleted: string[] = []
  const hosted = await openHosted({
    config,
    databases,
    deleteTokens: async (account) => {
      // The deletion of a user revokes its tokens too: later, how many are left to count depends on the timing.
      const user = await readUser(await databases.get('_users'), account)
      if (user === null) t.fail(`the user ${account} was deleted before its tokens`)
      return tokensDeleted.push(account)
    },
    onFault: (fault) => t.fail('work in the background', { fault }),
  })
  await hosted.resume()
  const accounts = hosted.policy.accounts(everybody(adminAccounts(config)))
  const credentials = new CredentialChecker(accounts)
  const tokens = tokensOver(databases, accounts)
  const app = await buildApp(
    withReplicator({
      ...{ config, accounts, credentials, tokens, databases, policy: hosted.policy, hosted },
      collectors: [tenantCollector(hosted)],
      ...(await timeMachineOver(databases, pino({ level: 'silent' }))),
      ...{ logger: pino({ level: 'silent' }), log: new LogTail(), version: '0.0.1', tmpDir: folder },
    }),
  )
  await app.listen({ port: 0, host: '127.0.0.1' })
  let closed: Promise<void> | undefined
  const close = () => {
    closed ??= (async () => {
      databases.endFeeds()
      await app.close()
      await tokens.close()
      await hosted.close()
      await databases.close()
    })()
    return closed
  }
  t.teardown(close)
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, dataDir: folder, config, hosted, tokensDeleted, close }
}

/** Beside the admins whoever says that he is. */
function everybody(admins: Accounts): Accounts {
  return {
    ...admins,
    find: async (name) =>
      (await admins.find(name)) ?? { name, stored: await hashed(name), roles: [], salt: name },
  }
}

const hashes = new Map<string, Promise<string>>()

function hashed(password: string): Promise<string> {
  const known = hashes.get(password) ?? hashPassword(password, { iterations: 10, prf: 'sha256' })
  hashes.set(password, known)
  return known
}
