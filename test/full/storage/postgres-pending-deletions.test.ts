/** Rows of deleted databases are removed by any node, and those of others stay. */
import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { attachment, put } from '../../storage/conformance/edits.ts'

const server = await startPostgres(t)

interface Data {
  open(pendingDeletions?: { readonly delayMs: number; readonly lookMs: number }): StorageEngine
  /** Rows by table, of all tables with a column `db`, of a database or of all. */
  rows(db: number): Promise<Readonly<Record<string, number>>>
  sql(text: string): Promise<Readonly<Record<string, unknown>>[]>
}

async function makeData(t: Test): Promise<Data> {
  const address = await readStoreAddress(await server.createDatabase(), null)
  const sql = (text: string) => server.query(text, [], address.database)
  return {
    sql,
    open: (pendingDeletions) => {
      const engine = postgresEngine({ address, poolSize: 4, ...(pendingDeletions && { pendingDeletions }) })
      t.teardown(() => engine.close())
      return engine
    },
    rows: async (db) => {
      const tables = await sql(`SELECT table_name::text AS name FROM information_schema.columns
        WHERE table_schema = 'settee' AND column_name = 'db' AND table_name NOT IN ('entry', 'leaving')`)
      const counts = tables.map(async ({ name }) => {
        const [row] = await sql(`SELECT count(*)::int AS n FROM settee.${name} WHERE db = ${db}`)
        return [name as string, row?.n as number] as const
      })
      return Object.fromEntries((await Promise.all(counts)).filter(([, n]) => n > 0))
    },
  }
}

/** Fills a database, and closes it. */
async function fill(engine: StorageEngine, name: string): Promise<void> {
  const store = await engine.openDatabase(name)
  const bytes = attachment('x', randomBytes(100_000))
  await store.updateDocs(Array.from({ length: 300 }, (_, n) => put(`d${n}`)))
  await store.updateDocs([put('d1'), put('with', '{}', { attachments: [bytes] })])
  await store.updateLocals([{ id: '_local/l', decide: () => ({ result: 0, write: { rev: 1, body: '{}' } }) }])
  await store.close()
}

t.test('all rows of a deleted database go, in steps, and no others', async (t) => {
  const data = await makeData(t)
  const engine = data.open()
  const catalog = await engine.openCatalog()
  const [{ incarnation: gone }, { incarnation: stays }] = [
    await catalog.create('gone'),
    await catalog.create('stays'),
  ]
  await Promise.all([fill(engine, 'gone'), fill(engine, 'stays')])
  const before = await data.rows(stays)
  t.match(before, { doc: 301, revision: 1, chunk: 1, local_doc: 1 })
  await catalog.delete('gone')
  t.same((await data.rows(gone)).doc, 301, 'statements under way may need them for a while')
  // Two nodes look for them, one after the other or at once.
  for (const node of [data.open({ delayMs: 0, lookMs: 5 }), data.open({ delayMs: 0, lookMs: 5 })])
    await node.openCatalog()
  while ((await data.sql('SELECT 1 FROM settee.leaving')).length > 0) await rest(10)
  t.same(await data.rows(gone), {})
  t.same(await data.rows(stays), before)
})
