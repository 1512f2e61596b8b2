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
  const server = () => {
    starting ??= startPostgres(t)
    return starting
  }
  const makeEngine: MakeEngine = async (t, options) => {
    const store = await openStore(t, await server(), options)
    let engine = store.open()
    const reopen = async () => {
      await engine.close()
      engine = store.open()
      return engine
    }
    return { engine, reopen, keptContents: store.keptContents }
  }
  const makeData: MakeSharedData = async (t, options) => {
    const store = await openStore(t, await server(), options)
    // The suite opens a catalog first, which makes the tables.
    return store
  }
  return { makeEngine, makeData, server }
}

async function openStore(t: Test, server: PostgresServer, options: EngineOptions = {}): Promise<TestStore> {
  const url = await server.createDatabase()
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
