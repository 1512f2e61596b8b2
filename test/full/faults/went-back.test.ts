/**
 * Everything goes back together, so that nothing within it can show it: a data folder that is copied back, and PostgreSQL that is
 * started from a base backup. Devices that sync with PouchDB lose nothing in either direction.
 */
import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { baseBackup, startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { call } from '../../protocol/call.ts'
import { type Device, device, liveSync, remote } from '../../protocol/devices.ts'

t.setTimeout(200_000)

/** A server whose data goes back: `keep` remembers its state, and `goBack` returns to it. Both leave it running. */
interface Returning {
  readonly server: TestServer
  keep(): Promise<() => Promise<void>>
}

async function onFiles(t: Test): Promise<Returning> {
  const server = await startTestServer(t)
  const keep = async () => {
    await server.stop()
    const copy = join(await temporaryFolder(t), 'copy')
    await cp(server.dataDir, copy, { recursive: true })
    await server.start()
    return async () => {
      await server.stop()
      await rm(server.dataDir, { recursive: true })
      await cp(copy, server.dataDir, { recursive: true })
      await server.start()
    }
  }
  return { server, keep }
}

/** @param hasMemory whether the node keeps its folder; a node in a container may not */
function onPostgres(hasMemory: boolean) {
  return async (t: Test): Promise<Returning> => {
    const postgres = await startPostgres(t)
    const server = await startTestServer(t, { env: { SETTEE_STORE: await postgres.createDatabase() } })
    const keep = async () => {
      const restore = await baseBackup(postgres)
      return async () => {
        await server.stop()
        if (!hasMemory) await rm(join(server.dataDir, 'store-position'))
        await restore()
        await server.start()
      }
    }
    return { server, keep }
  }
}

function write(db: Device, name: string) {
  return db.bulkDocs(Array.from({ length: 5 }, (_, n) => ({ _id: `${name}-${n}` })))
}

/** Each way back, and whether the server finds it out when it starts, or a client must show what it has seen. */
const WAYS = {
  'a data folder that is copied back': { make: onFiles, isFound: false },
  'a base backup of PostgreSQL that is started, and the folder of the node is there': {
    make: onPostgres(true),
    isFound: true,
  },
  'a base backup of PostgreSQL that is started, and nodes remember nothing': {
    make: onPostgres(false),
    isFound: false,
  },
}

for (const [way, { make, isFound }] of Object.entries(WAYS)) {
  t.test(way, async (t) => {
    const { server, keep } = await make(t)
    const there = () => remote(`${server.url}/notes`).db
    const ids = async () => {
      const { json } = await call(server, 'GET', '/notes/_all_docs')
      return ((json as { rows?: { id: string }[] }).rows ?? []).map(({ id }) => id)
    }
    const count = async (name: string) => (await ids()).filter((id) => id.startsWith(`${name}-`)).length
    const startedAt = async () =>
      ((await call(server, 'GET', '/notes')).json as { instance_start_time: string }).instance_start_time
    const newestToken = async () =>
      ((await call(server, 'GET', '/notes')).json as { update_seq: string }).update_seq
    const [phone, desk] = [await device(t), await device(t)]
    // Their sessions begin before the state that comes back, so that both sides know them, and go on.
    for (const db of [phone, desk]) liveSync(t, db, there())
    await write(phone, 'before')
    const hasAll = async (db: Device, documents: number) => (await db.info()).doc_count === documents
    await until('all have what was before', async () => hasAll(desk, 5))
    await until('checkpoints of both are there', async () => {
      const { json } = await call(server, 'GET', '/notes/_local_docs')
      return (json as { rows: unknown[] }).rows.length >= 3
    })
    const goBack = await keep()
    await write(phone, 'lost')
    await until('all have what will be lost', async () => hasAll(desk, 10))
    const [before, lostToken] = [await startedAt(), await newestToken()]
    await goBack()
    // More than what was lost: in the same epoch, their numbers would hide them from who has seen the lost ones.
    const save = async (id: string) => (await call(server, 'PUT', `/notes/${id}`, { body: {} })).status
    // It is refused for the moment in which the database is marked.
    for (let n = 0; n < 7; n++) await until(async () => [201, 409].includes(await save(`new-${n}`)))
    for (const db of [phone, desk]) await until('every device gets what is new', async () => hasAll(db, 17))
    if (!isFound) {
      // PouchDB asks from the position that the server has stored for it; a client that keeps its own shows it.
      const reader = () => call(server, 'GET', `/notes/_changes?since=${lostToken}`)
      t.match(await reader(), { status: 503, json: { reason: /restored to an earlier state/ } })
      await until(async () => (await reader()).status === 200)
    }
    await phone.put({ _id: 'the next change' })
    await until('what was lost comes again', async () => (await count('lost')) === 5)
    t.same([await count('before'), await count('new')], [5, 7])
    const after = await startedAt()
    t.not(after, before, 'the database counts as restored')
    await until('all have everything', async () => hasAll(desk, 18))
    await Promise.all([phone, desk].map((db) => db.sync(there())))
    t.equal(await startedAt(), after, 'the database counts as restored once')
  })
}

t.test('whoever makes tokens up restores nothing', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  for (let n = 0; n < 3; n++) await call(server, 'PUT', `/notes/${n}`, { body: {} })
  const info = async () => {
    const { json } = await call(server, 'GET', '/notes')
    const { instance_start_time, update_seq, purge_seq } = json as Record<string, string>
    return { instance_start_time, update_seq: String(update_seq), purge_seq: String(purge_seq) }
  }
  const before = await info()
  const made = [
    before.update_seq.replace('3', '4'),
    before.update_seq.replace('3', '99'),
    before.update_seq.slice(0, -5).replace('3', '4'),
    before.purge_seq.replace('0', '4'),
    `4-${'A'.repeat(17)}`,
  ]
  for (const token of made) {
    const { status } = await call(server, 'GET', `/notes/_changes?since=${token}`)
    t.equal(status, 200, token)
    const body = { session_id: 's', last_seq: token, history: [{ session_id: 's', last_seq: token }] }
    t.equal((await call(server, 'PUT', `/notes/_local/${token}`, { body })).status, 201)
  }
  t.same(await info(), before)
})
