/** PouchDB devices and a full disk: no device loses a note, or believes that a refused note was stored. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'
import { smallDisk, withSmallDisks } from '../../faults/small-disk.ts'
import { until } from '../../helpers/until.ts'
import { device, liveSync, type Remote, remote } from '../../protocol/devices.ts'

const FLOOR = 16 * 1024 * 1024
const NOTES = 60

async function setUp(t: Test) {
  const disk = await smallDisk(t, 64)
  const ini = `[settee]\nfree_space_floor = ${FLOOR}\n`
  const server = await startServerProcess(t, { dataDir: join(disk.path, 'data'), ini })
  await server.ask('PUT', '/notes')
  return { disk, server, there: () => remote(`${server.url}/notes`) }
}

const countOf = async (server: ServerProcess) => (await server.ask('GET', '/notes')).json.doc_count as number

const pushes = ({ seen }: Remote) => seen.filter(({ path }) => path.endsWith('/_bulk_docs'))

withSmallDisks(t, import.meta.url, () => {
  for (const deletions of [0, 5]) {
    t.test(`a push while the disk is full, with ${deletions} deletions`, async (t) => {
      const { disk, server, there } = await setUp(t)
      const phone = await device(t)
      await phone.bulkDocs(Array.from({ length: 10 }, (_, n) => ({ _id: `old-${n}` })))
      await phone.replicate.to(there().db)
      disk.fill(FLOOR / 2)
      await until('writes are refused', async () => (await server.ask('POST', '/notes', {})).status === 507)
      const before = await countOf(server)
      for (let n = 0; n < deletions; n++) await phone.remove(await phone.get(`old-${n}`))
      await phone.bulkDocs(Array.from({ length: NOTES }, (_, n) => ({ _id: `note-${n}`, n })))
      const failed = await phone.replicate.to(there().db, { batch_size: 20 }).catch((error) => error)
      t.match(failed, { status: 507, error: 'insufficient_storage' })
      t.equal(await countOf(server), before - deletions, 'deletions are stored, and nothing else')
      disk.empty()
      await until(
        'writes are taken',
        async () => (await server.ask('PUT', '/notes/probe', {})).status !== 507,
      )
      const last = await phone.replicate.to(there().db, { batch_size: 20 })
      t.match(last, { ok: true, doc_write_failures: 0 })
      t.equal(await countOf(server), before - deletions + NOTES + 1, 'the device pushed everything')
    })
  }

  t.test('a device that syncs live continues by itself when there is space again', async (t) => {
    const { disk, server, there } = await setUp(t)
    const [phone, desk] = [await device(t), await device(t)]
    const seen = there()
    const syncs = [liveSync(t, phone, seen.db), liveSync(t, desk, there().db)]
    await phone.put({ _id: 'first' })
    await until('the first has come to the desk', async () => (await desk.info()).doc_count === 1)
    disk.fill(FLOOR / 2)
    await until('writes are refused', async () => (await server.ask('POST', '/notes', {})).status === 507)
    for (let n = 0; n < NOTES; n++) await phone.put({ _id: `note-${n}`, n })
    await until('pushes were refused', () => pushes(seen).filter(({ status }) => status === 507).length > 2)
    disk.empty()
    await until('all has come to the desk', async () => (await desk.info()).doc_count > NOTES)
    const missing = await server.ask('POST', '/notes/_all_docs', {
      keys: Array.from({ length: NOTES }, (_, n) => `note-${n}`),
    })
    t.notOk(missing.json.rows.some((row: { error?: string }) => row.error !== undefined))
    t.same(
      syncs.flatMap(({ denied, errors }) => [...denied, ...errors]),
      [],
    )
  })
})
