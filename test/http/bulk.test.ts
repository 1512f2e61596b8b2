/** Many documents in one call; protocol.md 4.1 to 4.3, 19.3, 19.4. */
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

async function start(t: Test) {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const post = (name: string, json: unknown) => call('POST', `/db/${name}`, { json })
  return { call, post }
}

t.test('_bulk_docs', async (t) => {
  const { call, post } = await start(t)
  const two = await post('_bulk_docs', { docs: [{ _id: 'x' }, { _id: 'x' }, {}] })
  t.match(two, {
    status: 201,
    json: [
      { ok: true, id: 'x', rev: /^1-/ },
      { id: 'x', error: 'conflict', reason: 'Document update conflict.' },
      { ok: true, id: /^[0-9a-f]{32}$/ },
    ],
  })
  t.notOk('rev' in (two.json as object[])[1]!)
  const [{ rev }] = two.json as [{ rev: string }]
  const both = await post('_bulk_docs', {
    docs: [
      { _id: 'x', _rev: rev, a: 1 },
      { _id: 'x', _rev: rev, _deleted: true },
    ],
  })
  t.strictSame(
    (both.json as { ok?: true }[]).map(({ ok }) => ok),
    [true, undefined],
  )
  t.match(await post('_bulk_docs', { docs: [] }), { status: 201, text: '[]\n' })
  const docs = [
    { _id: 'r', _revisions: { start: 2, ids: ['b', 'a'] } },
    { _id: '_local/l', _rev: '0-3' },
  ]
  for (const time of ['first', 'second']) {
    t.match(await post('_bulk_docs', { new_edits: false, docs }), { status: 201, text: '[]\n' }, time)
  }
  t.match((await call('GET', '/db/r')).json, { _rev: '2-b' })
})

t.test('a bulk that is refused as a whole stores nothing', async (t) => {
  const { call, post } = await start(t)
  const good = { _id: 'good' }
  const cases: [body: unknown, status: number, error: string, reason?: string][] = [
    [[], 400, 'bad_request', 'Request body must be a JSON object'],
    [{}, 400, 'bad_request', 'POST body must include `docs` parameter.'],
    [{ docs: {} }, 400, 'bad_request', '`docs` parameter must be an array.'],
    [{ docs: [], new_edits: 0 }, 400, 'bad_request', '`new_edits` parameter must be a boolean.'],
    [{ docs: [good, 1] }, 400, 'bad_request', 'Document must be a JSON object'],
    [{ docs: [good, { _id: 1 }] }, 400, 'illegal_docid', 'Document id must be a string'],
    [{ docs: [good, { _id: '_x' }] }, 400, 'illegal_docid'],
    [{ docs: [good, { _id: 'y', _rev: 'x' }] }, 400, 'bad_request', 'Invalid rev format'],
    [{ docs: [good, { _id: 'y', _zing: 1 }] }, 400, 'doc_validation', 'Bad special document member: _zing'],
    [{ docs: [good, { _id: 'y', _attachments: { a: { stub: true } } }] }, 412, 'missing_stub'],
    [{ docs: [{ ...good, _rev: '1-a' }, { _id: 'y' }], new_edits: false }, 400, 'bad_request'],
  ]
  for (const [body, status, error, reason] of cases) {
    const answer = await post('_bulk_docs', body)
    const named = reason === undefined ? { error } : { error, reason }
    t.match(answer, { status, json: named }, JSON.stringify(body))
  }
  for (const body of [
    '{"docs":[{"_id":"good"}',
    '{"docs":[{"_id":"good"}]]',
    '{"docs":[{"_id":"good"}]} x',
    '',
  ]) {
    t.match(await call('POST', '/db/_bulk_docs', { body, headers: { 'content-type': 'application/json' } }), {
      status: 400,
      json: { error: 'bad_request', reason: 'invalid UTF-8 JSON' },
    })
  }
  t.match(await call('POST', '/db/_bulk_docs', { body: '{"docs":[]}' }), { status: 415 })
  t.match((await call('GET', '/db')).json, { doc_count: 0, update_seq: /^0-/ })
})

t.test('a bulk may come compressed, and large', async (t) => {
  const { call } = await start(t)
  const docs = Array.from({ length: 300 }, (_, i) => ({ _id: `d${i}`, text: 'x'.repeat(40_000) }))
  const body = gzipSync(JSON.stringify({ docs }))
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
  const answer = await call('POST', '/db/_bulk_docs', { body, headers })
  t.equal(answer.status, 201)
  t.equal((answer.json as { ok: true }[]).filter(({ ok }) => ok).length, 300)
  t.match((await call('GET', '/db')).json, { doc_count: 300 })
})

t.test('_revs_diff and _missing_revs', async (t) => {
  const { post } = await start(t)
  const docs = ['b', 'c'].map((last) => ({ _id: 'd', _revisions: { start: 2, ids: [last, 'a'] } }))
  await post('_bulk_docs', { new_edits: false, docs })
  const cases: [asked: unknown, diff: unknown, missing: unknown][] = [
    [
      { d: ['1-xyz', '2-def', '3-klm', '2-b'] },
      { d: { missing: ['1-xyz', '2-def', '3-klm'], possible_ancestors: ['2-c', '2-b'] } },
      { d: ['1-xyz', '2-def', '3-klm'] },
    ],
    [{ d: ['1-pqr'] }, { d: { missing: ['1-pqr'] } }, { d: ['1-pqr'] }],
    [{ d: ['1-a', '2-b'] }, {}, {}],
    [{ d: [] }, {}, {}],
    [{}, {}, {}],
    [{ n: ['1-a'] }, { n: { missing: ['1-a'] } }, { n: ['1-a'] }],
  ]
  for (const [asked, diff, missing] of cases) {
    const said = await post('_revs_diff', asked)
    t.strictSame([said.status, said.json], [200, diff], JSON.stringify(asked))
    t.strictSame((await post('_missing_revs', asked)).json, { missing_revs: missing })
  }
  for (const bad of [{ d: '1-a' }, { d: ['1'] }, [], { d: [1] }]) {
    for (const name of ['_revs_diff', '_missing_revs']) {
      t.match(await post(name, bad), { status: 400, json: { error: 'bad_request' } }, JSON.stringify(bad))
    }
  }
})

t.test('_bulk_get', async (t) => {
  const { call, post } = await start(t)
  const docs = ['b', 'c'].map((last) => ({ _id: 'd', _revisions: { start: 2, ids: [last, 'a'] } }))
  await post('_bulk_docs', { new_edits: false, docs })
  const ask = async (...asked: unknown[]) =>
    (
      (await post('_bulk_get?revs=true&latest=true', { docs: asked })).json as {
        results: { id: unknown; docs: unknown[] }[]
      }
    ).results
  t.match(await ask({ id: 'd', rev: '2-b' }), [
    { id: 'd', docs: [{ ok: { _rev: '2-b', _revisions: { start: 2 } } }] },
  ])
  t.equal((await ask({ id: 'd' }))[0]?.docs.length, 2, 'every leaf, when no rev is named')
  t.match(await ask({ id: 'n' }, { id: 'd', rev: '9-z' }, { id: 'd', rev: 'x' }, {}, 1, { id: '_x' }), [
    { id: 'n', docs: [{ error: { id: 'n', rev: 'undefined', error: 'not_found', reason: 'missing' } }] },
    { id: 'd', docs: [{ error: { id: 'd', rev: '9-z', error: 'not_found', reason: 'missing' } }] },
    { id: 'd', docs: [{ error: { id: 'd', rev: 'x', error: 'bad_request', reason: 'Invalid rev format' } }] },
    {
      id: null,
      docs: [{ error: { id: null, rev: null, error: 'bad_request', reason: 'document id missed' } }],
    },
    {
      id: null,
      docs: [{ error: { id: null, error: 'bad_request', reason: 'document must be a JSON object' } }],
    },
    { id: '_x', docs: [{ error: { id: '_x', rev: null, error: 'illegal_docid' } }] },
  ])
  t.match(await post('_bulk_get', { docs: [] }), { status: 200, json: { results: [] } })
  t.match(await post('_bulk_get', {}), { status: 400, json: { reason: "Missing JSON list of 'docs'." } })
  for (const name of ['open_revs', 'new_edits', 'w', 'rev', 'atts_since']) {
    t.match(await post(`_bulk_get?${name}=1`, { docs: [] }), {
      status: 400,
      json: { error: 'bad_request', reason: `"${name}" query parameter is not acceptable` },
    })
  }
  t.equal((await call('POST', '/db/_bulk_get', { body: '{"docs":[]}' })).status, 415)
})

t.test('all or nothing is refused with a row a document', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const docs = [{ _id: 'a' }, { _id: 'b', _rev: '1-a' }]
  const { status, json, headers } = await call('POST', '/db/_bulk_docs', {
    json: { docs, all_or_nothing: true },
  })
  const refused = { rev: '0-', error: 'not_implemented', reason: 'all_or_nothing is not supported' }
  t.strictSame([status, json], [417, ['a', 'b'].map((id) => ({ id, ...refused }))])
  t.equal(headers['content-type'], 'application/json')
  t.match((await call('GET', '/db')).json, { doc_count: 0 })
  const bad = { docs: [{ _zing: 1 }], all_or_nothing: true }
  t.equal((await call('POST', '/db/_bulk_docs', { json: bad })).status, 400)
  t.equal((await call('POST', '/db/_bulk_docs', { json: { docs, all_or_nothing: false } })).status, 201)
})

t.test('what is nested too deep for an answer to say it again is refused', async (t) => {
  const { call } = await start(t)
  const deep = '['.repeat(20_000) + ']'.repeat(20_000)
  const headers = { 'content-type': 'application/json' }
  const refused = { status: 400, json: { error: 'bad_request', reason: /nested deeper/ } }
  for (const [name, body] of [
    ['_bulk_get', `{"docs":[{"id":${deep}}]}`],
    ['_bulk_get', `{"docs":[{"id":"x","rev":${deep}}]}`],
    ['_all_docs', `{"keys":[${deep}]}`],
    ['_purge', `{"x":${deep}}`],
    ['_changes', `{"selector":${deep}}`],
  ] as const) {
    t.match(await call('POST', `/db/${name}`, { body, headers }), refused, name)
  }
  t.match(await call('GET', `/db/_all_docs?key=${deep}`), refused)
  // Where only revisions may stand, the first list is refused before the next is looked at.
  const wrong = { status: 400, json: { error: 'bad_request', reason: 'Invalid rev format' } }
  t.match(await call('POST', '/db/_revs_diff', { body: `{"x":${deep}}`, headers }), wrong)
})

t.test('lists that are far too long cost little, sent gzipped, and others go on', async (t) => {
  const { call } = await start(t)
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
  const send = (path: string, text: string) => call('POST', `/db/${path}`, { body: gzipSync(text), headers })
  const many = (unit: string, count: number) => `[${`${unit},`.repeat(count)}${unit}]`
  const cases: [path: string, text: string, status: number, error: string][] = [
    ['_revs_diff', `{"a":${many('{}', 1_000_000)}}`, 400, 'bad_request'],
    ['_missing_revs', `{"a":${many('"1-a"', 10_000)}}`, 413, 'too_large'],
    ['_bulk_get', `{"docs":${many('{}', 10_000)}}`, 413, 'max_bulk_get_count_exceeded'],
    ['_bulk_docs', `{"docs":${many('{}', 10_000)}}`, 413, 'max_bulk_docs_count_exceeded'],
    ['_all_docs', `{"keys":${many('{}', 200_000)}}`, 413, 'too_large'],
    ['_all_docs/queries', `{"queries":${many('{}', 10_000)}}`, 413, 'too_large'],
    ['_changes?filter=_doc_ids', `{"doc_ids":${many('"a"', 50_000)}}`, 413, 'too_large'],
  ]
  for (const [path, text, status, error] of cases) {
    const [refused, saved] = await Promise.all([
      send(path, text),
      call('PUT', `/db/${encodeURIComponent(`beside ${path}`)}`, { json: {} }),
    ])
    t.match([refused.status, refused.json, saved.status], [status, { error }, 201], path)
  }
  const fitting = `{"docs":${many('{"id":"_all_docs"}', 9_999)}}`
  t.equal(((await send('_bulk_get', fitting)).json as { results: unknown[] }).results.length, 10_000)
})
