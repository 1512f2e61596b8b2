/** A document followed by its attachments: protocol.md 7.2, 19.6. */
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { Body, Database, PutOptions } from '../../src/documents/database.ts'
import { follows, md5, named, type RelatedPart, related } from '../helpers/related.ts'
import { ADMIN, type Json, type Opened, openDatabase, spooled } from './helpers.ts'

const LARGE = Buffer.alloc(1_500_000, 'settee')

async function start(limits: Parameters<typeof openDatabase>[0] = {}) {
  const opened = await openDatabase(limits)
  const putBody = async (body: Body, options: PutOptions = {}) =>
    (await opened.database.put(ADMIN, 'x', body, { boundary: 'B', ...options })).rev
  const putRelated = (doc: unknown, parts: readonly RelatedPart[], options?: PutOptions) =>
    putBody({ bytes: related('B', doc, parts) }, options)
  const contents = async (options = {}) => {
    const { _attachments = {} } = await opened.get('x', { attachments: true, ...options })
    return Object.fromEntries(
      Object.entries<Json>(_attachments).map(([name, { data }]) => [
        name,
        Buffer.from(data, 'base64').toString(),
      ]),
    )
  }
  return { ...opened, putBody, putRelated, contents }
}

async function isEmpty(t: Test, { get, updateSeq }: Pick<Opened, 'get' | 'updateSeq'>) {
  t.equal(await updateSeq(), 0)
  await t.rejects(get('x'), { code: 'not_found' })
}

t.test('parts without headers, in the order of the document, before an epilogue', async (t) => {
  const { putBody, contents, get } = await start()
  const doc = { a: 1, _attachments: { foo: follows('one'), bar: follows('three'), baz: follows('') } }
  const bytes = Buffer.concat([
    related('B', doc, [{ content: 'one' }, { content: 'three' }, { content: '' }]),
    Buffer.from('epilogue'),
  ])
  await putBody({ bytes })
  t.strictSame(await contents(), { foo: 'one', bar: 'three', baz: '' })
  t.match((await get('x'))._attachments, {
    foo: { content_type: 'text/plain', revpos: 1, digest: md5('one'), length: 3, stub: true },
  })
})

t.test('foo is kept, bar is replaced, baz is omitted', async (t) => {
  const { put, putRelated, contents, get } = await start()
  const inline = (text: string) => ({ data: Buffer.from(text).toString('base64') })
  const _rev = await put('x', { _attachments: { foo: inline('1'), bar: inline('2'), baz: inline('3') } })
  const _attachments = { foo: { stub: true }, bar: follows('new'), data: inline('in') }
  await putRelated({ _rev, _attachments }, [{ content: 'new' }])
  t.strictSame(await contents(), { foo: '1', bar: 'new', data: 'in' })
  t.match((await get('x'))._attachments, { foo: { revpos: 1 }, bar: { revpos: 2 }, data: { revpos: 2 } })
})

t.test('parts with file names may be in any order', async (t) => {
  const { putRelated, contents } = await start()
  const _attachments = { 'a/b "c"': follows('1'), b: follows('2'), ä: follows('3') }
  await putRelated({ _attachments }, [
    { content: '3', ...named('ä') },
    { content: '1', ...named('a/b \\"c\\"') },
    { content: '2', ...named('b') },
  ])
  t.strictSame(await contents(), { 'a/b "c"': '1', b: '2', ä: '3' })
})

t.test("file names are ignored unless all are the attachments' names", async (t) => {
  const { putRelated, contents } = await start()
  const _attachments = { a: follows('1'), b: follows('2') }
  await putRelated({ _attachments }, [
    { content: '1', ...named('b') },
    { content: '2', ...named('photo.jpg') },
  ])
  t.strictSame(await contents(), { a: '1', b: '2' })
})

t.test('the order is that of the JSON text, even for numeric names', async (t) => {
  const { putRelated, contents } = await start()
  const entries = [10, 9, 'a', 1].map((name) => `"${name}":${JSON.stringify(follows(`of ${name}`))}`)
  await putRelated(
    `{"_attachments": {${entries.join(' , ')}}}`,
    [10, 9, 'a', 1].map((name) => ({ content: `of ${name}` })),
  )
  t.strictSame(await contents(), { 10: 'of 10', 9: 'of 9', a: 'of a', 1: 'of 1' })
})

t.test('attachments that follow keep their position among the others', async (t) => {
  const { putRelated, get } = await start()
  const inline = { data: Buffer.from('in').toString('base64') }
  await putRelated({ _attachments: { b: follows('1'), a: inline, c: follows('2') } }, [
    { content: '1' },
    { content: '2' },
  ])
  t.same(Object.keys((await get('x'))._attachments), ['b', 'a', 'c'])
})

t.test('a revision as CouchDB’s replicator sends it', async (t) => {
  const { putRelated, contents, get } = await start()
  const zipped = gzipSync('a text that CouchDB has compressed')
  const doc = {
    _id: 'x',
    _revisions: { start: 3, ids: ['c', 'b', 'a'] },
    _attachments: {
      'a.bin': follows(LARGE, { revpos: 2, digest: md5(LARGE) }),
      'b.txt': follows('', {
        revpos: 3,
        digest: md5(zipped),
        encoding: 'gzip',
        length: 34,
        encoded_length: zipped.length,
      }),
    },
  }
  const parts = [
    { content: LARGE, ...named('a.bin') },
    { content: zipped, ...named('b.txt') },
  ]
  t.equal(await putRelated(doc, parts, { newEdits: false }), '3-c')
  t.strictSame(await contents(), { 'a.bin': LARGE.toString(), 'b.txt': 'a text that CouchDB has compressed' })
  t.match((await get('x', { attEncodingInfo: true }))._attachments, {
    'a.bin': { revpos: 2, length: LARGE.length, digest: md5(LARGE) },
    'b.txt': { revpos: 3, length: 34, digest: md5(zipped), encoding: 'gzip', encoded_length: zipped.length },
  })
  const seq = (await get('x', { localSeq: true }))._local_seq
  t.equal(await putRelated(doc, parts, { newEdits: false }), '3-c', 'the same request has the same revision')
  t.equal((await get('x', { localSeq: true }))._local_seq, seq)
})

t.test('the length of an encoded content is its inflated length, not the stated one', async (t) => {
  const { putRelated, get } = await start()
  const zipped = gzipSync('twelve bytes')
  const entry = follows(zipped, { encoding: 'gzip', encoded_length: zipped.length })
  await putRelated({ _attachments: { a: entry } }, [{ content: zipped }])
  t.match((await get('x'))._attachments.a, { length: 12 })
})

t.test('a large body that is spooled, with large contents', async (t) => {
  const { putBody, contents } = await start()
  const near = Buffer.concat([LARGE, Buffer.from('\r\n--BB\r\n--B'), LARGE])
  const _attachments = { a: follows(LARGE), b: follows('small'), c: follows(near, { digest: md5(near) }) }
  const parts = [{ content: LARGE }, { content: 'small' }, { content: near }]
  await putBody(await spooled(t, related('B', { _attachments }, parts)))
  const found = await contents()
  t.strictSame(Object.keys(found), ['a', 'b', 'c'])
  t.ok(found.a === LARGE.toString() && found.b === 'small' && found.c === near.toString())
})

t.test('inline and following contents make the same revision', async (t) => {
  const { put, putRelated, get, database } = await start()
  const text = LARGE.toString('base64')
  const inline = await put('y', { a: 1, _attachments: { a: { content_type: 'text/plain', data: text } } })
  const following = await putRelated({ a: 1, _attachments: { a: follows(LARGE) } }, [{ content: LARGE }])
  t.equal(following, inline)
  const [one, other] = await Promise.all(
    ['x', 'y'].map((id) => database.openAttachment(ADMIN, id, 'a', undefined)),
  )
  t.equal(one?.blob, other?.blob, 'equal contents are stored once')
  t.match(await get('x'), { _rev: inline })
})

t.test('wrong statements are refused, and nothing is stored', async (t) => {
  const zipped = gzipSync('one')
  const one = { content: 'one' }
  const coded = (more: Record<string, unknown>) => ({ follows: true, encoding: 'gzip', ...more })
  const cases: [title: string, entries: Json, parts: RelatedPart[], expected: Json][] = [
    [
      'longer',
      { a: follows('on') },
      [one],
      { code: 'bad_request', reason: 'attachment longer than expected' },
    ],
    [
      'shorter',
      { a: follows('one!') },
      [one],
      { code: 'bad_request', reason: 'attachment shorter than expected' },
    ],
    [
      'no length',
      { a: { ...follows('one'), length: '3' } },
      [one],
      { reason: 'Invalid attachment data for a' },
    ],
    [
      'longer, coded',
      { a: coded({ encoded_length: zipped.length - 1 }) },
      [{ content: zipped }],
      { code: 'bad_request' },
    ],
    ['not gzip', { a: coded({ encoded_length: 3 }) }, [one], { code: 'gzip_body' }],
    ['empty gzip', { a: coded({}) }, [{ content: '' }], { code: 'gzip_body' }],
    ['cut gzip', { a: coded({}) }, [{ content: zipped.subarray(0, -1) }], { code: 'gzip_body' }],
    ['another coding', { a: { ...follows('one'), encoding: 'br' } }, [one], { code: 'bad_content_type' }],
    [
      'digest',
      { a: follows('one', { digest: md5('two') }) },
      [one],
      { code: 'md5_mismatch', reason: 'md5_mismatch' },
    ],
    [
      'digest of what is inflated',
      { a: coded({ digest: md5('one') }) },
      [{ content: zipped }],
      { code: 'md5_mismatch' },
    ],
    ['a part missing', { a: follows('one'), b: follows('two') }, [one], { code: 'bad_request' }],
    ['a part too many', { a: follows('one') }, [one, one], { code: 'bad_request' }],
    ['parts that nothing asks for', {}, [one], { code: 'bad_request' }],
    [
      'a boundary in the content',
      { a: follows('one\r\n--B\r\n\r\ntwo') },
      [{ content: 'one\r\n--B\r\n\r\ntwo' }],
      { code: 'bad_request' },
    ],
    [
      'the last boundary in it',
      { a: follows('one\r\n--B--two') },
      [{ content: 'one\r\n--B--two' }],
      { reason: 'attachment shorter than expected' },
    ],
    ['too large', { a: follows(LARGE) }, [{ content: LARGE }], { code: 'attachment_too_large', reason: 'a' }],
    [
      'too large when inflated',
      { a: coded({}) },
      [{ content: gzipSync(LARGE) }],
      { code: 'attachment_too_large' },
    ],
    ['a control character', { 'a\0b': follows('one') }, [one], { code: 'bad_request' }],
    ['a segment ..', { 'a/../b': follows('one') }, [one], { code: 'bad_request' }],
    ['an underscore', { _a: follows('one') }, [one], { code: 'bad_request' }],
    ['a stub of a new document', { a: follows('one'), b: { stub: true } }, [one], { code: 'missing_stub' }],
    ['an entry that is none', { a: follows('one'), b: 1 }, [one], { code: 'bad_request' }],
  ]
  for (const [title, _attachments, parts, expected] of cases) {
    const opened = await start({ maxAttachmentSize: 1_000_000 })
    await t.rejects(opened.putRelated({ _attachments }, parts), expected, title)
    await isEmpty(t, opened)
  }
})

t.test('bodies that do not match their header', async (t) => {
  const opened = await start()
  const refuse = (bytes: Buffer, expected: Json, options?: PutOptions) =>
    t.rejects(opened.putBody({ bytes }, options), expected)
  const good = related('B', { _attachments: { a: follows('one') } }, [{ content: 'one' }])
  await refuse(good, { code: 'bad_request' }, { boundary: 'C' })
  await refuse(good, { code: 'bad_request' }, { boundary: '' })
  await refuse(good.subarray(0, -2), { code: 'bad_request' })
  await refuse(Buffer.from(''), { code: 'bad_request' })
  await refuse(Buffer.from('--B--'), { code: 'bad_content_type' })
  await refuse(Buffer.from('{}'), { code: 'bad_request' })
  await refuse(Buffer.from('--B\r\n\r\n{}\r\n--B--'), { code: 'bad_content_type' })
  await refuse(Buffer.from('--B\r\nContent-Type: text/json\r\n\r\n{}\r\n--B--'), { code: 'bad_content_type' })
  await refuse(related('B', '{"a":', []), { code: 'invalid_json' })
  await refuse(related('B', '[]', []), { code: 'document_not_object' })
  await refuse(related('B', { _x: 1 }, []), { code: 'doc_validation' })
  await refuse(related('B', {}, []), { code: 'bad_request' }, { newEdits: false })
  await refuse(related('B', { _rev: '1-a' }, []), { code: 'bad_request' }, { rev: '1-b', revFrom: 'query' })
  await isEmpty(t, opened)
  await t.rejects(opened.put('x', { _attachments: { a: follows('one') } }), {
    code: 'bad_request',
    reason: 'Invalid attachment data for a',
  })
  await t.rejects(opened.bulk({ docs: [{ _attachments: { a: follows('one') } }] }), { code: 'bad_request' })
})

t.test('a content that is cut at every byte', async (t) => {
  const opened = await start()
  const bytes = related('B', { _attachments: { a: follows('one'), b: follows('two') } }, [
    { content: 'one' },
    { content: 'two', ...named('b') },
  ])
  for (let end = 0; end < bytes.length; end += 1) {
    await t.rejects(opened.putBody({ bytes: bytes.subarray(0, end) }), { name: 'CouchError' })
  }
  await isEmpty(t, opened)
})

t.test('a conflict, and a stub with another revpos, keep the stored attachment', async (t) => {
  const { put, putRelated, contents, updateSeq } = await start()
  const _rev = await put('x', { _attachments: { a: { data: 'MQ==' } } })
  const part = [{ content: LARGE }]
  await t.rejects(putRelated({ _attachments: { a: follows(LARGE) } }, part), { code: 'conflict' })
  const stubs = [{ a: { stub: true, revpos: 2 } }, { c: { stub: true } }]
  for (const stub of stubs) {
    await t.rejects(putRelated({ _rev, _attachments: { ...stub, b: follows(LARGE) } }, part), {
      code: 'missing_stub',
    })
  }
  t.strictSame([await contents(), await updateSeq()], [{ a: '1' }, 1])
})

t.test('the attachments of a _local document are dropped, as in every write', async (t) => {
  const { database, get } = await start()
  const bytes = related('B', { n: 1, _attachments: { a: follows(LARGE) } }, [{ content: LARGE }])
  t.match(await database.put(ADMIN, '_local/l', { bytes }, { boundary: 'B' }), { rev: '0-1' })
  t.strictSame(await get('_local/l'), { _id: '_local/l', _rev: '0-1', n: 1 })
})

t.test('a damaged body is refused, or stored as it parses', async (t) => {
  const { database, updateSeq } = await start()
  const zipped = gzipSync('three')
  const doc = {
    _attachments: { a: follows('one'), b: follows('two', { digest: md5('two') }), 3: follows('') },
  }
  Object.assign(doc._attachments[3], { encoding: 'gzip', encoded_length: zipped.length })
  const parts = [{ content: zipped }, { content: 'one' }, { content: 'two' }]
  const good = related('B', doc, parts)
  const edit = fc.record({
    at: fc.nat({ max: good.length }),
    drop: fc.nat({ max: 3 }),
    add: fc.constantFrom('', '\r\n', '-', '"', '}', '0', 'x', '\0', '\r\n--B\r\n\r\n', '\r\n--B--'),
  })
  let stored = 0
  let refused = 0
  const damaged = fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 3 }), async (edits) => {
    let bytes = good
    for (const { at, drop, add } of edits) {
      bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(add), bytes.subarray(at + drop)])
    }
    try {
      await database.put(ADMIN, `x${stored}`, { bytes }, { boundary: 'B' })
      stored += 1
    } catch (error) {
      if (!(error instanceof CouchError) || error.status >= 500) throw error
      refused += 1
    }
    if ((await updateSeq()) !== stored) throw new Error('something was stored')
  })
  await fc.assert(damaged, { numRuns: 2000 })
  t.ok(stored > 50 && refused > 500, `${stored} stored, ${refused} refused`)
})

// CouchDB's upload form for browsers; protocol.md 3.7.

type Field = readonly [name: string, value: string | File]

/** A form as a browser sends it. */
async function form(...fields: readonly Field[]): Promise<{ body: Body; boundary: string }> {
  const data = new FormData()
  for (const [name, value] of fields) data.append(name, value)
  const sent = new Response(data)
  const boundary = /boundary=(.+)$/.exec(sent.headers.get('content-type') ?? '')?.[1] ?? ''
  return { body: { bytes: new Uint8Array(await sent.arrayBuffer()) }, boundary }
}

function file(name: string, text: string, type = 'text/plain'): Field {
  return ['_attachments', new File([text], name, { type })]
}

async function upload(database: Database, id: string, ...fields: readonly Field[]) {
  const { body, boundary } = await form(...fields)
  return database.postForm(ADMIN, id, body, { boundary })
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

t.test('a document and its files', async (t) => {
  const { get, database } = await openDatabase()
  const files = [file('ä b.txt', 'hello'), file('c.bin', '\r\n--x\r\n', ''), file('', '')]
  const { rev } = await upload(database, 'x', ['_doc', '{"n":1.0,"é":2}'], ...files, ['other', 'ignored'])
  t.match(rev, /^1-/)
  t.match(await get('x', { attachments: true }), {
    n: 1,
    é: 2,
    _attachments: {
      'ä b.txt': { content_type: 'text/plain', data: base64('hello'), revpos: 1 },
      'c.bin': { content_type: 'application/octet-stream', data: base64('\r\n--x\r\n') },
    },
  })
  t.equal(Object.keys((await get('x'))._attachments).length, 2, 'a field left empty is no file')
})

t.test('files are added to a revision, which keeps its other attachments', async (t) => {
  const { put, get, database } = await openDatabase()
  const rev = await put('x', {
    n: 1,
    _attachments: { a: { data: base64('old a') }, b: { data: base64('old b'), content_type: 'image/png' } },
  })
  const second = await upload(database, 'x', ['_rev', rev], file('a', 'new a'), file('c', 'new c'))
  t.match(second.rev, /^2-/)
  t.match(await get('x', { attachments: true }), {
    n: 1,
    _attachments: {
      a: { data: base64('new a'), revpos: 2 },
      b: { data: base64('old b'), content_type: 'image/png', revpos: 1 },
      c: { data: base64('new c'), revpos: 2 },
    },
  })
  await t.rejects(upload(database, 'x', ['_rev', rev], file('d', '')), { code: 'conflict' })
  const third = await upload(database, 'x', ['_doc', JSON.stringify({ _rev: second.rev, n: 3 })])
  t.same(await get('x'), { _id: 'x', _rev: third.rev, n: 3 })
})

t.test('a large file', async (t) => {
  const { get, database } = await openDatabase()
  const text = 'settee '.repeat(400_000)
  await upload(database, 'x', ['_doc', '{}'], file('large', text))
  t.match(await get('x'), { _attachments: { large: { length: text.length, stub: true } } })
})

t.test('a refused form stores nothing', async (t) => {
  const { put, database, store } = await openDatabase({ maxAttachmentSize: 100 })
  await put('there', {})
  const before = await store.view()
  const cases: [id: string, fields: Field[], code: string, reason?: string][] = [
    ['x', [], 'bad_request', 'The form has neither `_doc` nor `_rev`.'],
    ['x', [file('a', 'a')], 'bad_request', 'The form has neither `_doc` nor `_rev`.'],
    ['x', [['_rev', '1-a']], 'not_found'],
    ['there', [['_rev', '1-a']], 'conflict'],
    ['there', [['_rev', 'rubbish']], 'invalid_rev'],
    ['there', [['_doc', '{}']], 'conflict'],
    ['x', [['_doc', '{']], 'invalid_json'],
    ['x', [['_doc', '{"_zing":1}']], 'doc_validation'],
    ['x', [['_doc', '{}'], file('_a', '')], 'bad_request'],
    ['x', [['_doc', '{}'], file('../a', '')], 'bad_request'],
    ['x', [['_doc', '{}'], file('a', '1'), file('a', '2')], 'bad_request', 'Duplicate attachments'],
    ['x', [['_doc', '{}'], file('a', 'x'.repeat(101))], 'attachment_too_large'],
    ['_x', [['_doc', '{}']], 'illegal_docid'],
    ['_local/x', [['_doc', '{}']], 'bad_request', '_local documents do not accept attachments.'],
  ]
  for (const [id, fields, code, reason] of cases) {
    await t.rejects(upload(database, id, ...fields), reason ? { code, reason } : { code }, `${id} ${code}`)
  }
  const { body } = await form(['_doc', '{}'])
  await t.rejects(database.postForm(ADMIN, 'x', body, { boundary: 'other' }), { code: 'bad_request' })
  await t.rejects(database.postForm({ name: 'o', roles: [] }, 'x', body, { boundary: 'x' }), {
    code: 'forbidden',
  })
  t.same(await store.view(), before)
})
