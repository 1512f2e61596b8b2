/** Inline attachments and stubs: protocol.md 7.1. */
import { createHash, randomBytes } from 'node:crypto'
import { gunzipSync, gzipSync } from 'node:zlib'
import t from 'tap'
import { isCompressible } from '../../src/documents/incoming-attachments.ts'
import type { DocUpdate, Outcome } from '../../src/storage/engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { follows, md5, named, related } from '../helpers/related.ts'
import { ENGINES } from './engines.ts'
import {
  ADMIN,
  ANNA,
  body,
  chunksOf,
  type Json,
  jsonOf,
  NOBODY,
  openDatabase,
  openOn,
  spooled,
  text,
} from './helpers.ts'

const HELLO = { content_type: 'text/plain', data: 'aGVsbG8=' }
const HELLO_DIGEST = `md5-${createHash('md5').update('hello').digest('base64')}`

t.test('an inline attachment is stored, and read as a stub or with its data', async (t) => {
  const { put, get } = await openDatabase()
  await put('x', { _attachments: { 'a.txt': HELLO } })
  t.same((await get('x'))._attachments, {
    'a.txt': { content_type: 'text/plain', revpos: 1, digest: HELLO_DIGEST, length: 5, stub: true },
  })
  t.same((await get('x', { attachments: true }))._attachments, {
    'a.txt': { content_type: 'text/plain', revpos: 1, digest: HELLO_DIGEST, data: 'aGVsbG8=' },
  })
})

t.test('the text of the md5 example has its digest', async (t) => {
  const { put, get } = await openDatabase()
  const data = Buffer.from('This is a base64 encoded text').toString('base64')
  await put('x', { _attachments: { a: { data } } })
  t.match((await get('x'))._attachments.a, { digest: 'md5-aEI7pOYCRBLTRQvvqYrrJQ==', length: 29 })
})

t.test('the default type is application/octet-stream, and empty data is an attachment', async (t) => {
  const { put, get, database } = await openDatabase()
  await put('x', { _attachments: { a: { data: '' } } })
  t.match((await get('x'))._attachments.a, { content_type: 'application/octet-stream', length: 0 })
  t.match((await get('x', { attachments: true }))._attachments.a, { data: '' })
  const found = await database.openAttachment(ADMIN, 'x', 'a', undefined)
  t.equal(await text(database.readAttachment(found, 0, found.length)), '')
})

t.test('attachments are in the order sent, and a separately written one is first', async (t) => {
  const { put, get, database } = await openDatabase()
  const names = async () => Object.keys((await get('x'))._attachments)
  const rev = await put('x', { _attachments: { b: HELLO, c: HELLO, a: HELLO } })
  t.same(await names(), ['b', 'c', 'a'])
  const stub = { stub: true }
  const second = await put('x', { _rev: rev, _attachments: { a: stub, d: HELLO, b: stub, c: stub } })
  t.same(await names(), ['a', 'd', 'b', 'c'])
  await database.putAttachment(ADMIN, 'x', 'b', body('text'), {
    rev: second,
    type: 'text/plain',
    encoding: null,
  })
  t.same(await names(), ['b', 'a', 'd', 'c'])
})

t.test('data may contain line breaks', async (t) => {
  const { put, get } = await openDatabase()
  await put('x', { _attachments: { a: { data: 'aGVs\r\nbG8=\n' } } })
  t.match((await get('x', { attachments: true }))._attachments.a, { data: 'aGVsbG8=' })
})

t.test('an invalid attachment refuses the document', async (t) => {
  const { put, updateSeq } = await openDatabase({ maxAttachmentSize: 10 })
  const cases: [attachments: unknown, code: string, reason?: string][] = [
    [1, 'doc_validation', 'Bad special document member: _attachments'],
    [null, 'doc_validation', 'Bad special document member: _attachments'],
    [[], 'doc_validation', 'Bad special document member: _attachments'],
    [{ _x: { data: '' } }, 'bad_request', "Attachment name '_x' starts with prohibited character '_'"],
    [{ '': { data: '' } }, 'bad_request', 'Attachment name must not be empty'],
    [{ a: 1 }, 'bad_request', 'Invalid attachment data for a'],
    [{ a: {} }, 'bad_request', 'Invalid attachment data for a'],
    [{ a: { data: 1 } }, 'bad_request', 'Invalid attachment data for a'],
    [{ a: { data: '', content_type: 1 } }, 'bad_request', 'Invalid attachment data for a'],
    [{ a: { stub: false } }, 'bad_request', 'Invalid attachment data for a'],
    [{ a: { data: 'A'.repeat(16) } }, 'attachment_too_large', 'a'],
  ]
  for (const [_attachments, code, reason] of cases) {
    await t.rejects(
      put('x', { _attachments }),
      reason ? { code, reason } : { code },
      JSON.stringify(_attachments),
    )
  }
  for (const data of [
    'notBase64Encoded=',
    'a',
    'ab',
    'abc',
    'a===',
    '====',
    '=',
    'ab=c',
    'abc=abc=',
    'ab_-',
    'äää=',
  ]) {
    await t.rejects(put('x', { _attachments: { a: { data } } }), { code: 'bad_request' }, data)
  }
  await put('y', { _attachments: { a: { data: 'AAAAAAAAAAAAAA==' } } })
  t.equal(await updateSeq(), 1, 'ten bytes are not too many')
})

t.test('data may contain escapes anywhere, even at the end of a decoding step', async (t) => {
  const { database, get } = await openDatabase()
  const data = randomBytes(900_000).toString('base64')
  const lines = data.replaceAll(/.{76}/g, '$&\\r\\n')
  const escaped = lines.replaceAll('/', '\\/').replaceAll('+', '\\u002b')
  for (let shift = 0; shift < 8; shift += 1) {
    const text = `{"_attachments":{"a":{"data":"${' '.repeat(shift)}${escaped}"}}}`
    await database.put(ADMIN, `x${shift}`, { bytes: Buffer.from(text) }, {})
    t.ok((await get(`x${shift}`, { attachments: true }))._attachments.a.data === data, String(shift))
  }
})

t.test('base64 of any length is returned unchanged', async (t) => {
  const { put, get } = await openDatabase()
  const _attachments: Json = {}
  for (const length of [1, 2, 3, 4, 1023, 786_431, 786_432, 786_433, 3_000_001]) {
    _attachments[`n${length}`] = { data: Buffer.alloc(length, `settee${length}`).toString('base64') }
  }
  await put('x', { _attachments })
  const read = (await get('x', { attachments: true }))._attachments
  for (const [name, { data }] of Object.entries<Json>(_attachments)) t.ok(read[name].data === data, name)
})

t.test('a stub keeps an attachment, and an omitted attachment is removed', async (t) => {
  const { put, get } = await openDatabase()
  const first = await put('x', { _attachments: { a: HELLO, b: HELLO } })
  const second = await put('x', { _rev: first, _attachments: { a: { stub: true } } })
  t.same((await get('x', { attachments: true }))._attachments, {
    a: { ...HELLO, revpos: 1, digest: HELLO_DIGEST },
  })
  await put('x', { _rev: second })
  t.notOk('_attachments' in (await get('x')), 'an update without the member removes all')
  t.match((await get('x', { rev: first, attachments: true }))._attachments, { a: HELLO, b: HELLO })
})

t.test('an edit may send back the document as read', async (t) => {
  const { put, get } = await openDatabase()
  await put('x', { n: 1, _attachments: { a: HELLO } })
  for (const attachments of [false, true]) {
    const doc = await get('x', { attachments })
    await put('x', { ...doc, n: doc.n + 1 })
    t.match((await get('x', { attachments: true }))._attachments.a, { data: 'aGVsbG8=' })
  }
  t.match(await get('x'), { n: 3, _attachments: { a: { revpos: 3 } } })
})

t.test('revpos is the generation that added the content', async (t) => {
  const { put, get } = await openDatabase()
  const first = await put('x', { _attachments: { a: { ...HELLO, revpos: 17 } } })
  t.equal((await get('x'))._attachments.a.revpos, 1, 'revpos of an interactive write is ignored')
  const second = await put('x', { _rev: first, _attachments: { a: { stub: true }, b: HELLO } })
  t.match((await get('x'))._attachments, { a: { revpos: 1 }, b: { revpos: 2 } })
  await put('x', { _rev: second, _attachments: { a: HELLO, b: { stub: true, revpos: 2 } } })
  t.match((await get('x'))._attachments, { a: { revpos: 3 }, b: { revpos: 2 } })
})

t.test('all other members of a stub are ignored', async (t) => {
  const { put, get } = await openDatabase()
  const first = await put('x', { _attachments: { a: HELLO } })
  const stub = { stub: true, digest: 'md5-x', length: 99, content_type: 'image/png', revpos: 'x' }
  await put('x', { _rev: first, _attachments: { a: stub } })
  t.match((await get('x'))._attachments.a, { digest: HELLO_DIGEST, length: 5, content_type: 'text/plain' })
})

t.test('a stub without a stored attachment is 412, alone and in a bulk', async (t) => {
  const { put, bulk, get, updateSeq } = await openDatabase()
  const rev = await put('x', { _attachments: { a: HELLO } })
  const cases: Json[] = [
    { _id: 'new', _attachments: { a: { stub: true } } },
    { _id: 'x', _rev: rev, _attachments: { b: { stub: true } } },
    { _id: 'x', _rev: rev, _attachments: { a: { stub: true, revpos: 2 } } },
  ]
  for (const doc of cases) {
    const [name] = Object.keys(doc._attachments)
    const expected = { code: 'missing_stub', reason: `Invalid attachment stub in ${doc._id} for ${name}` }
    await t.rejects(put(doc._id, doc), expected)
    await t.rejects(bulk({ docs: [{ _id: 'other' }, doc] }), expected)
    await t.rejects(bulk({ docs: [doc, { _id: 'other' }] }), expected)
  }
  await t.rejects(bulk({ new_edits: false, docs: [{ ...cases[0], _rev: '2-a' }] }), { code: 'missing_stub' })
  t.equal(await updateSeq(), 1)
  await t.rejects(get('other'), { code: 'not_found' })
})

t.test('a recreated document may keep the attachments of its tombstone', async (t) => {
  const { put, get, database } = await openDatabase()
  const first = await put('x', { _attachments: { a: HELLO } })
  await put('x', { _rev: first, _deleted: true, _attachments: { a: { stub: true } } })
  await put('x', { _attachments: { a: { stub: true } } })
  t.match((await get('x', { attachments: true }))._attachments.a, { data: 'aGVsbG8=', revpos: 1 })
  await database.remove(ADMIN, 'x', (await get('x'))._rev)
  await t.rejects(put('x', { _attachments: { a: { stub: true } } }), { code: 'missing_stub' })
})

t.test('a conflict is reported before a missing stub', async (t) => {
  const { put } = await openDatabase()
  await put('x', {})
  await t.rejects(put('x', { _attachments: { a: { stub: true } } }), { code: 'conflict' })
})

t.test('replicated content keeps its revpos, 0 by default', async (t) => {
  const { replicate, get } = await openDatabase()
  const doc = { _attachments: { a: { ...HELLO, revpos: 2 }, b: HELLO } }
  t.same(await replicate('x', { start: 3, ids: ['c', 'b', 'a'], doc }), [])
  t.match((await get('x'))._attachments, { a: { revpos: 2 }, b: { revpos: 0 } })
})

t.test('a replicated stub means the attachment of the nearest stored ancestor', async (t) => {
  const { replicate, get, put } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'], doc: { _attachments: { a: { ...HELLO, revpos: 1 } } } })
  const stub = { _attachments: { a: { stub: true, revpos: 1 } } }
  t.same(await replicate('x', { start: 4, ids: ['d', 'c', 'b', 'a'], doc: stub }), [])
  t.match(await get('x', { attachments: true }), {
    _rev: '4-d',
    _attachments: { a: { data: 'aGVsbG8=', revpos: 1 } },
  })
  const branch = { start: 2, ids: ['z', 'a'] }
  await t.rejects(replicate('x', { ...branch, doc: { _attachments: { b: { stub: true } } } }), {
    code: 'missing_stub',
  })
  await t.rejects(
    put('x', { _rev: '2-z', ...{ _attachments: { a: { stub: true } } } }, { newEdits: false }),
    {
      code: 'missing_stub',
    },
  )
  t.same(await replicate('x', { ...branch, doc: stub }), [], 'the ancestor need not be a leaf')
})

t.test('conflicting leaves have their own attachments', async (t) => {
  const { replicate, database } = await openDatabase()
  const doc = (data: string) => ({ _attachments: { a: { data } } })
  await replicate('x', { start: 1, ids: ['a'], doc: doc('YQ==') }, { start: 1, ids: ['b'], doc: doc('Yg==') })
  const rows = await jsonOf(database.openRevs(ADMIN, 'x', 'all', { attachments: true }))
  t.same(
    rows.map(({ ok }: Json) => [ok._rev, ok._attachments.a.data]),
    [
      ['1-b', 'Yg=='],
      ['1-a', 'YQ=='],
    ],
  )
})

t.test('attachments of different content, type or name are different revisions', async (t) => {
  const { put } = await openDatabase()
  const sets = [{}, { a: HELLO }, { b: HELLO }, { a: { ...HELLO, data: '' } }, { a: { data: HELLO.data } }]
  const revs = new Set<string>()
  for (const [n, _attachments] of sets.entries()) revs.add(await put(`d${n}`, { _attachments }))
  t.equal(revs.size, sets.length)
})

t.test('names may contain slashes and any character', async (t) => {
  const { put, get } = await openDatabase()
  const names = ['a/b', 'ä\u{1f600}', 'constructor', ' ', '"']
  await put('x', { _attachments: Object.fromEntries(names.map((name) => [name, HELLO])) })
  t.same(new Set(Object.keys((await get('x'))._attachments)), new Set(names))
  await t.rejects(put('y', '{"_attachments":{"\\ud800":{"data":""}}}'), { code: 'invalid_json' })
})

t.test('one attachment is opened and read in parts', async (t) => {
  const { put, database } = await openDatabase()
  const first = await put('x', { _attachments: { a: HELLO } })
  const opened = await database.openAttachment(ADMIN, 'x', 'a', undefined)
  t.match(opened, { type: 'text/plain', length: 5, digest: HELLO_DIGEST })
  t.equal(await text(database.readAttachment(opened, 0, 5)), 'hello')
  t.equal(await text(database.readAttachment(opened, 1, 3)), 'el')
  await t.rejects(text(database.readAttachment({ ...opened, blob: 9999 }, 0, 5)), { code: 'no_attachment' })
  const second = await put('x', { _rev: first })
  await t.rejects(database.openAttachment(ADMIN, 'x', 'a', undefined), {
    code: 'no_attachment',
    reason: 'Document is missing attachment',
  })
  t.match(await database.openAttachment(ADMIN, 'x', 'a', first), { length: 5 }, 'an old revision keeps it')
  await t.rejects(database.openAttachment(ADMIN, 'x', 'a', '9-no'), { code: 'not_found', reason: 'missing' })
  await t.rejects(database.openAttachment(ADMIN, 'no', 'a', undefined), { code: 'not_found' })
  await database.remove(ADMIN, 'x', second)
  await t.rejects(database.openAttachment(ADMIN, 'x', 'a', undefined), { code: 'deleted' })
})

t.test('a large attachment is read in steps', async (t) => {
  const { put, database } = await openDatabase()
  await put('x', { _attachments: { a: { data: Buffer.alloc(1_000_000, 'x').toString('base64') } } })
  const found = await database.openAttachment(ADMIN, 'x', 'a', undefined)
  const sizes: number[] = []
  for await (const chunk of database.readAttachment(found, 0, found.length)) sizes.push(chunk.length)
  t.same(sizes, [262_144, 262_144, 262_144, 213_568])
})

t.test('a bulk with an attachment that is too large names it', async (t) => {
  const { database } = await openDatabase({ maxAttachmentSize: 4 })
  const docs = [{ _id: 'a' }, { _attachments: { big: HELLO } }]
  await t.rejects(jsonOf(database.bulkDocs(ADMIN, body({ docs }))), {
    code: 'attachment_too_large',
    reason: 'big',
  })
})

t.test('a bulk with a refused name stores nothing and keeps replicated attachments', async (t) => {
  const { bulk, replicate, get, updateSeq } = await openDatabase()
  for (const name of ['a\0b', '..', 'a/./b', 'a\r\nb']) {
    const docs = [{ _id: 'x' }, { _id: 'y', _attachments: { a: HELLO, [name]: HELLO } }, { _id: 'z' }]
    await t.rejects(bulk({ docs }), { code: 'bad_request' }, JSON.stringify(name))
    await t.rejects(bulk({ docs: docs.slice(1) }), { code: 'bad_request' }, JSON.stringify(name))
  }
  t.equal(await updateSeq(), 0)
  await replicate('x', { start: 1, ids: ['a'], doc: { _attachments: { '../a': HELLO } } })
  await bulk({ docs: [{ _id: 'x', _rev: '1-a', _attachments: { '../a': { stub: true } } }] })
  t.match(await get('x'), { _rev: /^2-/, _attachments: { '../a': { length: 5 } } })
})

t.test('attachments per document are limited, and existing ones can be edited and removed', async (t) => {
  const rules = { maxAttachments: 3 }
  const { put, get, database } = await openOn(memoryEngine({}), {}, undefined, undefined, rules)
  const files = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`f${i}`, HELLO]))
  const refused = { code: 'document_too_large', reason: /at most \d attachments \(settee\/max_attachments\)/ }
  const rev = await put('x', { _attachments: files(3) })
  await t.rejects(put('y', { _attachments: files(4) }), refused)
  await t.rejects(text(database.bulkDocs(ADMIN, body({ docs: [{ _attachments: files(4) }] }))), refused)
  const type = 'text/plain'
  const file = (name: string, rev: string) =>
    database.putAttachment(ADMIN, 'x', name, body('hello'), { type, encoding: null, rev })
  await t.rejects(file('f3', rev), refused)
  t.equal((await get('x'))._rev, rev)
  rules.maxAttachments = 2
  const edited = await put('x', { ...(await get('x')), n: 1 })
  await t.rejects(file('f0', edited), refused, 'a name that replaces another one is checked')
  const { rev: smaller } = await database.removeAttachment(ADMIN, 'x', 'f1', edited)
  await file('f0', smaller)
})

t.test('the names and types of the attachments of a document are limited together', async (t) => {
  const { put, get, database } = await openOn(memoryEngine({}), {}, undefined, undefined, {
    maxAttachments: 4,
  })
  const refused = { code: 'document_too_large', reason: /at most 1024 bytes together/ }
  const { data } = HELLO
  const named = (bytes: number, content_type = 't'.repeat(100)) => ({
    ...{
      a: { data, content_type },
      ['n'.repeat(bytes - 1 - 2 * content_type.length)]: { data, content_type },
    },
  })
  const rev = await put('x', { _attachments: named(1024) })
  await t.rejects(put('y', { _attachments: named(1025) }), refused)
  await t.rejects(put('y', { _attachments: { a: { data, content_type: 'é'.repeat(600) } } }), refused)
  await t.rejects(replicate('y', named(1025)), refused)
  const given = { type: 'a/b', encoding: null, rev }
  await t.rejects(database.putAttachment(ADMIN, 'x', 'more', body('hello'), given), refused)
  await put('x', { ...(await get('x')), n: 1 })

  async function replicate(id: string, _attachments: object): Promise<void> {
    const docs = [{ _id: id, _rev: '1-a', _attachments }]
    const [row] = JSON.parse(await text(database.bulkDocs(ADMIN, body({ docs, new_edits: false }))))
    if (row?.error !== undefined) throw Object.assign(new Error(row.error), { ...row, code: row.error })
  }
})

// Writing a single attachment: protocol.md 7.4, 19.6, 3.3.

const UNKNOWN = `1-${'0'.repeat(32)}`
const LARGE = Buffer.alloc(1_500_000, 'settee')

async function start(limits: Parameters<typeof openDatabase>[0] = {}) {
  const opened = await openDatabase(limits)
  const { database } = opened
  const attach = async (
    id: string,
    name: string,
    content: string | Uint8Array | null,
    rev?: string,
    type = 'a/b',
  ) => {
    const given = content === null ? null : { bytes: Buffer.from(content) }
    const options = { type, encoding: null, ...(rev !== undefined && { rev }) }
    return (await database.putAttachment(ADMIN, id, name, given, options)).rev
  }
  const detach = async (id: string, name: string, rev?: string) =>
    (await database.removeAttachment(ADMIN, id, name, rev)).rev
  const content = async (id: string, name: string, rev?: string) => {
    const found = await database.openAttachment(ADMIN, id, name, rev)
    return text(database.readAttachment(found, 0, found.storedLength))
  }
  return { ...opened, attach, detach, content }
}

t.test('it creates a missing document, and adds a revision to an existing one', async (t) => {
  const { attach, get, content } = await start()
  const first = await attach('x', 'a', 'one')
  t.match(first, /^1-/)
  const second = await attach('x', 'b', 'two', first, 'text/plain')
  const third = await attach('x', 'a', 'three', second)
  t.strictSame(await get('x', { revs: false }), {
    _id: 'x',
    _rev: third,
    _attachments: {
      a: { content_type: 'a/b', revpos: 3, digest: md5('three'), length: 5, stub: true },
      b: { content_type: 'text/plain', revpos: 2, digest: md5('two'), length: 3, stub: true },
    },
  })
  t.equal(await content('x', 'a', first), 'one', 'the attachment of an old revision is readable')
  t.equal(await content('x', 'a'), 'three')
  t.equal(await attach('y', 'a', 'one'), first, 'the same edit is the same revision')
})

t.test('the body and all other attachments are kept', async (t) => {
  const { put, attach, detach, get } = await start()
  const _attachments = { a: { data: 'YQ==' }, b: { data: 'Yg==' } }
  const first = await put('x', '{"n":1.0,"_attachments":{"a":{"data":"YQ=="},"b":{"data":"Yg=="}}}')
  const second = await attach('x', 'c', 'c', first)
  const opened = await get('x', { attachments: true })
  t.match(opened, { n: 1, _attachments: { ..._attachments, c: { data: 'Yw==', revpos: 2 } } })
  await detach('x', 'a', second)
  t.strictSame(Object.keys((await get('x'))._attachments), ['c', 'b'], 'the one put by itself comes first')
  t.equal((await get('x')).n, 1)
})

t.test('the parent must be a known leaf', async (t) => {
  const { put, attach, detach, updateSeq } = await start()
  const first = await attach('x', 'a', 'one')
  const second = await attach('x', 'a', 'two', first)
  const cases: [rev: string | undefined, code: string][] = [
    [undefined, 'conflict'],
    [first, 'conflict'],
    [UNKNOWN, 'missing_rev'],
    ['4-garbage', 'missing_rev'],
    ['garbage', 'invalid_rev'],
    [`3-${'x'.repeat(32)}`, 'invalid_rev'],
  ]
  for (const [rev, code] of cases) {
    await t.rejects(attach('x', 'a', 'three', rev), { code }, `put ${rev}`)
    await t.rejects(detach('x', 'a', rev), { code }, `delete ${rev}`)
  }
  await t.rejects(attach('none', 'a', 'x', UNKNOWN), { code: 'missing_rev', status: 409 })
  await t.rejects(detach('none', 'a', UNKNOWN), { code: 'missing_rev' })
  t.equal(await updateSeq(), 2)
  t.match(await put('x', { _rev: second }), /^3-/)
})

t.test('a missing attachment cannot be removed', async (t) => {
  const { put, attach, detach, database } = await start()
  const first = await attach('x', 'a', 'one')
  await t.rejects(detach('x', 'b', first), {
    code: 'no_attachment',
    reason: 'Document is missing attachment',
  })
  await t.rejects(
    detach('x', 'b'),
    { code: 'no_attachment' },
    'a missing attachment is reported before the conflict',
  )
  await t.rejects(detach('none', 'a'), { code: 'not_found', reason: 'missing' })
  const { rev } = await database.remove(ADMIN, 'x', first)
  await t.rejects(detach('x', 'a'), { code: 'deleted' })
  await t.rejects(detach('x', 'a', rev), { code: 'no_attachment' })
  t.match(await put('x', {}), /^3-/)
})

t.test('without a parent it recreates a deleted document', async (t) => {
  const { put, attach, get, database } = await start()
  const { rev } = await database.remove(ADMIN, 'x', await put('x', { n: 1 }))
  await t.rejects(attach('x', 'a', 'one', rev), { code: 'conflict' })
  t.match(await attach('x', 'a', 'one'), /^3-/)
  t.strictSame(Object.keys(await get('x')), ['_id', '_rev', '_attachments'])
})

t.test('a conflicting leaf can be written, and a deleted leaf stays deleted', async (t) => {
  const { replicate, attach, get } = await start()
  await replicate(
    'x',
    { start: 1, ids: ['a'] },
    { start: 1, ids: ['b'] },
    { start: 1, ids: ['c'], deleted: true },
  )
  const live = await attach('x', 'a', 'one', '1-a')
  t.match(live, /^2-/)
  const deleted = await attach('x', 'a', 'one', '1-c')
  t.match(await get('x', { conflicts: true, deletedConflicts: true }), {
    _rev: live,
    _conflicts: ['1-b'],
    _deleted_conflicts: [deleted],
  })
})

t.test('empty and large attachments', async (t) => {
  const { attach, content, database, get } = await start()
  const first = await attach('x', 'none', null)
  t.match((await get('x'))._attachments.none, { length: 0, digest: md5('') })
  const second = await attach('x', 'empty', '', first)
  const options = { type: 'a/b', encoding: null }
  const { rev } = await database.putAttachment(ADMIN, 'x', 'large', await spooled(t, LARGE), {
    ...options,
    rev: second,
  })
  t.equal(await content('x', 'large'), LARGE.toString())
  t.match((await get('x', { rev }))._attachments.large, { length: LARGE.length, digest: md5(LARGE) })
  t.equal(await content('x', 'none'), '')
})

t.test('gzip is stored as sent', async (t) => {
  const { database, get } = await start({ maxAttachmentSize: 1000 })
  const zipped = gzipSync('settee'.repeat(100))
  const put = (bytes: Uint8Array, rev?: string) =>
    database.putAttachment(
      ADMIN,
      'x',
      'a',
      { bytes },
      { type: 'text/plain', encoding: 'gzip', ...(rev && { rev }) },
    )
  await put(zipped)
  t.match((await get('x', { attEncodingInfo: true }))._attachments.a, {
    length: 600,
    digest: md5(zipped),
    encoding: 'gzip',
    encoded_length: zipped.length,
  })
  t.match((await get('x', { attachments: true }))._attachments.a, {
    data: Buffer.from('settee'.repeat(100)).toString('base64'),
  })
  const twice = Buffer.concat([zipped, gzipSync('x')])
  const { _rev } = await get('x')
  await put(twice, _rev)
  t.match((await get('x'))._attachments.a, { length: 601 }, 'the size of several gzip members is their sum')
  const cases: [bytes: Uint8Array, code: string][] = [
    [Buffer.from('no gzip'), 'gzip_body'],
    [zipped.subarray(0, -1), 'gzip_body'],
    [new Uint8Array(), 'gzip_body'],
    [gzipSync('x'.repeat(1001)), 'attachment_too_large'],
  ]
  for (const [bytes, code] of cases) await t.rejects(put(bytes, (await get('x'))._rev), { code })
})

t.test('names', async (t) => {
  const { attach, get, database, updateSeq } = await start()
  const names = ['a/b', 'ä\u{1f600}', 'constructor', ' ', '"', '...', 'a..b', '/']
  let rev: string | undefined
  for (const name of names) rev = await attach('x', name, name, rev)
  t.same(new Set(Object.keys((await get('x'))._attachments)), new Set(names))
  for (const name of ['', '_a', 'a\0', 'a\r\nb', '\x7f', '..', '../a', 'a/..', 'a/./b', '\ud800']) {
    await t.rejects(attach('x', name, 'x', rev), { code: 'bad_request' }, JSON.stringify(name))
  }
  t.equal(await updateSeq(), names.length)
  const options = { type: 'a/b', encoding: null }
  for (const id of ['_local/l', '_x', '']) {
    await t.rejects(
      database.putAttachment(ADMIN, id, 'a', null, options),
      { name: 'CouchError', status: 400 },
      id,
    )
  }
})

t.test('replicated names can be kept and removed', async (t) => {
  const { replicate, put, detach, get } = await start()
  const _attachments = { '../a': { data: '' }, 'b\0': { data: '' } }
  t.same(await replicate('x', { start: 1, ids: ['a'], doc: { _attachments } }), [])
  const stubs = { '../a': { stub: true }, 'b\0': { stub: true } }
  const second = await put('x', { _rev: '1-a', _attachments: stubs })
  await detach('x', '../a', second)
  t.same(Object.keys((await get('x'))._attachments), ['b\0'])
  await t.rejects(put('y', { _attachments }), { code: 'bad_request' })
})

t.test('rights to write attachments', async (t) => {
  const { database, attach, get } = await start()
  const rev = await attach('x', 'a', 'one')
  await attach('_design/d', 'a', 'one')
  await database.setSecurity(ADMIN, { members: { names: ['anna'] } })
  const options = { type: 'a/b', encoding: null, rev }
  const other = { name: 'bert', roles: [] }
  await t.rejects(database.putAttachment(other, 'x', 'b', null, options), { code: 'forbidden' })
  await t.rejects(database.removeAttachment(other, 'x', 'a', rev), { code: 'forbidden' })
  t.match(await database.putAttachment(ANNA, 'x', 'b', null, options), { rev: /^2-/ })
  const design = { ...options, rev: (await get('_design/d'))._rev }
  await t.rejects(database.putAttachment(ANNA, '_design/d', 'b', null, design), { code: 'forbidden' })
  await t.rejects(database.removeAttachment(ANNA, '_design/d', 'a', design.rev), { code: 'forbidden' })
})

t.test('a too large attachment is refused', async (t) => {
  const { attach, get } = await start({ maxAttachmentSize: 10 })
  await attach('x', 'a', '0123456789')
  await t.rejects(attach('y', 'a/b', '0123456789a'), { code: 'attachment_too_large', reason: 'a/b' })
  await t.rejects(get('y'), { code: 'not_found' })
})

t.test('COPY refers to stored contents of any size', async (t) => {
  const { attach, database, get, content } = await start()
  const first = await attach('x', 'large', LARGE)
  await attach('x', 'small', 'one', first)
  await database.copy(ADMIN, { id: 'x' }, { id: 'y' })
  const blobs = async (id: string) =>
    Promise.all(
      ['large', 'small'].map(
        async (name) => (await database.openAttachment(ADMIN, id, name, undefined)).blob,
      ),
    )
  t.strictSame(await blobs('y'), await blobs('x'))
  t.match((await get('y'))._attachments, { large: { revpos: 1 }, small: { revpos: 1 } } as Json)
  t.equal(await content('y', 'large'), LARGE.toString())
})

// Attachments that `[attachments]` stores as gzip; protocol.md 7.1, as in couch_att.

const COMPRESSION = { level: 1, types: ['text/*', 'application/json'] }
const SHORT = 'settee '.repeat(100)
/** Its gzip takes two pieces of a megabyte. */
const LONG = randomBytes(1_000_000).toString('hex')

for (const [name, make] of Object.entries(ENGINES)) {
  const start = async (test: Parameters<typeof make>[0], limits = {}) => {
    const opened = await openOn(await make(test), limits, undefined, undefined, { compression: COMPRESSION })
    const { database } = opened
    const stored = async (id: string, attachment: string) => {
      const found = await database.openAttachment(ADMIN, id, attachment, undefined)
      const bytes = Buffer.concat(await chunksOf(database.readAttachment(found, 0, found.storedLength)))
      return { ...found, bytes }
    }
    return { ...opened, stored }
  }

  t.test(`${name}: every method stores the same content`, async (t) => {
    const { database, put, get, stored } = await start(t)
    const attach = (id: string, content: string, type: string) =>
      database.putAttachment(ADMIN, id, 'a', { bytes: Buffer.from(content) }, { type, encoding: null })
    for (const [id, content] of [
      ['short', SHORT],
      ['long', LONG],
      ['empty', ''],
    ] as const) {
      const data = Buffer.from(content).toString('base64')
      const type = 'text/plain; charset=utf-8'
      await put(`${id}-inline`, { _attachments: { a: { data, content_type: type } } })
      await attach(`${id}-put`, content, type)
      const doc = { _attachments: { a: follows(content, { content_type: type, digest: md5(content) }) } }
      const bytes = related('B', doc, [{ content, ...named('a') }])
      await database.put(ADMIN, `${id}-related`, await spooled(t, bytes), { boundary: 'B' })
      for (const way of ['inline', 'put', 'related']) {
        const found = await stored(`${id}-${way}`, 'a')
        t.match(found, { encoding: 'gzip', length: content.length, digest: md5(found.bytes) }, `${id} ${way}`)
        t.ok(gunzipSync(found.bytes).equals(Buffer.from(content)))
        const { _attachments } = await get(`${id}-${way}`, { attEncodingInfo: true })
        const told = {
          length: content.length,
          encoding: 'gzip',
          encoded_length: found.bytes.length,
          stub: true,
        }
        t.match(_attachments.a, { ...told, digest: (await stored(`${id}-put`, 'a')).digest })
        t.match((await get(`${id}-${way}`, { attachments: true }))._attachments.a, { data })
      }
    }
    await attach('picture', SHORT, 'image/png')
    t.match(await stored('picture', 'a'), { encoding: null, length: 700, digest: md5(SHORT) }, 'another type')
  })

  t.test(`${name}: refused and stored contents`, async (t) => {
    const { database, put, bulk, get } = await start(t, { maxAttachmentSize: 1000 })
    const doc = { _attachments: { a: follows(SHORT, { digest: md5('another') }) } }
    const wrong = { bytes: related('B', doc, [{ content: SHORT }]) }
    await t.rejects(database.put(ADMIN, 'x', wrong, { boundary: 'B' }), { code: 'md5_mismatch' })
    const large = { bytes: Buffer.alloc(1001, 'a') }
    const options = { type: 'text/plain', encoding: null }
    await t.rejects(database.putAttachment(ADMIN, 'x', 'a', large, options), { code: 'attachment_too_large' })
    const rev = await put('x', {
      _attachments: { a: { data: Buffer.from(SHORT).toString('base64'), content_type: 'text/plain' } },
    })
    const before = (await get('x', { attEncodingInfo: true }))._attachments
    const [row] = (await bulk({
      docs: [{ _id: 'x', _rev: rev, n: 1, _attachments: { a: { stub: true } } }],
    })) as Json
    t.ok(row.ok)
    t.strictSame((await get('x', { attEncodingInfo: true }))._attachments, before, 'a stub keeps it as it is')
  })
}

t.test('the types that are compressed', async (t) => {
  const types = ['text/*', ' Application/JSON'.trim(), 'application/*+xml', 'a*b*c']
  const cases: [type: string, level: number, is: boolean][] = [
    ['text/plain', 8, true],
    [' Text/Markdown ;charset=utf-8', 1, true],
    ['text/plain', 0, false],
    ['application/json', 9, true],
    ['application/json2', 9, false],
    ['application/atom+xml; x=y', 9, true],
    ['application/xml', 9, false],
    ['image/png', 9, false],
    ['abc', 9, true],
    ['axbxbxc', 9, true],
    ['ac', 9, false],
    ['abcb', 9, false],
    ['', 9, false],
  ]
  for (const [type, level, is] of cases)
    t.equal(isCompressible(type, { level, types }), is, `${type} ${level}`)
  t.equal(isCompressible('text/plain', { level: 8, types: [] }), false)
})

t.test(
  'contents inside documents that are too large for one write are stored before it, piece by piece',
  async (t) => {
    const { database, store, bulk } = await openDatabase()
    const { updateDocs } = store
    let largest = 0
    store.updateDocs = <R, N>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]> => {
      largest = Math.max(
        largest,
        updates.reduce((sum, { bytes = 0 }) => sum + bytes, 0),
      )
      return updateDocs.call(store, updates) as Promise<Outcome<R, N>[]>
    }
    const content = (n: number, length: number) => Buffer.alloc(length, `${n} `)
    const inside = (lengths: readonly number[]) =>
      Object.fromEntries(
        lengths.map((length, n) => {
          const data = content(n, length).toString('base64')
          return [`${n}`, { content_type: 'image/png', data }]
        }),
      )
    const lengths = {
      one: [3_000_000],
      several: [900_000, 800_000, 10, 700_000],
      many: new Array(40).fill(60_000),
    }
    for (const [id, sizes] of Object.entries(lengths)) {
      await database.put(ADMIN, id, body({ _attachments: inside(sizes) }), {})
      await bulk({ docs: [{ _id: `${id} in a bulk`, _attachments: inside(sizes) }] })
      for (const name of [id, `${id} in a bulk`]) {
        for (const [n, length] of sizes.entries()) {
          const found = await database.openAttachment(ADMIN, name, `${n}`, undefined)
          const chunks = await chunksOf(database.readAttachment(found, 0, length))
          t.ok(Buffer.concat(chunks).equals(content(n, length)), `${name}, ${length} bytes`)
        }
      }
    }
    t.ok(largest < 1_100_000, `${largest} bytes in one write`)
    await t.rejects(database.put(NOBODY, 'x', body({ _attachments: inside([3_000_000]) }), {}))
  },
)
