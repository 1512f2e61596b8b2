/** What is read of another server as a whole, from settee and from servers that lack some of CouchDB's calls. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { RemoteConnections } from '../../src/replication/remote/remote-requests.ts'
import { RemoteServer } from '../../src/replication/remote/remote-server.ts'
import { readServer } from '../../src/replication/requests/replication-request.ts'
import { startTestServer } from '../helpers/server.ts'

const OPTIONS = { mayBePrivate: true, proxy: undefined, timeoutMs: 30_000, verifiesCertificates: true }
const { signal } = new AbortController()

function remoteServer(t: Test, url: string): RemoteServer {
  const connections = new RemoteConnections()
  t.teardown(() => connections.close())
  return new RemoteServer(readServer(url), connections, OPTIONS)
}

async function listOf<T>(items: AsyncIterable<T> | null): Promise<T[]> {
  const list: T[] = []
  for await (const item of items ?? []) list.push(item)
  return list
}

/** A server that answers each path, with or without its query, with one JSON text, and others with 404. */
async function fixedServer(t: Test, answers: Readonly<Record<string, string>>): Promise<string> {
  const server = createServer((request, response) => {
    const { url = '' } = request
    const answer = answers[url] ?? answers[new URL(url, 'http://x').pathname]
    response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' })
    response.end(answer ?? '{"error":"not_found","reason":"missing"}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

t.test('everything besides the documents is read from settee', async (t) => {
  const auth = 'anna:secret'
  const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
  const call = async (method: string, path: string, body?: unknown) =>
    (await server.request(method, path, { auth, ...(body !== undefined && { body }) })).json
  await call('PUT', '/notes%2Fof%2Banna')
  await call('PUT', '/notes%2Fof%2Banna/one', {})
  await call('PUT', '/notes%2Fof%2Banna/_revs_limit', 7)
  await call('PUT', '/notes%2Fof%2Banna/_security', { members: { names: ['bob'] } })
  for (let n = 0; n < 101; n++) await call('PUT', `/notes%2Fof%2Banna/_local/${n}`, { n: 1 })
  await server.request('PUT', '/notes%2Fof%2Banna/_local/z', { auth, body: '{"n":9007199254740993}' })
  const remote = remoteServer(t, server.url.replace('://', `://${auth}@`))
  t.equal(remote.address, `${server.url}/`)
  t.equal((await remote.welcome(signal)).uuid, (await call('GET', '/')).uuid)
  const names = await listOf(remote.databaseNames(signal))
  t.ok(names.includes('notes/of+anna') && names.includes('_users'))
  t.equal((await remote.config(signal))?.admins?.anna?.startsWith('-pbkdf2'), true)
  let updates = await remote.updates(null, { waits: false, signal })
  const isWritten = () =>
    updates?.updates.some(({ database, type }) => database === 'notes/of+anna' && type === 'updated')
  // A write is listed about a second later.
  while (updates !== null && !isWritten()) {
    updates = await remote.updates(updates.lastSeq, { waits: true, signal })
  }
  const after = await remote.updates(updates?.lastSeq ?? null, { waits: false, signal })
  t.same(after, { updates: [], lastSeq: updates?.lastSeq })

  const database = remote.database('notes/of+anna')
  t.match(await database.info(signal), { documents: 1, deleted: 0, isPartitioned: false })
  t.match(await database.security(signal), { members: { names: ['bob'] } })
  t.equal(await database.revsLimit(signal), 7)
  const locals = await listOf(await database.localDocs(signal))
  t.equal(locals.length, 102)
  t.match(locals.at(-1)?.toString(), '"n":9007199254740993')
  await t.rejects(remote.database('none').info(signal), /does not exist/)
})

t.test('a server may lack pages, lists of _local documents and the configuration', async (t) => {
  const all = Array.from({ length: 1000 }, (_, n) => `db${n}`)
  const url = await fixedServer(t, {
    '/': '{"couchdb":"Welcome","version":"1.6.1"}',
    '/_all_dbs': JSON.stringify(all),
    '/notes/': '{"db_name":"notes","doc_count":3,"update_seq":9,"disk_size":100}',
  })
  const remote = remoteServer(t, url)
  t.same(await remote.welcome(signal), { uuid: null, vendor: null, version: '1.6.1' })
  t.same(await listOf(remote.databaseNames(signal)), all)
  t.equal(await remote.config(signal), null)
  t.equal(await remote.updates(null, { waits: false, signal }), null)
  const notes = remote.database('notes')
  t.match(await notes.info(signal), { documents: 3, deleted: 0, fileBytes: 100, updateSeq: 9 })
  t.equal(await notes.security(signal), null)
  t.equal(await notes.revsLimit(signal), null)
  t.equal(await notes.localDocs(signal), null)
})

t.test('what is longer than any checkpoint or document is not read to its end', async (t) => {
  const long = 'x'.repeat(700_000)
  const row = (bytes: number) => `{"id":"_local/a","doc":{"_id":"_local/a","text":"${'x'.repeat(bytes)}"}}`
  const url = await fixedServer(t, {
    '/notes/_local/checkpoint': `{"session_id":"${long}","history":["${long}"]}`,
    '/notes/_local_docs?limit=0': '{"rows":[]}',
    '/notes/_local_docs': `{"rows":[${row(8_000_000)}]}`,
    '/longer/_local_docs?limit=0': '{"rows":[]}',
    '/longer/_local_docs': `{"rows":[${row(9_000_000)}]}`,
  })
  const remote = remoteServer(t, url)
  const checkpoint = remote.database('notes').peer.readDocument('_local/checkpoint', signal)
  await t.rejects(checkpoint, { fault: 'invalid_answer', message: /more than 1048576 bytes/ })
  const locals = async (name: string) => listOf(await remote.database(name).localDocs(signal))
  await t.rejects(locals('longer'), { fault: 'invalid_answer', message: /more than 8388608 bytes/ })
  t.equal((await locals('notes')).length, 1)
})
