/** Facts and settings of a database: its information, `_revs_limit`, `_security`. */
import t from 'tap'
import { ADMIN, openDatabase } from './helpers.ts'

t.test('the information object has its members in CouchDB’s names', async (t) => {
  const { database, put } = await openDatabase()
  await put('a', {})
  await database.remove(ADMIN, 'b', await put('b', {}))
  t.match(await database.info(ADMIN), {
    instance_start_time: /^\d{10}$/,
    db_name: 'notes',
    purge_seq: /^0-/,
    update_seq: /^3-/,
    sizes: { file: Number, external: Number, active: Number },
    props: {},
    doc_del_count: 1,
    doc_count: 1,
    disk_format_version: 8,
    compact_running: false,
    cluster: { q: 1, n: 1, w: 1, r: 1 },
  })
})

t.test('_revs_limit takes positive integers', async (t) => {
  const { database } = await openDatabase()
  t.equal(await database.revsLimit(ADMIN), 1000)
  for (const limit of [0, -1, 1.5, '5', null, {}, Number.NaN]) {
    await t.rejects(database.setRevsLimit(ADMIN, limit), { code: 'bad_request' }, String(limit))
  }
  await database.setRevsLimit(ADMIN, 7)
  t.equal(await database.revsLimit(ADMIN), 7)
})

t.test('branches are cut to the limit, and what is cut is unknown again', async (t) => {
  const { database, put, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 3)
  const revs = [await put('x', {})]
  for (let n = 0; n < 5; n += 1) revs.push(await put('x', { _rev: revs.at(-1), n }))
  const { _revisions } = await get('x', { revs: true })
  t.equal(_revisions.start, 6)
  t.same(
    _revisions.ids,
    revs
      .toReversed()
      .slice(0, 3)
      .map((rev) => rev.slice(2)),
  )
  await t.rejects(get('x', { rev: revs[2] as string }), { code: 'not_found' })
  t.match(await get('x', { rev: revs[3] as string }), { _rev: revs[3] })
  t.equal((await get('x', { revsInfo: true }))._revs_info.length, 3)
})

t.test('replicated branches are cut as well', async (t) => {
  const { database, replicate, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 2)
  await replicate('x', { start: 5, ids: ['e', 'd', 'c', 'b', 'a'] })
  t.match(await get('x', { revs: true }), { _revisions: { start: 5, ids: ['e', 'd'] } })
  await replicate('x', { start: 3, ids: ['c', 'b'] })
  t.match(
    await get('x', { conflicts: true }),
    { _rev: '5-e', _conflicts: ['3-c'] },
    'a stemmed-off history is new',
  )
})

t.test('a limit of one leaves the leaf alone', async (t) => {
  const { database, put, get } = await openDatabase()
  await database.setRevsLimit(ADMIN, 1)
  const first = await put('x', {})
  const second = await put('x', { _rev: first })
  t.match(await get('x', { revs: true }), { _rev: second, _revisions: { start: 2, ids: [second.slice(2)] } })
  await t.rejects(put('x', { _rev: first }), { code: 'conflict' })
})

t.test('a security object is stored whole and told of', async (t) => {
  const { database, secured, updateSeq } = await openDatabase()
  t.equal(await database.security(), null)
  const security = { admins: { names: ['anna'], roles: [] }, cloudant: { x: ['_reader'] } }
  await database.setSecurity(ADMIN, security)
  t.same(await database.security(), security)
  t.same(secured, [security])
  t.equal(await updateSeq(), 0)
})
