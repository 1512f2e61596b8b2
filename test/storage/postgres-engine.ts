/** The engine over PostgreSQL for the storage suite: one server for each test file, a database of it for each case. */
import type { Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { postgresEngine } from '../../src/storage/postgres/postgres-engine.ts'
import type { StorageEngine } from '../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import { type PostgresServer, startPostgres } from '../helpers/postgres-server.ts'
import type { MakeSharedData } from './conformance/openers.ts'
import type { EngineOptions, KeptContents, MakeEngine } from './conformance/setup.ts'

const POOL = 6

/** A database of its own for a test, and engines over it. */
interface TestStore {
  readonly url: string
  open(): StorageEngine
  /** From now on the engine does not reach the server, as if its process were dead. */
  kill(engine: StorageEngine): void
  keptContents(): Promise<KeptContents>
}

/** @returns makers of engines without data, whose server runs until the end of `t` */
export function postgresMakers(t: Test): {
  readonly makeEngine: MakeEngine
  readonly makeData: MakeSharedData
  readonly server: () => Promise<PostgresServer>
} {
  let starting: Promise<PostgresServer> | undefined
  let making: Promise<MakeUrl> | undefined
  const server = () => {
    starting ??= startPostgres(t)
    return starting
  }
  const openStore = async (t: Test, options?: EngineOptions) => {
    making ??= server().then(copiesWithTables)
    return storeAt(t, await server(), await (await making)(), options)
  }
  const makeEngine: MakeEngine = async (t, options) => {
    const store = await openStore(t, options)
    let engine = store.open()
    const reopen = async () => {
      await engine.close()
      engine = store.open()
      return engine
    }
    return { engine, reopen, keptContents: store.keptContents }
  }
  return { makeEngine, makeData: openStore, server }
}

/** @returns the address of a new database that has the tables */
type MakeUrl = () => Promise<string>

/** Makes the tables once: copies of the database with them take a third of the time. */
async function copiesWithTables(server: PostgresServer): Promise<MakeUrl> {
  const url = await server.createDatabase()
  const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: POOL })
  await engine.openCatalog()
  await engine.close()
  const model = new URL(url).pathname.slice(1)
  let copies = 0
  return async () => {
    const copy = `${model}_${++copies}`
    await server.query(`CREATE DATABASE ${copy} OWNER settee TEMPLATE ${model} STRATEGY file_copy`)
    return url.replace(/[^/]*$/, copy)
  }
}

async function storeAt(
  t: Test,
  server: PostgresServer,
  url: string,
  options: EngineOptions = {},
): Promise<TestStore> {
  const address = await readStoreAddress(url, null)
  const engines = new Map<StorageEngine, { isDead: boolean }>()
  t.teardown(() => Promise.all([...engines.keys()].map((engine) => engine.close())))
  const { onOperation, now } = options
  return {
    url,
    open: () => {
      const state = { isDead: false }
      const engine = postgresEngine({
        address,
        poolSize: POOL,
        onOperation: (operation) => {
          if (state.isDead) throw new CouchError('unavailable')
          onOperation?.(operation)
        },
        ...(now && { now }),
      })
      engines.set(engine, state)
      return engine
    },
    kill: (engine) => {
      const state = engines.get(engine)
      if (state !== undefined) state.isDead = true
    },
    keptContents: async () => {
      const [row] = await server.query(
        `SELECT (SELECT count(*) FROM settee.blob b JOIN settee.entry e USING (db) WHERE e.name = 'notes')::int AS blobs,
          (SELECT coalesce(sum(octet_length(data)), 0) FROM settee.chunk c JOIN settee.entry e USING (db)
            WHERE e.name = 'notes')::int AS bytes`,
        [],
        address.database,
      )
      return row as unknown as KeptContents
    },
  }
}
