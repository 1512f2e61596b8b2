import { randomUUID } from 'node:crypto'
import { createRxDatabase, type RxCollection, type RxJsonSchema } from 'rxdb/plugins/core'
import { type RxCouchDBReplicationState, replicateCouchDB } from 'rxdb/plugins/replication-couchdb'
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

interface Note {
  id: string
  text: string
}

const SCHEMA: RxJsonSchema<Note> = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: { id: { type: 'string', maxLength: 100 }, text: { type: 'string' } },
  required: ['id', 'text'],
}

/** Fewer than the documents of a test, so that there are several batches. */
const BATCH = 10

/** The time between attempts after an error, in milliseconds; RxDB's default is 5 s. */
const RETRY = 20

/** An empty collection on a client, closed at the end of the test. */
async function client(t: Test): Promise<RxCollection<Note>> {
  const database = await createRxDatabase({
    name: `client-${randomUUID()}`,
    storage: getRxStorageMemory(),
    multiInstance: false,
  })
  t.teardown(() => database.remove())
  const { notes } = await database.addCollections({ notes: { schema: SCHEMA } })
  return notes as RxCollection<Note>
}

interface Running {
  readonly state: RxCouchDBReplicationState<Note>
  /** The errors that RxDB reported. */
  readonly errors: unknown[]
  /** `METHOD path?query` of each request. */
  readonly seen: string[]
}

interface How {
  readonly live?: boolean
  /** Called before a request is sent, with its method and URL. */
  readonly before?: (method: string, url: string) => Promise<void>
}

/** Replicates a collection with the server's database `notes`, in both directions, until the end of the test. */
function replicate(
  t: Test,
  server: TestServer,
  collection: RxCollection<Note>,
  { live = false, before }: How = {},
): Running {
  const [seen, errors]: [string[], unknown[]] = [[], []]
  const ended = new AbortController()
  const state = replicateCouchDB<Note>({
    // The same each time, because RxDB stores the state of the replication under this name.
    replicationIdentifier: 'notes',
    collection,
    url: `${server.url}/notes/`,
    live,
    retryTime: RETRY,
    waitForLeadership: false,
    fetch: async (url, init) => {
      const method = init?.method ?? 'GET'
      seen.push(`${method} ${String(url).slice(server.url.length)}`)
      await before?.(method, String(url))
      // RxDB's own longpoll would continue until the server ends it.
      return await fetch(url, { ...init, signal: ended.signal })
    },
    pull: { batchSize: BATCH },
    push: { batchSize: BATCH },
  })
  state.error$.subscribe((error) => {
    if (!ended.signal.aborted) errors.push(error)
  })
  t.teardown(async () => {
    await state.cancel()
    ended.abort()
  })
  return { state, errors, seen }
}

/** One replication until both sides have everything. */
async function once(t: Test, server: TestServer, collection: RxCollection<Note>, how: How = {}) {
  const running = replicate(t, server, collection, how)
  await running.state.awaitInitialReplication()
  // Otherwise it may still write while the next one runs: on a busy machine, it once brought a removed note back.
  await running.state.cancel()
  t.strictSame(running.errors, [])
  return running
}

async function serverWithNotes(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  return server
}

async function texts(collection: RxCollection<Note>): Promise<Record<string, string>> {
  const found = await collection.find().exec()
  return Object.fromEntries(found.map(({ id, text }) => [id, text]))
}

async function textsThere(server: TestServer): Promise<Record<string, string>> {
  const { rows } = (await server.request('GET', '/notes/_all_docs?include_docs=true')).json
  return Object.fromEntries(rows.map(({ doc }: { doc: Note & { _id: string } }) => [doc._id, doc.text]))
}

t.test('one-shot replication', async (t) => {
  t.test('copies notes from client to client, in batches', async (t) => {
    const server = await serverWithNotes(t)
    const [phone, desk] = [await client(t), await client(t)]
    await phone.bulkInsert(Array.from({ length: 35 }, (_, n) => ({ id: `phone-${n}`, text: `wört ${n} 🍎` })))
    await desk.bulkInsert(Array.from({ length: 15 }, (_, n) => ({ id: `desk-${n}`, text: `${n}` })))
    const { seen } = await once(t, server, phone)
    await once(t, server, desk)
    await once(t, server, phone)
    const there = await textsThere(server)
    t.equal(Object.keys(there).length, 50)
    t.strictSame(await texts(phone), there)
    t.strictSame(await texts(desk), there)
    // As RxDB sends them: unescaped, with a bare question mark, and with a heartbeat on a feed that has none.
    t.ok(seen.includes('POST /notes/_all_docs?'))
    t.ok(seen.includes('POST /notes/_bulk_docs?'))
    t.ok(
      seen.includes(
        `GET /notes/_changes?style=all_docs&feed=normal&include_docs=true&since=0&heartbeat=60000&limit=${BATCH}&seq_interval=${BATCH}`,
      ),
    )
  })

  t.test('copies edits and deletions', async (t) => {
    const server = await serverWithNotes(t)
    const [phone, desk] = [await client(t), await client(t)]
    await phone.bulkInsert(['edited', 'deleted', 'by curl'].map((id) => ({ id, text: 'first' })))
    await once(t, server, phone)
    await once(t, server, desk)
    await desk.upsert({ id: 'edited', text: 'second' })
    await desk.findOne('deleted').remove()
    await once(t, server, desk)
    const { _rev } = (await server.request('GET', '/notes/by%20curl')).json
    t.match((await server.request('DELETE', `/notes/by%20curl?rev=${_rev}`)).status, 200)
    await once(t, server, phone)
    t.strictSame(await texts(phone), { edited: 'second' })
    t.strictSame(await textsThere(server), { edited: 'second' })
    t.match((await server.request('GET', '/notes')).json, { doc_count: 1, doc_del_count: 2 })
    t.match((await server.request('GET', '/notes/deleted')).json, { error: 'not_found', reason: 'deleted' })
  })

  t.test('writes without a revision where a note was deleted', async (t) => {
    const server = await serverWithNotes(t)
    const phone = await client(t)
    await phone.insert({ id: 'back', text: 'first' })
    await once(t, server, phone)
    await phone.findOne('back').remove()
    await once(t, server, phone)
    await phone.insert({ id: 'back', text: 'again' })
    await once(t, server, phone)
    t.match((await server.request('GET', '/notes/back')).json, { _rev: /^3-/, text: 'again' })
  })

  t.test('leaves a conflict to the client, which accepts the server’s version', async (t) => {
    const server = await serverWithNotes(t)
    const [phone, desk] = [await client(t), await client(t)]
    await phone.insert({ id: 'note', text: 'first' })
    await once(t, server, phone)
    await once(t, server, desk)
    await phone.upsert({ id: 'note', text: 'of the phone' })
    await desk.upsert({ id: 'note', text: 'of the desk' })
    await once(t, server, desk)
    await once(t, server, phone)
    t.strictSame(await texts(phone), { note: 'of the desk' })
    const { json } = await server.request('GET', '/notes/note?conflicts=true')
    t.match(json, { _rev: /^2-/, text: 'of the desk' })
    t.notHas(json, { _conflicts: [] })
  })

  t.test('detects a conflict between its read and its write', async (t) => {
    const server = await serverWithNotes(t)
    const phone = await client(t)
    await phone.insert({ id: 'raced', text: 'of the phone' })
    let isRaced = false
    const { seen } = await once(t, server, phone, {
      before: async (_method, url) => {
        if (isRaced || !url.endsWith('/_bulk_docs?')) return
        isRaced = true
        await server.request('PUT', '/notes/raced', { body: { text: 'of another' } })
      },
    })
    t.ok(seen.includes('GET /notes/_all_docs?include_docs=true&keys=["raced"]'), 'JSON in the address')
    t.strictSame(await texts(phone), { raced: 'of another' })
    t.match((await server.request('GET', '/notes/raced')).json, { _rev: /^1-/, text: 'of another' })
  })
})

t.test('live replication', async (t) => {
  const server = await serverWithNotes(t)
  const [phone, desk] = [await client(t), await client(t)]
  const running = [phone, desk].map((collection) => replicate(t, server, collection, { live: true }))
  for (const { state } of running) await state.awaitInitialReplication()
  const same = (wanted: Record<string, string>) =>
    until(`all have ${JSON.stringify(wanted)}`, async () => {
      const all = [await texts(phone), await texts(desk), await textsThere(server)]
      return all.every((one) => JSON.stringify(one) === JSON.stringify(wanted))
    })

  await phone.insert({ id: 'a', text: 'one' })
  await same({ a: 'one' })
  await desk.upsert({ id: 'a', text: 'two' })
  await same({ a: 'two' })
  await server.request('PUT', '/notes/b', { body: { text: 'by curl' } })
  await same({ a: 'two', b: 'by curl' })
  await phone.findOne('b').remove()
  await same({ a: 'two' })
  await desk.insert({ id: 'b', text: 'again' })
  await same({ a: 'two', b: 'again' })
  const there = Array.from(
    { length: 3 * BATCH },
    (_, n) => [`c-${String(n).padStart(2, '0')}`, `${n}`] as const,
  )
  await phone.bulkInsert(there.map(([id, text]) => ({ id, text })))
  await same({ a: 'two', b: 'again', ...Object.fromEntries(there) })

  for (const { seen, errors } of running) {
    t.strictSame(errors, [])
    t.ok(seen.some((request) => request.includes('feed=longpoll')))
  }
})
