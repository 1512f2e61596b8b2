/** Documents with the contents of their attachments: protocol.md 3.1, 3.2, 7.1, 7.3. */
import { gzipSync } from 'node:zlib'
import t from 'tap'
import type { OpenedParts, OpenOptions } from '../../src/documents/database.ts'
import { openDocument, openParts } from '../../src/documents/open.ts'
import { openRevs } from '../../src/documents/open-revisions.ts'
import { filledPieces, pieceChunks, piecesLength } from '../../src/documents/pieces.ts'
import { readContent } from '../../src/documents/stored-content.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, jsonOf, parse, text } from './helpers.ts'
import { countingPins, digestOf, storeRevisions } from './stored-attachments.ts'

const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)
const CODING = { encoding: 'gzip', encoded_length: STORED.length }

async function stored() {
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

t.test('contents in JSON are decoded, whatever they are stored as', async (t) => {
  const { get, row, held } = await stored()
  for (const read of [get, row]) {
    t.same((await read({ attachments: true }))._attachments, {
      coded: { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), data: base64(CODED) },
      empty: { content_type: 'image/png', revpos: 2, digest: digestOf(''), data: '' },
      old: { content_type: 'text/plain', revpos: 1, digest: digestOf('o'), data: 'bw==' },
    })
  }
  t.equal(held(), 0)
})

t.test('att_encoding_info tells how they are stored, of stubs and of contents', async (t) => {
  const { get, row } = await stored()
  for (const read of [get, row]) {
    const stub = { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), length: 29, stub: true }
    t.same((await read({}))._attachments.coded, stub)
    t.same((await read({ attEncodingInfo: true }))._attachments.coded, { ...stub, ...CODING })
    const whole = (await read({ attEncodingInfo: true, attachments: true }))._attachments
    t.match(whole.coded, { data: base64(CODED), ...CODING })
    t.same(Object.keys(whole.old), ['content_type', 'revpos', 'digest', 'data'])
  }
})

t.test('atts_since brings what is newer than an ancestor that the reader has', async (t) => {
  const { get, row, parts } = await stored()
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

t.test('with rev the contents come, too', async (t) => {
  const { get } = await stored()
  t.match(await get({ rev: '1-a', attachments: true }), { _attachments: { old: { data: 'bw==' } } })
  t.match((await get({ rev: '2-b', attsSince: ['1-a'], attEncodingInfo: true }))._attachments, {
    coded: { data: base64(CODED), ...CODING },
    old: { stub: true },
  })
})

t.test('parts that follow are told of in the JSON and come in its order', async (t) => {
  const { parts } = await stored()
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

t.test('JSON with its holes filled is the document as it is opened whole', async (t) => {
  const { store, parts, held } = await stored()
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

t.test('what openParts refuses', async (t) => {
  const { store } = await stored()
  const open = (id: string, options: OpenOptions) => openParts(store, ADMIN, id, options, 'follows')
  await t.rejects(open('no', {}), { code: 'not_found' })
  await t.rejects(open('x', { rev: '9-no' }), { code: 'not_found' })
  await t.rejects(open('x', { rev: 'bad' }), { code: 'invalid_rev' })
  await t.rejects(open('_local/no', {}), { code: 'not_found' })
})

t.test('a length that is a lie breaks the reading, and no answer is longer than was said', async (t) => {
  const { store, held } = await stored()
  for (const length of [1, 1000]) {
    const lie = { name: 'lie', content: CODED, gzip: true, length }
    await storeRevisions(store, 'lie', { rev: '1-a', attachments: [lie] })
    await t.rejects(openDocument(store, ADMIN, 'lie', { attachments: true }), RangeError)
  }
  t.equal(held(), 0)
})

t.test('many leaves come page by page; one that is cleaned away meanwhile is missing', async (t) => {
  const { store, held } = await stored()
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
