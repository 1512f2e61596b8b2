import fc from 'fast-check'
import t from 'tap'
import { readRows } from '../../src/couchapps/list-rows.ts'

/** The bytes, cut into pieces of any lengths. */
async function* pieces(text: string, lengths: readonly number[]): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text)
  let at = 0
  for (const length of lengths) {
    if (at >= bytes.length) break
    yield bytes.subarray(at, at + length)
    at += length
  }
  if (at < bytes.length) yield bytes.subarray(at)
}

t.test('rows come back whole, however their bytes arrive', async () => {
  const rows = fc.array(fc.record({ id: fc.string({ unit: 'grapheme' }), value: fc.jsonValue() }), {
    maxLength: 20,
  })
  const head = fc.constantFrom({}, { total_rows: 3, offset: 1 }, { update_seq: '5-x' })
  await fc.assert(
    fc.asyncProperty(rows, head, fc.array(fc.integer({ min: 1, max: 30 })), async (rows, head, lengths) => {
      const members = Object.entries(head).map(
        ([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)},`,
      )
      const listed = rows.map((row) => JSON.stringify(row)).join(',\r\n')
      const read = await readRows(pieces(`{${members.join('')}"rows":[\r\n${listed}\r\n]}\n`, lengths))
      const found: unknown[] = []
      for (let batch = await read.next(); batch !== null; batch = await read.next()) {
        const parsed = JSON.parse(batch) as unknown[]
        if (parsed.length === 0) return false
        found.push(...parsed)
      }
      return JSON.stringify([JSON.parse(read.head), found]) === JSON.stringify([head, rows])
    }),
    { numRuns: 500 },
  )
})
