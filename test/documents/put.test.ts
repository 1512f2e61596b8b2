/** PUT and POST of one document: protocol.md 3.3, 3.5, 19.4. */
import t from 'tap'
import { ADMIN, body, openDatabase } from './helpers.ts'

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

  t.test('never existed, no rev, deleted: a tombstone is made', async (t) => {
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

  t.test('live, a rev that is no leaf or unknown: conflict', async (t) => {
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

  t.test('winner deleted, no rev: made anew upon the winning tombstone', async (t) => {
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

  t.test('winner deleted, any rev, also its own: conflict', async (t) => {
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

t.test('a new revision follows from parent, body, attachments and the deleted flag alone', async (t) => {
  const { put } = await openDatabase()
  const rev = await put('a', '{"n":1}')
  t.equal(await put('b', ' { "n" : 1 , "_id": "other", "_conflicts": ["1-x"], "_local_seq": 7 } '), rev)
  t.not(await put('c', '{"n":2}'), rev)
  t.not(await put('d', '{"n":1.0}'), rev, 'the text counts, not the number')
  t.not(await put('e', { n: 1, _deleted: true }), rev)
  t.not(await put('f', { n: 1, _attachments: { a: { data: '' } } }), rev)
})

t.test('the parent may stand in the body, the query or the header, and they must agree', async (t) => {
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
  t.match(await put('x', { _rev: rev.toUpperCase() }, { rev }), /^2-/, 'hex is compared without case')
})

t.test('_revisions overrides _rev as the parent', async (t) => {
  const { put } = await openDatabase()
  const rev = await put('x', {})
  const _revisions = { start: 1, ids: [rev.slice(2)] }
  t.match(await put('x', { _rev: UNKNOWN, _revisions }), /^2-/)
})

t.test('an _id in the body gives way to the address', async (t) => {
  const { put, get } = await openDatabase()
  await put('x', { _id: 'y' })
  t.match(await get('x'), { _id: 'x' })
  await t.rejects(get('y'), { code: 'not_found' })
})

t.test('an _id in the body must be an id, though the address counts', async (t) => {
  const { put, get } = await openDatabase({ maxDocumentIdLength: 20 })
  for (const _id of [5, null, '', '_y', '_design/', 'y'.repeat(21)]) {
    await t.rejects(put('x', { _id }), { code: 'illegal_docid' }, JSON.stringify(_id))
  }
  await t.rejects(get('x'), { code: 'not_found' })
  t.equal(await put('_local/x', { _id: 'y' }), '0-1')
})

t.test('what is refused', async (t) => {
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

t.test('members of the replicator are kept in any document', async (t) => {
  const { put, get } = await openDatabase()
  const kept = { _access: ['x'], _replication_id: 'i', _replication_state: 's', _replication_stats: { n: 1 } }
  const rev = await put('x', kept)
  t.same(await get('x'), { _id: 'x', _rev: rev, ...kept })
})

t.test('a tombstone keeps the body it came with', async (t) => {
  const { put, get } = await openDatabase()
  const first = await put('x', { a: 1 })
  const rev = await put('x', { _rev: first, _deleted: true, why: 'old' })
  await t.rejects(get('x'), { code: 'deleted' })
  t.same(await get('x', { rev }), { _id: 'x', _rev: rev, why: 'old', _deleted: true })
})

t.test('new_edits=false stores the revision as it is named', async (t) => {
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

t.test('POST makes an id, or takes the one in the body', async (t) => {
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

t.test('a fault of the store is the answer, and leaves no trace', async (t) => {
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

t.test('a long document of very many values is refused before it is read', async (t) => {
  const { database } = await openDatabase()
  const put = (text: string) => database.put(ADMIN, 'x', { bytes: Buffer.from(text) }, {})
  const refused = { code: 'document_too_large', reason: /more than 2000000 JSON values/ }
  await t.rejects(put(` {"a":[${'[],'.repeat(2_000_000)}[]]}`), refused)
  await t.rejects(put(`{"a":[${'1,'.repeat(2_000_001)}1`), refused)
  await t.rejects(put(`${' '.repeat(2 ** 20)}]`), { code: 'invalid_json' })
  t.match(await put(`${' '.repeat(2 ** 20)}{"a":[${'1,'.repeat(1000)}1]}`), { id: 'x' })
})

t.test('a design document has a bound on its values', async (t) => {
  const { database } = await openDatabase()
  const put = (values: number) => {
    const text = `{"x":[${'1,'.repeat(values)}1]}`
    return database.put(ADMIN, '_design/x', { bytes: Buffer.from(text) }, {})
  }
  const reason = /design document holds more than 50000 JSON values/
  await t.rejects(put(50_000), { code: 'document_too_large', reason })
  t.match(await put(40_000), { id: '_design/x' })
})
