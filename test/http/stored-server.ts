/** The HTTP layer over one database `db`, whose store the test can inspect. */
import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { buildApp } from '../../src/app.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { defaultPolicy } from '../../src/auth/policy.ts'
import { openConfig } from '../../src/config/config.ts'
import { LogTail } from '../../src/config/log-tail.ts'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import type { DatabaseHandle, Databases } from '../../src/threads/databases.ts'
import { countingPins } from '../documents/stored-attachments.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { withReplicator } from '../helpers/replicator.ts'
import { timeMachineOver } from '../helpers/time-machine.ts'
import { tokensOver } from '../helpers/tokens.ts'
import { MemoryRecords } from '../storage/memory/records.ts'

interface Shutdown {
  after(fn: () => Promise<unknown>): unknown
}

/** Listens on a free port; every caller has access. */
export async function startStoredServer(t: Shutdown) {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-http-'))
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  const engine = memoryEngine()
  const { incarnation } = await (await engine.openCatalog()).create('db')
  const { store, held } = countingPins(await engine.openDatabase('db'))
  const database = storeDatabase(store, {
    name: 'db',
    limits: () => DEFAULT_LIMITS,
    rules: () => DEFAULT_RULES,
    onSecured: () => {},
    // No document here has functions.
    sandbox: {} as Sandbox,
    incarnation,
    startCompaction: async () => {},
  })
  const security = { members: { names: [], roles: [] } }
  await store.updateSettings(() => ({ result: undefined, write: { security } }))
  const handle = { ...database, name: 'db', incarnation, securityCopy: () => database.security() }
  const found = (name: string) => {
    if (name !== 'db') throw new CouchError('no_database')
    return { ...handle, watch: () => () => {} } as unknown as DatabaseHandle
  }
  const records = new MemoryRecords()
  const databases = Object.assign(records, {
    serverUuid: '',
    cached: found,
    get: async (name: string) => found(name),
    watchSecurity: () => () => {},
    endFeeds: () => {},
  }) as unknown as Databases
  const accounts = {
    find: async () => null,
    decoy: () => '',
    isUpToDate: () => true,
    onChange: () => () => {},
  }
  const credentials = new CredentialChecker(accounts)
  const logger = pino({ level: 'silent' })
  const tokens = tokensOver(records, accounts)
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
  t.after(async () => {
    await app.close()
    await rm(dataDir, { recursive: true })
  })
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, port, store, held }
}
