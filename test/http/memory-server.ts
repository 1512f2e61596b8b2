/** The HTTP layer over the engine in memory, listening on a free port: no threads, no files of databases. */
import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import { type AppOptions, buildApp } from '../../src/app.ts'
import type { Accounts } from '../../src/auth/accounts.ts'
import { adminAccounts } from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { hashPassword } from '../../src/auth/password.ts'
import { defaultPolicy } from '../../src/auth/policy.ts'
import { tokenLimitsOf } from '../../src/auth/token-record.ts'
import { Backups } from '../../src/backup/backups.ts'
import { changesPage } from '../../src/changes/filtered-page.ts'
import { readFilterBody } from '../../src/changes/filters.ts'
import type { ChangesRequest } from '../../src/changes/page.ts'
import { type Config, openConfig } from '../../src/config/config.ts'
import { LogTail } from '../../src/config/log-tail.ts'
import { settingsOf } from '../../src/config/settings.ts'
import { CouchError } from '../../src/core/errors.ts'
import { checkDatabaseName, checkPartitionable, holdsAccounts } from '../../src/core/ids.ts'
import { Listeners } from '../../src/core/listeners.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES, type SecurityObject, type UserCtx } from '../../src/core/types.ts'
import type { Body, Database } from '../../src/documents/database.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { usersDatabase } from '../../src/documents/users-database.ts'
import { type Hosted, openHosted } from '../../src/hosted/hosted.ts'
import type { Services } from '../../src/http/services.ts'
import { checkedSelector } from '../../src/query/normal-selector.ts'
import { compileRegex } from '../../src/query/regex.ts'
import { Shutdown } from '../../src/server/server-context.ts'
import { openLockout, shareSettings } from '../../src/server/shared-services.ts'
import type { Catalog, DatabaseEntry } from '../../src/storage/catalog.ts'
import { Claims } from '../../src/threads/claims.ts'
import type { DatabaseEvent, DatabaseHandle, Databases } from '../../src/threads/databases.ts'
import { servedUsers } from '../../src/threads/served.ts'
import { foundIn } from '../helpers/found-handles.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { type MemoryEngineOptions, memoryEngine } from '../helpers/memory-engine.ts'
import { withReplicator } from '../helpers/replicator.ts'
import { timeMachineOver } from '../helpers/time-machine.ts'
import { tokensOver } from '../helpers/tokens.ts'
import { sharedNetwork } from '../storage/memory/network.ts'

interface Ending {
  after(fn: () => Promise<unknown>): unknown
}

/**
 * @param settings configuration by `section/key`
 * @param extend adds routes before the server starts
 * @param options of the app and of the engine; `shared`: the state of the nodes of which this is one
 */
export async function startMemoryServer(
  t: Ending,
  settings: Record<string, string> = {},
  extend: (app: FastifyInstance) => void = () => {},
  {
    space,
    onOperation,
    withDocument,
    shared,
    ...options
  }: AppOptions &
    Pick<Services, 'space'> &
    Pick<MemoryEngineOptions, 'onOperation' | 'withDocument' | 'shared'> = {},
) {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-http-'))
  // The mode is read at the start alone.
  const flags = { hosted: settings['settee/mode'] === 'hosted' }
  const config = await openConfig({ dataDir, env: {}, flags })
  const lines: string[] = []
  const log = new LogTail()
  const logger = pino(
    { level: 'debug' },
    {
      write: (line: string) => {
        lines.push(line)
        log.add(line)
      },
    },
  )
  const { databases, before } = await memoryDatabases(config, {
    ...(onOperation && { onOperation }),
    ...(withDocument && { withDocument }),
    ...(shared && { shared, network: sharedNetwork() }),
  })
  const shutdown = new Shutdown()
  await shareSettings({ config, logger, shutdown }, databases)
  await config.set('chttpd_auth', 'iterations', '10')
  for (const [path, value] of Object.entries(settings)) {
    const [section = '', key = ''] = path.split('/')
    await config.set(section, key, value)
  }
  const hosted = await hostedMode(config, databases)
  const plain = withPlainAccounts(adminAccounts(config))
  const policy = hosted?.policy ?? defaultPolicy(config, databases)
  const accounts = policy.accounts(plain)
  const credentials = new CredentialChecker(accounts, {
    lockout: openLockout({ config, logger, shutdown }, databases),
  })
  const tokens = tokensOver(databases, accounts, { limits: () => tokenLimitsOf(config) })
  const made = { config, accounts, credentials, tokens, databases, policy, hosted }
  const backups = new Backups({ config, databases, dataDir, version: '0.0.1', logger })
  const services = {
    ...made,
    backups,
    ...(await timeMachineOver(databases, logger)),
    logger,
    log,
    version: '0.0.1',
    tmpDir: dataDir,
    ...(space && { space }),
  }
  const app = await buildApp(withReplicator(services), options)
  extend(app)
  await app.listen({ port: 0, host: '127.0.0.1' })
  t.after(async () => {
    await app.close()
    await tokens.close()
    await hosted?.close()
    await backups.close()
    await shutdown.close()
    await rm(dataDir, { recursive: true })
  })
  const { port } = app.server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, port, app, config, databases, backups, hosted, before, lines }
}

async function hostedMode(config: Config, databases: Databases): Promise<Hosted | null> {
  if (!config.isHosted) return null
  const onFault = (fault: unknown) => {
    throw fault
  }
  const claims = new Claims({ records: databases.sharedWriters ? databases : null, onFault })
  return openHosted({ config, databases, deleteTokens: async () => 0, onFault, claims })
}

/**
 * Beside the admins anybody whose password is his name: accounts that are no admins. Who is named like a role of the
 * server's has it.
 */
function withPlainAccounts(admins: Accounts): Accounts {
  return {
    ...admins,
    find: async (name) =>
      (await admins.find(name)) ?? {
        name,
        stored: await hashed(name),
        roles: name.startsWith('_') ? [name] : [],
        salt: name,
      },
  }
}

const hashes = new Map<string, Promise<string>>()

function hashed(password: string): Promise<string> {
  const known = hashes.get(password) ?? hashPassword(password, { iterations: 10, prf: 'sha256' })
  hashes.set(password, known)
  return known
}

/** The databases, and what `before` gives: one of them with single mode's rules, for what came before hosted mode. */
async function memoryDatabases(config: Config, engineOptions: MemoryEngineOptions) {
  const engine = memoryEngine(engineOptions)
  const catalog: Catalog = await engine.openCatalog()
  const handles = new Map<string, DatabaseHandle>()
  const plain = new Map<string, Database>()
  const closers = new Map<string, () => Promise<void>>()
  const writes = new Listeners<[string]>()
  const enter = async ({ name, incarnation }: DatabaseEntry) => {
    const store = await engine.openDatabase(name, { incarnation })
    const watchers = new Listeners<[DatabaseEvent]>()
    const emit = (event: DatabaseEvent) => watchers.tell(event)
    const leave = () => {
      if (handles.get(name)?.incarnation === incarnation) handles.delete(name)
      emit({ type: 'closed' })
    }
    closers.set(name, async () => {
      leave()
      await store.close()
    })
    store.onEvent((event) => {
      if (event.type === 'committed') {
        emit({ type: 'committed', updateSeq: event.updateSeq })
        if (event.updates > 0) writes.tell(name)
      } else if (event.type === 'settings') emit({ type: 'secured', security: event.security })
      else leave()
    })
    const sandbox = localSandbox()
    const options = {
      name,
      limits: () => DEFAULT_LIMITS,
      rules: () => settingsOf(config).rules,
      onSecured: (security: SecurityObject) => emit({ type: 'secured', security }),
      sandbox,
      incarnation,
      startCompaction: async () => void store.compact(),
      compilePattern: compileRegex,
    }
    // Made when a test asks for it, as any other; it is guarded as the server's, but makes no accounts here.
    const database = holdsAccounts(name, config.usersDatabase)
      ? servedUsers(await usersDatabase(store, options), async () => (await store.view()).security)
      : storeDatabase(store, options)
    plain.set(name, storeDatabase(store, { ...options, rules: () => DEFAULT_RULES }))
    const house = settingsOf(config).rules.policy.designDocs ? { sandbox, name, incarnation } : null
    handles.set(name, {
      ...database,
      changes: (user: UserCtx, request: ChangesRequest) => changesPage(store, user, request, house),
      readFilterBody: async (_user: UserCtx, body: Body, withText: boolean) => readFilterBody(body, withText),
      name,
      incarnation,
      securityCopy: () => database.security(),
      watch: (listener: (event: DatabaseEvent) => void) => watchers.add(listener),
      // It has no indexes.
      indexUsage: async () => ({ bytes: 0, indexes: 0 }),
    } as unknown as DatabaseHandle)
  }
  /** Another node may have made it. */
  const find = async (name: string) => {
    if (!handles.has(name) && engine.capabilities.sharedWriters) {
      const entry = await catalog.find(name)
      if (entry !== null) await enter(entry)
    }
    return handles.get(name)
  }
  const databases: Databases = {
    usersDatabase: config.usersDatabase,
    serverUuid: '0123456789abcdef0123456789abcdef',
    folderUuid: '0123456789abcdef0123456789abcdef',
    sharedWriters: engine.capabilities.sharedWriters,
    adoptUuid: async () => {
      throw new Error('not needed in these tests')
    },
    limitGrowth: () => undefined,
    ...foundIn(handles),
    names: (range, limit) => catalog.names(range, limit),
    async *allNames(range = {}) {
      yield* await catalog.names(range, Number.POSITIVE_INFINITY)
    },
    count: () => catalog.count(),
    has: async (name) => (await find(name)) !== undefined,
    get: async (name) => (await find(name)) ?? foundIn(handles).get(name),
    create: async (name, properties = {}) => {
      checkDatabaseName(name)
      if (properties.partitioned) checkPartitionable(name, config.usersDatabase)
      await enter(await catalog.create(name, properties))
    },
    delete: async (name) => {
      if ((await find(name)) === undefined) throw new CouchError('no_database')
      await closers.get(name)?.()
      await catalog.delete(name)
    },
    prepareRestore: async () => {
      throw new CouchError('no_copies')
    },
    treatAsRestored: async () => undefined,
    updates: (range, limit) => catalog.readUpdates(range, limit),
    watchUpdates: () => () => {},
    watchWrites: (listener) => writes.add(listener),
    watchSecurity: () => () => {},
    tasks: () => [],
    readRecords: (kind, keys) => catalog.readRecords(kind, keys),
    listRecords: (kind, range, limit) => catalog.listRecords(kind, range, limit),
    writeRecords: (writes) => catalog.writeRecords(writes),
    watchCatalog: (listener) => catalog.watch(listener),
    documentsWritten: 0,
    stats: async () => ({ threads: [], sandboxThreads: 0 }),
    copies: null,
    checks: {
      start: () => {
        throw new CouchError('unavailable')
      },
    },
    noteWhole: () => undefined,
    unreadable: async () => [],
    isOverdue: async () => false,
    normalSelector: async (selector) => checkedSelector(selector),
    faults: () => ({ databases: [], threads: { count: 0, last: null } }),
    setSettings: () => {},
    endFeeds: () => {},
    close: async () => {},
  }
  return { databases, before: (name: string) => plain.get(name) as Database }
}
