/** Writing one attachment by itself: protocol.md 7.4, 19.6, 3.3. */
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { md5 } from '../helpers/related.ts'
import { ADMIN, ANNA, type Json, openDatabase, spooled, text } from './helpers.ts'

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

t.test('it makes a document that is not there, and is one more revision of one that is', async (t) => {
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
  t.equal(await content('x', 'a', first), 'one', 'of an old revision')
  t.equal(await content('x', 'a'), 'three')
  t.equal(await attach('y', 'a', 'one'), first, 'the same edit is the same revision')
})

t.test('the body and all other attachments stay', async (t) => {
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

t.test('the parent must be a leaf, and known', async (t) => {
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

t.test('what is not there cannot be removed', async (t) => {
  const { put, attach, detach, database } = await start()
  const first = await attach('x', 'a', 'one')
  await t.rejects(detach('x', 'b', first), {
    code: 'no_attachment',
    reason: 'Document is missing attachment',
  })
  await t.rejects(detach('x', 'b'), { code: 'no_attachment' }, 'told before the conflict')
  await t.rejects(detach('none', 'a'), { code: 'not_found', reason: 'missing' })
  const { rev } = await database.remove(ADMIN, 'x', first)
  await t.rejects(detach('x', 'a'), { code: 'deleted' })
  await t.rejects(detach('x', 'a', rev), { code: 'no_attachment' })
  t.match(await put('x', {}), /^3-/)
})

t.test('without a parent it makes a deleted document anew', async (t) => {
  const { put, attach, get, database } = await start()
  const { rev } = await database.remove(ADMIN, 'x', await put('x', { n: 1 }))
  await t.rejects(attach('x', 'a', 'one', rev), { code: 'conflict' })
  t.match(await attach('x', 'a', 'one'), /^3-/)
  t.strictSame(Object.keys(await get('x')), ['_id', '_rev', '_attachments'])
})

t.test('a conflicting leaf may be written to, also a deleted one, which stays so', async (t) => {
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

t.test('of no bytes, and of many', async (t) => {
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

t.test('gzip is stored as it came', async (t) => {
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
  t.match((await get('x'))._attachments.a, { length: 601 }, 'of several members the sum')
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

t.test('names that replication has brought can be kept, and removed', async (t) => {
  const { replicate, put, detach, get } = await start()
  const _attachments = { '../a': { data: '' }, 'b\0': { data: '' } }
  t.same(await replicate('x', { start: 1, ids: ['a'], doc: { _attachments } }), [])
  const stubs = { '../a': { stub: true }, 'b\0': { stub: true } }
  const second = await put('x', { _rev: '1-a', _attachments: stubs })
  await detach('x', '../a', second)
  t.same(Object.keys((await get('x'))._attachments), ['b\0'])
  await t.rejects(put('y', { _attachments }), { code: 'bad_request' })
})

t.test('who may', async (t) => {
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

t.test('too large', async (t) => {
  const { attach, get } = await start({ maxAttachmentSize: 10 })
  await attach('x', 'a', '0123456789')
  await t.rejects(attach('y', 'a/b', '0123456789a'), { code: 'attachment_too_large', reason: 'a/b' })
  await t.rejects(get('y'), { code: 'not_found' })
})

t.test('COPY names what is stored, of any size', async (t) => {
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
