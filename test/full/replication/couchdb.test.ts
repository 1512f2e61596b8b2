/** Replications with a CouchDB that is already running, by either server. It needs the address of the CouchDB (docs/testing.md). */
import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { serve as serveDatabases } from '../../threads/served.ts'

/** A server as its admin calls it. */
interface Server {
  readonly name: string
  /** With credentials, without a slash at the end. */
  readonly url: string
}

interface Database {
  readonly server: Server
  readonly name: string
}

const COUCHDB = process.env.SETTEE_COUCHDB ?? ''
const ADMIN = 'anna:secret'
const NOTES = 700

async function call(
  server: Server,
  method: string,
  path: string,
  body?: unknown,
  type?: string,
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
): Promise<any> {
  const { username, password, origin } = new URL(server.url)
  const authorization = `Basic ${btoa(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`)}`
  const answer = await request(origin + path, {
    method: method as 'GET',
    headers: { accept: 'application/json', authorization, 'content-type': type ?? 'application/json' },
    body: body instanceof Uint8Array ? body : body === undefined ? null : JSON.stringify(body),
  })
  const json: unknown = await answer.body.json()
  if (answer.statusCode < 300) return json
  throw new Error(`${server.name}: ${method} ${path} is ${answer.statusCode}: ${JSON.stringify(json)}`)
}

async function settee(t: Test, uuid: string): Promise<Server> {
  const dataDir = await temporaryFolder(t)
  const { databases } = await serveDatabases(t, { dataDir })
  await databases.adoptUuid(uuid)
  await databases.close()
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
  const { url } = await startTestServer(t, { dataDir, env })
  return { name: 'settee', url: url.replace('://', `://${ADMIN}@`) }
}

async function newDatabase(t: Test, server: Server): Promise<Database> {
  const name = `settee-test-${randomUUID()}`
  await call(server, 'PUT', `/${name}`)
  if (server.name === 'CouchDB') t.teardown(() => call(server, 'DELETE', `/${name}`))
  return { server, name }
}

async function write({ server, name }: Database, from: number, count: number): Promise<void> {
  const docs = Array.from({ length: count }, (_, n) => ({ _id: `note-${from + n}`, n: from + n }))
  await call(server, 'POST', `/${name}/_bulk_docs`, { docs })
}

async function fill(database: Database): Promise<void> {
  const { server, name } = database
  await write(database, 0, NOTES)
  const docs = [
    { _id: 'both', _rev: '2-b', _revisions: { start: 2, ids: ['b', 'a'] }, n: 2 },
    { _id: 'both', _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] }, n: 3 },
    { _id: 'both', _rev: '3-d', _revisions: { start: 3, ids: ['d', 'c', 'a'] }, _deleted: true },
    { _id: 'gone', _rev: '2-b', _revisions: { start: 2, ids: ['b', 'a'] }, _deleted: true, why: 'kept' },
    { _id: 'ü/☃ +%', _rev: '1-a', _revisions: { start: 1, ids: ['a'] } },
    { _id: '_design/d', filters: { even: 'function (doc) { return doc.n % 2 === 0 }' } },
  ].map((doc) => ({ _rev: '1-a', ...doc }))
  await call(server, 'POST', `/${name}/_bulk_docs`, { new_edits: false, docs })
  const text = Buffer.from('some text '.repeat(2000))
  const { rev } = await call(server, 'PUT', `/${name}/files/a.txt`, text, 'text/plain')
  const bytes = new Uint8Array(3_000_000).fill(7)
  await call(server, 'PUT', `/${name}/files/b%20b.bin?rev=${rev}`, bytes, 'application/octet-stream')
}

/** All leaves with their attachments. Digests differ where attachments are stored compressed. */
async function contents({ server, name }: Database): Promise<unknown> {
  const { results: rows } = await call(server, 'GET', `/${name}/_changes?style=all_docs`)
  const docs = (rows as { id: string; changes: { rev: string }[] }[]).flatMap(({ id, changes }) =>
    changes.map(({ rev }) => ({ id, rev })),
  )
  const { results } = await call(server, 'POST', `/${name}/_bulk_get?revs=true&attachments=true`, { docs })
  const without = (key: string, value: unknown) => (key === 'digest' || key === 'revpos' ? undefined : value)
  const texts = (results as object[]).map((result) => JSON.stringify(result, without))
  return texts.map((text) => JSON.parse(text)).sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
}

function keyOf({ id, docs }: { id: string; docs: { ok?: { _rev: string } }[] }): string {
  return `${id} ${docs[0]?.ok?._rev}`
}

async function replicate(by: Server, from: Database, to: Database, options: object = {}) {
  const [source, target] = [from, to].map(({ server, name }) => `${server.url}/${name}`)
  return call(by, 'POST', '/_replicate', { source, target, ...options })
}

const OPTIONS = { skip: COUCHDB === '' && 'there is no CouchDB', timeout: 300_000 }

t.test('settee and CouchDB continue what the other has begun', OPTIONS, async (t) => {
  const couch: Server = { name: 'CouchDB', url: COUCHDB.replace(/\/$/, '') }
  const here = await settee(t, (await call(couch, 'GET', '/')).uuid)
  for (const [from, to] of [[couch, here] as const, [here, couch] as const]) {
    for (const [first, second] of [[couch, here] as const, [here, couch] as const]) {
      await t.test(`${from.name} to ${to.name}, begun by ${first.name}`, async (t) => {
        const [source, target] = [await newDatabase(t, from), await newDatabase(t, to)]
        await fill(source)
        t.match(await replicate(first, source, target), { ok: true, history: [{ doc_write_failures: 0 }] })
        t.strictSame(await contents(target), await contents(source))
        await write(source, NOTES, 20)
        const { history } = await replicate(second, source, target)
        t.ok(Number.parseInt(history[0].start_last_seq, 10) > NOTES, 'from the checkpoint')
        t.equal(history.length, 2)
        t.strictSame(await contents(target), await contents(source))
        t.match(await replicate(first, source, target), { ok: true, no_changes: true })
      })
    }
  }
})

t.test('both select the same documents', OPTIONS, async (t) => {
  const couch: Server = { name: 'CouchDB', url: COUCHDB.replace(/\/$/, '') }
  const here = await settee(t, (await call(couch, 'GET', '/')).uuid)
  for (const [from, to] of [[couch, here] as const, [here, couch] as const]) {
    const source = await newDatabase(t, from)
    await fill(source)
    for (const options of [
      { filter: 'd/even' },
      { filter: '_design' },
      { selector: { n: { $lt: 10 } } },
      { doc_ids: ['note-1', 'both', 'none', '_design/d'] },
      { winning_revs_only: true },
    ]) {
      const [a, b] = [await newDatabase(t, to), await newDatabase(t, to)]
      await replicate(here, source, a, options)
      await replicate(couch, source, b, options)
      t.strictSame(await contents(a), await contents(b), `${from.name}: ${Object.keys(options)}`)
    }
  }
})
