/** Two nodes over one state in memory, each with its own HTTP layer: what one did, the other respects. */
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t from 'tap'
import { CookieJar } from 'tough-cookie'
import { CouchError } from '../../src/core/errors.ts'
import { until } from '../helpers/until.ts'
import { startTwoNodes } from './two-nodes.ts'

PouchDB.plugin(memoryAdapter)

t.test('a session of one node is one of the other, until either ends it', async (t) => {
  const { first, second } = await startTwoNodes(t)
  const login = await first('POST', '/_session', { json: { name: 'boss', password: 'secret' } })
  const cookie = String(login.headers['set-cookie']).split(';', 1)[0] ?? ''
  const userAt = async (node: typeof first) => {
    const { json } = await node('GET', '/_session', { headers: { cookie } })
    return (json as { userCtx: { name: string | null } }).userCtx.name
  }
  t.equal(await userAt(first), 'boss')
  t.equal(await userAt(second), 'boss')
  t.equal((await second('DELETE', '/_session', { headers: { cookie } })).status, 200)
  t.equal(await userAt(second), null)
  await until(async () => (await userAt(first)) === null)
})

t.test('a database that is gone here is missing only if the store does not have it', async (t) => {
  const { one, first } = await startTwoNodes(t)
  const auth = 'boss:secret'
  t.equal((await first('PUT', '/notes', { auth })).status, 201)
  const gone = async () => {
    throw new CouchError('no_database')
  }
  const handle = Object.assign(Object.create(await one.databases.get('notes')), { info: gone })
  Object.assign(one.databases, { get: async () => handle, cached: () => handle })
  // On one node, a restore or a repair of damage does it.
  for (const sharedWriters of [true, false]) {
    Object.assign(one.databases, { sharedWriters })
    const answers = async (has: () => Promise<boolean>) => {
      Object.assign(one.databases, { has })
      const { status, json } = await first('GET', '/notes', { auth })
      return [status, json]
    }
    const unavailable = (reason: RegExp) => [503, { error: 'service_unavailable', reason }]
    t.match(await answers(async () => true), unavailable(/./))
    t.strictSame(await answers(async () => false), [
      404,
      { error: 'not_found', reason: 'Database does not exist.' },
    ])
    const unreachable = await answers(async () => {
      throw new CouchError('store_unavailable')
    })
    t.match(unreachable, unavailable(/store .* cannot be reached/))
    t.same(Object.keys(unreachable[1] as object), ['error', 'reason'])
  }
})

t.test('an admin whom one node removes is none on the other', async (t) => {
  const { first, second } = await startTwoNodes(t)
  const made = await first('PUT', '/_node/_local/_config/admins/other', { json: 'word', auth: 'boss:secret' })
  t.equal(made.status, 200)
  const statusAt = async () => (await second('GET', '/_node/_local/_config', { auth: 'other:word' })).status
  await until(async () => (await statusAt()) === 200)
  await first('DELETE', '/_node/_local/_config/admins/other', { auth: 'boss:secret' })
  await until(async () => (await statusAt()) === 401)
})

t.test('a server that was set up by one node is set up for the other', async (t) => {
  const { first, second } = await startTwoNodes(t)
  const auth = 'boss:secret'
  const setup = { action: 'enable_single_node', username: 'boss', password: 'secret' }
  t.equal((await first('POST', '/_cluster_setup', { json: setup, auth })).status, 201)
  await until(async () => {
    const { json } = await second('GET', '/_cluster_setup', { auth })
    return (json as { state: string }).state === 'single_node_enabled'
  })
})

t.test(
  'a client that guesses on both nodes has as many tries on each, and is locked out by both',
  async (t) => {
    const { first, second } = await startTwoNodes(t)
    const statuses = { wrong: 0, locked: 0 }
    for (let guess = 0; guess < 30; guess++) {
      const node = guess % 2 === 0 ? first : second
      const { json } = await node('GET', '/_all_dbs', { auth: `boss:guess${guess}` })
      const { reason = '' } = json as { reason?: string }
      if (/locked/i.test(reason)) statuses.locked += 1
      else statuses.wrong += 1
    }
    t.ok(statuses.wrong <= 10, JSON.stringify(statuses))
    await until(async () => (await first('GET', '/', { auth: 'boss:secret' })).status === 403)
    t.equal((await second('GET', '/', { auth: 'boss:secret' })).status, 403)
  },
)

t.test('PouchDB syncs through both nodes in turn with one session, until it signs out', async (t) => {
  const { one, two } = await startTwoNodes(t)
  const jar = new CookieJar()
  let turn = 0
  const ask = async (path: string, init: RequestInit = {}): Promise<Response> => {
    const { url } = turn++ % 2 === 0 ? one : two
    const headers = new Headers(init.headers)
    headers.set('cookie', await jar.getCookieString('http://settee.test/'))
    const target = new URL(path)
    const answer = await fetch(`${url}${target.pathname}${target.search}`, { ...init, headers })
    for (const set of answer.headers.getSetCookie()) await jar.setCookie(set, 'http://settee.test/')
    return answer
  }
  const json = { 'content-type': 'application/json' }
  const body = JSON.stringify({ name: 'boss', password: 'secret' })
  t.equal((await ask('http://settee.test/_session', { method: 'POST', headers: json, body })).status, 200)
  const remote = new PouchDB('http://settee.test/notes', { fetch: ask })
  const local = new PouchDB(`nodes-${Date.now()}`, { adapter: 'memory' })
  t.teardown(() => local.destroy())
  await local.bulkDocs(Array.from({ length: 50 }, (_, at) => ({ _id: `note${at}`, at })))
  await local.replicate.to(remote)
  t.equal((await remote.info()).doc_count, 50)
  const copy = new PouchDB(`copy-${Date.now()}`, { adapter: 'memory' })
  t.teardown(() => copy.destroy())
  await copy.replicate.from(remote)
  t.equal((await copy.info()).doc_count, 50)
  const kept = await jar.getCookieString('http://settee.test/')
  await ask('http://settee.test/_session', { method: 'DELETE' })
  await jar.setCookie(kept, 'http://settee.test/')
  for (const { url } of [one, two]) {
    await until(async () => (await fetch(`${url}/notes`, { headers: { cookie: kept } })).status === 401)
  }
})

t.test(
  'a device token of one node is one of the other, and PouchDB loses its feed when it is revoked',
  async (t) => {
    const { two, first, second } = await startTwoNodes(t)
    const auth = 'boss:secret'
    const made = await first('POST', '/_settee/tokens', { json: { name: 'phone' }, auth })
    const { id, token } = made.json as { id: string; token: string }
    await first('PUT', '/notes', { auth })
    await first('PUT', '/notes/_security', { json: { members: { names: ['boss'] } }, auth })
    const address = two.url.replace('://', `://boss:${token}@`)
    const remote = new PouchDB(`${address}/notes`)
    const local = new PouchDB(`token-${Date.now()}`, { adapter: 'memory' })
    t.teardown(() => local.destroy())
    const sync = local.replicate.from(remote, { live: true })
    const ended = new Promise<unknown>((resolve) => sync.on('error', resolve))
    await first('PUT', '/notes/a', { json: {}, auth })
    await until(async () => (await local.info()).doc_count === 1)
    const used = async () => {
      const { tokens } = (await second('GET', '/_settee/tokens', { auth })).json as {
        tokens: { name: string; last_use: { address: string } | null }[]
      }
      return tokens
    }
    t.match(await used(), [{ name: 'phone', last_use: { address: '127.0.0.1' } }])
    const begun = Date.now()
    t.equal((await first('DELETE', `/_settee/tokens/${id}`, { auth })).status, 200)
    await until(async () => (await second('GET', '/', { auth: `boss:${token}` })).status === 401)
    // A feed that has just begun is cut off; one that waits ends in order, and the next request is refused.
    t.ok(await ended)
    t.ok(Date.now() - begun < 5000, 'within five seconds')
    t.strictSame(await used(), [])
  },
)
