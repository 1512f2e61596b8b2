/** The newest lines of the log in memory: bounds, pages, filters and tokens. */
import t from 'tap'
import { LogTail, readLevel } from '../../src/config/log-tail.ts'

const line = (msg: string, level = 'info') =>
  `{"level":"${level}","time":"2026-01-01T00:00:00.000Z","msg":"${msg}"}\n`
const ALL = { level: 'debug', text: '' } as const

function filled(...lines: readonly string[]): LogTail {
  const tail = new LogTail()
  for (const each of lines) tail.add(each)
  return tail
}

const messages = (page: { lines: readonly { text: string }[] }) =>
  page.lines.map(({ text }) => JSON.parse(text).msg)

t.test('pages, from a number on', async (t) => {
  const tail = filled(line('a'), line('b', 'warn'), line('c', 'debug'), line('d', 'notice'))
  t.strictSame(messages(tail.page(1, ALL, 10)), ['a', 'b', 'c', 'd'])
  t.match(tail.page(1, ALL, 2), { next: 3, missed: 0, lines: [{ number: 1 }, { number: 2 }] })
  t.strictSame(messages(tail.page(3, ALL, 10)), ['c', 'd'])
  t.strictSame(tail.page(5, ALL, 10), { lines: [], next: 5, missed: 0 })
  t.strictSame(messages(tail.page(1, { level: 'notice', text: '' }, 10)), ['b', 'd'])
  t.strictSame(
    messages(tail.page(1, { level: 'debug', text: '"MSG":"C' }, 10)),
    ['c'],
    'the search ignores case',
  )
  t.strictSame(tail.newest(5, { level: 'notice', text: '' }, 1), { from: 4, found: 1, isAll: false })
  t.strictSame(tail.newest(5, { level: 'notice', text: '' }, 9), { from: 1, found: 2, isAll: true })
})

t.test('it is bounded in lines and in characters, and says what was missed', async (t) => {
  const tail = new LogTail()
  for (let n = 1; n <= 5003; n++) tail.add(line(String(n)))
  t.match(tail.page(1, ALL, 2), { missed: 3, next: 6, lines: [{ number: 4 }, { number: 5 }] })
  const large = new LogTail()
  for (let n = 0; n < 100; n++) large.add(line('x'.repeat(60_000)))
  const held = large.page(1, ALL, 0)
  t.ok(held.missed > 25 && held.missed < 35, `${held.missed} of 100 are gone`)
  const page = large.page(40, ALL, 100)
  t.ok(page.lines.length <= 3, 'a page is short')
  const huge = filled(line('y'.repeat(70_000), 'error'))
  t.match(JSON.parse(huge.page(1, ALL, 1).lines[0]?.text ?? ''), {
    level: 'error',
    msg: /a line of 70\d{3} characters/,
  })
})

t.test('tokens', async (t) => {
  const tail = filled(line('a'), line('b'))
  t.equal(tail.after(tail.token(1)), 2)
  t.equal(tail.after(tail.token(999)), 3, 'a token beyond the newest line means the next line')
  t.equal(tail.after('7-00000000'), 1, 'a token of an earlier start means the first line')
  for (const bad of ['', '7', '7-', '7-xyz', '-1-00000000', '1e3-00000000'])
    t.equal(tail.after(bad), null, bad)
  t.strictSame(['warn', 'WARNING', 'fatal', 'x', ''].map(readLevel), ['warn', 'warn', 'fatal', null, null])
})

t.test('listeners hear of each line until they stop', async (t) => {
  const tail = new LogTail()
  let heard = 0
  const stop = tail.onLine(() => {
    heard += 1
  })
  tail.add(line('a'))
  stop()
  tail.add(line('b'))
  t.equal(heard, 1)
})
