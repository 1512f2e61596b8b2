/** The engine over PostgreSQL for the storage suite: one server for each test file, a database of it for each case. */
import type { Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { postgresEngine } from '../../src/storage/postgres/postgres-engine.ts'
import type { StorageEngine } from '../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../src/storage/store-address.ts'
import { HAS_CITUS } from '../helpers/citus.ts'
import { type PostgresServer, startPostgres } from '../helpers/postgres-server.ts'
import type { MakeSharedData } from './conformance/openers.ts'
import type { DamagedRow, EngineOptions, KeptContents, MakeEngine } from './conformance/setup.ts'

const POOL = 6

/** A database of its own for a test, and engines over it. */
interface TestStore {
  readonly url: string
  open(): StorageEngine
  /** From now on the engine does not reach the server, as if its process were dead. */
  kill(engine: StorageEngine): void
  keptContents(): Promise<KeptContents>
  damage(row: DamagedRow, id: string): Promise<void>
  /** Whether all engines that were opened are closed again. */
  isClosed(): boolean
  /** Gives the database back, for another test or another part of this one. Idempotent. */
  end(): Promise<void>
}

/** @returns makers of engines without data, whose server runs until the end of `t` */
export function postgresMakers(t: Test): {
  readonly makeEngine: MakeEngine
  readonly makeData: MakeSharedData
  readonly server: () => Promise<PostgresServer>
} {
  let starting: Promise<PostgresServer> | undefined
  let making: Promise<Copies> | undefined
  const server = () => {
    starting ??= startPostgres(t)
    return starting
  }
  const open = new Set<TestStore>()
  const openStore = async (t: Test, options?: EngineOptions) => {
    making ??= server().then(copiesWithTables)
    // Cases with an error at every operation open hundreds, one after the other.
    const closed = [...open].filter((store) => store.isClosed())
    for (const store of closed) open.delete(store)
    await Promise.all(closed.map((store) => store.end()))
    const store = await storeAt(await server(), await making, options)
    open.add(store)
    t.teardown(() => store.end())
    return store
  }
  const makeEngine: MakeEngine = async (t, options) => {
    const store = await openStore(t, options)
    let engine = store.open()
    const reopen = async () => {
      await engine.close()
      engine = store.open()
      return engine
    }
    return { engine, reopen, keptContents: store.keptContents, damage: store.damage }
  }
  return { makeEngine, makeData: openStore, server }
}

/** Databases that have the tables and no data. */
interface Copies {
  /** @returns the address of one */
  take(): Promise<string>
  /** Empties one that nobody uses any more: each database has hundreds of files, which a disk removes slowly. */
  giveBack(url: string): Promise<void>
}

const EMPTY = `
DO $$
DECLARE
  v_table text;
BEGIN
  FOR v_table IN SELECT tablename FROM pg_tables WHERE schemaname = 'settee' AND tablename NOT IN ('store', 'schema_version') LOOP
    EXECUTE format('DELETE FROM settee.%I', v_table);
  END LOOP;
END $$;
UPDATE settee.store SET server_uuid = folder_uuid, last_db = 0, databases = 0, update_seq = 0,
  epochs = '[{"id":"abcdefghijkl","firstSeq":0}]'`

/** Makes the tables once: a copy of the database with them takes a third of the time. */
async function copiesWithTables(server: PostgresServer): Promise<Copies> {
  const url = await server.createDatabase()
  const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: POOL })
  await engine.openCatalog()
  await engine.close()
  const model = new URL(url).pathname.slice(1)
  const free: string[] = HAS_CITUS ? [url] : []
  let copies = 0
  return {
    take: async () => {
      const emptied = free.pop()
      if (emptied !== undefined) return emptied
      if (HAS_CITUS) return server.createDatabase()
      const copy = `${model}_${++copies}`
      await server.query(`CREATE DATABASE ${copy} OWNER settee TEMPLATE ${model} STRATEGY file_copy`)
      return url.replace(/[^/]*$/, copy)
    },
    giveBack: async (used) => {
      await server.query(EMPTY, [], new URL(used).pathname.slice(1))
      free.push(used)
    },
  }
}

const DAMAGES: Record<DamagedRow, string> = {
  content: `UPDATE settee.chunk AS c SET data = set_byte(data, octet_length(data) / 2, get_byte(data, octet_length(data) / 2) # 1)
    WHERE EXISTS (SELECT FROM settee.blob_use u WHERE u.db = c.db AND u.blob = c.blob AND u.id = $1)`,
  security: "UPDATE settee.database SET security = replace(security, 'true', 'tr3e') WHERE $1 <> ''",
  local: "UPDATE settee.local_doc SET body = replace(body, 'true', 'tr3e') WHERE id = $1",
  // With its text: else it is made again.
  row: "UPDATE settee.doc SET seq = seq + 1000, body = replace(body, 'true', 'tr3e') || ' ' WHERE id = $1",
  body: "UPDATE settee.doc SET body = replace(body, 'true', 'tr3e') WHERE id = $1",
  ancestry: 'UPDATE settee.doc SET ancestry = set_byte(ancestry, 2, get_byte(ancestry, 2) # 1) WHERE id = $1',
  attachment:
    "UPDATE settee.doc SET attachments = replace(attachments, 'text/plain', 'text/true') WHERE id = $1",
}

async function storeAt(
  server: PostgresServer,
  copies: Copies,
  options: EngineOptions = {},
): Promise<TestStore> {
  const url = await copies.take()
  const address = await readStoreAddress(url, null)
  const engines = new Map<StorageEngine, { isDead: boolean; isClosed: boolean }>()
  let ending: Promise<void> | undefined
  const end = async () => {
    await Promise.all([...engines.keys()].map((engine) => engine.close()))
    await copies.giveBack(url)
  }
  const { onOperation, now } = options
  return {
    url,
    open: () => {
      if (ending !== undefined) throw new Error('the database was given back')
      const state = { isDead: false, isClosed: false }
      const engine = postgresEngine({
        address,
        poolSize: POOL,
        onOperation: (operation) => {
          if (state.isDead) throw new CouchError('unavailable')
          onOperation?.(operation)
        },
        ...(now && { now }),
      })
      const close = engine.close.bind(engine)
      engine.close = async () => {
        await close()
        state.isClosed = true
      }
      engines.set(engine, state)
      return engine
    },
    kill: (engine) => {
      const state = engines.get(engine)
      if (state !== undefined) state.isDead = true
    },
    isClosed: () => engines.size > 0 && [...engines.values()].every(({ isClosed }) => isClosed),
    damage: async (row, id) => {
      const changed = await server.query(
        `${DAMAGES[row]} AND db = (SELECT db FROM settee.entry WHERE name = 'notes') RETURNING 1`,
        [id],
        address.database,
      )
      if (changed.length === 0) throw new Error(`nothing of ${id} was changed`)
    },
    end: () => {
      ending ??= end()
      return ending
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
