/** Verdicts and what changes while they are awaited: architecture.md, "How a save travels", 3. */
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { ADMIN, type Json } from './helpers.ts'
import { openValidating } from './hooked-sandbox.ts'

const NO_BAD = `function (newDoc) { if (newDoc.bad) throw { forbidden: 'bad' } }`
const NO_WORSE = `function (newDoc) { if (newDoc.worse) throw { forbidden: 'worse' } }`

/** Resolves when it is told to. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

t.test('a design document that changes between verdict and commit: the new function decides', async (t) => {
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
  await t.rejects(put('x', { bad: true }), { code: 'forbidden', reason: 'bad' }, 'what passed the old one')
  times = 0
  sandbox.beforeAnswer = async () => {
    times += 1
    if (times === 1) await validate('function () {}')
  }
  t.match(await put('x', { bad: true }), /^1-/, 'nor does the refusal of the old one count')
})

t.test('a function that comes or goes in between', async (t) => {
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

t.test('design documents without a validate function do not spend verdicts', async (t) => {
  const { validate, put, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = async () => {
    await put(`_design/${sandbox.asked.length}`, {})
  }
  t.match(await put('x', {}), /^1-/)
  t.equal(sandbox.asked.length, 1)
})

t.test('the document changes in between: a conflict, or another old document', async (t) => {
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

t.test('the security object changes in between', async (t) => {
  const { validate, put, database, sandbox } = await openValidating()
  await validate(`function (doc, old, userCtx, secObj) { if (secObj.frozen) throw { forbidden: 'frozen' } }`)
  sandbox.beforeAnswer = async () => {
    sandbox.beforeAnswer = () => {}
    await database.setSecurity(ADMIN, { frozen: true })
  }
  await t.rejects(put('x', {}), { code: 'forbidden', reason: 'frozen' })
})

t.test('where it never stands still, the write is given up', async (t) => {
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

t.test('an edit sees what the one before it in the request has made', async (t) => {
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

t.test('a bulk is asked about at once, one call a function', async (t) => {
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

t.test('a function that runs away fails that document alone', async (t) => {
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

t.test('one that runs away on every document is not tried on all', async (t) => {
  const { validate, bulk, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = () => {
    throw new CouchError('function_timeout')
  }
  const rows: Json[] = await bulk({ docs: Array.from({ length: 60 }, (_, n) => ({ _id: `x${n}` })) })
  t.ok(rows.length === 60 && rows.every(({ error }) => error === 'timeout'))
  t.equal(sandbox.asked.length, 4)
})

t.test('a sandbox that is overrun is the answer to the request', async (t) => {
  const { validate, put, bulk, sandbox } = await openValidating()
  await validate(NO_BAD)
  sandbox.beforeAnswer = () => {
    throw new CouchError('unavailable')
  }
  await t.rejects(put('x', {}), { code: 'unavailable', status: 503 })
  await t.rejects(bulk({ docs: [{ _id: 'x' }, { _id: 'y' }] }), { code: 'unavailable' })
  sandbox.beforeAnswer = () => {
    throw new CouchError('not_found', 'missing json key: validate_doc_update')
  }
  await t.rejects(put('x', {}), { code: 'function_error', reason: 'missing json key: validate_doc_update' })
})

t.test('while a function runs, only the request that waits for it waits', { timeout: 20_000 }, async (t) => {
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
    'what needs no verdict is stored',
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

t.test('large documents are asked about in parts, so that they are not all held at once', async (t) => {
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

t.test('what a request brings is not validated by the design documents that it brings', async (t) => {
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
