/** What becomes of contents in PostgreSQL when the opener that holds them stops, and of compactions by several openers. */
import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { LEASE_GRACE_MS, LEASE_MS } from '../../../src/storage/blob-leases.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { put } from '../../storage/conformance/edits.ts'
import { errorOf, only, rejectsWith } from '../../storage/conformance/setup.ts'
import { naming, stageOf } from '../../storage/conformance/uploads.ts'
import { postgresMakers } from '../../storage/postgres-engine.ts'

const MINUTE_MS = 60_000
const { makeData } = postgresMakers(t)

interface Clock {
  ms: number
}

/** Two nodes of one store, whose clocks a test sets. A clock that runs ahead of its node's timers shows a frozen node. */
async function twoNodes(t: Test, beforeOperation?: (operation: string) => void) {
  const clock: Clock = { ms: 1_700_000_000_000 }
  const data = await makeData(t, { now: () => clock.ms, onOperation: (name) => beforeOperation?.(name) })
  const open = async (engine: StorageEngine) => ({ engine, store: await engine.openDatabase('notes') })
  const engine = data.open()
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  return { data, clock, catalog, first: await open(engine), second: await open(data.open()) }
}

t.test('a node that was frozen in an upload finds it gone, and stores nothing', async (t) => {
  const { data, clock, first, second } = await twoNodes(t)
  const begun = await first.store.uploadBlob()
  await begun.append(randomBytes(600_000))
  const { stage, staged } = await stageOf(first.store, [randomBytes(1000)])
  clock.ms += 5 * MINUTE_MS
  await second.store.compact()
  t.same(await data.keptContents(), { blobs: 0, bytes: 0 })
  await rejectsWith(t, begun.append(randomBytes(600_000)), 'store_unavailable')
  const [outcome] = await first.store.updateDocs([naming('a', staged)])
  t.match(errorOf(outcome), { code: 'no_attachment' })
  await Promise.all([begun.release(), stage.release()])
  t.same(await data.keptContents(), { blobs: 0, bytes: 0 })
})

t.test('a node that was frozen goes on with an upload that nobody has removed', async (t) => {
  const { data, clock, first, second } = await twoNodes(t)
  const bytes = randomBytes(900_000)
  const begun = await first.store.uploadBlob()
  await begun.append(bytes.subarray(0, 600_000))
  clock.ms += LEASE_MS + LEASE_GRACE_MS - 1
  await second.store.compact()
  await begun.append(bytes.subarray(600_000))
  const staged = await begun.finish()
  await only(first.store.updateDocs([naming('a', staged)]))
  await begun.release()
  clock.ms += 5 * MINUTE_MS
  await second.store.compact()
  t.same(Buffer.from((await second.store.readBlob(staged.blob, 0, 1_000_000)) ?? []), bytes)
  t.same(await data.keptContents(), { blobs: 1, bytes: 900_000 })
})

t.test('a slow reader keeps a content that a compaction on another node would remove', async (t) => {
  const { data, first, second } = await twoNodes(t)
  const { stage, staged } = await stageOf(first.store, [randomBytes(2_000_000)])
  await only(first.store.updateDocs([naming('a', staged)]))
  await stage.release()
  const read = await second.store.referenceBlob(staged.blob)
  t.equal((await second.store.readBlob(staged.blob, 0, 1000))?.length, 1000)
  await only(first.store.updateDocs([put('a', '{"n":2}')]))
  await first.store.compact()
  t.equal((await second.store.readBlob(staged.blob, 1_999_000, 5000))?.length, 1000)
  read?.release()
  for (let tries = 0; tries < 100 && (await data.keptContents()).blobs > 0; tries++) {
    await rest(10)
    await first.store.compact()
  }
  t.same(await data.keptContents(), { blobs: 0, bytes: 0 })
})

t.test('one of two nodes compacts, and the other tells how far it is', async (t) => {
  const { first, second } = await twoNodes(t)
  for (let n = 0; n < 5; n++) {
    await first.store.updateDocs(Array.from({ length: 200 }, (_, doc) => put(`doc${doc}`, `{"n":${n}}`)))
  }
  const told: number[] = []
  const begun = Promise.withResolvers<boolean>()
  const compacting = first.store.compact({
    onProgress: () => begun.resolve(second.store.info().then((info) => info.compacting)),
  })
  t.equal(await begun.promise, true, 'the first report comes when the other node knows')
  const joined = second.store.compact({ onProgress: ({ done }) => told.push(done) })
  await compacting
  await joined
  t.equal(told.at(-1), 100)
  t.equal((await second.store.sizes()).old.count, 0)
  t.equal((await second.store.info()).compacting, false)
  const { writes } = await second.store.garbage()
  await second.store.compact()
  t.equal((await second.store.garbage()).writes, writes + 1, 'a compaction is one write to the database')
})

t.test('a node takes over the compaction of one that died, when its claim has lapsed', async (t) => {
  let kill: (() => void) | undefined
  const { data, clock, first, second } = await twoNodes(t, (operation) => {
    if (operation === 'expire_revisions') kill?.()
  })
  await only(first.store.updateDocs([put('a', '{"n":1}')]))
  await only(first.store.updateDocs([put('a', '{"n":2}')]))
  kill = () => data.kill(first.engine)
  await first.store.compact().catch(() => undefined)
  kill = undefined
  t.equal((await second.store.info()).compacting, true)
  let isDone = false
  const taken = second.store.compact().then(() => {
    isDone = true
  })
  await rest(300)
  t.notOk(isDone, 'it waits while the claim may be renewed')
  clock.ms += LEASE_MS + LEASE_GRACE_MS
  await taken
  t.equal((await second.store.sizes()).old.count, 0)
  t.equal((await second.store.info()).compacting, false)
})

t.test('an upload to a database that was deleted ends', async (t) => {
  const { catalog, first, second } = await twoNodes(t)
  const begun = await second.store.uploadBlob()
  await begun.append(randomBytes(600_000))
  await catalog.delete('notes')
  await rejectsWith(t, begun.append(randomBytes(600_000)), 'no_database')
  await begun.release()
  await t.rejects(first.store.compact(), { code: 'no_database' })
})
