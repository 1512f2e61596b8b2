/** Cutting answers of other servers into parts, and what is parsed of them. */
import t from 'tap'
import { MAX_JSON_DEPTH } from '../../src/core/json.ts'
import { positionOf } from '../../src/replication/checkpoint.ts'
import { jsonParts, memberIn, parsed, partsIn } from '../../src/replication/json-parts.ts'

const DOCS = new Set(['docs'])

/** A result of `_bulk_get` with a long text, and quotes and brackets in it. */
function longText(bytes: number): Buffer {
  const text = '\\"]}{'.repeat(bytes / 6)
  return Buffer.from(`{"id":"a", "docs":[{"ok":{"x":"${text}"}},7],"end":[1,[2]]}`)
}

t.test('long texts have the same parts as short ones, without a copy', async (t) => {
  for (const bytes of [60, 600_000, 3_000_000]) {
    const text = longText(bytes)
    const parts = await Array.fromAsync(partsIn(text, { lists: DOCS }))
    t.same(
      parts.map(({ member }) => member),
      ['id', 'docs', 'docs', 'end'],
    )
    const [, doc] = parts as [unknown, { readonly bytes: Buffer }]
    t.equal(doc.bytes.buffer, text.buffer)
    t.same(JSON.parse(String(doc.bytes)), JSON.parse(String(text)).docs[0])
    t.equal(String(await memberIn(text, 'end')), '[1,[2]]')
    t.equal(await memberIn(text, 'none'), null)
  }
})

t.test('pieces of any size make the same parts', async (t) => {
  const text = longText(600)
  for (const size of [1, 2, 3, 7, 100]) {
    const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_, n) =>
      Buffer.from(text.subarray(n * size, (n + 1) * size)),
    )
    const parts = await Array.fromAsync(
      jsonParts(pieces as unknown as AsyncIterable<Buffer>, { lists: DOCS }),
    )
    const whole = await Array.fromAsync(partsIn(text, { lists: DOCS }))
    t.same(
      parts.map(({ bytes }) => String(bytes)),
      whole.map(({ bytes }) => String(bytes)),
    )
  }
})

t.test('what is long or deep is not parsed', async (t) => {
  const lists = (levels: number) => Buffer.from('['.repeat(levels) + ']'.repeat(levels))
  const objects = (levels: number) => Buffer.from('{"a":'.repeat(levels) + 1 + '}'.repeat(levels))
  const deepest = MAX_JSON_DEPTH + 8
  t.ok(parsed(lists(deepest)), 'a row around the deepest document')
  t.ok(parsed(objects(deepest)))
  for (const deep of [lists(deepest + 1), objects(deepest + 1), lists(400_000)]) {
    t.throws(() => parsed(deep), { message: /deeper than 520 levels/ })
  }
  t.equal(
    parsed<string>(Buffer.from(`"${'['.repeat(10_000)}"`)).length,
    10_000,
    'brackets of a text count for nothing',
  )
  t.throws(() => parsed(Buffer.from(`"${'x'.repeat(1024 * 1024)}"`)), { message: /more than 1048576 bytes/ })
  t.throws(() => parsed(Buffer.from('nul')), { message: /not JSON/ })
  const noText = jsonParts([Buffer.from('{7:1}')] as unknown as AsyncIterable<Buffer>)
  await t.rejects(Array.fromAsync(noText), { message: /not JSON/ })
})

t.test('a position is a text or a number of bounded length', async (t) => {
  t.same(['4-x', 7, [1, 'a'], null, undefined].map(positionOf), ['4-x', 7, '[1,"a"]', null, null])
  t.equal(positionOf('s'.repeat(16 * 1024))?.toString().length, 16 * 1024)
  t.equal(positionOf('s'.repeat(16 * 1024 + 1)), null)
})
