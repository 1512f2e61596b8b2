/** PUT and POST of one document: protocol.md 3.3, 3.5, 19.4. */
import t from 'tap'
import { ADMIN, body, jsonOf, openDatabase, text } from './helpers.ts'

const UNKNOWN = '1-0123456789abcdef0123456789abcdef'

t.test('the parent of an interactive write, row by row', async (t) => {
  t.test('never existed, no rev: a first revision', async (t) => {
    const { put } = await openDatabase()
    t.match(await put('x', {}), /^1-[0-9a-f]{32}$/)
  })

  t.test('never existed, any rev: conflict', async (t) => {
    const { put, get } = await openDatabase()
    await t.rejects(put('x', { _rev: UNKNOWN }), { code: 'conflict' })
    await t.rejects(get('x'), { code: 'not_found' })
  })

  t.test('never existed, no rev, deleted: a tombstone is created', async (t) => {
    const { put, get } = await openDatabase()
    t.match(await put('x', { _deleted: true }), /^1-/)
    await t.rejects(get('x'), { code: 'deleted' })
  })

  t.test('live, no rev: conflict', async (t) => {
    const { put } = await openDatabase()
    await put('x', {})
    await t.rejects(put('x', { a: 1 }), { code: 'conflict', reason: 'Document update conflict.' })
  })

  t.test('live, the winner or any other live leaf: that leaf is extended', async (t) => {
    const { put, get, replicate } = await openDatabase()
    await replicate('x', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
    const onLoser = await put('x', { _rev: '1-a', n: 1 })
    t.match(onLoser, /^2-/)
    t.match(await get('x', { conflicts: true, revs: true }), {
      _rev: onLoser,
      _conflicts: ['1-b'],
      _revisions: { start: 2, ids: [onLoser.slice(2), 'a'] },
    })
    t.match(await put('x', { _rev: '1-b', n: 2 }), /^2-/)
  })

  t.test('live, a rev that is unknown or not a leaf: conflict', async (t) => {
    const { put } = await openDatabase()
    const first = await put('x', {})
    await put('x', { _rev: first })
    await t.rejects(put('x', { _rev: first, a: 1 }), { code: 'conflict' })
    await t.rejects(put('x', { _rev: UNKNOWN }), { code: 'conflict' })
    await t.rejects(put('x', { _rev: '9-abc' }), { code: 'conflict' })
  })

  t.test('live with a deleted leaf, the rev of that leaf: the tombstone is extended', async (t) => {
    const { put, get, replicate } = await openDatabase()
    await replicate('x', { start: 1, ids: ['b'] }, { start: 2, ids: ['d', 'a'], deleted: true })
    const revived = await put('x', { _rev: '2-d', n: 1 })
    t.match(revived, /^3-/)
    t.match(await get('x', { conflicts: true }), { _rev: revived, _conflicts: ['1-b'] })
  })

  t.test('winner deleted, no rev: recreated on the winning tombstone', async (t) => {
    const { put, get, replicate } = await openDatabase()
    await replicate(
      'x',
      { start: 2, ids: ['d', 'a'], deleted: true },
      { start: 1, ids: ['z'], deleted: true },
    )
    const rev = await put('x', { n: 1 })
    t.match(rev, /^3-/)
    t.match(await get('x', { revs: true }), { _revisions: { start: 3, ids: [rev.slice(2), 'd', 'a'] } })
  })

  t.test('winner deleted, no rev, deleted: conflict', async (t) => {
    const { put, replicate } = await openDatabase()
    await replicate('x', { start: 2, ids: ['d', 'a'], deleted: true })
    await t.rejects(put('x', { _deleted: true }), { code: 'conflict' })
  })

  t.test('winner deleted, any rev, even its own: conflict', async (t) => {
    const { put, replicate } = await openDatabase()
    await replicate('x', { start: 2, ids: ['d', 'a'], deleted: true })
    for (const _rev of ['2-d', '1-a', UNKNOWN]) await t.rejects(put('x', { _rev }), { code: 'conflict' })
  })
})

t.test('the vectors of 19.4', async (t) => {
  const { put, get, database } = await openDatabase()
  const first = await put('x', {})
  t.equal(await put('y', {}), first, 'the same edit of another document has the same rev')
  await t.rejects(put('x', {}), { code: 'conflict' })
  const second = await put('x', {}, { rev: first, revFrom: 'etag' })
  t.match(second, /^2-/)
  await t.rejects(database.remove(ADMIN, 'x', first), { code: 'conflict' })
  const third = await database.remove(ADMIN, 'x', second)
  t.match(third, { id: 'x', rev: /^3-/, deleted: true })
  await t.rejects(get('x'), { code: 'deleted' })
  await t.rejects(database.remove(ADMIN, 'x', third.rev), { code: 'deleted' })
  await t.rejects(put('x', { _rev: third.rev }), { code: 'conflict' })
  await t.rejects(put('x', { _rev: first }), { code: 'conflict' })
  t.match(await put('x', {}), /^4-/)
  t.match(await get('x', { revs: true }), { _revisions: { start: 4, ids: { length: 4 } } })
})

t.test('a new revision id depends only on parent, body, attachments and the deleted flag', async (t) => {
  const { put } = await openDatabase()
  const rev = await put('a', '{"n":1}')
  t.equal(await put('b', ' { "n" : 1 , "_id": "other", "_conflicts": ["1-x"], "_local_seq": 7 } '), rev)
  t.not(await put('c', '{"n":2}'), rev)
  t.not(await put('d', '{"n":1.0}'), rev, 'the text counts, not the number')
  t.not(await put('e', { n: 1, _deleted: true }), rev)
  t.not(await put('f', { n: 1, _attachments: { a: { data: '' } } }), rev)
})

t.test('the parent may be in the body, the query or the header, which must agree', async (t) => {
  const { put } = await openDatabase()
  const rev = await put('x', {})
  await t.rejects(put('x', { _rev: rev }, { rev: UNKNOWN, revFrom: 'query' }), {
    code: 'bad_request',
    reason: 'Document rev from request body and query string have different values',
  })
  await t.rejects(put('x', { _rev: rev }, { rev: UNKNOWN, revFrom: 'etag' }), {
    code: 'bad_request',
    reason: 'Document rev and etag have different values',
  })
  await t.rejects(put('x', {}, { rev: 'nonsense' }), { code: 'invalid_rev' })
  t.match(await put('x', { _rev: rev.toUpperCase() }, { rev }), /^2-/, 'hexadecimal ids are case-insensitive')
})

t.test('_revisions overrides _rev as the parent', async (t) => {
  const { put } = await openDatabase()
  const rev = await put('x', {})
  const _revisions = { start: 1, ids: [rev.slice(2)] }
  t.match(await put('x', { _rev: UNKNOWN, _revisions }), /^2-/)
})

t.test('the address overrides an _id in the body', async (t) => {
  const { put, get } = await openDatabase()
  await put('x', { _id: 'y' })
  t.match(await get('x'), { _id: 'x' })
  await t.rejects(get('y'), { code: 'not_found' })
})

t.test('an _id in the body must be valid, although the address overrides it', async (t) => {
  const { put, get } = await openDatabase({ maxDocumentIdLength: 20 })
  for (const _id of [5, null, '', '_y', '_design/', 'y'.repeat(21)]) {
    await t.rejects(put('x', { _id }), { code: 'illegal_docid' }, JSON.stringify(_id))
  }
  await t.rejects(get('x'), { code: 'not_found' })
  t.equal(await put('_local/x', { _id: 'y' }), '0-1')
})

t.test('refusals', async (t) => {
  const { put, store } = await openDatabase({ maxDocumentSize: 100, maxDocumentIdLength: 20 })
  const tooDeep = `{"a":${'['.repeat(513)}${']'.repeat(513)}}`
  const cases: [id: string, doc: unknown, code: string, reason?: string][] = [
    ['x', '', 'invalid_json'],
    ['x', '{', 'invalid_json'],
    ['x', '{}}', 'invalid_json'],
    ['x', '{"a":"\\ud800"}', 'invalid_json'],
    ['x', '[]', 'document_not_object'],
    ['x', 'null', 'document_not_object'],
    ['x', '[', 'invalid_json'],
    ['x', tooDeep, 'too_deep'],
    ['x', { _zing: 1 }, 'doc_validation', 'Bad special document member: _zing'],
    ['x', '{"__proto__":1}', 'doc_validation', 'Bad special document member: __proto__'],
    ['x', { _deleted: 1 }, 'doc_validation', 'Bad special document member: _deleted'],
    ['x', { _deleted: null }, 'doc_validation', 'Bad special document member: _deleted'],
    ['x', { _rev: 1 }, 'invalid_rev'],
    ['x', { _rev: '1' }, 'invalid_rev'],
    ['x', { _rev: 'x-a' }, 'invalid_rev'],
    ['x', { _revisions: { start: 'x', ids: [] } }, 'doc_validation', "_revisions.start isn't an integer."],
    ['x', { _revisions: { start: 1, ids: 'x' } }, 'doc_validation', "_revisions.ids isn't a array."],
    ['x', { _revisions: { start: 1, ids: [1] } }, 'doc_validation', "RevId isn't a string"],
    ['x', { a: 'a'.repeat(100) }, 'document_too_large', 'x'],
    ['_x', {}, 'illegal_docid'],
    ['', {}, 'illegal_docid'],
    ['y'.repeat(21), {}, 'illegal_docid', 'Document id is too long'],
  ]
  for (const [id, doc, code, reason] of cases) {
    const expected = reason === undefined ? { code } : { code, reason }
    await t.rejects(put(id, doc), expected, `${id} ${JSON.stringify(doc).slice(0, 60)}`)
  }
  t.match(await store.view(), { updateSeq: 0, docCount: 0 }, 'nothing is stored')
})

t.test('a value may be nested 512 levels deep', async (t) => {
  const { put, database } = await openDatabase()
  const deepest = `{"a":${'['.repeat(512)}${']'.repeat(512)}}`
  await put('x', deepest)
  const { json } = await database.open(ADMIN, 'x', {})
  t.match(Buffer.from(json).toString(), deepest.slice(1))
})

t.test('members that a server adds may be sent back', async (t) => {
  const { put, get } = await openDatabase()
  const sent = { a: 1, _conflicts: [], _deleted_conflicts: [], _revs_info: [], _local_seq: 1 }
  const rev = await put('x', sent)
  t.same(await get('x'), { _id: 'x', _rev: rev, a: 1 })
})

t.test('members of the replicator are stored in any document', async (t) => {
  const { put, get } = await openDatabase()
  const kept = { _access: ['x'], _replication_id: 'i', _replication_state: 's', _replication_stats: { n: 1 } }
  const rev = await put('x', kept)
  t.same(await get('x'), { _id: 'x', _rev: rev, ...kept })
})

t.test('a tombstone keeps its body', async (t) => {
  const { put, get } = await openDatabase()
  const first = await put('x', { a: 1 })
  const rev = await put('x', { _rev: first, _deleted: true, why: 'old' })
  await t.rejects(get('x'), { code: 'deleted' })
  t.same(await get('x', { rev }), { _id: 'x', _rev: rev, why: 'old', _deleted: true })
})

t.test('new_edits=false stores the revision with its id', async (t) => {
  const { put, get } = await openDatabase()
  const options = { newEdits: false }
  t.equal(await put('x', { _rev: '3-c', n: 1 }, options), '3-c')
  t.equal(
    await put('x', { n: 2 }, { ...options, rev: '4-d' }),
    '4-d',
    'a rev from the query is a path of one',
  )
  t.match(await get('x', { conflicts: true }), { _rev: '4-d', _conflicts: ['3-c'], n: 2 })
  t.equal(await put('x', { _revisions: { start: 5, ids: ['e', 'd'] } }, options), '5-e')
  t.match(await get('x', { revs: true }), { _revisions: { start: 5, ids: ['e', 'd'] } })
  await t.rejects(put('x', { n: 3 }, options), {
    code: 'bad_request',
    reason: 'When `new_edits: false`, the document needs `_rev` or `_revisions` specified',
  })
})

t.test('POST creates an id, or uses the id in the body', async (t) => {
  const { database, get } = await openDatabase()
  const made = await database.post(ADMIN, body({ n: 1 }))
  t.match(made, { id: /^[0-9a-f]{32}$/, rev: /^1-/ })
  t.match(await get(made.id), { n: 1 })
  const named = await database.post(ADMIN, body({ _id: 'x' }))
  t.equal(named.id, 'x')
  t.match(await database.post(ADMIN, body({ _id: 'x', _rev: named.rev })), { rev: /^2-/ })
  await t.rejects(database.post(ADMIN, body({ _id: 'x' })), { code: 'conflict' })
  const reason = 'Document id must be a string'
  for (const _id of [1, null, {}]) {
    await t.rejects(database.post(ADMIN, body({ _id })), { code: 'illegal_docid', reason })
  }
  t.match(await database.post(ADMIN, body({ _id: '_local/x' })), { id: '_local/x', rev: '0-1' })
})

t.test('an error of the store is the answer, and nothing is stored', async (t) => {
  let isBroken = false
  const onOperation = (operation: string) => {
    if (isBroken && operation === 'write document') throw new Error('the disk is gone')
  }
  const { put, get } = await openDatabase({}, { onOperation })
  const rev = await put('x', {})
  isBroken = true
  await t.rejects(put('x', { _rev: rev }), { code: 'internal_server_error' })
  isBroken = false
  t.match(await get('x'), { _rev: rev })
})

t.test('a long document with too many values is refused before it is parsed', async (t) => {
  const { database } = await openDatabase()
  const put = (text: string) => database.put(ADMIN, 'x', { bytes: Buffer.from(text) }, {})
  const refused = { code: 'document_too_large', reason: /more than 2000000 JSON values/ }
  await t.rejects(put(` {"a":[${'[],'.repeat(2_000_000)}[]]}`), refused)
  await t.rejects(put(`{"a":[${'1,'.repeat(2_000_001)}1`), refused)
  await t.rejects(put(`${' '.repeat(2 ** 20)}]`), { code: 'invalid_json' })
  t.match(await put(`${' '.repeat(2 ** 20)}{"a":[${'1,'.repeat(1000)}1]}`), { id: 'x' })
})

t.test('the values of a design document are limited', async (t) => {
  const { database } = await openDatabase()
  const put = (values: number) => {
    const text = `{"x":[${'1,'.repeat(values)}1]}`
    return database.put(ADMIN, '_design/x', { bytes: Buffer.from(text) }, {})
  }
  const reason = /design document holds more than 50000 JSON values/
  await t.rejects(put(50_000), { code: 'document_too_large', reason })
  t.match(await put(40_000), { id: '_design/x' })
})

// DELETE and COPY: protocol.md 3.4, 3.6.

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

t.test('a missing or deleted document is not found with any rev', async (t) => {
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

t.test('without a rev, or with a rev that is not a leaf, it is a conflict', async (t) => {
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

t.test('deleting the winner makes the next leaf the winner', async (t) => {
  const { replicate, get, database } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'] })
  await database.remove(ADMIN, 'x', '1-b')
  t.match(await get('x'), { _rev: '1-a' })
})

t.test('COPY copies body and attachments to another id', async (t) => {
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

t.test('COPY from a missing document', async (t) => {
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

// `_local` documents: protocol.md 3.8.

t.test('each write adds 1 to the revision that it names, and no write conflicts', async (t) => {
  const { put, get } = await openDatabase()
  t.equal(await put('_local/a', { n: 1 }), '0-1')
  t.equal(await put('_local/a', { n: 2 }), '0-1', 'without a rev the first again')
  t.equal(await put('_local/a', { _rev: '0-1', n: 3 }), '0-2')
  t.equal(await put('_local/a', { _rev: '0-1', n: 4 }), '0-2', 'a stale rev is taken')
  t.equal(await put('_local/a', { n: 5 }, { rev: '0-7' }), '0-8', 'from the query too')
  t.same(await get('_local/a'), { _id: '_local/a', _rev: '0-8', n: 5 })
})

t.test('they change no sequence number and no count', async (t) => {
  const { put, database, store } = await openDatabase()
  await put('_local/a', {})
  t.match(await store.view(), { updateSeq: 0, docCount: 0, deletedCount: 0 })
  t.match(await jsonOf(database.allDocs(ADMIN, 'all', {}, null)), { total_rows: 0, rows: [] })
})

t.test('a deleted _local document is missing', async (t) => {
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

t.test('rows of a bulk are in the order of the request, with _local documents at any position', async (t) => {
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

t.test('any body is returned unchanged', async (t) => {
  const { put, database } = await openDatabase()
  await put('_local/a', '{"n":1.0,"2":9007199254740993,"1":{"__proto__":1}}')
  const { json } = await database.open(ADMIN, '_local/a', {})
  t.equal(
    Buffer.from(json).toString(),
    '{"_id":"_local/a","_rev":"0-1","n":1.0,"2":9007199254740993,"1":{"__proto__":1}}\n',
  )
})

// Every method returns exactly the text that any method stored: architecture.md, "Bodies".

const MEMBERS = [
  '"n":9007199254740993',
  '"big":1e400',
  '"small":-1E-400',
  '"one":1.0,"zero":-0,"exp":1E+2',
  '"2":"two","1":"one","0":{"9":1,"8":2}',
  '"":""',
  '"escape":"\\u0041\\/\\n\\ud83d\\ude00\\u2028"',
  '"utf8":"ä\u{1f600}\u2028"',
  '"nested":{"__proto__":{"a":1},"constructor":null,"_id":"in","_rev":2}',
  '"constructor":1,"toString":[[],{}]',
  '"text":"  spaces : , stay  "',
]
const BODY = MEMBERS.join(',')

/** Every way to read a document, as text. */
async function readings(
  database: Awaited<ReturnType<typeof openDatabase>>['database'],
  id: string,
  rev: string,
) {
  const { json } = await database.open(ADMIN, id, {})
  const all = { includeDocs: true }
  return {
    get: Buffer.from(json).toString(),
    rev: Buffer.from((await database.open(ADMIN, id, { rev })).json).toString(),
    openRevs: await text(database.openRevs(ADMIN, id, 'all', {})),
    bulkGet: await text(database.bulkGet(ADMIN, body({ docs: [{ id, rev }] }), {})),
    allDocs: await text(database.allDocs(ADMIN, 'all', all, null)),
    keys: await text(database.allDocs(ADMIN, 'all', { ...all, keys: [id] }, null)),
  }
}

t.test('by PUT, POST, bulk and replication', async (t) => {
  const writes: [
    name: string,
    write: (opened: Awaited<ReturnType<typeof openDatabase>>) => Promise<unknown>,
  ][] = [
    ['PUT', ({ put }) => put('x', `{${BODY}}`)],
    ['POST', ({ database }) => database.post(ADMIN, body(`{"_id":"x",${BODY}}`))],
    ['bulk', ({ bulk }) => bulk(`{"docs":[{"_id":"x",${BODY}}]}`)],
    ['replication', ({ bulk }) => bulk(`{"new_edits":false,"docs":[{${BODY},"_id":"x","_rev":"1-a"}]}`)],
  ]
  for (const [name, write] of writes) {
    const opened = await openDatabase()
    await write(opened)
    const { _rev } = await opened.get('x')
    const exact = `{"_id":"x","_rev":"${_rev}",${BODY}}`
    const read = await readings(opened.database, 'x', _rev)
    t.equal(read.get, `${exact}\n`, name)
    for (const [way, answer] of Object.entries(read)) t.ok(answer.includes(exact), `${name}, read by ${way}`)
  }
})

t.test('after an update the old revision keeps its text', async (t) => {
  const { put, database } = await openDatabase()
  const first = await put('x', `{${BODY}}`)
  const second = await put('x', `{"_rev":"${first}","n":1.50}`)
  const at = async (rev: string) => Buffer.from((await database.open(ADMIN, 'x', { rev })).json).toString()
  t.equal(await at(first), `{"_id":"x","_rev":"${first}",${BODY}}\n`)
  t.equal(await at(second), `{"_id":"x","_rev":"${second}","n":1.50}\n`)
})

t.test('by COPY', async (t) => {
  const { put, database } = await openDatabase()
  await put('x', `{${BODY}}`)
  const { rev } = await database.copy(ADMIN, { id: 'x' }, { id: 'y' })
  const { json } = await database.open(ADMIN, 'y', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"y","_rev":"${rev}",${BODY}}\n`)
})

t.test('white space between tokens and all `_` members are removed', async (t) => {
  const { put, database } = await openDatabase()
  const rev = await put(
    'x',
    '\r\n{ "a" : 1.0 , "_conflicts" : [ "1-a" ] ,\t"b":[ 1 , 2 ],"_id":"y" , "c" : " " }\n',
  )
  const { json } = await database.open(ADMIN, 'x', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"x","_rev":"${rev}","a":1.0,"b":[1,2],"c":" "}\n`)
})

t.test('ids with characters that JSON escapes', async (t) => {
  const { put, database } = await openDatabase()
  for (const id of ['"', '\\', '\n', '\u0000', '/', 'ä\u{1f600}', '</script>']) {
    const rev = await put(id, {})
    const read = await readings(database, id, rev)
    t.equal(read.get, `{"_id":${JSON.stringify(id)},"_rev":"${rev}"}\n`)
  }
})

t.test('revision ids with characters that JSON escapes', async (t) => {
  const { replicate, get, database } = await openDatabase()
  await replicate('x', { start: 2, ids: ['"\\', 'a-b'] })
  t.match(await get('x', { revs: true, revsInfo: true }), {
    _rev: '2-"\\',
    _revisions: { ids: ['"\\', 'a-b'] },
    _revs_info: [{ rev: '2-"\\' }, { rev: '1-a-b', status: 'missing' }],
  })
  for (const answer of Object.values(await readings(database, 'x', '2-"\\'))) {
    t.doesNotThrow(() => JSON.parse(answer))
  }
})
