/** `settee move` from a settee on SQLite to one over PostgreSQL: devices go on where they were. */
import PouchDB from 'pouchdb'
import t from 'tap'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'
import { addressOf, auth, call, env, move } from '../../move/moving.ts'
import { device } from '../../protocol/devices.ts'

t.setTimeout(120_000)

const [username, password] = auth.split(':') as [string, string]

/** A remote database that counts the documents that are read and written through it. */
function remote({ url }: TestServer) {
  const traffic = { requests: 0, bytes: 0 }
  const db = new PouchDB(`${url}/notes`, {
    auth: { username, password },
    fetch: async (address: string, options: Record<string, unknown>) => {
      traffic.requests += 1
      traffic.bytes += String(options?.body ?? '').length
      return PouchDB.fetch(address, options as never)
    },
  } as never)
  return { db, traffic }
}

t.test('documents, accounts, settings and checkpoints move into the store', async (t) => {
  const old = await startTestServer(t, { env })
  const store = await (await startPostgres(t)).createDatabase()
  const here = await startTestServer(t, { env: { ...env, SETTEE_STORE: store } })
  const phone = await device(t)
  const desk = await device(t)
  await call(old, 'PUT', '/notes')
  await call(old, 'PUT', '/_users/org.couchdb.user:carl', {
    name: 'carl',
    password: 'one',
    roles: [],
    type: 'user',
  })
  await phone.bulkDocs(
    Array.from({ length: 500 }, (_, n) => ({ _id: `n${n}`, text: `note ${n} `.repeat(50) })),
  )
  await phone.put({
    _id: 'file',
    _attachments: { 'a.txt': { content_type: 'text/plain', data: btoa('hello') } },
  } as never)
  // Twice, so that the desk has told what it has got.
  for (const each of [phone, desk, desk, phone]) await each.sync(remote(old).db)
  const outcome = await move(addressOf(old), here)
  t.match(
    outcome.databases.find(({ name }) => name === 'notes'),
    { documents: 501, isComplete: true },
  )
  const uuid = async (server: TestServer) => ((await call(server, 'GET', '/')) as { uuid: string }).uuid
  t.equal(await uuid(here), await uuid(old))
  await old.close()

  await phone.put({ _id: 'late' })
  for (const [db, read, written] of [
    [phone, 0, 1],
    [desk, 1, 0],
  ] as const) {
    const { db: other, traffic } = remote(here)
    const { push, pull } = await db.sync(other)
    t.same([pull?.docs_read, push?.docs_written], [read, written])
    t.ok(traffic.requests < 30 && traffic.bytes < 30_000, JSON.stringify(traffic))
  }
  const file = await here.request('GET', '/notes/file/a.txt', {
    headers: { authorization: `Basic ${btoa(auth)}` },
  })
  t.equal(file.text, 'hello')
  const session = await here.request('GET', '/_session', {
    headers: { authorization: `Basic ${btoa('carl:one')}` },
  })
  t.match(session, { status: 200, json: { userCtx: { name: 'carl' } } })
})
