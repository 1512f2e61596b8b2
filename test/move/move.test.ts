/** `settee move` between listening servers, with PouchDB's devices. */
import t from 'tap'
import { linesOfMove } from '../../src/cli/move-report.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import { startTestServer } from '../helpers/server.ts'
import { device, remote } from '../protocol/devices.ts'
import { addressOf, call, env, move } from './moving.ts'

t.test('everything comes along, and devices go on where they were', async (t) => {
  const [old, here] = [await startTestServer(t, { env }), await startTestServer(t)]
  await call(old, 'PUT', '/notes')
  await call(old, 'PUT', '/notes/_security', { members: { names: ['bob'], roles: [] } })
  await call(old, 'PUT', '/notes/_revs_limit', 50)
  await call(old, 'PUT', '/_users/org.couchdb.user:bob', {
    name: 'bob',
    password: 'geheim',
    roles: [],
    type: 'user',
  })
  await call(old, 'PUT', '/_node/_local/_config/cors/origins', '"https://notes.example.org"')
  await call(old, 'PUT', '/_node/_local/_config/chttpd/enable_cors', '"true"')
  const phone = await device(t)
  const notes = Array.from({ length: 300 }, (_, n) => ({ _id: `n${n}`, text: `note ${n}`.repeat(20) }))
  await phone.bulkDocs(notes)
  await phone.putAttachment('n7', 'a.txt', (await phone.get('n7'))._rev, Buffer.from('hello'), 'text/plain')
  const oldAddress = `${old.url.replace('://', '://bob:geheim@')}/notes`
  await phone.sync(remote(oldAddress).db)
  await call(old, 'POST', '/notes/_bulk_docs', {
    new_edits: false,
    docs: [
      { _id: 'c', _rev: '2-b', _revisions: { start: 2, ids: ['b', 'a'] }, v: 1 },
      { _id: 'c', _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] }, v: 2 },
      { _id: 'gone', _rev: '2-d', _revisions: { start: 2, ids: ['d', 'x'] }, _deleted: true },
    ],
  })
  await call(old, 'PUT', '/notes/_local/obsidian_livesync_sync_parameters', { salt: 'x\u2028y' })

  const outcome = await move(addressOf(old), here)
  t.same(outcome.failed, [])
  const moved = outcome.databases.find(({ name }) => name === 'notes')
  t.match(moved, { documents: 301, deleted: 1, leaves: 303, isComplete: true, notes: [], localDocs: 3 })
  t.equal(moved?.newDigest, moved?.oldDigest)
  t.notMatch(JSON.stringify(outcome), 'secret')
  await old.close()

  t.equal((await call(here, 'GET', '/')).uuid, outcome.plan.uuid)
  t.same((await call(here, 'GET', '/notes/_security')).members.names, ['bob'])
  t.equal(await call(here, 'GET', '/notes/_revs_limit'), 50)
  t.match(await call(here, 'GET', '/notes/_local/obsidian_livesync_sync_parameters'), { salt: 'x\u2028y' })
  t.match(await call(here, 'GET', '/notes/c?conflicts=true'), { _rev: '2-c', _conflicts: ['2-b'] })
  t.equal(await call(here, 'GET', '/_node/_local/_config/cors/origins'), 'https://notes.example.org')
  t.match((await here.request('GET', '/notes', { auth: 'bob:geheim' })).json, { doc_count: 301 })

  // The proxy of a household leads the same address to the new server; PouchDB's ids do not contain it.
  const again = remote(`${here.url.replace('://', '://bob:geheim@')}/notes`)
  await phone.put({ _id: 'later' })
  const { push, pull } = await phone.sync(again.db)
  t.equal(push?.docs_written, 1)
  t.equal(pull?.docs_read, 3, 'the two leaves of c, and the tombstone')
  const rows = again.seen
    .filter(({ path }) => path.endsWith('/_changes'))
    .map(({ query }) => query.get('since'))
  t.ok(
    rows.every((since) => since !== '0'),
    'no feed began at 0',
  )
  t.match(await call(here, 'GET', '/notes/n7'), { _attachments: { 'a.txt': { length: 5 } } })
})

t.test('databases and accounts that people would be locked out of are named', async (t) => {
  const [old, here] = [await startTestServer(t, { env }), await startTestServer(t, { env })]
  const nobody = { names: [], roles: [] }
  const rows: [name: string, security: object, note: RegExp | null][] = [
    ['empty', {}, /^the old server admits everybody.*only admins.*PUT \/empty\/_security names members$/],
    ['admins', { admins: { names: ['bob'], roles: [] } }, /only admins have access/],
    ['lists', { members: nobody, admins: nobody }, /^open to everybody, even without a login$/],
    ['readers', { readers: nobody }, /^open to everybody/],
    ['bobs', { members: { names: ['bob'], roles: [] } }, null],
    ['default', { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } }, null],
  ]
  for (const [name, security] of rows) {
    await call(old, 'PUT', `/${name}`)
    await call(old, 'PUT', `/${name}/_security`, security)
  }
  for (const [server, name, password] of [
    [old, 'bob', 'there'],
    [here, 'bob', 'here'],
    [old, 'ann', 'a'],
    [here, 'ben', 'b'],
  ] as const)
    await call(server, 'PUT', `/_users/org.couchdb.user:${name}`, { name, password, roles: [], type: 'user' })

  const { databases, plan, failed } = await move(addressOf(old), here, { isMerged: true })
  t.same(failed, [])
  for (const [name, , note] of rows) {
    const found = plan.databases.find((each) => each.name === name)?.notes
    t.match(found, note === null ? [] : [note], name)
    t.equal(found?.length, note === null ? 0 : 1, name)
    const status = (await here.request('GET', `/${name}`, { auth: 'ben:b' })).status
    t.equal(status, note?.test('open to everybody, even without a login') ? 200 : 403, name)
  }
  // The next move reports what was opened here in the meantime, and leaves it as it is.
  await call(here, 'PUT', '/bobs/_security', { members: nobody })
  const again = await move(addressOf(old), here, { databases: ['bobs'] })
  t.match(again.plan.databases, [{ name: 'bobs', notes: [/^open to everybody/] }])

  const users = databases.find(({ name }) => name === '_users')
  t.match(users, { isComplete: true, notes: [/^the account bob cannot log in: .*settee passwd NAME/] })
  const login = async (auth: string) => (await here.request('GET', '/_session', { auth })).status
  t.same([await login('bob:here'), await login('bob:there'), await login('ann:a')], [401, 401, 200])
  const controls = await reachServer(here.dataDir)
  await controls?.setPassword({ name: 'bob', password: 'new', create: false })
  t.same([await login('bob:new'), await login('bob:here'), await login('bob:there')], [200, 401, 401])
})

t.test(
  'a database whose validate function does not compile is reported, since it takes no writes',
  async (t) => {
    const [old, here] = [await startTestServer(t, { env }), await startTestServer(t)]
    for (const name of ['closed', 'open']) {
      await call(old, 'PUT', `/${name}`)
      await call(old, 'PUT', `/${name}/a`, {})
    }
    await call(old, 'PUT', '/closed/_design/rules', {
      validate_doc_update: 'function need(doc) {}\nfunction validate(doc) { need(doc) }',
    })
    await call(old, 'PUT', '/open/_design/rules', {
      validate_doc_update: 'function need(doc) {}\nfunction (doc) { need(doc) }',
    })
    const outcome = await move(addressOf(old), here)
    t.match(
      outcome.databases.find(({ name }) => name === 'closed'),
      {
        isComplete: true,
        takesWrites: false,
        notes: [
          /^all writes are refused: validate_doc_update of _design\/rules does not compile: Expression/,
        ],
      },
    )
    t.match(
      outcome.databases.find(({ name }) => name === 'open'),
      { isComplete: true, takesWrites: true, notes: [] },
    )
    t.match(linesOfMove(outcome).at(-1), /^All documents are here, but 1 of \d databases take no writes/)
    const auth = 'anna:secret'
    t.match(await here.request('PUT', '/closed/b', { auth, body: {} }), {
      status: 500,
      json: {
        error: 'compilation_error',
        reason: /^Expression does not eval to a function\. \(function need/,
      },
    })
    t.equal((await here.request('PUT', '/open/b', { auth, body: {} })).status, 201)
  },
)
