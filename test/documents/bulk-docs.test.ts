/** `_bulk_docs` (protocol.md 4.1) in memory and from files, in groups, and with faults. test/surface has its plain rules. */
import { createHash } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Body } from '../../src/documents/database.ts'
import type { FileBody } from '../../src/documents/temporary-file.ts'
import { ADMIN, body, jsonOf, openDatabase, parse, spooled, text } from './helpers.ts'

const BAD_DOCS: [doc: string, code: string][] = [
  ['1', 'document_not_object'],
  ['[]', 'document_not_object'],
  ['null', 'document_not_object'],
  ['{"_id":1}', 'illegal_docid'],
  ['{"_id":""}', 'illegal_docid'],
  ['{"_id":"_x"}', 'illegal_docid'],
  ['{"_rev":"x"}', 'invalid_rev'],
  ['{"_revisions":{"start":1,"ids":1}}', 'doc_validation'],
  ['{"_zing":1}', 'doc_validation'],
  ['{"a":}', 'invalid_json'],
  ['{"a":1 2}', 'invalid_json'],
  ['{"a":"\\ud800"}', 'invalid_json'],
  ['{"_attachments":{"_x":{"data":""}}}', 'bad_request'],
  ['{"_attachments":{"x":{"data":"?"}}}', 'bad_request'],
  ['{"_attachments":{"x":{"stub":true}}}', 'missing_stub'],
  [`{"a":"${'a'.repeat(1000)}"}`, 'document_too_large'],
  [`{"_attachments":{"x":{"data":"${'A'.repeat(2000)}"}}}`, 'attachment_too_large'],
  ['{"_id":"_local/x","_rev":"1-a"}', 'invalid_rev'],
]
const LIMITS = { maxDocumentSize: 1000, maxAttachmentSize: 1000 }

/** Sends a body from memory and from a file, each to an empty database. */
async function refused(t: Test, request: string, expected: { code: string; reason?: unknown }, name: string) {
  for (const given of [body(request), await spooled(t, request)]) {
    const { database, store } = await openDatabase(LIMITS)
    const way = 'bytes' in given ? 'in memory' : 'spooled'
    await t.rejects(jsonOf(database.bulkDocs(ADMIN, given)), expected, `${name}, ${way}`)
    t.match(await store.view(), { updateSeq: 0, docCount: 0 }, `${name}: nothing is stored`)
    t.same(await store.readLocals(['_local/first']), [null])
  }
}

t.test('an invalid document at any position refuses the whole request', async (t) => {
  const good = ['{"_id":"_local/first"}', '{"_id":"a"}', '{"_id":"b","n":1}']
  for (const [bad, code] of BAD_DOCS) {
    for (const place of [0, 1, 3]) {
      const docs = good.toSpliced(place, 0, bad)
      await refused(t, `{"docs":[${docs.join(',')}]}`, { code }, `${bad.slice(0, 50)} at ${place}`)
    }
  }
})

t.test('a syntax error at any position refuses the whole request', async (t) => {
  const faults = [
    '',
    '{',
    '{"docs":[{"_id":"a"}',
    '{"docs":[{"_id":"a"}]',
    '{"docs":[{"_id":"a"}],}',
    '{"docs":[{"_id":"a"},]}',
    '{"docs":[,{"_id":"a"}]}',
    '{"docs":[{"_id":"a"}]} x',
    '{"docs":[{"_id":"a"}],"other":tru}',
    '{"other":01,"docs":[{"_id":"a"}]}',
    '{"docs":[{"_id":"a"}{"_id":"b"}]}',
  ]
  for (const fault of faults) await refused(t, fault, { code: 'invalid_json' }, fault)
})

t.test('a request of another shape', async (t) => {
  const cases: [request: string, code: string, reason: string][] = [
    ['[]', 'body_not_object', 'Request body must be a JSON object'],
    ['1', 'body_not_object', 'Request body must be a JSON object'],
    ['{}', 'bad_request', 'POST body must include `docs` parameter.'],
    ['{"docs":1}', 'bad_request', '`docs` parameter must be an array.'],
    ['{"docs":{}}', 'bad_request', '`docs` parameter must be an array.'],
    ['{"docs":[],"new_edits":0}', 'bad_request', '`new_edits` parameter must be a boolean.'],
    ['{"docs":[],"new_edits":null}', 'bad_request', '`new_edits` parameter must be a boolean.'],
  ]
  for (const [request, code, reason] of cases) await refused(t, request, { code, reason }, request)
})

t.test('all_or_nothing stores nothing and returns a row per document', async (t) => {
  const reason = ['a', 'b'].map((id) => ({
    id,
    rev: '0-',
    error: 'not_implemented',
    reason: 'all_or_nothing is not supported',
  }))
  const request = { docs: [{ _id: 'a' }, { _id: 'b' }], all_or_nothing: true }
  await refused(t, JSON.stringify(request), { code: 'all_or_nothing', reason }, 'all_or_nothing')
})

t.test('new_edits=false without a revision refuses the whole request', async (t) => {
  const request = { new_edits: false, docs: [{ _id: 'a', _rev: '1-a' }, { _id: 'b' }] }
  await refused(
    t,
    JSON.stringify(request),
    {
      code: 'bad_request',
      reason: 'When `new_edits: false`, the document needs `_rev` or `_revisions` specified',
    },
    'no rev',
  )
})

t.test('generation 0 in a document that is not _local refuses the request', async (t) => {
  const request = {
    new_edits: false,
    docs: [
      { _id: 'a', _rev: '1-a' },
      { _id: 'b', _rev: '0-1' },
    ],
  }
  await refused(t, JSON.stringify(request), { code: 'invalid_rev', reason: 'Invalid rev format' }, '0-1')
})

t.test('a stub of the second edit can name an attachment of the first', async (t) => {
  const { bulk, get } = await openDatabase()
  const file = { 'a.txt': { data: 'aGVsbG8=', revpos: 1 } }
  const docs = [
    { _id: 'x', _revisions: { start: 1, ids: ['a'] }, _attachments: file },
    {
      _id: 'x',
      _revisions: { start: 2, ids: ['b', 'a'] },
      _attachments: { 'a.txt': { stub: true, revpos: 1 } },
    },
  ]
  t.same(await bulk({ new_edits: false, docs }), [])
  t.match(await get('x', { attachments: true }), {
    _rev: '2-b',
    _attachments: { 'a.txt': { data: 'aGVsbG8=' } },
  })
})

t.test('a stub is checked only if the edit would be stored', async (t) => {
  const { bulk, put, replicate } = await openDatabase()
  await put('live', {})
  await replicate('known', { start: 2, ids: ['b', 'a'] })
  const _attachments = { x: { stub: true } }
  t.match(await bulk({ docs: [{ _id: 'live', _rev: '9-x', _attachments }] }), [{ error: 'conflict' }])
  const known = { _id: 'known', _revisions: { start: 1, ids: ['a'] }, _attachments }
  t.same(await bulk({ new_edits: false, docs: [known] }), [])
  t.same(await bulk({ new_edits: false, docs: [{ ...known, _revisions: { start: 2, ids: ['b'] } }] }), [])
})

t.test('a store error for one document is in its row, and the others are stored', async (t) => {
  const onOperation = (operation: string) => {
    if (operation === 'write revision 1-bad') throw new Error('a damaged page')
  }
  const { bulk, get } = await openDatabase({}, { onOperation })
  const docs = [
    { _id: 'a', _rev: '1-a' },
    { _id: 'b', _rev: '1-bad' },
    { _id: 'c', _rev: '1-c' },
  ]
  t.match(await bulk({ new_edits: false, docs }), [{ id: 'b', rev: '1-bad', error: 'internal_server_error' }])
  t.match(await get('c'), { _rev: '1-c' })
})

t.test('a store error for every document fails the request', async (t) => {
  let isFull = false
  const onOperation = (operation: string) => {
    if (isFull && operation === 'write document') throw new Error('no space')
  }
  const { bulk, updateSeq } = await openDatabase({}, { onOperation })
  isFull = true
  await t.rejects(bulk({ docs: [{}, {}] }), { code: 'internal_server_error' })
  t.equal(await updateSeq(), 0)
})

t.test('a bulk of several groups returns every row, and no chunk is empty', async (t) => {
  const { database, store } = await openDatabase()
  for (const newEdits of [true, false]) {
    const docs = Array.from({ length: 700 }, (_, n) => ({
      _id: `${newEdits}${n}`,
      ...(!newEdits && { _rev: '1-a' }),
    }))
    let bytes = ''
    for await (const chunk of database.bulkDocs(ADMIN, body({ docs, new_edits: newEdits }))) {
      t.ok(chunk.length > 0)
      bytes += Buffer.from(chunk).toString()
    }
    t.equal(JSON.parse(bytes).length, newEdits ? 700 : 0)
  }
  t.equal((await store.view()).docCount, 1400)
})

t.test('edits of one document in several groups are applied in order', async (t) => {
  const { bulk, get } = await openDatabase()
  const docs = Array.from({ length: 600 }, (_, n) => ({ _id: n % 300 === 0 ? 'x' : `d${n}`, n }))
  const rows = await bulk({ docs })
  t.match([rows[0], rows[300]], [{ ok: true }, { id: 'x', error: 'conflict' }])
  t.match(await get('x'), { n: 0 })
})

// Bodies in a file have the same answers as bodies in memory, with bounded memory.

const MB = 1024 * 1024

t.test('every call with a body has the same answer', async (t) => {
  const docs = [{ _id: 'x', n: 1 }, { _id: 'y' }, { _id: 'x' }, { _id: '_local/l' }, { _id: 'ä\u{1f600}' }]
  const answers = async (given: (value: unknown) => Promise<Body> | Body) => {
    const { database } = await openDatabase()
    return [
      await jsonOf(database.bulkDocs(ADMIN, await given({ docs }))),
      (await database.put(ADMIN, 'z', await given({ n: 2 }), {})).rev,
      await jsonOf(database.bulkGet(ADMIN, await given({ docs: [{ id: 'x' }, { id: 'no' }] }), {})),
      parse(await database.revsDiff(ADMIN, await given({ x: ['1-a'] }))),
      parse(await database.missingRevs(ADMIN, await given({ x: ['1-a'] }))),
      await jsonOf(database.allDocs(ADMIN, 'all', {}, await given({ keys: ['x', 'no'] }))),
    ]
  }
  t.same(await answers((value) => spooled(t, JSON.stringify(value))), await answers(body))
})

t.test('a file that is too short is an error', async (t) => {
  const { database, updateSeq } = await openDatabase()
  const given = (await spooled(t, '{"docs":[{}]}')) as FileBody
  await t.rejects(jsonOf(database.bulkDocs(ADMIN, { ...given, length: 100 })))
  t.equal(await updateSeq(), 0)
})

/** Measures the longest turn of the event loop and the peak memory of a function. */
async function measured<R>(work: () => Promise<R>): Promise<{ result: R; longest: number; held: number }> {
  let isRunning = true
  let longest = 0
  const before = process.memoryUsage.rss()
  let most = before
  const watch = async () => {
    for (let last = performance.now(); isRunning; ) {
      await turn()
      const now = performance.now()
      longest = Math.max(longest, now - last)
      last = now
      most = Math.max(most, process.memoryUsage.rss())
    }
  }
  const watching = watch()
  try {
    return { result: await work(), longest, held: most - before }
  } finally {
    isRunning = false
    await watching
  }
}

t.test('a refused bulk of 30 MB stores nothing', async (t) => {
  const { database, updateSeq } = await openDatabase()
  const doc = JSON.stringify({ text: 'a'.repeat(10_000) })
  const docs = Array.from({ length: 3000 }, () => doc).join(',')
  const given = await spooled(t, `{"docs":[${docs},{"_zing":1}]}`)
  const { longest, held } = await measured(() =>
    t.rejects(jsonOf(database.bulkDocs(ADMIN, given)), { code: 'doc_validation' }),
  )
  t.equal(await updateSeq(), 0)
  t.comment(`checked 30 MB: longest turn ${longest.toFixed(1)} ms, ${(held / MB).toFixed(0)} MB more held`)
})

t.test('a bulk of 30 MB is written in groups', async (t) => {
  const { database, store } = await openDatabase()
  const docs = Array.from({ length: 3000 }, (_, n) =>
    JSON.stringify({ _id: String(n).padStart(5, '0'), text: 'a'.repeat(10_000) }),
  )
  const given = await spooled(t, `{"docs":[${docs.join(',')}]}`)
  let groups = 0
  const { result, longest, held } = await measured(async () => {
    let answer = ''
    for await (const chunk of database.bulkDocs(ADMIN, given)) {
      groups += 1
      answer += Buffer.from(chunk).toString()
    }
    return JSON.parse(answer)
  })
  t.equal(result.length, 3000)
  t.ok(groups >= 29, `${groups} groups of about a megabyte`)
  t.match(await store.view(), { updateSeq: 3000, docCount: 3000 })
  t.comment(`wrote 30 MB: longest turn ${longest.toFixed(1)} ms, ${(held / MB).toFixed(0)} MB more held`)
})

t.test('a base64 attachment of 20 MB is decoded in steps', async (t) => {
  const { database, put } = await openDatabase()
  const bytes = Buffer.alloc(20 * MB, 'settee')
  const doc = `{"_attachments":{"big":{"data":"${bytes.toString('base64')}"}}}`
  const { longest } = await measured(() => put('x', doc))
  const { length, digest } = await database.openAttachment(ADMIN, 'x', 'big', undefined)
  t.equal(length, bytes.length)
  t.equal(digest, `md5-${createHash('md5').update(bytes).digest('base64')}`)
  t.comment(`stored 20 MB of base64: longest turn ${longest.toFixed(1)} ms`)
})

t.test('a document in a file keeps its text', async (t) => {
  const { database } = await openDatabase()
  const given = '{"n":1.0,"ä":"\u{1f600}","2":1,"1":2}'
  await database.put(ADMIN, 'x', await spooled(t, given), {})
  t.match(await text(database.openRevs(ADMIN, 'x', 'all', {})), given.slice(1))
})
