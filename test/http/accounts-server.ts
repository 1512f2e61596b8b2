/** A whole server over threads and files, with accounts and device tokens that a test makes and takes back. */
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import type { Test } from 'tap'
import { buildApp } from '../../src/app.ts'
import type { AccountListener, Accounts } from '../../src/auth/accounts.ts'
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

const PLAIN = { iterations: 10, prf: 'sha256' } as const

/** Accounts in memory, beside the admins. */
async function testAccounts(admins: Accounts, names: readonly string[]) {
  const stored = new Map<string, string>()
  const listeners = new Set<AccountListener>()
  const tell = (name: string) => {
    for (const listener of listeners) listener(new Set([name]))
  }
  for (const name of names) stored.set(name, await hashPassword(name, PLAIN))
  const accounts: Accounts = {
    find: async (name) => {
      const hash = stored.get(name)
      return hash === undefined ? admins.find(name) : { name, stored: hash, roles: [], salt: name }
    },
    decoy: () => admins.decoy(),
    isUpToDate: () => admins.isUpToDate(),
    onChange: (listener) => {
      listeners.add(listener)
      const forget = admins.onChange(listener)
      return () => {
        forget()
        listeners.delete(listener)
      }
    },
  }
  return {
    accounts,
    remove: (name: string) => stored.delete(name) && tell(name),
    setPassword: async (name: string, password: string) => {
      stored.set(name, await hashPassword(password, PLAIN))
      tell(name)
    },
  }
}

/**
 * Listens on a free port. `s` and `t` are server admins; the names given are accounts; the password is the name.
 */
export async function startAccountsServer(t: Test, names: readonly string[]) {
  const dataDir = await temporaryFolder(t)
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  await config.set('chttpd_auth', 'iterations', '10')
  for (const admin of ['s', 't']) await config.set('admins', admin, await hashPassword(admin, PLAIN))
  const databases = await openServerDatabases({
    location: { kind: 'files', dataDir },
    settings: settingsOf(config),
    maxOpen: 100,
    threadEntry: new URL('../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../helpers/sandbox-thread.mjs', import.meta.url),
    threads: 1,
    onFault: (fault) => t.fail('a thread has died', { fault }),
    onCompactionFault: (database, fault) => t.fail(`compaction of ${database}`, { fault }),
  })
  const { accounts, ...changes } = await testAccounts(adminAccounts(config), names)
  const tokens = tokensOver(databases, accounts)
  const credentials = new CredentialChecker(accounts)
  const lines: string[] = []
  const logger = pino({ level: 'info' }, { write: (line: string) => lines.push(line) })
  const version = '0.0.1'
  const app = await buildApp(
    withReplicator({
      config,
      accounts,
      credentials,
      tokens,
      policy: defaultPolicy(config, databases),
      hosted: null,
      databases,
      ...(await timeMachineOver(databases, logger)),
      logger,
      log: new LogTail(),
      version,
      tmpDir: dataDir,
    }),
  )
  await app.listen({ port: 0, host: '127.0.0.1' })
  t.teardown(async () => {
    databases.endFeeds()
    await app.close()
    await tokens.close()
    await databases.close()
  })
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, port, app, config, tokens, lines, ...changes }
}
