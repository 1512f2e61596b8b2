/** PouchDB devices that synced with the primary go on from their checkpoints at the promoted standby. */
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { switchableAddress } from '../../helpers/switchable-address.ts'
import { device, remote, sinces } from '../../protocol/devices.ts'

t.setTimeout(180_000)

t.test('a device pulls only what is new, and sends only what the standby lacks', async (t) => {
  const primary = await startTestServer(t)
  const standby = await startTestServer(t)
  const address = await switchableAddress(t, primary.url)
  await primary.request('PUT', '/notes')
  const docs = Array.from({ length: 300 }, (_, n) => ({ _id: `note-${n}`, text: 'x'.repeat(500) }))
  await primary.request('POST', '/notes/_bulk_docs', { body: { docs } })
  const [reader, writer] = [await device(t), await device(t)]
  await reader.replicate.from(remote(`${address.url}/notes`).db)
  await writer.bulkDocs(Array.from({ length: 50 }, (_, n) => ({ _id: `own-${n}` })))
  await writer.sync(remote(`${address.url}/notes`).db)
  await reader.replicate.from(remote(`${address.url}/notes`).db)

  const controls = await reachServer(standby.dataDir)
  if (controls === null) throw new Error('the standby does not listen')
  await controls.follow({ url: primary.url, again: false })
  // The second look at the database tells what its last token means.
  const isSettled = async () => (await controls.readStandby({})).waiting === 0
  while ((await standby.request('GET', '/notes/own-49')).status !== 200) await delay(50)
  await delay(2500)
  while (!(await isSettled())) await delay(50)
  await primary.close()
  await controls.promote({})
  address.leadTo(standby.url)
  await standby.request('PUT', '/notes/after', { body: {} })

  await t.test('pulling', async (t) => {
    const there = remote(`${address.url}/notes`)
    const { docs_read } = await reader.replicate.from(there.db)
    t.equal(docs_read, 1)
    t.notOk(sinces(there).includes('0'), `it goes on from ${sinces(there)[0]}`)
    const asked = there.seen.filter(({ path }) => path.endsWith('/_bulk_get'))
    t.equal(asked.length, 1)
  })

  await t.test('pushing', async (t) => {
    await writer.put({ _id: 'own-new' })
    const there = remote(`${address.url}/notes`)
    const sync = () => writer.replicate.to(there.db)
    // The first checkpoint is refused once, since the standby could lack what the device has sent.
    await sync().catch((error: { status: number }) => t.equal(error.status, 503))
    await sync()
    t.equal((await standby.request('GET', '/notes/own-new')).status, 200)
    const sent = there.seen.filter(({ path }) => path.endsWith('/_bulk_docs'))
    t.equal(sent.length, 1, 'documents that are there are not sent again')
    t.equal(JSON.parse(sent[0]?.body ?? '').docs.length, 1)
  })
})

t.test(
  'a live push sends again what the primary took with it, although it notices no change of servers',
  async (t) => {
    const primary = await startTestServer(t)
    const dataDir = await temporaryFolder(t)
    const early = await startTestServer(t, { dataDir })
    const address = await switchableAddress(t, primary.url)
    await primary.request('PUT', '/notes')
    const phone = await device(t)
    await phone.put({ _id: 'before' })
    const push = phone.replicate.to(remote(`${address.url}/notes`).db, { live: true, retry: true })
    t.teardown(() => push.cancel())
    const arrives = async (server: { request: typeof primary.request }, id: string) => {
      while ((await server.request('GET', `/notes/${id}`)).status !== 200) await delay(50)
    }
    await arrives(primary, 'before')
    await (await reachServer(dataDir))?.follow({ url: primary.url, again: false })
    await arrives(early, 'before')
    await early.close()

    await phone.put({ _id: 'last moment' })
    await arrives(primary, 'last moment')
    // Its checkpoint says so, on the device.
    await delay(500)
    await primary.close()
    const standby = await startTestServer(t, { dataDir })
    await (await reachServer(dataDir))?.promote({})
    address.leadTo(standby.url)
    await phone.put({ _id: 'after' })
    await arrives(standby, 'after')
    await arrives(standby, 'last moment')
  },
)
