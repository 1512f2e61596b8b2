import t from 'tap'
import { request } from 'undici'
import { startChildServer } from '../../helpers/child-server.ts'
import { until } from '../../helpers/until.ts'
import { call } from '../../protocol/call.ts'
import { ADAPTERS, device, liveSync, type Remote, remote, sinces } from '../../protocol/devices.ts'
import { sameEverywhere, untilSame } from '../../protocol/histories.ts'

const NOTES = 400
const BATCH = 20
const LIVE_ROUNDS = 2
const ROUNDS = { memory: 2, leveldb: 1 }

/** The revisions that the server has acknowledged in pushes, as `[id, rev]`. */
function pushed({ seen }: Remote): (readonly [string, string])[] {
  return seen
    .filter(({ path, status }) => path.endsWith('/_bulk_docs') && status === 201)
    .flatMap(({ body }) => (JSON.parse(body as string) as { docs: { _id: string; _rev: string }[] }).docs)
    .map(({ _id, _rev }) => [_id, _rev] as const)
}

/** The acknowledged revisions that the server does not have. */
async function lost(server: { readonly url: string }, revs: Iterable<readonly [string, string]>) {
  const asked: Record<string, string[]> = {}
  for (const [id, rev] of revs) {
    asked[id] ??= []
    asked[id].push(rev)
  }
  return (await call(server, 'POST', '/notes/_revs_diff', { body: asked })).json
}

for (const adapter of ADAPTERS) {
  t.test(`kill -9 in the middle of pushes, ${adapter}`, async (t) => {
    const server = await startChildServer(t)
    const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
    await phone.bulkDocs(
      Array.from({ length: NOTES }, (_, n) => ({ _id: `note-${n}`, n, text: 'word '.repeat(200) })),
    )
    for (let round = 1; round <= ROUNDS[adapter]; round++) {
      const there = remote(`${server.url}/notes`)
      const push = phone.replicate.to(there.db, { batch_size: BATCH }).then(
        () => 'complete',
        () => 'cut off',
      )
      // Concurrent writers of single notes.
      const single: (readonly [string, string])[] = []
      const writers = ['w', 'x', 'y'].map((writer) => writeUntilCut(server, `${writer}${round}`, single))
      await until('some batches are acknowledged', () => pushed(there).length >= 5 * BATCH)
      await server.kill()
      t.equal(await push, 'cut off')
      await Promise.all(writers)
      await server.start()
      t.ok(single.length > 0 && pushed(there).length < NOTES, `${single.length} single writes`)
      t.strictSame(await lost(server, [...pushed(there), ...single]), {}, 'nothing acknowledged is lost')
    }
    const there = remote(`${server.url}/notes`)
    const last = await phone.sync(there.db, { batch_size: BATCH })
    t.match(last, { push: { ok: true, doc_write_failures: 0 }, pull: { ok: true } })
    t.ok((last.push?.docs_read ?? NOTES) < NOTES, `the last push read ${last.push?.docs_read} notes`)
    await desk.sync(there.db)
    const histories = await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
    t.equal(Object.keys(histories).filter((id) => id.startsWith('note-')).length, NOTES)
  })
}

t.test('kill -9 in the middle of pulls', async (t) => {
  const server = await startChildServer(t)
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs(Array.from({ length: NOTES }, (_, n) => ({ _id: `note-${n}`, n })))
  await phone.sync(remote(`${server.url}/notes`).db)
  const cut = remote(`${server.url}/notes`)
  const pull = desk.replicate.from(cut.db, { batch_size: BATCH }).then(
    () => 'complete',
    () => 'cut off',
  )
  const checkpointsWritten = () =>
    cut.seen.filter(
      ({ method, path, status }) => method === 'PUT' && path.includes('_local') && status === 201,
    )
  await until('some batches have come', () => checkpointsWritten().length >= 3)
  await server.kill()
  t.equal(await pull, 'cut off')
  await server.start()
  const there = remote(`${server.url}/notes`)
  const { docs_read } = await desk.replicate.from(there.db, { batch_size: BATCH })
  t.ok(docs_read <= NOTES - 3 * BATCH, `the second pull read ${docs_read}`)
  t.notOk(sinces(there).includes('0'))
  await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
})

t.test('kill -9 while two devices sync live', async (t) => {
  const server = await startChildServer(t)
  const devices = [await device(t), await device(t)] as const
  const syncs = devices.map((db) => liveSync(t, db, remote(`${server.url}/notes`).db))
  for (let round = 1; round <= LIVE_ROUNDS; round++) {
    const written = devices.map(async (db, at) => {
      for (let n = 0; n < 20; n++) await db.put({ _id: `round-${round}-device-${at}-${n}` })
    })
    await until('some have arrived', async () => (await devices[1].info()).doc_count > 40 * (round - 1) + 20)
    await server.kill()
    await Promise.all(written)
    await devices[0].put({ _id: `while-away-${round}` })
    await server.start()
  }
  const all = { server, database: 'notes', devices }
  await untilSame(t, all, (now) => Object.keys(now).length === 41 * LIVE_ROUNDS)
  t.strictSame(
    syncs.flatMap(({ errors }) => errors),
    [],
  )
})

/** Stores notes one at a time until a call fails, and records the acknowledged ones. */
async function writeUntilCut(
  server: { readonly url: string },
  prefix: string,
  acknowledged: (readonly [string, string])[],
): Promise<void> {
  for (let n = 0; ; n++) {
    const id = `${prefix}-${n}`
    const answer = await put(`${server.url}/notes/${id}`, { n }).catch(() => null)
    if (answer === null) return
    if (answer.rev !== undefined) acknowledged.push([id, answer.rev])
  }
}

async function put(url: string, doc: object): Promise<{ readonly rev?: string }> {
  const { body } = await request(url, { method: 'PUT', body: JSON.stringify(doc), reset: true })
  return (await body.json()) as { readonly rev?: string }
}
