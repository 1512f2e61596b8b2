/** PostgreSQL goes back on the same timeline, as when a base backup is simply started: nobody keeps what is lost, and no number has two meanings. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { readSequence, sequenceToken } from '../../../src/storage/sequence.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { baseBackup, type PostgresServer, startPostgres } from '../../helpers/postgres-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { put } from '../../storage/conformance/edits.ts'

const CHECKPOINT = JSON.stringify({
  session_id: 's',
  last_seq: 1,
  history: [{ session_id: 's', last_seq: 1 }],
})

async function newestToken(store: DatabaseStore): Promise<string> {
  const { epochs, updateSeq } = await store.view()
  return sequenceToken(epochs, updateSeq)
}

interface Nodes {
  readonly server: PostgresServer
  readonly address: Awaited<ReturnType<typeof readStoreAddress>>
  /** @param name of its folder, which it keeps */
  node(name: string): StorageEngine
  readonly folder: string
}

async function nodes(t: Test): Promise<Nodes> {
  const server = await startPostgres(t)
  const address = await readStoreAddress(await server.createDatabase(), null)
  const folder = await temporaryFolder(t)
  const node = (name: string) => {
    const engine = postgresEngine({ address, poolSize: 4, memoryPath: join(folder, name) })
    t.teardown(() => engine.close())
    return engine
  }
  return { server, address, node, folder }
}

/** Writes three documents and a checkpoint, makes a base backup, and writes three more. */
async function livesOn(engine: StorageEngine, server: PostgresServer) {
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateDocs([put('a'), put('b'), put('c')])
  await store.updateLocals([
    { id: '_local/c', decide: () => ({ result: 0, write: { rev: 1, body: CHECKPOINT } }) },
  ])
  const goBack = await baseBackup(server)
  await store.updateDocs([put('d'), put('e'), put('f')])
  return { catalog, store, goBack, lostToken: await newestToken(store) }
}

async function meaningOf(store: DatabaseStore, token: string): Promise<number> {
  const { epochs, updateSeq } = await store.view()
  return readSequence(epochs, updateSeq, token).seq
}

t.test('nodes that start find a store that is behind what they remember', async (t) => {
  const { server, node } = await nodes(t)
  const before = [node('one'), node('two')] as const
  const { goBack, lostToken } = await livesOn(before[0], server)
  await before[1].openCatalog()
  await Promise.all(before.map((engine) => engine.close()))
  await goBack()
  const [one, two] = [node('one'), node('two')]
  await one.openCatalog()
  const store = await one.openDatabase('notes')
  t.match(await store.view(), { updateSeq: 3, docCount: 3, wasRestored: true })
  t.same(await store.readLocals(['_local/c']), [null], 'checkpoints are gone')
  await store.updateDocs([put('g'), put('h'), put('i'), put('j')])
  t.equal(
    await meaningOf(store, lostToken),
    3,
    'a client that has seen lost updates gets those since the restore',
  )
  const kept = await newestToken(store)
  const catalog = await two.openCatalog()
  const entry = await catalog.find('notes')
  const seen = await two.openDatabase('notes', { incarnation: entry?.incarnation as number })
  t.equal(await meaningOf(seen, kept), 7, 'the second node does not restore it again')
  t.equal((await catalog.find('notes'))?.incarnation, entry?.incarnation)
  await t.resolves(store.view(), 'the stores of the first node stay open')
})

t.test('a node that runs finds the store behind', async (t) => {
  const { server, node } = await nodes(t)
  const engine = node('one')
  const { goBack, store, lostToken } = await livesOn(engine, server)
  const gone = Promise.withResolvers<void>()
  store.onEvent(({ type }) => type === 'deleted' && gone.resolve())
  // It remembers what it has seen, which it looks for about every second.
  const catalog = await engine.openCatalog()
  const isNoted = new Promise<void>((resolve) => catalog.watch(({ type }) => type === 'updates' && resolve()))
  const other = node('other')
  await (await other.openCatalog()).noteUpdated(['notes'])
  await isNoted
  await other.close()
  await goBack()
  await gone.promise
  const again = await engine.openDatabase('notes')
  t.match(await again.view(), { updateSeq: 3, wasRestored: true })
  await again.updateDocs([put('g'), put('h'), put('i'), put('j')])
  t.equal(await meaningOf(again, lostToken), 3)
})

t.test('a node without a memory gives out no number twice within an epoch', async (t) => {
  const { server, node, folder } = await nodes(t)
  const engine = node('one')
  const { goBack, lostToken } = await livesOn(engine, server)
  await engine.close()
  await rm(join(folder, 'one'))
  await goBack()
  const fresh = node('one')
  const catalog = await fresh.openCatalog()
  const store = await fresh.openDatabase('notes')
  await store.updateDocs([put('g'), put('h'), put('i'), put('j')])
  t.equal(await meaningOf(store, lostToken), 3, 'pulling devices get what came since')
  const { lastSeq, epochs } = await catalog.readUpdates({ since: 0 }, 0)
  t.equal(new Set(epochs.map(({ id }) => id)).size, epochs.length)
  t.ok(lastSeq > 0)
})

t.test('PostgreSQL that only crashes, and nodes that only restart, restore nothing', async (t) => {
  const { server, node } = await nodes(t)
  const engine = node('one')
  const { store, lostToken } = await livesOn(engine, server)
  await server.restart('immediate')
  await until(async () => (await store.view().catch(() => null)) !== null)
  await store.updateDocs([put('g')])
  await engine.close()
  await server.restart('immediate')
  const again = node('one')
  await again.openCatalog()
  const view = await (await again.openDatabase('notes')).view()
  t.match(view, { updateSeq: 7, wasRestored: false })
  t.equal(readSequence(view.epochs, view.updateSeq, lostToken).seq, 6)
})
