/** `_bulk_get`: protocol.md 4.2. */
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { DEFAULT_LIMITS } from '../../src/core/types.ts'
import { bulkGetMixed } from '../../src/documents/bulk-get.ts'
import type { BulkGetOptions, OpenOptions } from '../../src/documents/database.ts'
import { openRevsMixed } from '../../src/documents/open-revisions.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { boundaryOf, partsOf } from '../helpers/multipart-parts.ts'
import { ADMIN, body, chunksOf, jsonOf, openDatabase, text } from './helpers.ts'
import { countingPins, digestOf, storeRevisions, type TestRevision } from './stored-attachments.ts'

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

t.test('invalid requests', async (t) => {
  const { ask } = await stored()
  const reason = "Missing JSON list of 'docs'."
  await t.rejects(ask({}), { code: 'bad_request', reason })
  await t.rejects(ask({ docs: {} }), { code: 'bad_request', reason })
  await t.rejects(ask([]), { code: 'body_not_object' })
  await t.rejects(ask('{'), { code: 'invalid_json' })
  t.same(await ask({ docs: [] }), { results: [] })
})

t.test('a stored revision', async (t) => {
  const { results } = await stored()
  t.same(await results([{ id: 'x', rev: '2-b' }]), [
    { id: 'x', docs: [{ ok: { _id: 'x', _rev: '2-b', n: 1 } }] },
  ])
})

t.test('without rev, every leaf is returned, including deleted ones', async (t) => {
  const { results } = await stored()
  t.same(await results([{ id: 'x' }]), [
    {
      id: 'x',
      docs: [{ ok: { _id: 'x', _rev: '2-b', n: 1 } }, { ok: { _id: 'x', _rev: '2-c', _deleted: true } }],
    },
  ])
})

t.test('latest returns the leaves below a revision', async (t) => {
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

t.test('missing documents and revisions, row by row', async (t) => {
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

t.test('there is one result per input, in order, with duplicates', async (t) => {
  const { results } = await stored()
  const asked = ['no', 'x', 'x', 'no2', 'x']
  const answered = await results(asked.map((id) => ({ id })))
  t.same(
    answered.map(({ id }: { id: string }) => id),
    asked,
  )
})

t.test('attachments are stubs unless requested', async (t) => {
  const { results, put } = await stored()
  await put('a', { _attachments: { f: { data: 'aGVsbG8=' } } })
  const [{ docs: stubs }] = await results([{ id: 'a' }])
  t.match(stubs[0].ok._attachments.f, { stub: true, length: 5, data: undefined })
  const [{ docs: whole }] = await results([{ id: 'a' }], { attachments: true })
  t.match(whole[0].ok._attachments.f, { data: 'aGVsbG8=', stub: undefined, length: undefined })
})

t.test('atts_since returns attachments that are newer than an ancestor', async (t) => {
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
  t.same(await filesOf([]), ['stub', 'stub'])
})

t.test('_local documents are not found', async (t) => {
  const { results, put } = await stored()
  await put('_local/a', { n: 1 })
  t.same(await results([{ id: '_local/a' }, { id: '_local/no' }]), [
    failure('_local/a', 'undefined', 'not_found', 'missing'),
    failure('_local/no', 'undefined', 'not_found', 'missing'),
  ])
})

t.test('a long answer has several chunks', async (t) => {
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

// open_revs and _bulk_get as multipart: protocol.md 3.2, 4.2.

const CODED = 'a text that is stored as gzip'

async function storedContents() {
  const engine = memoryEngine()
  await (await engine.openCatalog()).create('notes')
  const { store, held } = countingPins(await engine.openDatabase('notes'))
  const write = (id: string, ...revisions: TestRevision[]) => storeRevisions(store, id, ...revisions)
  await write(
    'x',
    { rev: '2-c', ancestors: ['1-a'], body: '{"n":1}' },
    {
      rev: '2-d',
      ancestors: ['1-a'],
      attachments: [
        { name: 'a', content: 'hello', revpos: 1 },
        { name: 'b', content: CODED, gzip: true, revpos: 2, type: 'text/markdown' },
      ],
    },
  )
  const revs = (asked: string[] | 'all', options: OpenOptions = {}, id = 'x') =>
    openRevsMixed(store, ADMIN, id, asked, options, 'OUTER')
  const bulk = (docs: unknown[], options: BulkGetOptions = {}) =>
    bulkGetMixed(store, ADMIN, body({ docs }), options, DEFAULT_LIMITS, 'OUTER')
  return { store, held, write, revs, bulk }
}

const OUTER = 'multipart/mixed; boundary="OUTER"'

t.test('open_revs has the same bytes as in CouchDB', async (t) => {
  const { revs, held } = await storedContents()
  const answer = await text(revs(['2-d', '2-c', '3-no']))
  const inner = boundaryOf(/Content-Type: (multipart\/related.*)\r\n/.exec(answer)?.[1])
  t.match(inner, /^[0-9a-f]{32}$/)
  const coded = gzipSync(CODED)
  const entry = (members: string, length: number) => `{${members},"length":${length},"follows":true`
  const json =
    '{"_id":"x","_rev":"2-d","_attachments":{' +
    `"a":${entry(`"content_type":"text/plain","revpos":1,"digest":"${digestOf('hello')}"`, 5)}},` +
    `"b":${entry(`"content_type":"text/markdown","revpos":2,"digest":"${digestOf(coded)}"`, 29)},` +
    `"encoding":"gzip","encoded_length":${coded.length}}}}`
  t.equal(
    answer,
    '--OUTER\r\n' +
      `Content-Type: multipart/related; boundary="${inner}"\r\n\r\n` +
      `--${inner}\r\nContent-Type: application/json\r\n\r\n${json}\r\n--${inner}` +
      '\r\nContent-Disposition: attachment; filename="a"\r\nContent-Type: text/plain\r\n' +
      `Content-Length: 5\r\n\r\nhello\r\n--${inner}` +
      '\r\nContent-Disposition: attachment; filename="b"\r\nContent-Type: text/markdown\r\n' +
      `Content-Length: ${coded.length}\r\nContent-Encoding: gzip\r\n\r\n${coded.toString()}\r\n--${inner}--` +
      '\r\n--OUTER\r\nContent-Type: application/json\r\n\r\n{"_id":"x","_rev":"2-c","n":1}' +
      '\r\n--OUTER\r\nContent-Type: application/json; error="true"\r\n\r\n{"missing":"3-no"}' +
      '\r\n--OUTER--',
  )
  t.equal(held(), 0)
})

t.test('open_revs of all leaves, of an empty list, and of a missing document', async (t) => {
  const { revs } = await storedContents()
  const parts = partsOf(OUTER, Buffer.concat(await chunksOf(revs('all'))))
  t.match(
    parts.map(({ headers }) => headers['content-type']),
    [/^multipart\/related; boundary="/, 'application/json'],
  )
  t.equal(await text(revs([])), '--OUTER--')
  t.equal(
    await text(revs(['1-a'], {}, 'no')),
    '--OUTER\r\nContent-Type: application/json; error="true"\r\n\r\n{"missing":"1-a"}\r\n--OUTER--',
  )
  await t.rejects(text(revs('all', {}, 'no')), { code: 'not_found' })
  await t.rejects(text(revs(['bad'])), { code: 'invalid_rev' })
})

t.test('atts_since omits contents that the reader has', async (t) => {
  const { revs } = await storedContents()
  const read = async (attsSince: string[]) => {
    const [part] = partsOf(OUTER, Buffer.concat(await chunksOf(revs(['2-d'], { attsSince }))))
    return part
  }
  const newer = await read(['1-a'])
  const inner = partsOf(newer?.headers['content-type'], newer?.content as Buffer)
  t.match(inner[0]?.json, { _attachments: { a: { stub: true }, b: { follows: true } } })
  t.same(
    inner.slice(1).map(({ headers, content }) => [headers['content-disposition'], content]),
    [['attachment; filename="b"', gzipSync(CODED)]],
  )
  const none = await read(['2-d'])
  t.equal(none?.headers['content-type'], 'application/json')
  t.match(none?.json._attachments, { a: { stub: true }, b: { stub: true, encoding: 'gzip' } })
})

t.test('names and types are escaped in headers and unchanged in the JSON', async (t) => {
  const { write, revs } = await storedContents()
  const names = ['a"b', 'ü\u{1f600}.png', 'line\r\nX-Evil: 1', 'nul\0', 'per%cent', 'back\\slash', 'a/b']
  await write('odd', {
    rev: '1-a',
    attachments: names.map((name) => ({ name, content: name, type: `t/x;n=${name}` })),
  })
  const [part] = partsOf(OUTER, Buffer.concat(await chunksOf(revs('all', {}, 'odd'))))
  const inner = partsOf(part?.headers['content-type'], part?.content as Buffer)
  const [document, ...contents] = inner
  const sorted = Object.keys(document?.json._attachments)
  t.same(new Set(sorted), new Set(names))
  t.same(
    contents.map(({ text: content }) => content),
    sorted,
  )
  const headers = new Map(contents.map((each) => [each.text, each.headers]))
  const expected = [
    'a%22b',
    'ü\u{1f600}.png',
    'line%0D%0AX-Evil: 1',
    'nul%00',
    'per%cent',
    'back\\slash',
    'a/b',
  ]
  for (const [at, name] of names.entries()) {
    t.equal(headers.get(name)?.['content-disposition'], `attachment; filename="${expected[at]}"`)
    t.equal(headers.get(name)?.['x-evil'], undefined)
  }
  t.equal(headers.get('nul\0')?.['content-type'], 'application/octet-stream')
  t.equal(headers.get('a/b')?.['content-type'], 't/x;n=a/b')
})

t.test('_bulk_get has the same framing as in CouchDB', async (t) => {
  const { bulk, held } = await storedContents()
  const answer = await text(
    bulk([
      { id: 'x', rev: '2-d' },
      { id: 'x', rev: '2-c' },
      { id: 'x', rev: '9-no' },
    ]),
  )
  const inner = /boundary=([0-9a-f]{32})\r\n/.exec(answer)?.[1]
  t.ok(
    answer.startsWith(
      '\r\n--OUTER\r\nX-Doc-Id: x\r\nX-Rev-Id: 2-d\r\n' +
        `Content-Type: multipart/related; boundary=${inner}\r\n\r\n--${inner}\r\n` +
        'Content-Type: application/json\r\n\r\n{"_id":"x"',
    ),
  )
  t.ok(
    answer.endsWith(
      `\r\n--${inner}--\r\n--OUTER\r\nContent-Type: application/json\r\n\r\n{"_id":"x","_rev":"2-c","n":1}` +
        '\r\n--OUTER\r\nContent-Type: application/json; error="true"\r\n\r\n' +
        '{"id":"x","rev":"9-no","error":"not_found","reason":"missing"}\r\n--OUTER--\r\n',
    ),
  )
  t.equal(await text(bulk([])), '\r\n--OUTER--\r\n')
  t.equal(held(), 0)
})

t.test('_bulk_get reports the error of an input at its position', async (t) => {
  const { bulk } = await storedContents()
  const docs = [{ id: 'no' }, { id: 'x', rev: 'bad' }, 'x', { id: '_x' }, { id: 'x' }]
  const parts = partsOf(OUTER, Buffer.concat(await chunksOf(bulk(docs, { revs: true }))))
  t.match(
    parts.map(({ json }) => json),
    [
      { id: 'no', rev: 'undefined', error: 'not_found' },
      { id: 'x', rev: 'bad', error: 'bad_request' },
      { id: null, error: 'bad_request' },
      { id: '_x', error: 'illegal_docid' },
      undefined,
      { _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] } },
    ],
  )
  t.match(parts[4]?.headers, { 'x-doc-id': 'x', 'x-rev-id': '2-d' })
  await t.rejects(text(bulk('x' as never)), { code: 'bad_request' })
})

t.test('_bulk_get with ids that a header cannot contain, and with atts_since', async (t) => {
  const { bulk, write } = await storedContents()
  const id = 'new\r\nline'
  await write(id, { rev: '1-a', attachments: [{ name: 'a', content: 'x' }] })
  const docs = [{ id }, { id: 'x', rev: '2-d', atts_since: ['1-a'] }]
  const parts = partsOf(OUTER, Buffer.concat(await chunksOf(bulk(docs))))
  t.equal(parts[0]?.headers['x-doc-id'], 'new%0D%0Aline')
  const [document] = partsOf(parts[1]?.headers['content-type'], parts[1]?.content as Buffer)
  t.match(document?.json._attachments, { a: { stub: true }, b: { follows: true } })
})

t.test('a reader that stops early releases all pins', async (t) => {
  const { revs, bulk, write, held } = await storedContents()
  const attachments = ['a', 'b'].map((name) => ({ name, content: Buffer.alloc(1_000_000, name) }))
  await write('big', { rev: '1-a', attachments })
  for (const answer of [revs('all', {}, 'big'), bulk([{ id: 'big' }, { id: 'big' }])]) {
    for await (const _ of answer) {
      t.ok(held() > 0)
      break
    }
    t.equal(held(), 0)
  }
})

t.test('a missing content fails the answer', async (t) => {
  const { store, revs } = await storedContents()
  const referenceBlob = async () => null
  const forgetful = new Proxy(store, {
    get: (target, name) => (name === 'referenceBlob' ? referenceBlob : Reflect.get(target, name)),
  })
  await t.rejects(text(openRevsMixed(forgetful, ADMIN, 'x', 'all', {}, 'OUTER')), { code: 'no_attachment' })
  t.ok(await text(revs('all')))
})
