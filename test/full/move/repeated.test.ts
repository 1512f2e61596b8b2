/** `settee move` that is interrupted, repeated, merged and refused. */
import t from 'tap'
import { reachServer } from '../../../src/control/control-socket.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'
import { addressOf, auth, call, env, move } from '../../move/moving.ts'
import { device, remote } from '../../protocol/devices.ts'
import { scriptedRemote } from '../../replication/scripted-remote.ts'

async function filled(server: TestServer, name: string, ids: readonly string[]): Promise<void> {
  await call(server, 'PUT', `/${name}`)
  await call(server, 'POST', `/${name}/_bulk_docs`, { docs: ids.map((_id) => ({ _id })) })
}

t.test('interruptions, repetitions, and databases that exist here', async (t) => {
  const old = await startTestServer(t, { env })
  const here = await startTestServer(t, { env })
  const script = await scriptedRemote(t, old.url)
  const url = addressOf(script)
  const ids = Array.from({ length: 1200 }, (_, n) => `n${n}`)

  await t.test('a move goes on where it was interrupted, and fetches what is new', async (t) => {
    await filled(old, 'notes', ids)
    await call(old, 'PUT', '/notes/_local/app', { n: 1 })
    const databases = ['notes']
    script.script(/_bulk_get/, { type: 'answer', status: 200, body: '{"results":[]}' })
    let fetches = 0
    script.judge((line) => {
      if (/_bulk_get/.test(line)) fetches += 1
      return fetches === 4 ? { type: 'answer', status: 401 } : null
    })
    const first = await move(url, here, { databases })
    t.match(first.failed, [{ name: 'notes', reason: /401/ }])
    t.equal(first.hasUuid, false)
    const { results } = await call(here, 'GET', '/notes/_changes?since=3')
    t.match(results[0]?.seq, /^1-/, 'a number of the old server is not a local one')
    script.judge(() => null)
    const before = script.requests.length
    const second = await move(url, here, { databases })
    t.match(second.databases, [{ name: 'notes', documents: 1200, isComplete: true, localDocs: 1 }])
    const requests = script.requests.slice(before)
    t.match(
      requests.find((line) => /_changes\?style=all_docs&since=(?!0&)/.test(line)),
      String,
      'the first copy went on',
    )
    t.ok(
      requests.every((line) => /^GET |_bulk_get/.test(line)),
      'the old server is only read',
    )
    await filled(old, 'more', ['x'])
    await call(old, 'PUT', '/notes/new', {})
    await call(old, 'PUT', '/notes/_local/app', { _rev: '0-1', n: 2 })
    const third = await move(url, here, { databases: null })
    t.match(
      third.databases.find(({ name }) => name === 'notes'),
      { documents: 1201, isComplete: true },
    )
    t.match(await call(here, 'GET', '/notes/_local/app'), { n: 2 })
    t.match(await call(here, 'GET', '/more'), { doc_count: 1 })
    await call(here, 'PUT', '/notes/written', {})
    await call(here, 'PUT', '/notes/_local/app', { _rev: '0-2', n: 3 })
    const fourth = await move(url, here, { databases })
    t.match(fourth.databases, [{ isComplete: true, notes: ['1 documents exist only here', /kept 1 _local/] }])
    t.match(
      await call(here, 'GET', '/notes/_local/app'),
      { n: 3 },
      'a document that was written here is kept',
    )
  })

  await t.test('a database that has not come from a move is not touched, unless it is merged', async (t) => {
    await filled(old, 'both', ['a', 'b'])
    const phone = await device(t)
    await phone.sync(remote(`${addressOf(old)}/both`).db)
    await call(here, 'PUT', '/both')
    await call(here, 'PUT', '/both/mine', {})
    await t.rejects(move(url, here, { databases: ['both'] }), /exists here/)
    t.match(await call(here, 'GET', '/both'), { doc_count: 1 })
    const merged = await move(url, here, { databases: ['both'], isMerged: true })
    t.match(merged.databases, [{ isComplete: true, notes: ['1 documents exist only here'] }])
    await phone.sync(remote(`${addressOf(here)}/both`).db)
    t.match(await phone.get('mine'), { _id: 'mine' }, 'a device gets what the old server never had')
  })

  await t.test(
    'what devices write to the old server meanwhile comes along, and moves no position',
    async (t) => {
      await filled(old, 'live', ids.slice(0, 100))
      const feed = async (server: TestServer, since: string) =>
        call(server, 'GET', `/live/_changes?style=all_docs&since=${since}`)
      const before = await feed(old, '0')
      const docs = before.results.map(({ id }: { id: string }) => ({ id }))
      const content = await call(old, 'POST', '/live/_bulk_get?revs=true', { docs })
      await call(old, 'PUT', '/live/n0', { _rev: before.results[0].changes[0].rev, text: 'again' })
      // The copy does not see the edit, and the comparison does.
      const end = { type: 'answer', status: 200 } as const
      script.script(
        /live\/_changes.*limit=500/,
        { ...end, body: JSON.stringify(before) },
        { ...end, body: JSON.stringify({ results: [], last_seq: before.last_seq }) },
      )
      script.script(/live\/_bulk_get/, { ...end, body: JSON.stringify(content) })
      const moved = await move(url, here, { databases: ['live'] })
      t.match(moved.databases, [{ documents: 100, isComplete: true, notes: [] }])
      t.equal(moved.databases[0]?.newDigest, moved.databases[0]?.oldDigest)
      const after = await feed(here, before.last_seq)
      t.same(
        after.results.map(({ id }: { id: string }) => id),
        ['n0'],
      )
      t.same(
        (await feed(here, before.results[49].seq)).results.length,
        51,
        'and the last 50 as well, after one in the middle',
      )
    },
  )

  await t.test('without a list of _local documents, ids come from the log of the old server', async (t) => {
    await filled(old, 'logged', ['a', 'b'])
    const phone = await device(t)
    const before = remote(`${addressOf(old)}/logged`)
    await phone.sync(before.db)
    await call(old, 'PUT', '/logged/_local/obsydian_livesync_milestone', { n: 1 })
    const lines = before.seen.map(
      ({ method, path }) => `[info] [<0.0.0>] 127.0.0.1 - - ${method} ${path} 200\n`,
    )
    script.judge((line) => {
      if (/_local_docs/.test(line)) return { type: 'answer', status: 404 }
      return / \/_log/.test(line) ? { type: 'answer', status: 200, body: lines.join('') } : null
    })
    const moved = await move(url, here, { databases: ['logged'] })
    t.match(moved.databases, [{ isComplete: true, localDocs: 3, notes: [/3 were found by its log/] }])
    const after = remote(`${addressOf(here)}/logged`)
    await phone.sync(after.db)
    const feeds = after.seen.filter(({ path }) => path.endsWith('/_changes'))
    t.ok(feeds.length > 0 && feeds.every(({ query }) => query.get('since') !== '0'))
    script.judge(() => null)
  })

  await t.test('a plan changes nothing, and says what stays behind', async (t) => {
    await call(old, 'PUT', '/_replicator').catch(() => undefined)
    await filled(old, 'planned', ['a'])
    await call(old, 'PUT', '/planned/_design/erl', { language: 'erlang', views: {} })
    const controls = await reachServer(here.dataDir)
    const plan = await controls?.planMove({ url, databases: null, keepsUuid: false, isMerged: false })
    t.match(
      plan?.databases.find(({ name }) => name === 'planned'),
      {
        state: 'new',
        documents: 2,
        notes: ['_design/erl: functions in erlang do not run here'],
      },
    )
    t.match(
      plan?.databases.find(({ name }) => name === 'notes'),
      { state: 'continued' },
    )
    t.ok(plan?.left.some(({ name }) => name === '_replicator'))
    t.notMatch(JSON.stringify(plan), 'secret')
    t.equal((await here.request('GET', '/planned', { auth })).status, 404)
  })

  await t.test('refusals', async (t) => {
    await t.rejects(move(script.url, here), /not a server admin/)
    await t.rejects(move('http://127.0.0.1:1/', here, { databases: ['x'] }), /could not be reached/)
    await t.rejects(move('nowhere', here), /invalid url/)
    await t.rejects(move(url, here, { databases: ['none'] }), /does not exist/)
  })
})
