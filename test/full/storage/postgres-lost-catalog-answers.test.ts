/** Calls of the catalog whose answers are lost: each is done once, and its caller is told so. */
import { setTimeout as rest } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Catalog } from '../../../src/storage/catalog.ts'
import { CatalogChanges } from '../../../src/storage/postgres/catalog-changes.ts'
import { Connections } from '../../../src/storage/postgres/connections.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { readRecord } from '../../../src/storage/records.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { type CuttableNetwork, cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { rejectsWith } from '../../storage/conformance/setup.ts'

const server = await startPostgres(t)

interface Nodes {
  /** Its network loses answers. */
  readonly remote: Catalog
  readonly near: Catalog
  readonly network: CuttableNetwork
  /** Called before each statement of the remote node. */
  readonly hook: { onOperation: (operation: string) => void }
  /** How many calls are stored. */
  calls(): Promise<number>
}

async function openNodes(t: Test): Promise<Nodes> {
  const url = await server.createDatabase()
  const address = await readStoreAddress(url, null)
  const network = await cuttableNetwork(t, server.port)
  const hook: Nodes['hook'] = { onOperation: () => undefined }
  const one = postgresEngine({ address, poolSize: 4 })
  const two = postgresEngine({
    address: { ...address, port: network.port },
    poolSize: 4,
    onOperation: (operation) => hook.onOperation(operation),
  })
  t.teardown(() => Promise.all([one.close(), two.close()]))
  const calls = async () => {
    const sql = 'SELECT count(*)::int AS calls FROM settee.catalog_change WHERE changes IS NOT NULL'
    return (await server.query(sql, [], address.database))[0]?.calls as number
  }
  return { near: await one.openCatalog(), remote: await two.openCatalog(), network, hook, calls }
}

/** Loses something at one of the statements of an operation. @param at which one: 1 is the next */
function atStatement({ hook }: Nodes, operation: string, at: number, lose: () => void): Promise<void> {
  return new Promise((resolve) => {
    let left = at
    hook.onOperation = (name) => {
      if (name !== operation || --left > 0) return
      hook.onOperation = () => undefined
      lose()
      resolve()
    }
  })
}

/** Makes the connection break after a statement was carried out, and before its answer. */
async function losingAnswer<R>(nodes: Nodes, operation: string, call: () => Promise<R>, at = 1): Promise<R> {
  const { network, calls } = nodes
  const before = await calls()
  const isCommitted = network.withheld('COMMIT')
  const isLost = atStatement(nodes, operation, at, network.withholdAnswers)
  const answer = call()
  await isLost
  if (operation === 'commit') await isCommitted
  else while ((await calls()) === before) await rest(5)
  network.mend()
  return answer
}

/** Makes the connection break before a statement arrives. */
async function losingCall<R>(nodes: Nodes, operation: string, call: () => Promise<R>, at = 1): Promise<R> {
  const isLost = atStatement(nodes, operation, at, nodes.network.cut)
  const answer = call()
  await isLost
  await rest(20)
  nodes.network.mend()
  return answer
}

/** How many commits a call makes. */
async function commitsOf({ hook }: Nodes, call: () => Promise<unknown>): Promise<number> {
  let commits = 0
  hook.onOperation = (name) => {
    if (name === 'commit') commits += 1
  }
  await call()
  hook.onOperation = () => undefined
  return commits
}

for (const [lost, losing] of Object.entries({ answer: losingAnswer, call: losingCall })) {
  t.test(`a lost ${lost}`, async (t) => {
    const nodes = await openNodes(t)
    const { near, remote } = nodes
    const { incarnation } = await remote.create('warm')
    const made = await losing(nodes, 'create_database', () => remote.create('notes'))
    t.same(await near.find('notes'), made)
    t.equal(await near.count(), 2)

    await losing(nodes, 'note_updated', () => remote.noteUpdated(['warm']))
    t.match(await near.readUpdates({ since: 0 }, 10), {
      rows: [{ name: 'warm', type: 'created' }, { name: 'notes' }, { name: 'warm', type: 'updated' }],
      lastSeq: 3,
    })

    const write = (value: string, expected: string | null) =>
      losing(nodes, 'store_records', () => remote.writeRecords([{ kind: 'k', key: 'a', value, expected }]))
    t.same([await write('1', null), await write('2', '1')], [true, true], 'what was expected was there once')
    t.equal(await readRecord(near, 'k', 'a'), '2')

    const commits = await commitsOf(nodes, () => remote.replace('warm', null))
    t.ok(commits > 1, `a restore commits ${commits} times`)
    const incarnations = new Set([incarnation])
    for (let at = 1; at <= commits; at++) {
      const replaced = await losing(nodes, 'commit', () => remote.replace('warm', null), at)
      t.same(await near.find('warm'), { name: 'warm', incarnation: replaced.incarnation })
      t.notOk(incarnations.has(replaced.incarnation), `commit ${at}: a new incarnation`)
      incarnations.add(replaced.incarnation)
    }

    await losing(nodes, 'delete_database', () => remote.delete('notes'))
    t.same([await near.find('notes'), await near.count()], [null, 1])
    await rejectsWith(t, remote.delete('notes'), 'no_database')

    await losing(nodes, 'adopt_uuid', () => remote.adoptUuid('adopted'))
    t.equal(remote.serverUuid, 'adopted')
  })
}

t.test('a call that was given up is not stored when it arrives later', async (t) => {
  const url = await server.createDatabase()
  const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: 4 })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  const name = new URL(url).pathname.slice(1)
  await server.query("INSERT INTO settee.catalog_change (token, node) VALUES ('lost', 'n')", [], name)
  const late = server.query(
    "SET search_path = settee; SELECT write_records('{k}', '{a}', '{1}', '{f}', '{NULL}', 'lost', 'n', '[]')",
    [],
    name,
  )
  await t.rejects(late, { code: '23505' })
  t.equal(await readRecord(catalog, 'k', 'a'), null)
})

t.test('a call that was given up is remembered for a day, and changes for minutes', async (t) => {
  const url = await server.createDatabase()
  const address = await readStoreAddress(url, null)
  const engine = postgresEngine({ address, poolSize: 4 })
  const connections = new Connections({ address, size: 2 })
  t.teardown(() => Promise.all([engine.close(), connections.close()]))
  await engine.openCatalog()
  const sql = (text: string) => server.query(text, [], address.database)
  const tokens = async () => (await sql('SELECT token FROM settee.catalog_change')).map(({ token }) => token)
  await sql(
    "INSERT INTO settee.catalog_change (token, node, changes) VALUES ('lost', 'n', NULL), ('told', 'n', '[]')",
  )
  const changes = new CatalogChanges(connections, 'n')
  await changes.begin(async () => undefined)
  const begun = performance.now()
  t.intercept(performance, 'now', { value: () => begun + 180_000 })
  await changes.sweep()
  t.same(await tokens(), ['lost'])
  await sql("UPDATE settee.catalog_change SET at = now() - interval '25 hours'")
  await changes.sweep()
  t.same(await tokens(), [])
})
