/** Reading documents: protocol.md 3.1, 3.2. */
import t from 'tap'
import type { OpenOptions } from '../../src/documents/database.ts'
import { ADMIN, jsonOf, openDatabase, text } from './helpers.ts'

/** `x` with leaves 3-c and 2-d over 1-a, and the deleted leaf 2-e. */
async function stored() {
  const opened = await openDatabase()
  await opened.replicate(
    'x',
    { start: 3, ids: ['c', 'b', 'a'], doc: { n: 3 } },
    { start: 2, ids: ['d', 'a'], doc: { n: 2 } },
    { start: 2, ids: ['e', 'a'], deleted: true },
  )
  const { database } = opened
  const etag = async (options: OpenOptions, id = 'x') => (await database.open(ADMIN, id, options)).etag
  const openRevs = (revs: readonly unknown[] | 'all', options: OpenOptions = {}, id = 'x') =>
    jsonOf(database.openRevs(ADMIN, id, revs, options))
  return { ...opened, etag, openRevs }
}

t.test('a document that never was is missing, a deleted one deleted', async (t) => {
  const { get, put, database } = await openDatabase()
  await t.rejects(get('x'), { code: 'not_found', reason: 'missing' })
  const { rev } = await database.remove(ADMIN, 'x', await put('x', {}))
  await t.rejects(get('x'), { code: 'deleted', reason: 'deleted' })
  t.same(await get('x', { deleted: true }), { _id: 'x', _rev: rev, _deleted: true })
  t.same(await get('x', { rev }), { _id: 'x', _rev: rev, _deleted: true })
})

t.test('the members of a document come in CouchDB’s order', async (t) => {
  const { get, put } = await stored()
  await put('x', { _rev: '3-c', n: 4, _attachments: { a: { data: '' } } })
  const options = { revs: true, revsInfo: true, localSeq: true, conflicts: true, deletedConflicts: true }
  t.same(Object.keys(await get('x', options)), [
    '_id',
    '_rev',
    'n',
    '_revisions',
    '_revs_info',
    '_local_seq',
    '_conflicts',
    '_deleted_conflicts',
    '_attachments',
  ])
})

t.test('each option adds its member, and nothing without it', async (t) => {
  const { get } = await stored()
  const plain = { _id: 'x', _rev: '3-c', n: 3 }
  const cases: [options: OpenOptions, added: object][] = [
    [{}, {}],
    [{ revs: true }, { _revisions: { start: 3, ids: ['c', 'b', 'a'] } }],
    [
      { revsInfo: true },
      {
        _revs_info: [
          { rev: '3-c', status: 'available' },
          { rev: '2-b', status: 'missing' },
          { rev: '1-a', status: 'missing' },
        ],
      },
    ],
    [{ conflicts: true }, { _conflicts: ['2-d'] }],
    [{ deletedConflicts: true }, { _deleted_conflicts: ['2-e'] }],
    [{ localSeq: true }, { _local_seq: 1 }],
  ]
  for (const [options, added] of cases) t.same(await get('x', options), { ...plain, ...added })
})

t.test('members that would be empty are absent', async (t) => {
  const { get, put } = await openDatabase()
  const rev = await put('x', {})
  t.same(await get('x', { conflicts: true, deletedConflicts: true }), { _id: 'x', _rev: rev })
})

t.test('revs_info tells deleted revisions and those whose body is kept', async (t) => {
  const { get, put, database } = await openDatabase()
  const first = await put('x', {})
  const { rev: second } = await database.remove(ADMIN, 'x', first)
  const third = await put('x', { n: 1 })
  t.same((await get('x', { revsInfo: true }))._revs_info, [
    { rev: third, status: 'available' },
    { rev: second, status: 'deleted' },
    { rev: first, status: 'available' },
  ])
})

t.test('a revision by name', async (t) => {
  const { get, put } = await stored()
  const fourth = await put('x', { _rev: '3-c', n: 4 })
  t.match(await get('x', { rev: fourth }), { n: 4 })
  t.match(await get('x', { rev: '2-d' }), { _rev: '2-d', n: 2 }, 'a losing leaf')
  t.match(await get('x', { rev: '3-c' }), { _rev: '3-c', n: 3 }, 'an inner revision whose body is kept')
  t.match(await get('x', { rev: '2-e' }), { _rev: '2-e', _deleted: true }, 'a tombstone')
  await t.rejects(
    get('x', { rev: '1-a' }),
    { code: 'not_found', reason: 'missing' },
    'no body was ever stored',
  )
  await t.rejects(get('x', { rev: '7-no' }), { code: 'not_found', reason: 'missing' })
  for (const rev of ['', '1', 'x-1', '1-gggggggggggggggggggggggggggggggg']) {
    await t.rejects(get('x', { rev }), { code: 'invalid_rev' }, rev)
  }
  t.match(await get('x', { rev: fourth.toUpperCase() }), { _rev: fourth }, 'hex in any case')
})

t.test('with rev only revs is honoured', async (t) => {
  const { get } = await stored()
  const options = { revsInfo: true, conflicts: true, deletedConflicts: true, localSeq: true, revs: true }
  t.same(await get('x', { ...options, rev: '2-d' }), {
    _id: 'x',
    _rev: '2-d',
    n: 2,
    _revisions: { start: 2, ids: ['d', 'a'] },
  })
})

t.test('latest with rev is the best leaf that the revision leads to', async (t) => {
  const { get } = await stored()
  t.match(await get('x', { rev: '1-a', latest: true }), { _rev: '3-c' })
  t.match(await get('x', { rev: '2-b', latest: true }), { _rev: '3-c' })
  t.match(await get('x', { rev: '2-d', latest: true }), { _rev: '2-d' })
  t.match(await get('x', { rev: '2-e', latest: true }), { _rev: '2-e', _deleted: true })
  await t.rejects(get('x', { rev: '2-no', latest: true }), { code: 'not_found' })
})

t.test('the ETag is the revision, unless members came out that are not the revision’s own', async (t) => {
  const { etag, put } = await stored()
  t.equal(await etag({}), '"3-c"')
  t.equal(await etag({ revs: true }), '"3-c"')
  t.equal(await etag({ rev: '2-d' }), '"2-d"')
  t.equal(await etag({ rev: '2-d', conflicts: true, revsInfo: true }), '"2-d"')
  for (const option of ['revsInfo', 'localSeq', 'conflicts', 'deletedConflicts']) {
    t.equal(await etag({ [option]: true }), null, option)
  }
  const rev = await put('plain', {})
  t.equal(await etag({ conflicts: true, deletedConflicts: true }, 'plain'), `"${rev}"`)
})

t.test('an answer ends with a newline', async (t) => {
  const { put, database } = await openDatabase()
  const rev = await put('x', {})
  const { json } = await database.open(ADMIN, 'x', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"x","_rev":"${rev}"}\n`)
})

t.test('open_revs=all gives every leaf, the winner first', async (t) => {
  const { openRevs } = await stored()
  t.same(await openRevs('all'), [
    { ok: { _id: 'x', _rev: '3-c', n: 3 } },
    { ok: { _id: 'x', _rev: '2-d', n: 2 } },
    { ok: { _id: 'x', _rev: '2-e', _deleted: true } },
  ])
  await t.rejects(openRevs('all', {}, 'no'), { code: 'not_found' })
})

t.test('open_revs with a list gives what is there and names what is not', async (t) => {
  const { openRevs } = await stored()
  t.match(await openRevs(['2-d', '1-a', '5-no', '2-d']), [
    { ok: { _rev: '2-d' } },
    { missing: '1-a' },
    { missing: '5-no' },
  ])
  t.same(await openRevs([]), [])
  t.same(await openRevs(['1-a'], {}, 'no'), [{ missing: '1-a' }])
  await t.rejects(openRevs(['bad']), { code: 'invalid_rev' })
  await t.rejects(openRevs([1]), { code: 'invalid_rev' })
})

t.test('open_revs with latest gives the leaves below, each once', async (t) => {
  const { openRevs } = await stored()
  const revsOf = async (revs: string[]) =>
    (await openRevs(revs, { latest: true })).map(
      (row: { ok?: { _rev: string }; missing?: string }) => row.ok?._rev ?? `no ${row.missing}`,
    )
  t.same(await revsOf(['1-a']), ['3-c', '2-d', '2-e'])
  t.same(await revsOf(['2-b', '3-c', '1-a']), ['3-c', '2-d', '2-e'])
  t.same(await revsOf(['2-d', '7-no']), ['2-d', 'no 7-no'])
})

t.test('open_revs with revs', async (t) => {
  const { openRevs } = await stored()
  t.match(await openRevs(['2-d'], { revs: true }), [{ ok: { _revisions: { start: 2, ids: ['d', 'a'] } } }])
})

t.test('open_revs is one array in chunks', async (t) => {
  const { database } = await stored()
  t.match(await text(database.openRevs(ADMIN, 'x', 'all', {})), /^\[\{"ok":.*\}\]\n$/)
  t.equal(await text(database.openRevs(ADMIN, 'x', [], {})), '[]\n')
})
