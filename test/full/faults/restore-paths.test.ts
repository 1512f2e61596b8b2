/** Each way in which a client stores its position, tested separately against a restored database. */
import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { copyNotes, restoreNotes } from '../../faults/restoring.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { call } from '../../protocol/call.ts'
import { type Device, device, liveSync, remote, sinces } from '../../protocol/devices.ts'

function write(db: Device, name: string, count = 5) {
  return db.bulkDocs(Array.from({ length: count }, (_, n) => ({ _id: `${name}-${n}` })))
}

async function idsThere(server: { readonly url: string }): Promise<string[]> {
  const { json } = await call(server, 'GET', '/notes/_all_docs')
  // At first, there is no database.
  return ((json as { rows?: { id: string }[] }).rows ?? []).map(({ id }) => id)
}

const LOST = ['lost-0', 'lost-1', 'lost-2', 'lost-3', 'lost-4']

/** The lost documents that exist again. */
async function lostThere(server: { readonly url: string }): Promise<string[]> {
  return (await idsThere(server)).filter((id) => id.startsWith('lost-'))
}

function there(server: { readonly url: string }) {
  return remote(`${server.url}/notes`)
}

async function outcomeOf(running: Promise<unknown>): Promise<{ status?: number; reason?: string } | 'done'> {
  return running.then(
    () => 'done',
    (error: { status?: number; reason?: string }) => error,
  )
}

t.setTimeout(100_000)

t.test(
  'a session that began before the copy was made: both sides know it, and it means nothing',
  async (t) => {
    const server = await startTestServer(t)
    const phone = await device(t)
    const { errors } = liveSync(t, phone, there(server).db)
    await write(phone, 'before')
    await until('it is there', async () => (await idsThere(server)).length === 5)
    await until('the checkpoint, too', async () => {
      const { json } = await call(server, 'GET', '/notes/_local_docs')
      return (json as { rows: unknown[] }).rows.length === 2
    })
    const copy = await copyNotes(t, server)
    await write(phone, 'lost')
    await until('it is there', async () => (await lostThere(server)).length === 5)
    await restoreNotes(server, copy)
    t.strictSame(await lostThere(server), [])
    await phone.put({ _id: 'the next change' })
    await until('what was lost is there again', async () => (await lostThere(server)).length === 5)
    t.strictSame(errors, [])
  },
)

for (const checkpoint of [undefined, 'target', false]) {
  t.test(`one-shot pushes with checkpoint: ${checkpoint}`, async (t) => {
    const server = await startTestServer(t)
    const phone = await device(t)
    const push = () => outcomeOf(phone.replicate.to(there(server).db, { checkpoint }))
    await write(phone, 'before')
    await push()
    const copy = await copyNotes(t, server)
    await write(phone, 'lost')
    await push()
    t.strictSame(await lostThere(server), LOST)
    await restoreNotes(server, copy)
    t.strictSame(await lostThere(server), [])
    const first = await push()
    if (checkpoint === false) t.equal(first, 'done')
    else t.match(first, { status: 503, reason: /restored to an earlier state/ }, 'an error, once')
    t.strictSame(await lostThere(server), LOST)
    t.equal(await push(), 'done')
    t.equal(await push(), 'done')
  })
}

t.test('a push that notes its position only on the device cannot be refused', async (t) => {
  const server = await startTestServer(t)
  const phone = await device(t)
  const push = () => phone.replicate.to(there(server).db, { checkpoint: 'source' })
  await write(phone, 'lost')
  const copy = await (async () => {
    await call(server, 'PUT', '/notes')
    return copyNotes(t, server)
  })()
  await push()
  await restoreNotes(server, copy)
  await push()
  t.strictSame(await lostThere(server), [], 'such a client asks for nothing that shows the restore')
})

t.test('new devices', async (t) => {
  const server = await startTestServer(t)
  const phone = await device(t)
  await write(phone, 'before', 120)
  await phone.replicate.to(there(server).db)
  await restoreNotes(server, await copyNotes(t, server))

  const empty = await device(t)
  t.equal(await outcomeOf(empty.sync(there(server).db)), 'done', 'an empty one hears of no error')
  t.equal((await empty.info()).doc_count, 120)
  await empty.put({ _id: 'its first' })
  t.equal(await outcomeOf(empty.sync(there(server).db)), 'done', 'a later sync has no error')

  const reader = await device(t)
  t.equal(
    await outcomeOf(reader.replicate.from(there(server).db)),
    'done',
    'a device that only pulls has no error',
  )
  t.equal((await reader.info()).doc_count, 121)

  const full = await device(t)
  await write(full, 'its own')
  t.match(await outcomeOf(full.sync(there(server).db)), { status: 503 }, 'one that has notes does, once')
  t.equal(await outcomeOf(full.sync(there(server).db)), 'done')
  t.equal((await idsThere(server)).length, 126)
})

t.test('clients that keep a token, as LiveSync and RxDB do', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  for (const id of ['a', 'b']) await call(server, 'PUT', `/notes/${id}`, { body: {} })
  const copy = await copyNotes(t, server)
  for (const id of ['c', 'd', 'e']) await call(server, 'PUT', `/notes/${id}`, { body: {} })
  const page = async (since: string) => {
    const { status, json } = await call(
      server,
      'GET',
      `/notes/_changes?include_docs=true&style=all_docs&since=${since}`,
    )
    const { results, last_seq: last } = json as { results: { id: string }[]; last_seq: string }
    return { status, ids: results.map(({ id }) => id), last }
  }
  const kept = await page('0')
  t.strictSame(kept.ids, ['a', 'b', 'c', 'd', 'e'])
  const waiting = call(server, 'GET', `/notes/_changes?feed=longpoll&since=${kept.last}&timeout=60000`)
  await delay(50)
  await restoreNotes(server, copy)
  t.match((await waiting).json, { results: [], last_seq: String }, 'a feed that waits ends in order')
  t.match(await page(kept.last), { status: 200, ids: [] })
  for (const id of ['f', 'g', 'h', 'i']) await call(server, 'PUT', `/notes/${id}`, { body: {} })
  t.strictSame((await page(kept.last)).ids, ['f', 'g', 'h', 'i'], 'the feed has each new document once')
  const next = await page(kept.last)
  t.strictSame((await page(next.last)).ids, [])
})

t.test('a first checkpoint is refused once, however it is written, even after a restart', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const before = (await call(server, 'GET', '/notes')).json as { instance_start_time: string }
  await restoreNotes(server, await copyNotes(t, server))
  const after = (await call(server, 'GET', '/notes')).json as typeof before
  t.not(after.instance_start_time, before.instance_start_time)
  t.match(
    (await call(server, 'POST', '/notes/_ensure_full_commit', { body: '{}' })).json,
    after.instance_start_time && {
      instance_start_time: after.instance_start_time,
    },
  )
  const checkpoint = (_id: string, last_seq: unknown = 7) => {
    return { _id, session_id: 's', last_seq, history: [{ session_id: 's', last_seq }], version: 1 }
  }
  const ways: [string, (id: string) => Promise<number>][] = [
    ['PUT', async (id) => (await call(server, 'PUT', `/notes/${id}`, { body: checkpoint(id) })).status],
    ['POST', async (id) => (await call(server, 'POST', '/notes', { body: checkpoint(id) })).status],
    [
      'bulk',
      async (id) =>
        (await call(server, 'POST', '/notes/_bulk_docs', { body: { docs: [checkpoint(id)] } })).status,
    ],
  ]
  for (const [name, put] of ways) t.equal(await put(`_local/${name}`), 503, name)
  await server.stop()
  await server.start()
  for (const [name, put] of ways) t.equal(await put(`_local/${name}`), 201, `${name}, again`)
  const couch = { session_id: 's', source_last_seq: '12-g1AAAA', history: [{ recorded_seq: '12-g1AAAA' }] }
  t.equal((await call(server, 'PUT', '/notes/_local/couch', { body: couch })).status, 503)
  t.equal((await call(server, 'PUT', '/notes/_local/other', { body: { session_id: 's', x: 1 } })).status, 201)
  t.equal((await call(server, 'PUT', '/notes/_local/milestone', { body: { history: [] } })).status, 201)
  const { update_seq } =
    (await call(server, 'PUT', '/notes/a', { body: {} })) &&
    ((await call(server, 'GET', '/notes')).json as { update_seq: string })
  t.equal(
    (await call(server, 'PUT', '/notes/_local/pull', { body: checkpoint('_local/pull', update_seq) })).status,
    201,
  )
  const ahead = update_seq.replace(/^\d+/, '99')
  t.equal(
    (await call(server, 'PUT', '/notes/_local/ahead', { body: checkpoint('_local/ahead', ahead) })).status,
    503,
  )
})

/** Replaces the whole data folder by hand, like restoring a snapshot. */
async function folderByHand(t: Test, server: TestServer, lose: () => Promise<void>) {
  await server.stop()
  const copy = join(await temporaryFolder(t), 'copy')
  await cp(server.dataDir, copy, { recursive: true })
  await server.start()
  await lose()
  await server.stop()
  await rm(server.dataDir, { recursive: true })
  await cp(copy, server.dataDir, { recursive: true })
  await server.start()
}

t.test(
  'a whole folder that was put back by hand, of which only devices know that push: it must be told',
  async (t) => {
    const server = await startTestServer(t)
    const phone = await device(t)
    await write(phone, 'before')
    await phone.sync(there(server).db)
    await folderByHand(t, server, async () => {
      await write(phone, 'lost')
      await phone.sync(there(server).db)
    })
    const controls = await reachServer(server.dataDir)
    t.match(await controls?.adopt({ databases: null }), { adopted: ['_users', 'notes'] })
    await outcomeOf(phone.sync(there(server).db))
    await outcomeOf(phone.sync(there(server).db))
    t.strictSame(await lostThere(server), LOST)
  },
)

/** Replaces the file of `notes` by hand while the server is stopped. */
async function byHand(t: Test, server: TestServer, lose: () => Promise<void>, withLog: boolean) {
  const file = join(server.dataDir, 'databases', 'notes.sqlite')
  const copy = join(await temporaryFolder(t), 'notes.sqlite')
  if (!withLog) await server.stop()
  // Copied while the server runs, like a snapshot of the file system: the file and its log.
  for (const log of ['', '-wal']) await cp(file + log, copy + log).catch(() => undefined)
  if (!withLog) await server.start()
  await lose()
  await server.stop()
  for (const log of ['', '-wal', '-shm']) await rm(file + log, { force: true })
  for (const log of ['', '-wal']) await cp(copy + log, file + log).catch(() => undefined)
  await server.start()
}

for (const withLog of [false, true]) {
  t.test(`a file that was replaced by hand, ${withLog ? 'with' : 'without'} a log`, async (t) => {
    const server = await startTestServer(t)
    const [phone, desk] = [await device(t), await device(t)]
    await write(phone, 'before')
    await phone.sync(there(server).db)
    await desk.sync(there(server).db)
    await byHand(
      t,
      server,
      async () => {
        await write(phone, 'lost')
        await phone.sync(there(server).db)
        await desk.sync(there(server).db)
      },
      withLog,
    )
    t.strictSame(await lostThere(server), [])
    const pulling = there(server)
    for (let n = 0; n < 7; n++) await call(server, 'PUT', `/notes/new-${n}`, { body: {} })
    await outcomeOf(desk.replicate.from(pulling.db))
    t.equal((await desk.info()).doc_count, 17, 'a device that was ahead has every new document')
    await phone.put({ _id: 'the next change' })
    await outcomeOf(phone.sync(there(server).db))
    await outcomeOf(phone.sync(there(server).db))
    t.strictSame(await lostThere(server), LOST, 'the device that had pushed it compares')
    t.ok(sinces(pulling).length > 0)
  })
}

t.test('a file that was replaced by hand, first opened for a backup', async (t) => {
  const server = await startTestServer(t)
  const startedAt = async () =>
    ((await call(server, 'GET', '/notes')).json as { instance_start_time: string }).instance_start_time
  await call(server, 'PUT', '/notes')
  await call(server, 'PUT', '/notes/before', { body: {} })
  const before = await startedAt()
  const lose = async () => {
    for (const id of LOST) await call(server, 'PUT', `/notes/${id}`, { body: {} })
  }
  await byHand(t, server, lose, false)
  const { status, json } = await call(server, 'POST', '/_settee/backups', { body: { databases: ['notes'] } })
  t.equal(status, 202)
  await until('the backup is made', async () => {
    const { id } = json as { id: string }
    return (await call(server, 'GET', `/_settee/backups/${id}`)).status === 200
  })
  t.not(await startedAt(), before, 'it begins anew')
})
