/** `/_settee/moves`: moves over HTTP, between listening servers. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { bodyFilesOf } from '../../src/config/settings.ts'
import { AMPLE_SPACE } from '../../src/core/types.ts'
import { Moves } from '../../src/move/moves.ts'
import { Claims } from '../../src/threads/claims.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { sharedRecords } from '../storage/memory/records.ts'
import { addressOf, auth, call, env } from './moving.ts'

/** The port of a server that accepts requests and never answers. */
async function silentPort(t: Test): Promise<number> {
  const silent = createServer(() => undefined)
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    silent.closeAllConnections()
    silent.close()
  })
  return (silent.address() as AddressInfo).port
}

async function ended(server: TestServer, id: string) {
  for (;;) {
    const run = await call(server, 'GET', `/_settee/moves/${id}`)
    if (run.ended_at !== null) return run
    await sleep(20)
  }
}

t.test('a plan, the move, and what became of it', async (t) => {
  const [old, here] = [await startTestServer(t, { env }), await startTestServer(t, { env })]
  for (const name of ['a', 'b']) {
    await call(old, 'PUT', `/${name}`)
    await call(old, 'PUT', `/${name}/_security`, { members: { names: ['bob'], roles: [] } })
    await call(old, 'POST', `/${name}/_bulk_docs`, { docs: [{ _id: '1' }, { _id: '2' }] })
  }
  await call(old, 'PUT', '/_replicator')
  const source = addressOf(old)

  t.same(await call(here, 'GET', '/_settee/moves'), { moves: [] })
  const { id: planned } = await call(here, 'POST', '/_settee/moves', { source, dry_run: true })
  const plan = await ended(here, planned)
  t.match(plan, {
    from: `${old.url}/`.replace(/\/+$/, '/'),
    dry_run: true,
    state: 'planned',
    error: null,
    progress: null,
    plan: { takes_uuid: true, databases: 3, left: 1, documents: 5, deleted: 0 },
    has_uuid: null,
  })
  const rows = await call(here, 'GET', `/_settee/moves/${planned}/databases?limit=2&skip=2`)
  t.match(rows, { total: 4, skip: 2, databases: [{ name: 'b' }, { name: '_replicator', state: 'left' }] })
  t.equal((await here.request('GET', '/a', { auth })).status, 404, 'nothing was changed')

  const { id } = await call(here, 'POST', '/_settee/moves', { source, databases: ['a', 'b'] })
  const run = await ended(here, id)
  t.match(run, { state: 'done', results: { complete: 2, incomplete: 0, failed: 0 }, has_uuid: true })
  const { databases } = await call(here, 'GET', `/_settee/moves/${id}/databases`)
  t.match(databases, [
    { name: 'a', target: 'a', state: 'moved', found: 'new', result: { complete: true, documents: 2 } },
    { name: 'b', state: 'moved' },
  ])
  t.equal(databases[0].result.there, databases[0].result.here)
  t.match(await call(here, 'GET', '/b'), { doc_count: 2 })
  t.equal((await here.request('GET', `/_settee/moves/${planned}`, { auth })).status, 404, 'only the last')

  const { moves } = await call(here, 'GET', '/_settee/moves')
  t.notMatch(JSON.stringify([moves, rows, databases]), 'secret', 'no answer has the password')
})

t.test('one at a time; it can be stopped, and is a task meanwhile', async (t) => {
  const here = await startTestServer(t, { env })
  const source = `http://anna:hidden-word@127.0.0.1:${await silentPort(t)}`
  const { id } = await call(here, 'POST', '/_settee/moves', { source })
  t.match(await call(here, 'GET', '/_active_tasks'), [{ type: 'move', move: id, progress: 0 }])
  const second = await here.request('POST', '/_settee/moves', { auth, body: { source, dry_run: true } })
  t.equal(second.status, 409)
  t.equal((await here.request('DELETE', '/_settee/moves/x', { auth })).status, 404)
  t.same(await call(here, 'DELETE', `/_settee/moves/${id}`), { ok: true })
  t.match(await call(here, 'GET', `/_settee/moves/${id}`), { state: 'stopped', error: null })
  t.equal((await here.request('DELETE', `/_settee/moves/${id}`, { auth })).status, 404, 'it has ended')
  t.same(await call(here, 'GET', '/_active_tasks'), [])

  const other = await call(here, 'POST', '/_settee/moves', { source })
  t.ok(other.id, 'another one can begin')
  // The server stops in the middle.
  await here.close()
})

t.test('what is refused, without a word of the address', async (t) => {
  const here = await startTestServer(t, { env })
  const bodies = [
    {},
    [],
    { source: 7 },
    { source: '/etc/passwd' },
    { source: 'file:///etc/hidden-word' },
    { source: 'http://a:hidden-word@' },
    { source: 'http://a:hidden-word@h', databases: [] },
    { source: 'http://a:hidden-word@h', databases: [7] },
    { source: 'http://a:hidden-word@h', merge: 'yes' },
  ]
  for (const body of bodies) {
    const { status, text } = await here.request('POST', '/_settee/moves', { auth, body })
    t.equal(status, 400, text)
    t.notMatch(text, 'hidden-word')
  }
  const token = await call(here, 'POST', '/_settee/tokens', { name: 'tool', admin: true })
  const body = { source: 'http://127.0.0.1:1' }
  const byToken = await here.request('POST', '/_settee/moves', { auth: `anna:${token.token}`, body })
  t.equal(byToken.status, 403)
  const { id } = await call(here, 'POST', '/_settee/moves', {
    source: 'http://anna:hidden-word@127.0.0.1:1/',
    dry_run: true,
  })
  const run = await ended(here, id)
  t.match(run, { state: 'failed', error: { error: 'replication_failed' }, plan: null })
  t.notMatch(JSON.stringify(run), 'hidden-word')
})

t.test('two nodes do not move at once', async (t) => {
  const url = `http://127.0.0.1:${await silentPort(t)}/`
  const request = { url, databases: null, keepsUuid: false, isMerged: false }
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  const records = sharedRecords(2)
  const claims = records.map(
    (each) => new Claims({ records: each, onFault: (fault) => t.fail(String(fault)) }),
  )
  const databases = {} as Databases
  const files = bodyFilesOf(config, () => AMPLE_SPACE, '')
  const [one, two] = claims.map(
    (each) => new Moves({ config, claims: each, databases, dataDir: '', files }),
  ) as [Moves, Moves]
  const stop = new AbortController()
  const moving = one.run(request, {}, stop.signal).catch(() => undefined)
  while (records[0]?.all('claim').length === 0) await sleep(5)
  await t.rejects(two.run(request, {}), { code: 'conflict' })
  t.equal(two.isBusy, false)
  stop.abort()
  await moving
  t.same(records[0]?.all('claim'), [], 'it is released at the end')
  await Promise.all(claims.map((each) => each.close()))
})
