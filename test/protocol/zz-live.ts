import { randomUUID } from 'node:crypto'
import { createRxDatabase, type RxCollection, type RxJsonSchema } from 'rxdb/plugins/core'
import { type RxCouchDBReplicationState, replicateCouchDB } from 'rxdb/plugins/replication-couchdb'
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from './devices.ts'

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

/** Between attempts after an error, in milliseconds; RxDB's own is 5 s. */
const RETRY = 20

/** An empty collection on a client, closed at the end of the test. */
async function client(t: Test): Promise<RxCollection<Note>> {
  const database = await createRxDatabase({
    name: `client-${randomUUID()}`,
    storage: getRxStorageMemory(),
    multiInstance: false,
  })
  t.teardown(() => { console.error('rm', performance.now()); return database.remove().then(() => console.error('rmd', performance.now())) })
  const { notes } = await database.addCollections({ notes: { schema: SCHEMA } })
  return notes as RxCollection<Note>
}

interface Running {
  readonly state: RxCouchDBReplicationState<Note>
  /** What RxDB told of as errors. */
  readonly errors: unknown[]
  /** `METHOD path?query` of each request. */
  readonly seen: string[]
}

interface How {
  readonly live?: boolean
  /** Called before a request goes out, with its method and address. */
  readonly before?: (method: string, url: string) => Promise<void>
}

/** Replicates a collection with the server's database `notes`, both ways; it ends with the test. */
function replicate(
  t: Test,
  server: TestServer,
  collection: RxCollection<Note>,
  { live = false, before }: How = {},
): Running {
  const [seen, errors]: [string[], unknown[]] = [[], []]
  const ended = new AbortController()
  const state = replicateCouchDB<Note>({
    // The same each time: what it has replicated is kept under this name.
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
      // RxDB's own longpoll would go on until the server ends it.
      return await fetch(url, { ...init, signal: ended.signal })
    },
    pull: { batchSize: BATCH },
    push: { batchSize: BATCH },
  })
  state.error$.subscribe((error) => {
    if (!ended.signal.aborted) errors.push(error)
  })
  t.teardown(async () => {
    console.error('cancel', performance.now()); await state.cancel(); console.error('cancelled', performance.now())
    ended.abort()
  })
  return { state, errors, seen }
}

/** One replication until both sides have everything. */
async function once(t: Test, server: TestServer, collection: RxCollection<Note>, how: How = {}) {
  const running = replicate(t, server, collection, how)
  await running.state.awaitInitialReplication()
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
