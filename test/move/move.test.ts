/** `settee move` between listening servers, with PouchDB's devices. */
import t from 'tap'
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
