/** How nodes learn of each other's changes: soon by notices, and within a second whatever happens to these. */
import type { Socket } from 'node:net'
import { setTimeout as rest } from 'node:timers/promises'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import type { CatalogChange } from '../../../src/storage/records.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { FOREIGN_EVENT_MS, type StoreEvent } from '../../../src/storage/store-events.ts'
import { type CuttableNetwork, cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { put } from '../../storage/conformance/edits.ts'

const server = await startPostgres(t)

interface Node {
  readonly engine: StorageEngine
  readonly catalog: Catalog
  /** A database named `notes`. */
  readonly store: VersionedStore
  readonly events: StoreEvent[]
  readonly changes: CatalogChange[]
}

interface Nodes {
  readonly writer: Node
  readonly reader: Node
  /** Of the reader. */
  readonly network: CuttableNetwork
  sql(text: string): Promise<Readonly<Record<string, unknown>>[]>
}

async function openNodes(t: Test): Promise<Nodes> {
  const address = await readStoreAddress(await server.createDatabase(), null)
  const network = await cuttableNetwork(t, server.port)
  const openOne = async (port: number): Promise<Node> => {
    const engine = postgresEngine({ address: { ...address, port }, poolSize: 4 })
    t.teardown(() => engine.close())
    const catalog = await engine.openCatalog()
    await catalog.create('notes').catch(() => undefined)
    const store = await engine.openDatabase('notes')
    const events: StoreEvent[] = []
    store.onEvent((event) => events.push(event))
    const changes: CatalogChange[] = []
    catalog.watch((change) => changes.push(change))
    return { engine, catalog, store, events, changes }
  }
  const sql = (text: string) => server.query(text, [], address.database)
  const nodes = { writer: await openOne(address.port), reader: await openOne(network.port), network, sql }
  await listening(nodes, 2)
  return nodes
}

/** Waits until so many connections listen. */
async function listening({ sql }: Pick<Nodes, 'sql'>, count: number): Promise<void> {
  const text = `SELECT count(*)::int AS n FROM pg_stat_activity
    WHERE datname = current_database() AND query IN ('LISTEN settee', 'SELECT 1') OR query LIKE '%pg_notify(%unnest%'`
  for (;;) {
    const [row] = await sql(text)
    if ((row?.n as number) >= count) return
    await rest(10)
  }
}

/** @returns how long it took until there was one, in ms */
async function untilTold<T>(told: readonly T[], isMeant: (event: T) => boolean): Promise<number> {
  const since = performance.now()
  while (!told.some(isMeant)) {
    if (performance.now() - since > 10_000) throw new Error('nothing was told')
    await rest(1)
  }
  return performance.now() - since
}

const commitOf = (updateSeq: number) => (event: StoreEvent) =>
  event.type === 'committed' && event.updateSeq === updateSeq

t.test('a commit, settings and a change of the catalog are told within some ms', async (t) => {
  const { writer, reader } = await openNodes(t)
  const late: number[] = []
  for (let round = 1; round <= 20; round++) {
    await writer.store.updateDocs([put('a')])
    late.push(await untilTold(reader.events, commitOf(round)))
  }
  // The poll alone would take half a second on average.
  t.ok((late.toSorted((a, b) => a - b)[10] as number) < 200, `told after ${late.map(Math.round)} ms`)
  await writer.store.updateSettings(() => ({ result: null, write: { security: { x: 1 } } }))
  await untilTold(reader.events, (event) => event.type === 'settings' && event.security?.x === 1)
  await writer.catalog.writeRecords([{ kind: 'k', key: 'a', value: '1' }])
  await untilTold(reader.changes, (change) => change.type === 'records' && change.keys.includes('a'))
})

t.test('without notices, the poll tells of everything in time', async (t) => {
  const { writer, reader, sql } = await openNodes(t)
  // As if all notices were lost.
  await sql('REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC')
  await writer.store.updateDocs([put('a')])
  await writer.catalog.writeRecords([{ kind: 'k', key: 'a', value: '1' }])
  const late = await untilTold(reader.events, commitOf(1))
  await untilTold(reader.changes, ({ type }) => type === 'records')
  t.ok(late < FOREIGN_EVENT_MS + 500, `told after ${Math.round(late)} ms`)
  await writer.store.close()
  await writer.catalog.delete('notes')
  await untilTold(reader.events, ({ type }) => type === 'deleted')
  await untilTold(reader.changes, ({ type }) => type === 'databases')
})

t.test('a node that was cut off hears what it has missed, and then notices again', async (t) => {
  const { writer, reader, network, sql } = await openNodes(t)
  network.cut()
  await writer.store.updateDocs([put('a'), put('b')])
  await writer.catalog.create('other')
  await writer.catalog.writeRecords([{ kind: 'k', key: 'a', value: '1' }])
  t.same([reader.events, reader.changes.filter(({ type }) => type !== 'updates')], [[], []])
  network.mend()
  await untilTold(reader.events, commitOf(2))
  await untilTold(reader.changes, ({ type }) => type === 'records')
  await untilTold(reader.changes, ({ type }) => type === 'databases')
  await listening({ sql }, 2)
  await writer.store.updateDocs([put('c')])
  await untilTold(reader.events, commitOf(3))
  t.same(
    reader.events.map((event) => event.type === 'committed' && event.updateSeq),
    [2, 3],
  )
})

t.test('a listener that takes nothing stops neither commits nor the notices to others', async (t) => {
  const { writer, reader, sql } = await openNodes(t)
  const [name] = await sql('SELECT current_database()::text AS name')
  const hung = new Client(server.address.replace(/[^/]*$/, name?.name as string))
  hung.on('error', () => undefined)
  await hung.connect()
  await hung.query('LISTEN settee')
  const { stream } = (hung as unknown as { connection: { stream: Socket } }).connection
  t.teardown(() => stream.destroy())
  stream.pause()
  // More than the network buffers hold.
  for (let n = 0; n < 4; n++)
    await sql(`SELECT pg_notify('settee', n || repeat('x', 7000)) FROM generate_series(1, 1000) n`)
  for (let round = 1; round <= 5; round++) {
    await writer.store.updateDocs([put('a')])
    await untilTold(reader.events, commitOf(round))
  }
  t.pass('all were told')
})

t.test('what is no notice is left out', async (t) => {
  const { writer, reader, sql } = await openNodes(t)
  const [entry] = await sql('SELECT db FROM settee.entry')
  const position = [entry?.db, 5, 0].join(',')
  for (const text of [
    '',
    'x',
    'x 1 a,b,c',
    'x 0 1,2,3,4',
    'x 9 -5',
    `x 0 ${'9'.repeat(400)}`,
    `x 0 ${position}.5`,
  ])
    await sql(`SELECT pg_notify('settee', '${text}')`)
  await writer.store.updateDocs([put('a')])
  await untilTold(reader.events, commitOf(1))
  t.equal(reader.events.length, 1)
})

t.test('another role of the database can send notices, and changes nothing by it', async (t) => {
  const { writer, reader, sql } = await openNodes(t)
  const [entry] = await sql('SELECT db, current_database()::text AS name FROM settee.entry')
  await sql('CREATE ROLE stranger LOGIN')
  const stranger = new Client(
    server.address.replace('//settee@', '//stranger@').replace(/[^/]*$/, entry?.name as string),
  )
  await stranger.connect()
  t.teardown(() => stranger.end())
  await t.rejects(stranger.query('SELECT * FROM settee.store'), /permission denied/)
  const send = (text: string) => stranger.query('SELECT pg_notify($1, $2)', ['settee', text])
  const db = entry?.db
  await send(`x 0 ${db}`)
  await send(`x 0 ${db},9007199254740991,0`)
  await send(`x 1 ${db},0,9007199254740991 ${db},-1,-1 ${db},0,0`)
  for (let round = 1; round <= 5; round++) {
    // As many as a notice holds, and as fast as they are taken.
    const full = `x 1 ${`${db} `.repeat(2000)}`.slice(0, 7900)
    await Promise.all(Array.from({ length: 200 }, () => send(full)))
    await writer.store.updateDocs([put('a')])
    await untilTold(reader.events, commitOf(round))
  }
  await writer.store.updateSettings(() => ({ result: null, write: { security: { x: 1 } } }))
  await untilTold(reader.events, (event) => event.type === 'settings' && event.security?.x === 1)
  t.ok(reader.events.every((event) => event.type !== 'deleted'))
  t.ok(reader.events.every((event) => event.type !== 'committed' || event.updateSeq <= 5))
  t.equal((await reader.store.updateDocs([put('b')])).length, 1, 'the database is open')
})
