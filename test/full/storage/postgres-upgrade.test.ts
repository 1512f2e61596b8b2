/** Stores of every earlier schema are upgraded by many nodes at once, while others write, and keep what they have. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { encodeAncestry } from '../../../src/revisions/branch.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { MIGRATIONS } from '../../../src/storage/postgres/schema.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { makeOldStore, schemaOfStore } from '../../helpers/old-stores.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer } from '../../helpers/server.ts'
import { everythingIn, fill } from '../../helpers/whole-database.ts'
import { put, readOne, remove } from '../../storage/conformance/edits.ts'
import { only } from '../../storage/conformance/setup.ts'

const NEWEST = MIGRATIONS.length
const OLDER = Array.from({ length: NEWEST - 1 }, (_, n) => n + 1)
const STARTING = 6
const WRITERS = 4

t.setTimeout(300_000)
const postgres = await startPostgres(t)

async function engineOn(t: Test, address: string) {
  const engine = postgresEngine({ address: await readStoreAddress(address, null), poolSize: 4 })
  t.teardown(() => engine.close())
  return engine
}

/** A store with one database, and what can be read from it. Each test upgrades a copy. */
async function filledStore() {
  const address = await postgres.createDatabase()
  const server = await startTestServer(t, { env: { SETTEE_STORE: address } })
  await fill(server, 'notes')
  const held = await everythingIn(server, 'notes')
  const { uuid } = (await server.request('GET', '/')).json
  await server.close()
  return { address, held, uuid: uuid as string }
}

const original = await filledStore()

/** @returns the address of the store as an older version has it */
async function olderStore(schema: number): Promise<string> {
  const address = await postgres.createDatabase(original.address)
  await makeOldStore(postgres, address, schema)
  return address
}

for (const schema of OLDER) {
  t.test(`schema ${schema}: one of many nodes upgrades it while another one writes`, async (t) => {
    const address = await olderStore(schema)
    t.equal(await schemaOfStore(postgres, address), schema)
    const written: string[] = []
    let isOver = false
    const write = async (name: string) => {
      const older = await olderNode(address, name)
      for (let n = 0; !isOver; n++) written.push(await older.create(`${name}-${n}`))
      await older.end()
    }
    const writing = ['a', 'b', 'c', 'd'].slice(0, WRITERS).map(write)
    const before = written.length
    const engines = await Promise.all(Array.from({ length: STARTING }, () => engineOn(t, address)))
    const catalogs = await Promise.all(engines.map((engine) => engine.openCatalog()))
    const during = written.length - before
    await sleep(200)
    isOver = true
    await Promise.all(writing)
    t.equal(await schemaOfStore(postgres, address), NEWEST)
    t.same(new Set(catalogs.map(({ serverUuid }) => serverUuid)), new Set([original.uuid]))
    const other = await engines[0]?.openDatabase('notes')
    const lost: string[] = []
    for (const id of written) if (!other || (await readOne(other, id)) === null) lost.push(id)
    t.same(lost, [])
    await other?.compact()
    t.same(await rowsWithoutChecksums(address), 0, 'a compaction notes the checksums of old rows')
    t.notOk((await other?.garbage())?.needsCompaction)
    t.comment(`${during} documents were written meanwhile, ${written.length} in all`)
  })

  t.test(`schema ${schema}: nothing of a database is changed`, async (t) => {
    const address = await olderStore(schema)
    const server = await startTestServer(t, { env: { SETTEE_STORE: address } })
    t.same(await everythingIn(server, 'notes'), original.held)
    t.equal((await server.request('GET', '/')).json.uuid, original.uuid)
    t.match(await server.request('PUT', '/more'), { status: 201 })
    t.match(await server.request('PUT', '/notes/new', { body: {} }), { status: 201 })
  })
}

/** Writes as a node of the version before does, by the function that it knows. */
async function olderNode(address: string, opener: string) {
  const client = new Client(address)
  await client.connect()
  await client.query('SET search_path = settee')
  const hash = 'a'.repeat(32)
  const ancestry = Buffer.from(encodeAncestry([hash]))
  let token = 0
  return {
    create: async (id: string) => {
      token += 1
      const { rows } = await client.query<{ seq: string }>(
        `SELECT save_doc(db, settings_version, $1, $2, 1, 1, 0, 2, 300, 0, 0, $3, 0, 0, $4, false, 2, $5, '{}') AS seq
          FROM database JOIN entry USING (db) WHERE name = 'notes'`,
        [opener, token, id, `1-${hash}`, ancestry],
      )
      if (Number(rows[0]?.seq) <= 0) throw new Error(`${id} was refused: ${rows[0]?.seq}`)
      return id
    },
    end: () => client.end(),
  }
}

async function rowsWithoutChecksums(address: string): Promise<unknown> {
  const [row] = await postgres.query(
    `SELECT (SELECT count(*) FROM settee.doc JOIN settee.entry USING (db)
          WHERE name = 'notes' AND (checksum IS NULL OR content_checksum IS NULL))::int +
      (SELECT count(*) FROM settee.revision JOIN settee.entry USING (db)
          WHERE name = 'notes' AND content_checksum IS NULL)::int AS rows`,
    [],
    new URL(address).pathname.slice(1),
  )
  return row?.rows
}

/** The sums of bytes as settees before schema 4 had them: of revisions alone, each with 200 bytes beside its body. */
const SUMS_OF_BODIES = `
UPDATE settee.database d SET
  leaf_bytes = (SELECT sum(octet_length(body) + 200) FROM settee.doc WHERE db = d.db),
  superseded_bytes = (SELECT coalesce(sum(octet_length(body) + 200), 0) FROM settee.revision WHERE db = d.db AND NOT retained),
  retained_bytes = (SELECT coalesce(sum(octet_length(body) + 200), 0) FROM settee.revision WHERE db = d.db AND retained)`

t.test('sums of bytes that lack something are counted anew while others write', async (t) => {
  const address = await postgres.createDatabase()
  const name = new URL(address).pathname.slice(1)
  const first = await engineOn(t, address)
  await (await first.openCatalog()).create('notes')
  const before = await first.openDatabase('notes')
  const local = (id: string, body: string) => ({
    id: `_local/${id}`,
    decide: () => ({ result: 0, write: { rev: 1, body } }),
  })
  const long = (n: number) => `${n}`.padStart(1000, 'x')
  const ids = Array.from({ length: 3000 }, (_, n) => long(n))
  await before.updateDocs(ids.map((id) => put(id)))
  await before.updateDocs(ids.slice(0, 500).map((id) => put(id, '{"n":2}')))
  await before.compact({ keepSince: 0 })
  await before.updateDocs(ids.slice(0, 100).map((id) => put(id, '{"n":3}')))
  await before.updateLocals(ids.map((id) => local(id, '{"a":1}')))
  await before.updateSettings(() => ({
    result: 0,
    write: { security: { members: { names: ['anna'], roles: [] } } },
  }))
  const right = (await before.info()).sizes
  await first.close()
  await makeOldStore(postgres, address, 3)
  await postgres.query(SUMS_OF_BODIES, [], name)

  const second = await engineOn(t, address)
  await second.openCatalog()
  const store = await second.openDatabase('notes')
  const whole = async () => (await store.info()).sizes.file
  const parts = async () => (await store.sizes()).file
  t.ok(right.active - (await store.info()).sizes.active > 10_000_000, 'most is not counted yet')
  t.ok((await store.garbage()).needsCompaction)
  let isOver = false
  const writing = (async () => {
    for (let n = 0; !isOver; n++) {
      await only(store.updateDocs([put(`new ${n}`, '{"text":"new"}')]))
      await only(store.updateDocs([n % 2 === 0 ? remove(long(n)) : put(long(n), '{"n":4}')]))
      await only(store.updateLocals([local(long(n), '{"a":1,"b":2}')]))
    }
  })()
  await store.compact({ keepSince: 0 })
  isOver = true
  await writing
  t.equal(await parts(), await whole())
  t.notOk((await store.garbage()).needsCompaction)

  const older = await postgres.query(
    `SELECT set_config('search_path', 'settee', false), settee.write_doc(db, settings_version, 'older', 1, 1, 1, 0, 2, 202, 0, 0,
      'of an older node', 0, 0, '1-' || repeat('a', 32), false, 2, $1::bytea, '{}') AS seq
    FROM settee.database`,
    [encodeAncestry(['a'.repeat(32)])],
    name,
  )
  t.ok(Number(older[0]?.seq) > 0, 'an older node writes a document')
  t.ok((await store.garbage()).needsCompaction)
  t.equal((await readOne(store, 'of an older node'))?.deleted, false)
  t.not(await parts(), await whole())
  await store.compact({ keepSince: 0 })
  t.equal(await parts(), await whole())
  t.notOk((await store.garbage()).needsCompaction)
})

t.test('a transaction that uses a table holds up the upgrade, and nobody else', async (t) => {
  const address = await postgres.createDatabase()
  await (await engineOn(t, address)).openCatalog()
  await makeOldStore(postgres, address, 1)
  const holder = new Client(address)
  await holder.connect()
  await holder.query('BEGIN; SELECT 1 FROM settee.catalog_change')
  const starting = (await engineOn(t, address)).openCatalog()
  const slowest = await slowestChange(address, 2500)
  t.ok(slowest > 500, 'the upgrade was waiting')
  t.ok(slowest < 2000, `the slowest change of the catalog took ${slowest} ms`)
  t.equal(await schemaOfStore(postgres, address), 1)
  await holder.query('ROLLBACK')
  await holder.end()
  await starting
  t.equal(await schemaOfStore(postgres, address), NEWEST)
})

/** Makes changes of the catalog, as each node does, for some time. @returns how long the slowest took, in ms */
async function slowestChange(address: string, forMs: number): Promise<number> {
  const client = new Client(address)
  await client.connect()
  const end = performance.now() + forMs
  let slowest = 0
  for (let n = 0; performance.now() < end; n++) {
    const begun = performance.now()
    await client.query('INSERT INTO settee.catalog_change (token, node) VALUES ($1, $1)', [`change ${n}`])
    slowest = Math.max(slowest, performance.now() - begun)
    await sleep(20)
  }
  await client.end()
  return Math.round(slowest)
}
