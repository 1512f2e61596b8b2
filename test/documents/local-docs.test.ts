/** `_local` documents: protocol.md 3.8. */
import t from 'tap'
import { ADMIN, body, jsonOf, openDatabase } from './helpers.ts'

t.test('each write is one above the revision it names, and none conflicts', async (t) => {
  const { put, get } = await openDatabase()
  t.equal(await put('_local/a', { n: 1 }), '0-1')
  t.equal(await put('_local/a', { n: 2 }), '0-1', 'without a rev the first again')
  t.equal(await put('_local/a', { _rev: '0-1', n: 3 }), '0-2')
  t.equal(await put('_local/a', { _rev: '0-1', n: 4 }), '0-2', 'a stale rev is taken')
  t.equal(await put('_local/a', { n: 5 }, { rev: '0-7' }), '0-8', 'from the query too')
  t.same(await get('_local/a'), { _id: '_local/a', _rev: '0-8', n: 5 })
})

t.test('they move no sequence number and are in no count', async (t) => {
  const { put, database, store } = await openDatabase()
  await put('_local/a', {})
  t.match(await store.view(), { updateSeq: 0, docCount: 0, deletedCount: 0 })
  t.match(await jsonOf(database.allDocs(ADMIN, 'all', {}, null)), { total_rows: 0, rows: [] })
})

t.test('a deleted one is missing', async (t) => {
  const { put, get, database } = await openDatabase()
  await put('_local/a', {})
  t.match(await database.remove(ADMIN, '_local/a', '0-1'), { rev: '0-0', deleted: true })
  await t.rejects(get('_local/a'), { code: 'not_found' })
  await t.rejects(database.remove(ADMIN, '_local/a', '0-1'), { code: 'not_found' })
  await put('_local/a', {})
  t.equal(await put('_local/a', { _deleted: true }), '0-0', 'a PUT deletes as well')
  await t.rejects(get('_local/a'), { code: 'not_found' })
})

t.test('new_edits=false changes nothing for them', async (t) => {
  const { put, bulk, get } = await openDatabase()
  t.equal(await put('_local/a', { _rev: '0-1' }, { newEdits: false }), '0-2')
  t.equal(await put('_local/a', {}, { newEdits: false }), '0-1')
  t.same(
    await bulk({ new_edits: false, docs: [{ _id: '_local/b', _rev: '0-1', n: 1 }, { _id: '_local/c' }] }),
    [],
  )
  t.match(await get('_local/b'), { _rev: '0-2', n: 1 })
  t.match(await get('_local/c'), { _rev: '0-1' })
})

t.test('a bad rev is refused, and attachments are dropped as CouchDB drops them', async (t) => {
  const { put, store } = await openDatabase()
  for (const _rev of ['1-a', '0-a', '0--1', `0-${'9'.repeat(30)}`, 'x']) {
    await t.rejects(put('_local/a', { _rev }), { code: 'invalid_rev' }, _rev)
  }
  t.equal(await put('_local/a', { _attachments: { a: { data: '' } } }), '0-1')
  t.same((await store.readLocals(['_local/a']))[0]?.body, '{}')
})

t.test('its ETag changes with its revision and its body', async (t) => {
  const { put, database } = await openDatabase()
  const etag = async () => (await database.open(ADMIN, '_local/a', {})).etag
  await put('_local/a', { n: 1 })
  const first = await etag()
  t.match(first, /^"[^"]+"$/)
  t.equal(await etag(), first)
  await put('_local/a', { n: 2 })
  t.not(await etag(), first)
})

t.test('rows of a bulk come in the request order, wherever _local documents stand', async (t) => {
  const { bulk, get } = await openDatabase()
  const docs = [{ _id: '_local/a', n: 1 }, { _id: 'x' }, { _id: '_local/a', _rev: '0-1', n: 2 }, { _id: 'x' }]
  t.match(await bulk({ docs }), [
    { ok: true, id: '_local/a', rev: '0-1' },
    { ok: true, id: 'x', rev: /^1-/ },
    { ok: true, id: '_local/a', rev: '0-2' },
    { id: 'x', error: 'conflict' },
  ])
  t.match(await get('_local/a'), { n: 2 })
})

t.test('a bad _local document refuses a whole bulk', async (t) => {
  const { database, store } = await openDatabase()
  const docs = [{ _id: 'x' }, { _id: '_local/a', _rev: '1-a' }]
  await t.rejects(jsonOf(database.bulkDocs(ADMIN, body({ docs }))), { code: 'invalid_rev' })
  t.equal((await store.view()).updateSeq, 0)
})

t.test('a body of any text comes back as it was', async (t) => {
  const { put, database } = await openDatabase()
  await put('_local/a', '{"n":1.0,"2":9007199254740993,"1":{"__proto__":1}}')
  const { json } = await database.open(ADMIN, '_local/a', {})
  t.equal(
    Buffer.from(json).toString(),
    '{"_id":"_local/a","_rev":"0-1","n":1.0,"2":9007199254740993,"1":{"__proto__":1}}\n',
  )
})
