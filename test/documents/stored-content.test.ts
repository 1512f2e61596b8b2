/** Reading stored contents in steps: pins, inflating, base64. */
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t from 'tap'
import { pieceChunks, piecesLength } from '../../src/documents/pieces.ts'
import {
  base64Length,
  base64Of,
  inflated,
  pinContents,
  readContent,
} from '../../src/documents/stored-content.ts'
import type { DatabaseStore, StoredAttachment } from '../../src/storage/engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { chunksOf } from './helpers.ts'
import { countingPins, storeRevisions, type TestAttachment } from './stored-attachments.ts'

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

t.test('a content comes in steps, and is held from the first to the last', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: BIG })
  const reading = readContent(store, content, 10, BIG.length)
  t.equal(held(), 0, 'not before it is read')
  const chunks: Uint8Array[] = []
  for await (const chunk of reading) {
    t.equal(held(), 1)
    t.ok(chunk.length <= 256 * 1024)
    chunks.push(chunk)
  }
  t.equal(held(), 0)
  t.ok(Buffer.concat(chunks).equals(BIG.subarray(10)))
})

t.test('a reader who goes in the middle lets go', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: BIG })
  for await (const _ of readContent(store, content, 0, BIG.length)) break
  t.equal(held(), 0)
  const coded = await attach({ name: 'a', content: BIG, gzip: true })
  for await (const _ of inflated(readContent(store, coded, 0, coded.storedLength), BIG.length)) break
  t.equal(held(), 0, 'through the inflater, too')
})

t.test('a content that is gone, or another one by now, is no attachment', async (t) => {
  const { store, held, attach } = await openStore()
  const content = await attach({ name: 'a', content: 'a' })
  const gone = { code: 'no_attachment' }
  await t.rejects(chunksOf(readContent(store, { ...content, digest: 'md5-other' }, 0, 1)), gone)
  await t.rejects(chunksOf(readContent(store, { ...content, blob: 9999 }, 0, 0)), gone, 'also of no bytes')
  await t.rejects(pinContents(store, [content, { ...content, blob: 9999 }]), gone)
  t.equal(held(), 0)
  const pins = await pinContents(store, [content, content])
  t.equal(held(), 2)
  for (const pin of pins) pin.release()
  t.equal(held(), 0)
})

t.test('base64 of any bytes cut anywhere is their base64', async () => {
  const sizes = fc.array(fc.nat(40), { maxLength: 20 })
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), sizes, async (bytes, cuts) => {
      const made = Buffer.concat(await chunksOf(base64Of(cutAt(bytes, cuts)))).toString()
      return made === Buffer.from(bytes).toString('base64') && made.length === base64Length(bytes.length)
    }),
  )
})

t.test('gzip cut anywhere is undone', async () => {
  const sizes = fc.array(fc.nat(2000), { maxLength: 20 })
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 5000 }), sizes, async (bytes, cuts) => {
      const made = await chunksOf(inflated(cutAt(gzipSync(bytes), cuts), bytes.length))
      return Buffer.concat(made).equals(bytes)
    }),
    { numRuns: 50 },
  )
})

t.test('what is not the gzip it was said to be fails, and gives not a byte more than was said', async (t) => {
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

t.test('a source that fails fails the inflating, and is told when nobody reads on', async (t) => {
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

t.test('pieces are texts, bytes and contents in each form', async (t) => {
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
  t.ok(chunks.length < 40, 'nor are they tiny')
  t.equal(held(), 0)
  t.same(await chunksOf(pieceChunks([], read as never)), [])
  t.same(await chunksOf(pieceChunks(['', new Uint8Array(0)], read as never)), [])
})
