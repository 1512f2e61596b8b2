/** The arguments of validate_doc_update, and the effects of its result; protocol.md 9.2, 6.4. */
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { ADMIN_ONLY } from '../../src/documents/security.ts'
import { ADMIN, ANNA, body, type Json, NOBODY } from './helpers.ts'
import { openValidating } from './hooked-sandbox.ts'

const NO_BAD = `function (newDoc) { if (newDoc.bad) throw { forbidden: 'bad' } }`

t.test('a new document', async (t) => {
  const { validate, put, lastCall } = await openValidating()
  await validate(NO_BAD)
  await put('x', { n: 1 })
  t.strictSame(lastCall(), {
    newDoc: { _id: 'x', n: 1 },
    oldDoc: null,
    userCtx: { db: 'notes', name: 'root', roles: ['_admin'] },
    security: ADMIN_ONLY,
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
    security: ADMIN_ONLY,
  })
})

t.test('a deletion, and a recreated document, which has no old document', async (t) => {
  const { validate, put, database, lastCall } = await openValidating()
  await validate(NO_BAD)
  const first = await put('x', { n: 1 })
  const { rev } = await database.remove(ADMIN, 'x', first)
  t.match(lastCall(), { newDoc: { _id: 'x', _rev: first, _deleted: true }, oldDoc: { _rev: first, n: 1 } })
  t.match(await put('x', { n: 2 }), /^3-/)
  const { newDoc, oldDoc } = lastCall()
  t.strictSame(newDoc, { _id: 'x', n: 2 })
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
  'a replicated revision: _rev is its own id, the old document is its nearest stored ancestor',
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
    t.equal(lastCall().oldDoc, null, 'oldDoc is null if no ancestor has a body')
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

t.test('known revisions and revisions that do not become leaves are not validated', async (t) => {
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

t.test('conflicts, stubs and rights are checked before a function is called', async (t) => {
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

t.test('every validate function must pass; the first refusal is reported', async (t) => {
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

t.test('a member may have an escaped name', async (t) => {
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
    await t.rejects(put('x', {}), { code: 'compilation_error', status: 500 })
    for (const text of ['function need() {}\nfunction validate() {}', 'async () => {}']) {
      await validate(text)
      const reason = `Expression does not eval to a function. (${text})`
      await t.rejects(put('x', {}), { code: 'compilation_error', status: 500, reason })
      t.match(await bulk({ docs: [{ _id: 'x' }] }), [{ id: 'x', error: 'compilation_error', reason }])
    }
    const { rev } = await database.remove(
      ADMIN,
      '_design/check',
      (await validate('function () {}')) as string,
    )
    t.match(rev, /^6-/)
    t.match(await put('x', {}), /^1-/)
  },
)

t.test('the values that a function throws', async (t) => {
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

t.test('an edit of an attachment is validated as an edit of its document', async (t) => {
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

t.test('a purged design document no longer validates', async (t) => {
  const { validate, put, database } = await openValidating()
  const rev = await validate(NO_BAD)
  await t.rejects(put('x', { bad: true }), { code: 'forbidden' })
  await database.purge(ADMIN, body({ '_design/check': [rev] }))
  t.match(await put('x', { bad: true }), /^1-/)
})

t.test('a copy to a design document is checked like a design document', async (t) => {
  const { put, database } = await openValidating()
  await put('x', { views: { a: {} } })
  await t.rejects(database.copy(ADMIN, { id: 'x' }, { id: '_design/x' }), { code: 'invalid_design_doc' })
})

// Changes while verdicts are awaited: architecture.md, "The path of a save", 3.

const NO_WORSE = `function (newDoc) { if (newDoc.worse) throw { forbidden: 'worse' } }`

/** Resolves when it is told to. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

t.test('the new function decides if a design document changes between verdict and commit', async (t) => {
  const { validate, put, get, sandbox } = await openValidating()
  await validate(NO_BAD)
  let times = 0
  sandbox.beforeAnswer = async () => {
    times += 1
    if (times === 1) await validate(NO_WORSE)
  }
  await t.rejects(put('x', { worse: true }), { code: 'forbidden', reason: 'worse' })
  await t.rejects(get('x'), { code: 'not_found' })
  t.equal(times, 2)
  times = 0
  sandbox.beforeAnswer = async () => {
    times += 1
    if (times === 1) await validate(NO_BAD)
  }
  await t.rejects(
    put('x', { bad: true }),
    { code: 'forbidden', reason: 'bad' },
    'the new function refuses what the old one had accepted',
  )
  times = 0
  sandbox.beforeAnswer = async () => {
    times += 1
    if (times === 1) await validate('function () {}')
  }
  t.match(await put('x', { bad: true }), /^1-/, 'a refusal of the old function does not count')
})

t.test('a function that is added or removed between verdict and commit', async (t) => {
  const { validate, put, database, sandbox } = await openValidating()
  const rev = await validate(NO_BAD)
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await validate(NO_WORSE, 'another')
  }
  await t.rejects(put('x', { worse: true }), { code: 'forbidden', reason: 'worse' })
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await database.remove(ADMIN, '_design/check', rev)
  }
  t.match(await put('x', { bad: true }), /^1-/)
})

t.test('design documents without a validate function do not invalidate verdicts', async (t) => {
  const { validate, put, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = async () => {
    await put(`_design/${sandbox.asked.length}`, {})
  }
  t.match(await put('x', {}), /^1-/)
  t.equal(sandbox.asked.length, 1)
})

t.test('a document that changes in the meantime: a conflict, or another old document', async (t) => {
  const { validate, put, replicate, sandbox, lastCall } = await openValidating()
  await validate(NO_BAD)
  const rev = await put('x', { n: 1 })
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await put('x', { _rev: rev, n: 2 })
  }
  await t.rejects(put('x', { _rev: rev, n: 3 }), { code: 'conflict' })
  const [a, b, c] = [
    { start: 1, ids: ['a'], doc: { of: 'a' } },
    { start: 2, ids: ['b', 'a'], doc: { of: 'b' } },
    { start: 3, ids: ['c', 'b', 'a'] },
  ]
  await replicate('y', a)
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await replicate('y', b)
  }
  t.same(await replicate('y', c), [])
  t.match(lastCall().oldDoc, { of: 'b' }, 'asked again')
})

t.test('the security object changes in the meantime', async (t) => {
  const { validate, put, database, sandbox } = await openValidating()
  await validate(`function (doc, old, userCtx, secObj) { if (secObj.frozen) throw { forbidden: 'frozen' } }`)
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await database.setSecurity(ADMIN, { frozen: true })
  }
  await t.rejects(put('x', {}), { code: 'forbidden', reason: 'frozen' })
})

t.test('a write fails if the functions keep changing', async (t) => {
  const { validate, put, bulk, get, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = async () => {
    await validate(`${NO_BAD} // ${sandbox.asked.length}`)
  }
  await t.rejects(put('x', {}), { code: 'contended', status: 503 })
  await t.rejects(get('x'), { code: 'not_found' })
  t.ok(sandbox.asked.length <= 6, `after ${sandbox.asked.length} attempts`)
  await t.rejects(bulk({ docs: [{ _id: 'x' }, { _id: 'y' }] }), { code: 'contended' })
})

t.test('the same document several times in a bulk, with different verdicts', async (t) => {
  const { validate, put, bulk, get, replicate } = await openValidating()
  await validate(NO_BAD)
  const id = 'x'
  t.match(
    await bulk({
      docs: [
        { _id: id, bad: 1 },
        { _id: id, n: 1 },
        { _id: id, n: 2 },
        { _id: id, bad: 2 },
      ],
    }),
    [{ error: 'forbidden' }, { ok: true, rev: /^1-/ }, { error: 'conflict' }, { error: 'conflict' }],
  )
  const { _rev } = await get(id)
  const rows: Json = await bulk({
    docs: [
      { _id: id, _rev, bad: 1 },
      { _id: id, _rev, n: 3 },
      { _id: id, _rev, n: 4 },
    ],
  })
  t.match(rows, [{ error: 'forbidden' }, { ok: true, rev: /^2-/ }, { error: 'conflict' }])
  t.match(await get(id), { _rev: rows[1].rev, n: 3 })
  const many = Array.from({ length: 20 }, (_, n) => ({ _id: 'y', bad: n + 1 }))
  const answers: Json[] = await bulk({ docs: [...many, { _id: 'y', good: 1 }] })
  t.same(
    answers.map(({ error }) => error),
    [...many.map(() => 'forbidden'), undefined],
  )
  const failures = await replicate(
    'z',
    { start: 1, ids: ['a'], doc: { n: 1 } },
    { start: 2, ids: ['b', 'a'], doc: { bad: 1 } },
    { start: 3, ids: ['c', 'b', 'a'], doc: { n: 3 } },
    { start: 2, ids: ['d', 'a'], doc: { bad: 1 } },
  )
  t.match(failures, [
    { rev: '2-b', error: 'forbidden' },
    { rev: '2-d', error: 'forbidden' },
  ])
  t.match(await get('z', { conflicts: true, revs: true }), {
    _rev: '3-c',
    n: 3,
    _revisions: { ids: ['c', 'b', 'a'] },
  })
  t.notOk((await get('z', { conflicts: true }))._conflicts)
  await put('w', { n: 1 })
})

t.test('an edit sees the result of the previous edit in the request', async (t) => {
  const { validate, replicate, sandbox } = await openValidating()
  await validate(`function (doc, old) { if (old && old.closed) throw { forbidden: 'closed' } }`)
  const failures = await replicate(
    'x',
    { start: 1, ids: ['a'], doc: { closed: true } },
    { start: 2, ids: ['b', 'a'] },
    { start: 3, ids: ['c', 'b', 'a'] },
  )
  t.match(failures, [
    { rev: '2-b', error: 'forbidden' },
    { rev: '3-c', error: 'forbidden' },
  ])
  t.equal(failures.length, 2)
  t.equal(sandbox.asked.length, 2, 'the third is asked about again with another old document')
})

t.test('a bulk is validated with one call per function', async (t) => {
  const { validate, bulk, sandbox } = await openValidating()
  await validate(NO_BAD, 'a')
  await validate(NO_WORSE, 'b')
  const docs = Array.from({ length: 90 }, (_, n) => ({ _id: `x${n}`, ...(n % 3 === 0 && { bad: true }) }))
  const rows: Json[] = await bulk({ docs })
  t.same(
    rows.map(({ error }) => error === 'forbidden'),
    docs.map(({ bad }) => bad === true),
  )
  t.same(
    sandbox.asked.map(({ fn, calls }) => [fn.ddoc, calls.length]),
    [
      ['_design/a', 90],
      ['_design/b', 60],
    ],
  )
})

t.test('a function that exceeds its limits fails only that document', async (t) => {
  for (const code of ['function_timeout', 'function_memory'] as const) {
    const { validate, put, bulk, sandbox } = await openValidating()
    await validate(NO_BAD)
    sandbox.beforeAnswer = ({ calls }) => {
      if (calls.some(({ newDoc }) => newDoc.includes('"runs":"away"'))) throw new CouchError(code)
    }
    await t.rejects(put('x', { runs: 'away' }), { code, status: 500 })
    const docs = Array.from({ length: 30 }, (_, n) => ({ _id: `x${n}`, ...(n === 7 && { runs: 'away' }) }))
    const rows: Json[] = await bulk({ docs: [...docs, { _id: 'y', bad: true }] })
    const { error } = new CouchError(code)
    t.same(
      rows.map((row) => row.error),
      [...docs.map(({ runs }) => (runs ? error : undefined)), 'forbidden'],
    )
    t.match(await bulk({ docs: [{ _id: 'z', runs: 'away' }] }), [{ id: 'z', error }], 'a row, also by itself')
    const failures = await bulk({ new_edits: false, docs: [{ _id: 'z', _rev: '1-a', runs: 'away' }] })
    t.match(failures, [{ id: 'z', rev: '1-a', error }])
  }
})

t.test('a function that exceeds its limits on every document is not tried on all documents', async (t) => {
  const { validate, bulk, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = () => {
    throw new CouchError('function_timeout')
  }
  const rows: Json[] = await bulk({ docs: Array.from({ length: 60 }, (_, n) => ({ _id: `x${n}` })) })
  t.ok(rows.length === 60 && rows.every(({ error }) => error === 'timeout'))
  t.equal(sandbox.asked.length, 4)
})

t.test('an overloaded sandbox fails the request', async (t) => {
  const { validate, put, bulk, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = () => {
    throw new CouchError('unavailable')
  }
  await t.rejects(put('x', {}), { code: 'unavailable', status: 503 })
  await t.rejects(bulk({ docs: [{ _id: 'x' }, { _id: 'y' }] }), { code: 'unavailable' })
})

t.test('an empty validate function is missing', async (t) => {
  const { validate, put } = await openValidating()
  await validate('')
  const reason = 'missing validate_doc_update function validate_doc_update on design doc _design/check'
  await t.rejects(put('x', {}), { code: 'not_found', reason })
})

t.test('a running function delays only the request that needs it', { timeout: 20_000 }, async (t) => {
  const { validate, put, bulk, get, replicate, sandbox } = await openValidating()
  const other = await openValidating()
  await replicate('known', { start: 2, ids: ['b'] })
  await validate(NO_BAD)
  const slow = gate()
  const begun = gate()
  sandbox.beforeAnswer = async ({ calls }) => {
    if (!calls.some(({ newDoc }) => newDoc.includes('"slow":true'))) return
    begun.open()
    await slow.opened
  }
  let isDone = false
  const docs = [
    { _id: 'slow', _rev: '1-a', slow: true },
    { _id: 'known', _revisions: { start: 2, ids: ['b', 'a'] } },
  ]
  const waiting = bulk({ new_edits: false, docs }).then((rows: Json) => {
    isDone = true
    return rows
  })
  await begun.opened
  t.match(
    await get('known', { revs: true }),
    { _revisions: { ids: ['b', 'a'] } },
    'a revision that needs no validation is stored',
  )
  for (let n = 0; n < 200; n++) {
    t.match(await put(`quick-${n}`, { n }), /^1-/)
    await other.put(`quick-${n}`, { n })
  }
  t.equal(isDone, false)
  await validate(NO_BAD, 'another')
  slow.open()
  t.same(await waiting, [])
})

t.test('large documents are validated in parts, so that they are not all in memory at once', async (t) => {
  const { validate, bulk, sandbox } = await openValidating()
  const large = 'x'.repeat(1_500_000)
  const ids = Array.from({ length: 16 }, (_, n) => `x${n}`)
  const revs: Json[] = await bulk({ docs: ids.map((_id) => ({ _id, large })) })
  await validate(`function (doc, old) { if (old.large.length === doc.n) throw { forbidden: 'the same' } }`)
  const docs = revs.map(({ id, rev }, n) => ({ _id: id, _rev: rev, n: n === 11 ? large.length : n }))
  const rows: Json[] = await bulk({ docs })
  t.same(
    rows.map(({ error }) => error),
    ids.map((_id, n) => (n === 11 ? 'forbidden' : undefined)),
  )
  const asked = sandbox.asked.map(({ calls }) => calls.reduce((sum, { oldDoc }) => sum + oldDoc.length, 0))
  t.equal(sandbox.asked.flatMap(({ calls }) => calls).length, ids.length, 'each once')
  t.ok(Math.max(...asked) <= 4 * 1024 * 1024)
})

t.test('the design documents of a request do not validate its other documents', async (t) => {
  const { bulk, put } = await openValidating()
  const design = { _id: '_design/check', validate_doc_update: NO_BAD }
  const docs = [{ _id: 'a', bad: true }, design, { _id: 'b', bad: true }]
  t.match(await bulk({ docs }), [
    { ok: true, id: 'a' },
    { ok: true, id: '_design/check' },
    { ok: true, id: 'b' },
  ])
  await t.rejects(put('c', { bad: true }), { code: 'forbidden' })
})

// Checks of a design document as it is written: protocol.md 9.1.

const MAP = 'function (doc) { emit(doc._id) }'

async function refused(
  t: Test,
  doc: Json,
  reason: string | RegExp,
  code = 'invalid_design_doc',
): Promise<void> {
  const { put, bulk, store } = await openValidating()
  const name = JSON.stringify(doc)
  const row = code === 'compilation_error' ? 'view_compilation' : code
  await t.rejects(put('_design/x', doc), { code: row, reason }, name)
  const rows = await bulk({ docs: [{ _id: 'before' }, { ...doc, _id: '_design/x' }, { _id: 'behind' }] })
  t.match(rows, [{ ok: true }, { id: '_design/x', error: code, reason }, { ok: true }], `${name}, in a bulk`)
  const replicated = { ...doc, _id: '_design/x', _rev: '1-a' }
  const failures = await bulk({ new_edits: false, docs: [replicated, { _id: 'other', _rev: '1-a' }] })
  t.match(failures, [{ id: '_design/x', rev: '1-a', error: code, reason }], `${name}, replicated`)
  t.same(await store.readDocs(['_design/x'], (state) => state), [null], `${name} is not stored`)
}

t.test('members of the wrong type', async (t) => {
  const cases: [doc: Json, path: string, type: string][] = [
    [{ filters: 1 }, 'filters', 'object'],
    [{ filters: [] }, 'filters', 'object'],
    [{ filters: { a: 1 } }, 'filters.a', 'string or object'],
    [{ language: null }, 'language', 'string'],
    [{ lists: '' }, 'lists', 'object'],
    [{ lists: { a: null } }, 'lists.a', 'string or object'],
    [{ options: true }, 'options', 'object'],
    [{ options: { include_design: 1 } }, 'options.include_design', 'boolean'],
    [{ options: { local_seq: 'true' } }, 'options.local_seq', 'boolean'],
    [{ options: { partitioned: null } }, 'options.partitioned', 'boolean'],
    [{ rewrites: {} }, 'rewrites', 'array or string'],
    [{ shows: { a: [] } }, 'shows.a', 'string or object'],
    [{ updates: { a: true } }, 'updates.a', 'string or object'],
    [{ validate_doc_update: {} }, 'validate_doc_update', 'string'],
    [{ validate_doc_update: null }, 'validate_doc_update', 'string'],
    [{ views: [] }, 'views', 'object'],
    [{ views: { a: MAP } }, 'views.a', 'object'],
    [{ views: { lib: MAP } }, 'views.lib', 'object'],
    [{ views: { a: { map: {} } } }, 'views.a.map', 'string'],
    [{ views: { a: { map: null } } }, 'views.a.map', 'string'],
    [{ views: { a: { map: MAP, reduce: 1 } } }, 'views.a.reduce', 'string'],
    [{ language: 'query', views: { a: { map: MAP } } }, 'views.a.map', 'object'],
    [{ language: 'erlang', views: { a: { map: {} } } }, 'views.a.map', 'string'],
  ]
  for (const [doc, path, type] of cases) await refused(t, doc, `\`${path}\` field must have ${type} type`)
})

t.test('a view without a map function, and an unknown built-in reduce function', async (t) => {
  await refused(t, { views: { a: {} } }, 'View `a` must contain map function')
  await refused(t, { views: { a: { reduce: '_count' } } }, 'View `a` must contain map function')
  const reasons = {
    'rank value must be between 1 and 100': ['_top_0', '_top_101', '_bottom_-1'],
    'invalid rank reducer': ['_top_', '_top_Foo', '_top_1.5', '_bottom_1x', '_bottom_10 '],
  }
  for (const [reason, names] of Object.entries(reasons)) {
    for (const reduce of names) await refused(t, { views: { a: { map: MAP, reduce } } }, reason)
  }
  for (const reduce of ['_nope', '_', '_top']) {
    await refused(
      t,
      { views: { a: { map: MAP, reduce } } },
      `\`${reduce}\` is not a supported reduce function.`,
    )
  }
})

t.test('view functions that do not compile', async (t) => {
  const failed = (member: string) =>
    new RegExp(`^Compilation of the ${member} function in the 'a' view failed: (?!Compilation).+`)
  await refused(t, { views: { a: { map: 'function (' } } }, failed('map'), 'compilation_error')
  await refused(t, { views: { a: { map: '1' } } }, failed('map'), 'compilation_error')
  const reduce = 'function (keys { }'
  await refused(t, { views: { a: { map: MAP, reduce } } }, failed('reduce'), 'compilation_error')
  const named = 'function k() {}\nfunction map(doc) { emit(k(doc)) }'
  await refused(
    t,
    { views: { a: { map: named } } },
    `Compilation of the map function in the 'a' view failed: Expression does not eval to a function. (${named})`,
    'compilation_error',
  )
})

t.test('the contents that a design document may have', async (t) => {
  const good: Json[] = [
    {},
    { language: 'javascript', autoupdate: 'false', anything: [1] },
    { views: {} },
    { views: { a: { map: MAP }, b: { map: MAP, reduce: '_sum' } } },
    { views: { a: { map: MAP, reduce: 'function (keys, values) { return sum(values) }' } } },
    { views: { lib: { tools: 'exports.x = 1', deep: { map: {} } }, a: { map: MAP } } },
    { views: { a: { map: MAP, reduce: '_count\n' }, b: { map: MAP, reduce: '_stats' } } },
    { views: { a: { map: MAP, reduce: '_top_10' }, b: { map: MAP, reduce: '_bottom_100' } } },
    { views: { a: { map: MAP, reduce: '_approx_count_distinct' } } },
    { filters: { a: 'this does not compile', b: { c: 'function () {}' } }, validate_doc_update: 'nor this' },
    { updates: { a: '' }, shows: { a: '' }, lists: { a: '' }, rewrites: [], options: { partitioned: false } },
    { rewrites: 'function (req) {}', options: { include_design: true, local_seq: false, other: 1 } },
    { language: 'query', views: { a: { map: { fields: { n: 'asc' } }, reduce: '_count' } } },
    { language: 'erlang', views: { a: { map: 'fun({Doc}) -> ok end.' } } },
  ]
  for (const doc of good) {
    const { put, bulk } = await openValidating()
    t.match(await put('_design/x', doc), /^1-/, JSON.stringify(doc))
    t.same(await bulk({ new_edits: false, docs: [{ ...doc, _id: '_design/y', _rev: '1-a' }] }), [])
  }
})

t.test('only view functions are compiled, and nothing runs for a document without them', async (t) => {
  const { put, sandbox } = await openValidating()
  await put('_design/plain', { filters: { a: 'function () {}' }, validate_doc_update: 'function () {}' })
  await put('_design/mango', { language: 'query', views: { a: { map: {} } } })
  t.same(sandbox.compiled, [])
  const reduce = 'function (keys, values) { return 1 }'
  await put('_design/views', {
    views: { lib: { x: 'exports.y = 1' }, a: { map: MAP, reduce: '_sum' }, b: { map: MAP, reduce } },
  })
  t.same(sandbox.compiled, ['views.a.map', 'views.b.map', 'views.b.reduce'])
})

t.test('neither a deleted nor a conflicting design document is checked', async (t) => {
  const { put, bulk, sandbox } = await openValidating()
  const rev = await put('_design/x', {})
  t.match(await put('_design/x', { _rev: rev, _deleted: true, views: 1 }), /^2-/)
  t.same(
    await bulk({ new_edits: false, docs: [{ _id: '_design/y', _rev: '1-a', _deleted: true, views: 1 }] }),
    [],
  )
  await put('_design/z', {})
  await t.rejects(put('_design/z', { views: { a: { map: 'function (' } } }), { code: 'conflict' })
  t.same(sandbox.compiled, [])
})

t.test('users who may not write design documents are refused before anything is compiled', async (t) => {
  const { database, sandbox } = await openValidating()
  await database.setSecurity(ADMIN, { members: { names: ['anna'], roles: [] } })
  const doc = body({ views: { a: { map: 'function (' } } })
  await t.rejects(database.put(ANNA, '_design/x', doc, {}), {
    code: 'forbidden',
    reason: 'You are not a db or server admin.',
  })
  t.same(sandbox.compiled, [])
})

t.test('several edits of one design document in a bulk', async (t) => {
  const { bulk, replicate, get } = await openValidating()
  const broken = { _id: '_design/x', views: { a: { map: '(' } } }
  t.match(await bulk({ docs: [broken, { _id: '_design/x', n: 1 }, { _id: '_design/x', n: 2 }] }), [
    { error: 'compilation_error' },
    { ok: true, rev: /^1-/ },
    { error: 'conflict' },
  ])
  t.match(await get('_design/x'), { n: 1 })
  const failures = await replicate(
    '_design/y',
    { start: 1, ids: ['a'], doc: { views: 1 } },
    { start: 1, ids: ['b'], doc: { n: 1 } },
  )
  t.match(failures, [{ rev: '1-a', error: 'invalid_design_doc' }])
  t.equal(failures.length, 1)
})
