/** Bodies of `_bulk_docs` that are read in one pass are read as those whose documents' spans are found first. */
import { deepEqual, equal } from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { type BulkBody, readAnyBulk, readPlainBulk } from '../../src/documents/request-body.ts'
import { damaged, damages } from './damage.ts'

const space = fc.oneof(
  { weight: 4, arbitrary: fc.constant('') },
  fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 2 }),
)
const name = fc.oneof(
  fc.constantFrom('a', 'b', '_id', '_rev', '_deleted', '_revisions', '_access'),
  fc.string({ unit: 'binary', maxLength: 4 }).filter((s) => s.isWellFormed()),
)
const value = fc.oneof(
  fc.integer(),
  fc.string({ unit: fc.constantFrom('"', '\\', ']', '}', ',', 'é', '\u{1f600}', 'a'), maxLength: 20 }),
  fc.constantFrom(true, null, [], {}, [{ a: [1] }], { start: 2, ids: ['b', 'a'] }),
)
const doc = fc.tuple(fc.array(fc.tuple(name, value), { maxLength: 5 }), space).map(([members, gap]) => {
  const texts = members.map(([key, one]) => `${JSON.stringify(key)}${gap}:${gap}${JSON.stringify(one)}`)
  return `{${gap}${texts.join(`${gap},${gap}`)}${gap}}`
})
const flag = fc.constantFrom('', '', '"new_edits":true', '"new_edits":false', '"new_edits":0', '"w":1')
const body = fc
  .tuple(flag, fc.array(doc, { maxLength: 4 }), flag, space)
  .map(([before, docs, after, gap]) => {
    const members = [before, `"docs"${gap}:${gap}[${gap}${docs.join(`${gap},${gap}`)}${gap}]`, after]
    return `${gap}{${gap}${members.filter(Boolean).join(`${gap},${gap}`)}${gap}}${gap}`
  })

async function contents(bulk: BulkBody): Promise<unknown> {
  const docs: unknown[] = []
  for (let at = 0; at < bulk.count; at += 1) {
    const { special, body } = await bulk.split(at)
    docs.push({ special, body })
  }
  return { docs, newEdits: bulk.newEdits, allOrNothing: bulk.allOrNothing, isInMemory: bulk.isInMemory }
}

t.test('a body that is read in one pass holds what its spans hold', async (t) => {
  let compared = 0
  await fc.assert(
    fc.asyncProperty(body, async (text) => {
      const bytes = Buffer.from(text)
      const plain = await readPlainBulk({ bytes })
      if (plain === null) return
      compared += 1
      deepEqual(await contents(plain), await contents(await readAnyBulk({ bytes })))
    }),
    { numRuns: 5000 },
  )
  t.ok(compared > 1500, String(compared))
})

t.test('a damaged body is read in one pass only where it is read by its spans too', async (t) => {
  const seen = { plain: 0, other: 0 }
  await fc.assert(
    fc.asyncProperty(body, damages('\ufeff', '"docs":[],'), async (text, edits) => {
      const sent = damaged(text, edits)
      const bytes = Buffer.from(sent)
      const plain = await readPlainBulk({ bytes })
      seen[plain === null ? 'other' : 'plain'] += 1
      if (plain === null) return
      deepEqual(await contents(plain), await contents(await readAnyBulk({ bytes })), sent)
    }),
    { numRuns: 5000 },
  )
  t.ok(seen.plain > 100 && seen.other > 1000, JSON.stringify(seen))
})

t.test('what is read in one pass', async (t) => {
  const read = (text: string | Uint8Array) => readPlainBulk({ bytes: Buffer.from(text) })
  t.match(await read('{"docs":[{"_id":"a"},{}],"new_edits":false}'), { newEdits: false, count: 2 })
  t.match(await read(' { "new_edits" : false , "docs" : [ { } ] } '), { newEdits: false, count: 1 })
  t.match(
    await read('{"new_edits":false,"docs":[{}],"new_edits":true}'),
    { newEdits: true },
    'the last counts',
  )
  t.match(await read('{"docs":[{}]}'), { newEdits: true, allOrNothing: false, isInMemory: true })
  t.equal((await read('{"docs":[{},{"a":"b"}]}'))?.size(1), 9)
})

t.test('others have their turns while a body of many documents is read', async (t) => {
  const bytes = Buffer.from(`{"docs":[{}${',{}'.repeat(340_000)}]}`)
  let turns = 0
  let isRead = false
  const reading = readPlainBulk({ bytes }).then((bulk) => {
    isRead = true
    return bulk
  })
  for (; !isRead; turns++) await turn()
  t.equal((await reading)?.count, 340_001)
  t.ok(turns > 3, `${turns} turns`)
})

t.test('what is not read in one pass', async (t) => {
  for (const text of [
    '',
    '[]',
    '{"docs":[]}',
    '{"docs":[1]}',
    '{"docs":{}}',
    '{"docs":[{}],"all_or_nothing":true}',
    '{"docs":[{}],"docs":[{}]}',
    '{"docs":[{}],"new_edits":1}',
    '{"docs":[{}]}x',
    '{"docs":[{},]}',
    '{"docs":[{"a":1}',
    '{"d\\u006fcs":[{}]}',
    `{"docs":[{"a":${'['.repeat(600)}]}`,
    Buffer.from([0x7b, 0xff]),
  ]) {
    t.equal(await readPlainBulk({ bytes: Buffer.from(text) }), null, String(text).slice(0, 40))
  }
  const large = Buffer.from(`{"docs":[{"a":"${'a'.repeat(1024 * 1024)}"}]}`)
  t.equal(await readPlainBulk({ bytes: large }), null, 'a long one')
  equal((await readAnyBulk({ bytes: large })).count, 1)
  await t.rejects(readAnyBulk({ bytes: Buffer.from('{"docs":[1') }), CouchError)
})
