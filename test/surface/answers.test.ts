/** Which answers pass a row and which fail: every table relies on this. */
import t from 'tap'
import { type Answer, type Answered, compared } from './answers.ts'

const FOUND: Answered = {
  status: 200,
  headers: { etag: '"1-a"' },
  bytes: Buffer.from('{"a":1,"b":["x","y"]}'),
  text: '{"a":1,"b":["x","y"]}',
  json: { a: 1, b: ['x', 'y'] },
  took: 1,
  broken: false,
}

t.test('an answer that matches passes', async (t) => {
  const good: Answer[] = [
    {},
    { json: { a: 1, b: ['x', 'y'] } },
    { json: { a: /^1$/, b: [/x/, 'y'] } },
    { like: { a: 1 } },
    { like: { b: ['x', /./], c: undefined } },
    { like: {} },
    { text: '{"a":1,"b":["x","y"]}' },
    { text: /"b"/ },
    { headers: { etag: '"1-a"', location: undefined } },
    { headers: { etag: /^"1-/ } },
    { lines: [] },
  ]
  for (const answer of good) {
    const { seen, wanted } = compared(FOUND, answer)
    t.strictSame(seen, wanted, JSON.stringify(answer))
  }
})

t.test('an answer that differs fails', async (t) => {
  const bad: Answer[] = [
    { status: 201 },
    { broken: true },
    { json: { a: 1 } },
    { json: { a: '1', b: ['x', 'y'] } },
    { json: { a: 1, b: ['x', 'y'], c: 1 } },
    { json: { a: /2/, b: ['x', 'y'] } },
    { json: { a: 1, b: /x/ } },
    { json: undefined, like: { a: 2 } },
    { like: { a: undefined } },
    { like: { b: [] } },
    { like: { b: ['x'] } },
    { like: { b: ['x', 'y', 'z'] } },
    { like: { b: [/z/, 'y'] } },
    { like: { c: 1 } },
    { like: [] },
    { text: '{"a":1}' },
    { text: /c/ },
    { headers: { etag: undefined } },
    { headers: { etag: '"1-b"' } },
    { headers: { location: /./ } },
    { lines: [1] },
  ]
  for (const answer of bad) {
    const { seen, wanted } = compared(FOUND, answer)
    t.strictNotSame(seen, wanted, JSON.stringify(answer))
  }
})
