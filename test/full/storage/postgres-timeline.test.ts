/** Another server takes over, which lacks the newest commits: nobody keeps what is lost, and no number has two meanings. */
import { setTimeout as rest } from 'node:timers/promises'
import t from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import type { CatalogChange } from '../../../src/storage/records.ts'
import { readSequence, sequenceToken } from '../../../src/storage/sequence.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import type { StoreEvent } from '../../../src/storage/store-events.ts'
import { cuttableNetwork } from '../../helpers/cuttable-network.ts'
import { startPostgres, startStandby } from '../../helpers/postgres-server.ts'
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

t.test('a standby without the newest commits takes over', async (t) => {
  const primary = await startPostgres(t)
  const url = await primary.createDatabase()
  const standby = await startStandby(t, primary)
  const network = await cuttableNetwork(t, primary.port)
  const address = { ...(await readStoreAddress(url, null)), port: network.port }
  const [node, other] = [postgresEngine({ address, poolSize: 4 }), postgresEngine({ address, poolSize: 4 })]
  t.teardown(() => Promise.all([node.close(), other.close()]))
  const catalog = await node.openCatalog()
  const changes: CatalogChange[] = []
  catalog.watch((change) => changes.push(change))
  const { incarnation } = await catalog.create('notes')
  const store = await node.openDatabase('notes')
  const watching = await other.openDatabase('notes')
  const events: StoreEvent[] = []
  watching.onEvent((event) => events.push(event))
  const isOwnGone = new Promise<void>((resolve) => {
    store.onEvent(({ type }) => type === 'deleted' && resolve())
  })
  await store.updateDocs([put('kept')])
  await store.updateLocals([
    { id: '_local/c', decide: () => ({ result: 0, write: { rev: 1, body: CHECKPOINT } }) },
  ])
  const keptToken = await newestToken(store)
  const keptUpdates = await catalog.readUpdates({ since: 0 }, 10)
  await standby.caughtUp()
  await standby.disconnect()
  await store.updateDocs([put('lost'), put('lost2')])
  await store.updateSettings(() => ({ result: 0, write: { security: { lost: true } } }))
  const lostToken = await newestToken(store)
  const { incarnation: lostIncarnation } = await catalog.create('lost')
  await primary.stop('immediate')
  await standby.promote()
  network.redirect(standby.port)
  network.reset()

  while (!changes.some(({ type }) => type === 'any') || !events.some(({ type }) => type === 'deleted'))
    await rest(10)
  t.equal(events.at(-1)?.type, 'deleted', 'feeds of the other node end')
  await isOwnGone
  await t.rejects(store.updateDocs([put('late')]), 'a store from before does not write')
  const again = await other.openDatabase('notes')
  const view = await again.view()
  t.match(view, { updateSeq: 1, docCount: 1, wasRestored: true, security: null })
  t.same(await again.readLocals(['_local/c']), [null], 'checkpoints are gone')
  t.not((await catalog.find('notes'))?.incarnation, incarnation)
  await again.updateDocs([put('new')])
  const { epochs, updateSeq } = await again.view()
  t.same(
    [keptToken, lostToken].map((token) => readSequence(epochs, updateSeq, token)),
    [
      { seq: 1, unknownEpoch: false },
      { seq: 1, unknownEpoch: false },
    ],
    'a client that has seen lost updates gets those since the restore',
  )
  t.equal(await catalog.find('lost'), null)
  const made = await catalog.create('lost')
  t.not(made.incarnation, lostIncarnation, 'an incarnation is given once')
  const updates = await catalog.readUpdates({ since: keptUpdates.lastSeq }, 10)
  t.not(
    sequenceToken(updates.epochs, updates.lastSeq).replace(/^\d+/, ''),
    sequenceToken(keptUpdates.epochs, keptUpdates.lastSeq).replace(/^\d+/, ''),
    'the updates of the catalog have an epoch, too',
  )
})
