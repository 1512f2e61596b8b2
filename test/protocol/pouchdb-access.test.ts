import { once } from 'node:events'
import t, { type Test } from 'tap'
import { type Device, device, liveSync, type Remote, rejectsWith, remote, until } from './devices.ts'
import { call, type ServedServer, serve } from './served.ts'

const AUTH = 'user:pa:ss'

/** A server with the admin `user`, whose password is `pa:ss`. */
async function guarded(t: Test): Promise<ServedServer> {
  const server = await serve(t)
  const made = await call(server, 'PUT', '/_node/_local/_config/admins/user', { body: '"pa:ss"' })
  t.match(made, { status: 200, json: '' })
  return server
}

/** The address of a database with credentials in it. */
function address({ url }: { readonly url: string }, credentials: string, database = 'notes'): string {
  return `${url.replace('://', `://${credentials}@`)}/${database}`
}

/** A database that everybody may read and write. */
async function publicDatabase(server: ServedServer): Promise<void> {
  await call(server, 'PUT', '/notes', { auth: AUTH })
  const body = { admins: { names: ['user'] }, members: { names: [], roles: [] } }
  await call(server, 'PUT', '/notes/_security', { auth: AUTH, body })
}

/** Starts a live sync that must end with an error; @returns the error. */
async function failedSync(local: Device, { db }: Remote): Promise<unknown> {
  const sync = local.sync(db, { live: true, retry: true, back_off_function: () => 1 })
  sync.catch(() => undefined)
  const [error] = await once(sync, 'error', { signal: AbortSignal.timeout(30_000) })
  return error
}

t.test('a password in the address', async (t) => {
  const server = await guarded(t)
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs([{ _id: 'a' }, { _id: '_design/d', views: { v: { map: 'function (doc) {}' } } }])
  const there = address(server, 'user:pa%3Ass')
  t.match(await phone.sync(remote(there).db), { push: { docs_written: 2 } }, 'it makes the database, too')
  t.match(await desk.sync(remote(there).db), { pull: { docs_written: 2 } })
  t.match(await call(server, 'GET', '/notes', { auth: AUTH }), { status: 200, json: { doc_count: 2 } })
  t.equal((await call(server, 'GET', '/notes')).status, 401, 'nobody else gets in')

  t.test('after a restart', async (t) => {
    await server.stop()
    await server.start()
    await desk.put({ _id: 'b' })
    t.match(await desk.sync(remote(there).db), { push: { docs_written: 1 } })
    t.equal((await call(server, 'GET', '/notes')).status, 401)
  })

  t.test('or in the options', async (t) => {
    const auth = { username: 'user', password: 'pa:ss' }
    t.match(await phone.sync(remote(`${server.url}/notes`, { auth }).db), { pull: { docs_written: 1 } })
  })
})

t.test('names and passwords beyond ASCII', async (t) => {
  const server = await serve(t)
  const path = `/_node/_local/_config/admins/${encodeURIComponent('zoë')}`
  t.equal((await call(server, 'PUT', path, { body: '"pässwörd/@:%🔑"' })).status, 200)
  const credentials = `${encodeURIComponent('zoë')}:${encodeURIComponent('pässwörd/@:%🔑')}`
  const phone = await device(t)
  await phone.put({ _id: 'a' })
  t.match(await phone.sync(remote(address(server, credentials)).db), { push: { docs_written: 1 } })
})

t.test('a wrong password ends a sync, however patient', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  const phone = await device(t)
  await phone.put({ _id: 'a' })
  for (const credentials of ['user:wrong', 'nobody:pa%3Ass', 'user:']) {
    const there = remote(address(server, credentials))
    t.match(await failedSync(phone, there), { status: 401, name: 'unauthorized' })
    // Some retry of it would be made before a sync elsewhere has been through.
    const asked = there.seen.length
    const elsewhere = remote(address(server, 'user:pa%3Ass', 'elsewhere'))
    await phone.sync(elsewhere.db)
    t.ok(asked <= 10, `${asked} requests`)
    t.equal(there.seen.length, asked, 'and none after the error')
    await rejectsWith(t, phone.replicate.to(there.db), {
      status: 401,
      reason: /Name or password is incorrect/,
    })
  }
  t.match((await call(server, 'GET', '/notes')).json, { doc_count: 0 })
})

t.test('a member pushes a design document: it is denied, and the sync goes on', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  const phone = await device(t)
  await phone.bulkDocs([{ _id: 'a' }, { _id: '_design/mine', language: 'javascript' }, { _id: 'z' }])
  const there = remote(`${server.url}/notes`)
  const { denied, errors } = liveSync(t, phone, there.db)
  const notes = async () => ((await call(server, 'GET', '/notes')).json as { doc_count: number }).doc_count
  await until('the notes have arrived', async () => (await notes()) === 2 && denied.length === 1)
  t.match(denied, [
    { doc: { id: '_design/mine', error: 'unauthorized', reason: 'You are not a db or server admin.' } },
  ])
  await phone.put({ _id: 'later' })
  await until('the sync goes on', async () => (await notes()) === 3)
  await call(server, 'PUT', '/notes/by-curl', { body: {} })
  await until('both ways', async () => (await phone.info()).doc_count === 5)
  t.match({ denied, errors }, { denied: { length: 1 }, errors: { length: 0 } })

  t.test('a one-shot sync says so, too, and does not try again', async (t) => {
    const desk = await device(t)
    await desk.bulkDocs([{ _id: 'desk' }, { _id: '_design/other' }])
    const refused: unknown[] = []
    const push = desk.replicate.to(there.db)
    push.on('denied', (row) => refused.push(row))
    t.match(await push, { docs_written: 1, doc_write_failures: 1, ok: true })
    t.equal(refused.length, 1)
    t.match(await desk.replicate.to(there.db), { docs_read: 0, doc_write_failures: 0 })
  })

  t.test('the admin pushes it', async (t) => {
    const admin = await device(t)
    const as = remote(address(server, 'user:pa%3Ass'))
    await admin.put({ _id: '_design/mine', language: 'javascript' })
    t.match(await admin.sync(as.db), { push: { docs_written: 1, doc_write_failures: 0 } })
    t.equal((await call(server, 'GET', '/notes/_design/mine')).status, 200)
  })
})

t.test('a member writes neither the security object nor the limit of revisions', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  for (const [path, body] of [
    ['/notes/_security', {}],
    ['/notes/_revs_limit', '10'],
  ] as const) {
    t.match(await call(server, 'PUT', path, { body }), { status: 401, json: { error: 'unauthorized' } })
  }
})

t.test('a live sync ends when its database is closed to it', async (t) => {
  const server = await serve(t)
  const [stranger, owner] = [await device(t), await device(t)]
  await stranger.put({ _id: 'a' })
  const outside = remote(`${server.url}/notes`)
  const { errors } = liveSync(t, stranger, outside.db)
  await until('it waits for news', () =>
    outside.seen.some(
      ({ query }) => query.get('feed') === 'longpoll' && query.get('since')?.startsWith('1-'),
    ),
  )
  await call(server, 'PUT', '/_node/_local/_config/admins/user', { body: '"pa:ss"' })
  await until('it is told', () => errors.length > 0)
  t.match(errors, [{ status: 401, name: 'unauthorized' }])
  const inside = address(server, 'user:pa%3Ass')
  await owner.put({ _id: 'secret' })
  t.match(await owner.sync(remote(inside).db), { push: { docs_written: 1 }, pull: { docs_written: 1 } })
  await rejectsWith(t, stranger.get('secret'), { status: 404 })
  t.match((await owner.allDocs()).rows, [{ id: 'a' }, { id: 'secret' }])
})
