/** Reading documents: protocol.md 3.1, 3.2. */
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t from 'tap'
import type { OpenedParts, OpenOptions } from '../../src/documents/database.ts'
import { openDocument, openParts } from '../../src/documents/open.ts'
import { openRevs } from '../../src/documents/open-revisions.ts'
import { filledPieces, pieceChunks, piecesLength } from '../../src/documents/pieces.ts'
import {
  base64Length,
  base64Of,
  inflated,
  pinContents,
  readContent,
} from '../../src/documents/stored-content.ts'
import type { DatabaseStore, StoredAttachment } from '../../src/storage/engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, chunksOf, jsonOf, openDatabase, parse, text } from './helpers.ts'
import { countingPins, digestOf, storeRevisions, type TestAttachment } from './stored-attachments.ts'

/** `x` with leaves 3-c and 2-d over 1-a, and the deleted leaf 2-e. */
async function stored() {
  const opened = await openDatabase()
  await opened.replicate(
    'x',
    { start: 3, ids: ['c', 'b', 'a'], doc: { n: 3 } },
    { start: 2, ids: ['d', 'a'], doc: { n: 2 } },
    { start: 2, ids: ['e', 'a'], deleted: true },
  )
  const { database } = opened
  const etag = async (options: OpenOptions, id = 'x') => (await database.open(ADMIN, id, options)).etag
  const openRevs = (revs: readonly unknown[] | 'all', options: OpenOptions = {}, id = 'x') =>
    jsonOf(database.openRevs(ADMIN, id, revs, options))
  return { ...opened, etag, openRevs }
}

t.test('a document that never existed is missing, a deleted document is deleted', async (t) => {
  const { get, put, database } = await openDatabase()
  await t.rejects(get('x'), { code: 'not_found', reason: 'missing' })
  const { rev } = await database.remove(ADMIN, 'x', await put('x', {}))
  await t.rejects(get('x'), { code: 'deleted', reason: 'deleted' })
  t.same(await get('x', { deleted: true }), { _id: 'x', _rev: rev, _deleted: true })
  t.same(await get('x', { rev }), { _id: 'x', _rev: rev, _deleted: true })
})

t.test('the members of a document are in CouchDB’s order', async (t) => {
  const { get, put } = await stored()
  await put('x', { _rev: '3-c', n: 4, _attachments: { a: { data: '' } } })
  const options = { revs: true, revsInfo: true, localSeq: true, conflicts: true, deletedConflicts: true }
  t.same(Object.keys(await get('x', options)), [
    '_id',
    '_rev',
    'n',
    '_revisions',
    '_revs_info',
    '_local_seq',
    '_conflicts',
    '_deleted_conflicts',
    '_attachments',
  ])
})

t.test('each option adds only its member', async (t) => {
  const { get } = await stored()
  const plain = { _id: 'x', _rev: '3-c', n: 3 }
  const cases: [options: OpenOptions, added: object][] = [
    [{}, {}],
    [{ revs: true }, { _revisions: { start: 3, ids: ['c', 'b', 'a'] } }],
    [
      { revsInfo: true },
      {
        _revs_info: [
          { rev: '3-c', status: 'available' },
          { rev: '2-b', status: 'missing' },
          { rev: '1-a', status: 'missing' },
        ],
      },
    ],
    [{ conflicts: true }, { _conflicts: ['2-d'] }],
    [{ deletedConflicts: true }, { _deleted_conflicts: ['2-e'] }],
    [{ localSeq: true }, { _local_seq: 1 }],
  ]
  for (const [options, added] of cases) t.same(await get('x', options), { ...plain, ...added })
})

t.test('members that would be empty are absent', async (t) => {
  const { get, put } = await openDatabase()
  const rev = await put('x', {})
  t.same(await get('x', { conflicts: true, deletedConflicts: true }), { _id: 'x', _rev: rev })
})

t.test('revs_info shows deleted revisions and revisions with a stored body', async (t) => {
  const { get, put, database } = await openDatabase()
  const first = await put('x', {})
  const { rev: second } = await database.remove(ADMIN, 'x', first)
  const third = await put('x', { n: 1 })
  t.same((await get('x', { revsInfo: true }))._revs_info, [
    { rev: third, status: 'available' },
    { rev: second, status: 'deleted' },
    { rev: first, status: 'available' },
  ])
})

t.test('a revision by its id', async (t) => {
  const { get, put } = await stored()
  const fourth = await put('x', { _rev: '3-c', n: 4 })
  t.match(await get('x', { rev: fourth }), { n: 4 })
  t.match(await get('x', { rev: '2-d' }), { _rev: '2-d', n: 2 }, 'a losing leaf')
  t.match(await get('x', { rev: '3-c' }), { _rev: '3-c', n: 3 }, 'an inner revision whose body is kept')
  t.match(await get('x', { rev: '2-e' }), { _rev: '2-e', _deleted: true }, 'a tombstone')
  await t.rejects(
    get('x', { rev: '1-a' }),
    { code: 'not_found', reason: 'missing' },
    'no body was ever stored',
  )
  await t.rejects(get('x', { rev: '7-no' }), { code: 'not_found', reason: 'missing' })
  for (const rev of ['', '1', 'x-1', '1-gggggggggggggggggggggggggggggggg']) {
    await t.rejects(get('x', { rev }), { code: 'invalid_rev' }, rev)
  }
  t.match(await get('x', { rev: fourth.toUpperCase() }), { _rev: fourth }, 'hex in any case')
})

t.test('with rev, all options but revs are ignored', async (t) => {
  const { get } = await stored()
  const options = { revsInfo: true, conflicts: true, deletedConflicts: true, localSeq: true, revs: true }
  t.same(await get('x', { ...options, rev: '2-d' }), {
    _id: 'x',
    _rev: '2-d',
    n: 2,
    _revisions: { start: 2, ids: ['d', 'a'] },
  })
})

t.test('latest with rev returns the best leaf below the revision', async (t) => {
  const { get } = await stored()
  t.match(await get('x', { rev: '1-a', latest: true }), { _rev: '3-c' })
  t.match(await get('x', { rev: '2-b', latest: true }), { _rev: '3-c' })
  t.match(await get('x', { rev: '2-d', latest: true }), { _rev: '2-d' })
  t.match(await get('x', { rev: '2-e', latest: true }), { _rev: '2-e', _deleted: true })
  await t.rejects(get('x', { rev: '2-no', latest: true }), { code: 'not_found' })
})

t.test(
  'the ETag is the revision, unless the answer has members that do not belong to the revision',
  async (t) => {
    const { etag, put } = await stored()
    t.equal(await etag({}), '"3-c"')
    t.equal(await etag({ revs: true }), '"3-c"')
    t.equal(await etag({ rev: '2-d' }), '"2-d"')
    t.equal(await etag({ rev: '2-d', conflicts: true, revsInfo: true }), '"2-d"')
    for (const option of ['revsInfo', 'localSeq', 'conflicts', 'deletedConflicts']) {
      t.equal(await etag({ [option]: true }), null, option)
    }
    const rev = await put('plain', {})
    t.equal(await etag({ conflicts: true, deletedConflicts: true }, 'plain'), `"${rev}"`)
  },
)

t.test('an answer ends with a newline', async (t) => {
  const { put, database } = await openDatabase()
  const rev = await put('x', {})
  const { json } = await database.open(ADMIN, 'x', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"x","_rev":"${rev}"}\n`)
})

t.test('open_revs=all returns every leaf, the winner first', async (t) => {
  const { openRevs } = await stored()
  t.same(await openRevs('all'), [
    { ok: { _id: 'x', _rev: '3-c', n: 3 } },
    { ok: { _id: 'x', _rev: '2-d', n: 2 } },
    { ok: { _id: 'x', _rev: '2-e', _deleted: true } },
  ])
  await t.rejects(openRevs('all', {}, 'no'), { code: 'not_found' })
})

t.test('open_revs with a list returns existing revisions and names missing ones', async (t) => {
  const { openRevs } = await stored()
  t.match(await openRevs(['2-d', '1-a', '5-no', '2-d']), [
    { ok: { _rev: '2-d' } },
    { missing: '1-a' },
    { missing: '5-no' },
  ])
  t.same(await openRevs([]), [])
  t.same(await openRevs(['1-a'], {}, 'no'), [{ missing: '1-a' }])
  await t.rejects(openRevs(['bad']), { code: 'invalid_rev' })
  await t.rejects(openRevs([1]), { code: 'invalid_rev' })
})

t.test('open_revs with latest returns the leaves below, each once', async (t) => {
  const { openRevs } = await stored()
  const revsOf = async (revs: string[]) =>
    (await openRevs(revs, { latest: true })).map(
      (row: { ok?: { _rev: string }; missing?: string }) => row.ok?._rev ?? `no ${row.missing}`,
    )
  t.same(await revsOf(['1-a']), ['3-c', '2-d', '2-e'])
  t.same(await revsOf(['2-b', '3-c', '1-a']), ['3-c', '2-d', '2-e'])
  t.same(await revsOf(['2-d', '7-no']), ['2-d', 'no 7-no'])
})

t.test('open_revs with revs', async (t) => {
  const { openRevs } = await stored()
  t.match(await openRevs(['2-d'], { revs: true }), [{ ok: { _revisions: { start: 2, ids: ['d', 'a'] } } }])
})

t.test('open_revs is one array in chunks', async (t) => {
  const { database } = await stored()
  t.match(await text(database.openRevs(ADMIN, 'x', 'all', {})), /^\[\{"ok":.*\}\]\n$/)
  t.equal(await text(database.openRevs(ADMIN, 'x', [], {})), '[]\n')
})

// Documents with attachment contents: protocol.md 3.1, 3.2, 7.1, 7.3.

const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)
const CODING = { encoding: 'gzip', encoded_length: STORED.length }

async function storedContents() {
  const engine = memoryEngine()
  await (await engine.openCatalog()).create('notes')
  const { store, held } = countingPins(await engine.openDatabase('notes'))
  const old = { name: 'old', content: 'o', revpos: 1 }
  await storeRevisions(
    store,
    'x',
    { rev: '1-a', superseded: true, attachments: [old] },
    {
      rev: '2-b',
      ancestors: ['1-a'],
      body: '{"n":2,"ä":"ä"}',
      attachments: [
        { name: 'coded', content: CODED, gzip: true, revpos: 2 },
        { name: 'empty', content: '', type: 'image/png', revpos: 2 },
        old,
      ],
    },
  )
  const get = async (options: OpenOptions) => parse((await openDocument(store, ADMIN, 'x', options)).json)
  const parts = (options: OpenOptions, form: 'data' | 'follows') =>
    openParts(store, ADMIN, 'x', options, form)
  const row = async (options: OpenOptions) =>
    (await jsonOf(openRevs(store, ADMIN, 'x', ['2-b'], options)))[0].ok
  return { store, held, get, parts, row }
}

async function filled(store: DatabaseStore, opened: OpenedParts): Promise<string> {
  const pieces = filledPieces(opened)
  const answer = await text(pieceChunks(pieces, (name, start, end) => readContent(store, name, start, end)))
  if (piecesLength(pieces) !== Buffer.byteLength(answer)) throw new Error('another length than was said')
  return answer
}

const base64 = (content: string) => Buffer.from(content).toString('base64')

t.test('contents in JSON are decoded', async (t) => {
  const { get, row, held } = await storedContents()
  for (const read of [get, row]) {
    t.same((await read({ attachments: true }))._attachments, {
      coded: { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), data: base64(CODED) },
      empty: { content_type: 'image/png', revpos: 2, digest: digestOf(''), data: '' },
      old: { content_type: 'text/plain', revpos: 1, digest: digestOf('o'), data: 'bw==' },
    })
  }
  t.equal(held(), 0)
})

t.test('att_encoding_info shows the stored encoding of stubs and contents', async (t) => {
  const { get, row } = await storedContents()
  for (const read of [get, row]) {
    const stub = { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), length: 29, stub: true }
    t.same((await read({}))._attachments.coded, stub)
    t.same((await read({ attEncodingInfo: true }))._attachments.coded, { ...stub, ...CODING })
    const whole = (await read({ attEncodingInfo: true, attachments: true }))._attachments
    t.match(whole.coded, { data: base64(CODED), ...CODING })
    t.same(Object.keys(whole.old), ['content_type', 'revpos', 'digest', 'data'])
  }
})

t.test('atts_since returns attachments that are newer than an ancestor', async (t) => {
  const { get, row, parts } = await storedContents()
  const cases: [since: string[], contents: string[]][] = [
    [['1-a'], ['coded', 'empty']],
    [
      ['1-other', '1-a'],
      ['coded', 'empty'],
    ],
    [['2-b', '1-a'], []],
    [['1-other'], ['coded', 'empty', 'old']],
    [[], ['coded', 'empty', 'old']],
  ]
  for (const [attsSince, expected] of cases) {
    for (const read of [get, row]) {
      const entries = Object.entries((await read({ attsSince }))._attachments)
      const whole = entries.filter(([, entry]) => (entry as { data?: string }).data !== undefined)
      t.same(
        whole.map(([name]) => name),
        expected,
        attsSince.join(),
      )
    }
    const { parts: following } = await parts({ attsSince }, 'follows')
    t.same(
      following.map(({ name }) => name),
      expected,
    )
  }
  await t.rejects(get({ attsSince: ['bad'] }), { code: 'invalid_rev' })
  await t.rejects(row({ attsSince: ['bad'] }), { code: 'invalid_rev' })
})

t.test('rev and attachments together return contents', async (t) => {
  const { get } = await storedContents()
  t.match(await get({ rev: '1-a', attachments: true }), { _attachments: { old: { data: 'bw==' } } })
  t.match((await get({ rev: '2-b', attsSince: ['1-a'], attEncodingInfo: true }))._attachments, {
    coded: { data: base64(CODED), ...CODING },
    old: { stub: true },
  })
})

t.test('parts that follow are listed in the JSON and are in its order', async (t) => {
  const { parts } = await storedContents()
  const { json, parts: following, etag, holes } = await parts({ attsSince: ['1-a'], revs: true }, 'follows')
  t.equal(etag, '"2-b"')
  t.same(holes, [])
  t.same(parse(json), {
    _id: 'x',
    _rev: '2-b',
    n: 2,
    ä: 'ä',
    _revisions: { start: 2, ids: ['b', 'a'] },
    _attachments: {
      coded: {
        content_type: 'text/plain',
        revpos: 2,
        digest: digestOf(STORED),
        length: 29,
        follows: true,
        ...CODING,
      },
      empty: { content_type: 'image/png', revpos: 2, digest: digestOf(''), length: 0, follows: true },
      old: { content_type: 'text/plain', revpos: 1, digest: digestOf('o'), length: 1, stub: true },
    },
  })
  t.match(following, [
    { name: 'coded', length: 29, encoding: 'gzip', storedLength: STORED.length },
    { name: 'empty', length: 0, encoding: null, storedLength: 0 },
  ])
})

t.test('JSON with filled holes equals the whole document', async (t) => {
  const { store, parts, held } = await storedContents()
  for (const options of [
    {},
    { attachments: true },
    { attsSince: ['1-a'] },
    { attachments: true, revs: true },
  ]) {
    const opened = await parts(options, 'data')
    const { json, etag } = await openDocument(store, ADMIN, 'x', options)
    t.equal(await filled(store, opened), Buffer.from(json).toString())
    t.equal(opened.etag, etag)
  }
  t.equal(held(), 0)
})

t.test('openParts refuses invalid requests', async (t) => {
  const { store } = await storedContents()
  const open = (id: string, options: OpenOptions) => openParts(store, ADMIN, id, options, 'follows')
  await t.rejects(open('no', {}), { code: 'not_found' })
  await t.rejects(open('x', { rev: '9-no' }), { code: 'not_found' })
  await t.rejects(open('x', { rev: 'bad' }), { code: 'invalid_rev' })
  await t.rejects(open('_local/no', {}), { code: 'not_found' })
})

t.test('a wrong length fails the read, and no answer exceeds its announced length', async (t) => {
  const { store, held } = await storedContents()
  for (const length of [1, 1000]) {
    const lie = { name: 'lie', content: CODED, gzip: true, length }
    await storeRevisions(store, 'lie', { rev: '1-a', attachments: [lie] })
    await t.rejects(openDocument(store, ADMIN, 'lie', { attachments: true }), RangeError)
  }
  t.equal(held(), 0)
})

t.test('many leaves are read page by page, and a leaf that is compacted meanwhile is missing', async (t) => {
  const { store, held } = await storedContents()
  const leaves = Array.from({ length: 20 }, (_, at) => ({
    rev: `1-${at + 10}`,
    body: JSON.stringify({ text: 'x'.repeat(100_000) }),
    attachments: [{ name: 'a', content: `content ${at}` }],
  }))
  await storeRevisions(store, 'many', ...leaves)
  const reading = openRevs(store, ADMIN, 'many', 'all', { attachments: true })
  let answer = ''
  let most = 0
  for await (const chunk of reading) {
    if (answer === '') {
      await storeRevisions(
        store,
        'many',
        { rev: '1-10', superseded: true },
        { rev: '2-z', ancestors: ['1-10'] },
      )
      await store.compact()
    }
    most = Math.max(most, held())
    answer += Buffer.from(chunk).toString()
  }
  t.ok(most > 0 && most < 10, `${most} contents were held at once`)
  const rows = JSON.parse(answer)
  t.equal(rows.length, 20)
  t.same(rows.pop(), { missing: '1-10' })
  for (const { ok } of rows) {
    t.equal(ok._attachments.a.data, base64(`content ${Number(ok._rev.slice(2)) - 10}`))
  }
  t.equal(held(), 0)
})

// Reading stored contents in steps: pins, inflating, base64.

const BIG = Buffer.alloc(
  1_000_000,
  Uint8Array.from({ length: 251 }, (_, i) => i),
)

async function openStore() {
  const engine = memoryEngine()
  await (await engine.openCatalog()).create('notes')
  const { store, held } = countingPins(await engine.openDatabase('notes'))
  const attach = async (...attachments: TestAttachment[]) => {
    await storeRevisions(store, 'x', { rev: '1-a', attachments })
    const [stored] = await attachmentsOf(store, 'x', '1-a')
    return stored as StoredAttachment
  }
  return { store, held, attach }
}

async function attachmentsOf(store: DatabaseStore, id: string, rev: string) {
  const [found] = await store.readDocs([id], (doc) => [...(doc?.attachments(rev) ?? [])])
  return found ?? []
}

async function* cutAt(bytes: Uint8Array, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0
  for (const size of sizes) {
    yield bytes.subarray(at, at + size)
    at += size
  }
  yield bytes.subarray(at)
}

t.test('a content is read in steps, and is pinned from the first to the last', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: BIG })
  const reading = readContent(store, content, 10, BIG.length)
  t.equal(held(), 0, 'no content is held before it is read')
  const chunks: Uint8Array[] = []
  for await (const chunk of reading) {
    t.equal(held(), 1)
    t.ok(chunk.length <= 256 * 1024)
    chunks.push(chunk)
  }
  t.equal(held(), 0)
  t.ok(Buffer.concat(chunks).equals(BIG.subarray(10)))
})

t.test('a reader that stops early releases the pin', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: BIG })
  for await (const _ of readContent(store, content, 0, BIG.length)) break
  t.equal(held(), 0)
  const coded = await attach({ name: 'a', content: BIG, gzip: true })
  for await (const _ of inflated(readContent(store, coded, 0, coded.storedLength), BIG.length)) break
  t.equal(held(), 0, 'through the inflater, too')
})

t.test('a content that is missing or was replaced is no_attachment', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: 'a' })
  const gone = { code: 'no_attachment' }
  await t.rejects(chunksOf(readContent(store, { ...content, digest: 'md5-other' }, 0, 1)), gone)
  await t.rejects(
    chunksOf(readContent(store, { ...content, blob: 9999 }, 0, 0)),
    gone,
    'a missing blob is an error although no bytes are read',
  )
  await t.rejects(pinContents(store, [content, { ...content, blob: 9999 }]), gone)
  t.equal(held(), 0)
  const pins = await pinContents(store, [content, content])
  t.equal(held(), 2)
  for (const pin of pins) pin.release()
  t.equal(held(), 0)
})

t.test('base64 is the same for any cut of the bytes', async () => {
  const sizes = fc.array(fc.nat(40), { maxLength: 20 })
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), sizes, async (bytes, cuts) => {
      const made = Buffer.concat(await chunksOf(base64Of(cutAt(bytes, cuts)))).toString()
      return made === Buffer.from(bytes).toString('base64') && made.length === base64Length(bytes.length)
    }),
  )
})

t.test('gzip is inflated for any cut of the bytes', async () => {
  const sizes = fc.array(fc.nat(2000), { maxLength: 20 })
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 5000 }), sizes, async (bytes, cuts) => {
      const made = await chunksOf(inflated(cutAt(gzipSync(bytes), cuts), bytes.length))
      return Buffer.concat(made).equals(bytes)
    }),
    { numRuns: 50 },
  )
})

t.test('wrong gzip data fails, and never yields more bytes than announced', async (t) => {
  const stored = gzipSync(BIG)
  await t.rejects(chunksOf(inflated(cutAt(stored, [5]), BIG.length + 1)), RangeError)
  let given = 0
  const read = async () => {
    for await (const chunk of inflated(cutAt(stored, []), 1000)) given += chunk.length
  }
  await t.rejects(read(), RangeError)
  t.ok(given <= 1000)
  await t.rejects(chunksOf(inflated(cutAt(Buffer.from('no gzip'), []), 7)), { code: 'Z_DATA_ERROR' })
  await t.rejects(chunksOf(inflated(cutAt(stored.subarray(0, 500), []), BIG.length)), { code: 'Z_BUF_ERROR' })
})

t.test('an error of the source fails the inflation, and the source ends when the reader stops', async (t) => {
  let isOver = false
  async function* failing(): AsyncGenerator<Uint8Array> {
    try {
      yield gzipSync(BIG).subarray(0, 100)
      throw new Error('gone')
    } finally {
      isOver = true
    }
  }
  await t.rejects(chunksOf(inflated(failing(), BIG.length)), { message: 'gone' })
  t.equal(isOver, true)
})

t.test('pieces can be texts, bytes and contents in each form', async (t) => {
  const { store, attach, held } = await openStore()
  const content = { ...(await attach({ name: 'a', content: BIG, gzip: true })) }
  const read = (named: typeof content, start: number, end: number) => readContent(store, named, start, end)
  const pieces = [
    'ä',
    Buffer.from('b'),
    { content, form: 'decoded' as const },
    'c',
    { content, form: 'base64' as const },
    { content, form: 'stored' as const, range: { start: 1, end: 4 } },
    { content, form: 'stored' as const },
  ]
  const stored = gzipSync(BIG)
  const expected = Buffer.concat([
    Buffer.from('äb'),
    BIG,
    Buffer.from(`c${BIG.toString('base64')}`),
    stored.subarray(1, 4),
    stored,
  ])
  const chunks = await chunksOf(
    pieceChunks(pieces, (named, start, end) => read(named as typeof content, start, end)),
  )
  t.ok(Buffer.concat(chunks).equals(expected))
  t.equal(piecesLength(pieces), expected.length)
  t.ok(Math.max(...chunks.map(({ length }) => length)) <= 512 * 1024, 'none is large')
  t.ok(chunks.length < 40, 'the answer has few chunks')
  t.equal(held(), 0)
  t.same(await chunksOf(pieceChunks([], read as never)), [])
  t.same(await chunksOf(pieceChunks(['', new Uint8Array(0)], read as never)), [])
})
