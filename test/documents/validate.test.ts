/** validate_doc_update: what it is called with, and what comes of its answer; protocol.md 9.2, 6.4. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { ADMIN, ANNA, body, NOBODY } from './helpers.ts'
import { openValidating } from './hooked-sandbox.ts'

const NO_BAD = `function (newDoc) { if (newDoc.bad) throw { forbidden: 'bad' } }`

t.test('a new document', async (t) => {
  const { validate, put, lastCall } = await openValidating()
  await validate(NO_BAD)
  await put('x', { n: 1 })
  t.strictSame(lastCall(), {
    newDoc: { _id: 'x', n: 1, _revisions: { start: 0, ids: [] } },
    oldDoc: null,
    userCtx: { db: 'notes', name: 'root', roles: ['_admin'] },
    security: {},
  })
})

t.test('an edit: _rev is the parent, and the old document is as stored', async (t) => {
  const { validate, put, lastCall } = await openValidating()
  await validate(NO_BAD)
  const attachment = { content_type: 'text/plain', data: Buffer.from('hello').toString('base64') }
  const first = await put('x', { n: 1, _attachments: { a: attachment } })
  const stub = {
    content_type: 'text/plain',
    revpos: 1,
    digest: 'md5-XUFAKrxLKna5cZ2REBfFkg==',
    length: 5,
    stub: true,
  }
  t.match(lastCall(), { newDoc: { n: 1, _attachments: { a: stub } }, oldDoc: null })
  await put('x', { _rev: first, n: 2, _attachments: { a: { stub: true } } })
  t.strictSame(lastCall(), {
    newDoc: {
      _id: 'x',
      _rev: first,
      n: 2,
      _revisions: { start: 1, ids: [first.slice(2)] },
      _attachments: { a: stub },
    },
    oldDoc: {
      _id: 'x',
      _rev: first,
      n: 1,
      _revisions: { start: 1, ids: [first.slice(2)] },
      _attachments: { a: stub },
    },
    userCtx: { db: 'notes', name: 'root', roles: ['_admin'] },
    security: {},
  })
})

t.test('deletion, and a document that is made anew, which has no old one', async (t) => {
  const { validate, put, database, lastCall } = await openValidating()
  await validate(NO_BAD)
  const first = await put('x', { n: 1 })
  const { rev } = await database.remove(ADMIN, 'x', first)
  t.match(lastCall(), { newDoc: { _id: 'x', _rev: first, _deleted: true }, oldDoc: { _rev: first, n: 1 } })
  t.match(await put('x', { n: 2 }), /^3-/)
  const { newDoc, oldDoc } = lastCall()
  t.strictSame(newDoc, { _id: 'x', n: 2, _revisions: { start: 0, ids: [] } })
  t.equal(oldDoc, null)
  t.match(rev, /^2-/)
})

t.test('a tombstone that is extended while the document lives is the old document', async (t) => {
  const { validate, put, replicate, lastCall } = await openValidating()
  await replicate('x', { start: 1, ids: ['a'] }, { start: 1, ids: ['b'], deleted: true, doc: { gone: 1 } })
  await validate(NO_BAD)
  await put('x', { _rev: '1-b', n: 2 })
  t.strictSame(lastCall().oldDoc, {
    _id: 'x',
    _rev: '1-b',
    gone: 1,
    _deleted: true,
    _revisions: { start: 1, ids: ['b'] },
  })
})

t.test(
  'a replicated revision: _rev is its own, the old document its nearest ancestor that is kept',
  async (t) => {
    const { validate, replicate, lastCall } = await openValidating()
    await validate(NO_BAD)
    await replicate('x', { start: 2, ids: ['b', 'a'], doc: { n: 2 } })
    t.strictSame(lastCall().newDoc, {
      _id: 'x',
      _rev: '2-b',
      n: 2,
      _revisions: { start: 2, ids: ['b', 'a'] },
    })
    t.equal(lastCall().oldDoc, null, 'of its ancestors no body is there')
    await replicate('x', { start: 5, ids: ['e', 'd', 'c', 'b', 'a'], deleted: true, doc: { n: 5 } })
    t.match(lastCall(), {
      newDoc: { _rev: '5-e', _deleted: true, n: 5 },
      oldDoc: { _rev: '2-b', n: 2, _revisions: { start: 2, ids: ['b', 'a'] } },
    })
    await replicate('x', { start: 3, ids: ['other', 'b', 'a'] })
    t.match(lastCall().oldDoc, { _rev: '2-b' }, 'a conflict from there on')
    await replicate('x', { start: 6, ids: ['f', 'e'] })
    t.match(lastCall().oldDoc, { _rev: '5-e', _deleted: true }, 'a tombstone is an ancestor like any other')
    await replicate('x', { start: 7, ids: ['unrelated'] })
    t.equal(lastCall().oldDoc, null)
  },
)

t.test('revisions that are known or do not become leaves are not validated', async (t) => {
  const { validate, replicate, sandbox, updateSeq } = await openValidating()
  await replicate('x', { start: 3, ids: ['c', 'b', 'a'], doc: { bad: true } })
  await validate(NO_BAD)
  const seq = await updateSeq()
  t.same(await replicate('x', { start: 3, ids: ['c', 'b', 'a'], doc: { bad: true } }), [])
  t.same(await replicate('x', { start: 2, ids: ['b', 'a'], doc: { bad: true } }), [])
  t.same(await replicate('x', { start: 3, ids: ['c'], doc: { bad: true } }), [])
  t.equal(sandbox.asked.length, 0)
  t.equal(await updateSeq(), seq)
})

t.test('what is decided before a function is asked: conflicts, stubs, rights', async (t) => {
  const { validate, put, bulk, database, sandbox } = await openValidating()
  await validate(NO_BAD)
  await put('x', {})
  sandbox.asked.length = 0
  await t.rejects(put('x', { bad: true }), { code: 'conflict' })
  await t.rejects(put('y', { bad: true, _attachments: { a: { stub: true } } }), { code: 'missing_stub' })
  await t.rejects(database.put(NOBODY, 'y', body({ bad: true }), {}), { code: 'unauthorized' })
  t.match(await bulk({ docs: [{ _id: 'x', bad: true }] }), [{ id: 'x', error: 'conflict' }])
  t.equal(sandbox.asked.length, 0)
})

t.test('the user and the security object', async (t) => {
  const { validate, put, database, lastCall } = await openValidating()
  await validate(`function (newDoc, oldDoc, userCtx, secObj) {
    if (userCtx.name !== newDoc.owner) throw { unauthorized: 'not yours, ' + userCtx.name + ' of ' + userCtx.db }
    if (secObj.frozen) throw { forbidden: 'frozen' }
  }`)
  const security = { members: { names: [], roles: [] }, frozen: false }
  await database.setSecurity(ADMIN, security)
  await database.put(ANNA, 'x', body({ owner: 'anna' }), {})
  t.strictSame(lastCall().userCtx, { db: 'notes', name: 'anna', roles: [] })
  t.strictSame(lastCall().security, security)
  const reason = 'not yours, root of notes'
  await t.rejects(put('y', { owner: 'anna' }), { code: 'unauthorized', reason }, 'admins are not exempt')
  await t.rejects(database.put(NOBODY, 'y', body({ owner: 'anna' }), {}), {
    code: 'unauthorized',
    reason: 'not yours, null of notes',
  })
  await database.setSecurity(ADMIN, { ...security, frozen: true })
  await t.rejects(put('y', { owner: 'root' }), { code: 'forbidden', reason: 'frozen' })
})

t.test('every validate function must be passed; the first that refuses is heard', async (t) => {
  const { validate, put, get, sandbox } = await openValidating()
  await validate(`function (doc) { if (doc.a) throw { forbidden: 'a' } }`, 'first')
  await validate(`function (doc) { if (doc.b) throw { forbidden: 'b' } }`, 'second')
  await put('_design/views', { views: { all: { map: 'function (doc) {}' } } })
  await put('_design/other-language', { language: 'erlang', validate_doc_update: 'fun' })
  await put('x', {})
  await t.rejects(put('y', { a: 1, b: 1 }), { code: 'forbidden', reason: 'a' })
  await t.rejects(put('y', { b: 1 }), { code: 'forbidden', reason: 'b' })
  t.same(
    sandbox.asked.map(({ fn }) => fn.ddoc),
    ['_design/first', '_design/second', '_design/first', '_design/first', '_design/second'],
  )
  const gone = await get('_design/first')
  await put('_design/first', {
    _rev: gone._rev,
    _deleted: true,
    validate_doc_update: gone.validate_doc_update,
  })
  await put('y', { a: 1 })
  const kept = await get('_design/second')
  await put('_design/second', { _rev: kept._rev })
  await put('z', { a: 1, b: 1 })
})

t.test('a member whose name is escaped is that member', async (t) => {
  const { put } = await openValidating()
  const text = String.raw`{"validate_doc\u005fupdate":"function () { throw { forbidden: 'no' } }"}`
  await put('_design/x', text)
  await t.rejects(put('y', {}), { code: 'forbidden' })
})

t.test(
  'design and _local documents are not validated, so that a broken function can be repaired',
  async (t) => {
    const { validate, put, bulk, database } = await openValidating()
    await validate('function () { throw { forbidden: "nothing" } }')
    await t.rejects(put('x', {}), { code: 'forbidden' })
    t.match(await put('_local/x', {}), '0-1')
    await put('_design/other', { language: 'javascript' })
    t.match(await bulk({ docs: [{ _id: '_design/more' }, { _id: '_local/y' }, { _id: 'x' }] }), [
      { ok: true },
      { ok: true },
      { error: 'forbidden' },
    ])
    await validate('this is no function')
    await t.rejects(put('x', {}), { code: 'compilation_error' })
    const { rev } = await database.remove(
      ADMIN,
      '_design/check',
      (await validate('function () {}')) as string,
    )
    t.match(rev, /^4-/)
    t.match(await put('x', {}), /^1-/)
  },
)

t.test('what a function throws', async (t) => {
  const { validate, put, bulk } = await openValidating()
  await validate('function (doc) { throw doc.thrown }')
  const cases: [thrown: unknown, code: string, reason: unknown, status: number][] = [
    [{ forbidden: 'text' }, 'forbidden', 'text', 403],
    [{ forbidden: { any: ['json', 1] } }, 'forbidden', { any: ['json', 1] }, 403],
    [{ unauthorized: 'log in' }, 'unauthorized', 'log in', 401],
    ['text', 'function_error', 'text', 500],
  ]
  for (const [thrown, code, reason, status] of cases) {
    await t.rejects(put('x', { thrown }), { code, reason, status })
    const { error } = new CouchError(code as 'forbidden')
    t.same(await bulk({ docs: [{ _id: 'x', thrown }] }), [{ id: 'x', error, reason }])
    t.same(await bulk({ new_edits: false, docs: [{ _id: 'x', _rev: '1-a', thrown }] }), [
      { id: 'x', rev: '1-a', error, reason },
    ])
  }
  await t.rejects(put('x', {}), { code: 'function_error', status: 500 }, 'undefined')
})

t.test('every way to write a document', async (t) => {
  const { validate, put, replicate, database } = await openValidating()
  const rev = await put('x', { bad: true })
  await validate(NO_BAD)
  const refused = { code: 'forbidden', reason: 'bad' }
  await t.rejects(put('y', { bad: true }), refused)
  await t.rejects(database.post(ADMIN, body({ bad: true })), refused)
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: 'y' }), refused)
  await t.rejects(put('y', { _rev: '1-a', bad: true }, { newEdits: false }), refused)
  t.match(await replicate('y', { start: 1, ids: ['a'], doc: { bad: true } }), [
    { rev: '1-a', error: 'forbidden' },
  ])
  await validate(`function (newDoc) { if (newDoc._deleted) throw { forbidden: 'kept' } }`)
  await t.rejects(database.remove(ADMIN, 'x', rev), { code: 'forbidden', reason: 'kept' })
  await t.rejects(put('x', { _rev: rev, _deleted: true }), { code: 'forbidden', reason: 'kept' })
  t.match(await replicate('x', { start: 2, ids: ['b', rev.slice(2)], deleted: true }), [{ reason: 'kept' }])
})

t.test('edits of an attachment are edits of its document', async (t) => {
  const { validate, put, get, database, lastCall } = await openValidating()
  await validate(`function (newDoc) { if ((newDoc._attachments || {}).bad) throw { forbidden: 'bad name' } }`)
  const rev = await put('x', { n: 1 })
  const options = { type: 'text/plain', encoding: null, rev }
  await t.rejects(database.putAttachment(ADMIN, 'x', 'bad', body('hi'), options), {
    code: 'forbidden',
    reason: 'bad name',
  })
  const saved = await database.putAttachment(ADMIN, 'x', 'good', body('hi'), options)
  t.match(lastCall(), {
    newDoc: { _rev: rev, n: 1, _attachments: { good: { revpos: 2, length: 2, stub: true } } },
    oldDoc: { _rev: rev, n: 1 },
  })
  await database.removeAttachment(ADMIN, 'x', 'good', saved.rev)
  t.match(lastCall(), { oldDoc: { _attachments: { good: { length: 2 } } } })
  t.notOk((lastCall().newDoc as { _attachments?: unknown })._attachments)
  t.match(await get('x'), { _rev: /^3-/ })
})

t.test('a design document that is purged validates no more', async (t) => {
  const { validate, put, database } = await openValidating()
  const rev = await validate(NO_BAD)
  await t.rejects(put('x', { bad: true }), { code: 'forbidden' })
  await database.purge(ADMIN, body({ '_design/check': [rev] }))
  t.match(await put('x', { bad: true }), /^1-/)
})

t.test('a copy that becomes a design document is checked as one', async (t) => {
  const { put, database } = await openValidating()
  await put('x', { views: { a: {} } })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: '_design/x' }), { code: 'invalid_design_doc' })
})
