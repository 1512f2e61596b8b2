/** DELETE and COPY: protocol.md 3.4, 3.6. */
import t from 'tap'
import { ADMIN, openDatabase } from './helpers.ts'

t.test('a document is deleted by its leaf', async (t) => {
  const { put, get, database } = await openDatabase()
  const rev = await put('x', { a: 1 })
  const removed = await database.remove(ADMIN, 'x', rev)
  t.match(removed, { id: 'x', rev: /^2-/, deleted: true })
  t.same(
    await get('x', { rev: removed.rev }),
    { _id: 'x', _rev: removed.rev, _deleted: true },
    'with no body',
  )
})

t.test('what is missing or deleted is not there, whatever the rev', async (t) => {
  const { put, database } = await openDatabase()
  await t.rejects(database.remove(ADMIN, 'x', '1-a'), { code: 'not_found' })
  await t.rejects(database.remove(ADMIN, 'x', undefined), { code: 'not_found' })
  await t.rejects(database.remove(ADMIN, 'x', 'nonsense'), { code: 'not_found' })
  await t.rejects(database.remove(ADMIN, '_local/x', 'nonsense'), { code: 'not_found' })
  const { rev } = await database.remove(ADMIN, 'y', await put('y', {}))
  await t.rejects(database.remove(ADMIN, 'y', rev), { code: 'deleted' })
  await t.rejects(database.remove(ADMIN, 'y', undefined), { code: 'deleted' })
  await t.rejects(database.remove(ADMIN, 'y', 'nonsense'), { code: 'deleted' })
})

t.test('without a rev, or with one that is no leaf, it is a conflict', async (t) => {
  const { put, database } = await openDatabase()
  const first = await put('x', {})
  await put('x', { _rev: first })
  await t.rejects(database.remove(ADMIN, 'x', undefined), { code: 'conflict' })
  await t.rejects(database.remove(ADMIN, 'x', first), { code: 'conflict' })
  await t.rejects(database.remove(ADMIN, 'x', '7-unknown'), { code: 'conflict' })
  await t.rejects(database.remove(ADMIN, 'x', 'nonsense'), { code: 'invalid_rev' })
})

t.test('deleting a losing leaf removes a conflict and leaves the document live', async (t) => {
  const { replicate, get, database } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
  const { rev } = await database.remove(ADMIN, 'x', '1-a')
  t.same(await get('x', { conflicts: true, deletedConflicts: true }), {
    _id: 'x',
    _rev: '1-b',
    _deleted_conflicts: [rev],
  })
})

t.test('deleting the winner lets the next leaf win', async (t) => {
  const { replicate, get, database } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
  await database.remove(ADMIN, 'x', '1-b')
  t.match(await get('x'), { _rev: '1-a' })
})

t.test('COPY takes body and attachments to another id', async (t) => {
  const { put, get, database } = await openDatabase()
  const _attachments = { 'a.txt': { content_type: 'text/plain', data: 'aGVsbG8=' } }
  const first = await put('x', { n: 1, _attachments })
  await put('x', { n: 2, _rev: first })
  const copied = await database.copy(ADMIN, { id: 'x', rev: first }, { id: 'y' })
  t.match(copied, { id: 'y', rev: /^1-/ })
  t.equal(copied.rev, first, 'the same content is the same revision')
  t.match(await get('y', { attachments: true }), {
    n: 1,
    _attachments: { 'a.txt': { content_type: 'text/plain', revpos: 1, data: 'aGVsbG8=' } },
  })
  t.match(
    await get((await database.copy(ADMIN, { id: 'x' }, { id: 'z' })).id),
    { n: 2 },
    'the winner by default',
  )
})

t.test('COPY over a document needs its rev', async (t) => {
  const { put, get, database } = await openDatabase()
  await put('x', { n: 1 })
  const rev = await put('y', { n: 2 })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: 'y' }), { code: 'conflict' })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: 'y', rev: '1-a' }), { code: 'conflict' })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: 'x' }), { code: 'conflict' })
  t.match(await database.copy(ADMIN, { id: 'x' }, { id: 'y', rev }), { rev: /^2-/ })
  t.match(await get('y'), { n: 1 })
})

t.test('COPY from what is not there', async (t) => {
  const { put, database } = await openDatabase()
  const rev = await put('x', {})
  const target = { id: 'y' }
  await t.rejects(database.copy(ADMIN, { id: 'no' }, target), { code: 'not_found' })
  await t.rejects(database.copy(ADMIN, { id: '_local/no' }, target), { code: 'not_found' })
  await t.rejects(database.copy(ADMIN, { id: 'x', rev: '2-a' }, target), { code: 'not_found' })
  await t.rejects(database.copy(ADMIN, { id: 'x', rev: 'bad' }, target), { code: 'invalid_rev' })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: '_bad' }), { code: 'illegal_docid' })
  await database.remove(ADMIN, 'x', rev)
  await t.rejects(database.copy(ADMIN, { id: 'x' }, target), { code: 'deleted' })
  t.match(
    await database.copy(ADMIN, { id: 'x', rev }, target),
    { rev: /^1-/ },
    'an old revision can be copied',
  )
})

t.test('COPY from and to _local documents', async (t) => {
  const { put, get, database } = await openDatabase()
  await put('_local/a', { n: 1 })
  t.match(await database.copy(ADMIN, { id: '_local/a' }, { id: 'x' }), { rev: /^1-/ })
  t.match(await get('x'), { n: 1 })
  t.match(await database.copy(ADMIN, { id: 'x' }, { id: '_local/b' }), { rev: '0-1' })
  t.match(await get('_local/b'), { n: 1 })
  await put('y', { _attachments: { a: { data: '' } } })
  t.match(await database.copy(ADMIN, { id: 'y' }, { id: '_local/c' }), { rev: '0-1' }, 'without attachments')
})
