/** `_bulk_get`: protocol.md 4.2. */
import t from 'tap'
import type { BulkGetOptions } from '../../src/documents/database.ts'
import { ADMIN, body, jsonOf, openDatabase } from './helpers.ts'

async function stored() {
  const opened = await openDatabase()
  await opened.replicate(
    'x',
    { start: 2, ids: ['b', 'a'], doc: { n: 1 } },
    { start: 2, ids: ['c', 'a'], deleted: true },
  )
  const { database } = opened
  const ask = (request: unknown, options: BulkGetOptions = {}) =>
    jsonOf(database.bulkGet(ADMIN, body(request), options))
  /** The results of one list of documents. */
  const results = async (docs: unknown[], options?: BulkGetOptions) => (await ask({ docs }, options)).results
  return { ...opened, ask, results }
}

function failure(id: unknown, rev: unknown, error: string, reason: string) {
  return { id, docs: [{ error: { id, rev, error, reason } }] }
}

t.test('a request that is none', async (t) => {
  const { ask } = await stored()
  const reason = "Missing JSON list of 'docs'."
  await t.rejects(ask({}), { code: 'bad_request', reason })
  await t.rejects(ask({ docs: {} }), { code: 'bad_request', reason })
  await t.rejects(ask([]), { code: 'body_not_object' })
  await t.rejects(ask('{'), { code: 'invalid_json' })
  t.same(await ask({ docs: [] }), { results: [] })
})

t.test('a revision that is there', async (t) => {
  const { results } = await stored()
  t.same(await results([{ id: 'x', rev: '2-b' }]), [
    { id: 'x', docs: [{ ok: { _id: 'x', _rev: '2-b', n: 1 } }] },
  ])
})

t.test('without rev every leaf, deleted ones too', async (t) => {
  const { results } = await stored()
  t.same(await results([{ id: 'x' }]), [
    {
      id: 'x',
      docs: [{ ok: { _id: 'x', _rev: '2-b', n: 1 } }, { ok: { _id: 'x', _rev: '2-c', _deleted: true } }],
    },
  ])
})

t.test('latest gives the leaves below a revision', async (t) => {
  const { results, replicate } = await stored()
  await replicate('x', { start: 3, ids: ['d', 'b', 'a'] })
  const revsOf = async (rev: string) => {
    const [{ docs }] = await results([{ id: 'x', rev }], { latest: true })
    return docs.map((row: { ok: { _rev: string } }) => row.ok._rev)
  }
  t.same(await revsOf('1-a'), ['3-d', '2-c'])
  t.same(await revsOf('2-b'), ['3-d'])
  t.same(await revsOf('3-d'), ['3-d'])
  const [gone] = await results([{ id: 'x', rev: '9-no' }], { latest: true })
  t.match(gone, failure('x', '9-no', 'not_found', 'missing'))
})

t.test('revs adds the ancestry', async (t) => {
  const { results } = await stored()
  const [{ docs }] = await results([{ id: 'x', rev: '2-b' }], { revs: true })
  t.same(docs[0].ok._revisions, { start: 2, ids: ['b', 'a'] })
})

t.test('what is not there, row by row', async (t) => {
  const { results } = await stored()
  const rows: [asked: unknown, expected: unknown][] = [
    [{ id: 'x', rev: '3-no' }, failure('x', '3-no', 'not_found', 'missing')],
    [{ id: 'x', rev: '1-a' }, failure('x', '1-a', 'not_found', 'missing')],
    [{ id: 'no', rev: '1-a' }, failure('no', '1-a', 'not_found', 'missing')],
    [{ id: 'no' }, failure('no', 'undefined', 'not_found', 'missing')],
    [{ id: 'x', rev: 'bad' }, failure('x', 'bad', 'bad_request', 'Invalid rev format')],
    [{ id: 'no', rev: 1 }, failure('no', 1, 'bad_request', 'Invalid rev format')],
    [
      { id: '_x' },
      failure('_x', null, 'illegal_docid', 'Only reserved document ids may start with underscore.'),
    ],
    [{ id: '' }, failure('', null, 'illegal_docid', 'Document id must not be empty')],
    [{ id: 1 }, failure(1, null, 'illegal_docid', 'Document id must be a string')],
    [{ rev: '1-a' }, failure(null, null, 'bad_request', 'document id missed')],
    ['x', failure(null, null, 'bad_request', 'document must be a JSON object')],
    [null, failure(null, null, 'bad_request', 'document must be a JSON object')],
    [[], failure(null, null, 'bad_request', 'document must be a JSON object')],
    [
      { id: 'x', rev: '2-b', atts_since: '1-a' },
      failure('x', '2-b', 'bad_request', 'att_since value must be array of revs.'),
    ],
    [{ id: 'x', rev: '2-b', atts_since: ['bad'] }, failure('x', '2-b', 'bad_request', 'Invalid rev format')],
  ]
  t.same(
    await results(rows.map(([asked]) => asked)),
    rows.map(([, expected]) => expected),
  )
})

t.test('one result an input in its order, duplicates kept', async (t) => {
  const { results } = await stored()
  const asked = ['no', 'x', 'x', 'no2', 'x']
  const answered = await results(asked.map((id) => ({ id })))
  t.same(
    answered.map(({ id }: { id: string }) => id),
    asked,
  )
})

t.test('attachments are stubs unless asked for', async (t) => {
  const { results, put } = await stored()
  await put('a', { _attachments: { f: { data: 'aGVsbG8=' } } })
  const [{ docs: stubs }] = await results([{ id: 'a' }])
  t.match(stubs[0].ok._attachments.f, { stub: true, length: 5, data: undefined })
  const [{ docs: whole }] = await results([{ id: 'a' }], { attachments: true })
  t.match(whole[0].ok._attachments.f, { data: 'aGVsbG8=', stub: undefined, length: undefined })
})

t.test('atts_since brings what is newer than an ancestor that the reader has', async (t) => {
  const { results, put } = await stored()
  const first = await put('a', { _attachments: { old: { data: 'b2xk' } } })
  const _attachments = { old: { stub: true }, new: { data: 'bmV3' } }
  const second = await put('a', { _rev: first, _attachments })
  const filesOf = async (since: string[]) => {
    const [{ docs }] = await results([{ id: 'a', rev: second, atts_since: since }])
    const { old, new: fresh } = docs[0].ok._attachments
    return [old.data ?? 'stub', fresh.data ?? 'stub']
  }
  t.same(await filesOf([first]), ['stub', 'bmV3'])
  t.same(await filesOf(['1-unknown', first]), ['stub', 'bmV3'])
  t.same(await filesOf([second]), ['stub', 'stub'])
  t.same(await filesOf(['1-unknown']), ['b2xk', 'bmV3'])
  t.same(await filesOf([]), ['b2xk', 'bmV3'])
})

t.test('_local documents come too', async (t) => {
  const { results, put } = await stored()
  await put('_local/a', { n: 1 })
  t.same(await results([{ id: '_local/a' }, { id: '_local/no' }]), [
    { id: '_local/a', docs: [{ ok: { _id: '_local/a', _rev: '0-1', n: 1 } }] },
    failure('_local/no', 'undefined', 'not_found', 'missing'),
  ])
})

t.test('a long answer comes in chunks', async (t) => {
  const { put, database } = await stored()
  await put('big', { text: 'a'.repeat(100_000) })
  let chunks = 0
  let bytes = ''
  const request = body({ docs: Array.from({ length: 10 }, () => ({ id: 'big' })) })
  for await (const chunk of database.bulkGet(ADMIN, request, {})) {
    chunks += 1
    bytes += Buffer.from(chunk).toString()
  }
  t.ok(chunks > 2)
  t.equal(JSON.parse(bytes).results.length, 10)
})
