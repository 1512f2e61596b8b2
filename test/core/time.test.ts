import t from 'tap'
import { parseTime } from '../../src/documents/time-machine/time-machine-calls.ts'

t.test('times are read to the minute, the second or the millisecond', async (t) => {
  const at = Date.UTC(2025, 2, 1, 14, 5)
  for (const [text, time] of [
    ['2025-03-01T14:05Z', at],
    ['2025-03-01 14:05', at],
    ['2025-03-01T14:05:07', at + 7000],
    ['2025-03-01T14:05:07.089Z', at + 7089],
    ['2025-03-01T15:05+01:00', at],
    ['2025-03-01T15:05 01:00', at],
    ['2025-03-01T09:05-0500', at],
    ['2025-03-01', Date.UTC(2025, 2, 1)],
    [String(at), at],
  ] as const) {
    t.equal(parseTime(text, 'utc'), time, text)
  }
  t.equal(parseTime('2025-03-01 14:05', 'local'), new Date(2025, 2, 1, 14, 5).getTime())
})

t.test('anything else is none', async (t) => {
  for (const text of [
    '',
    'yesterday',
    '2025-02-31',
    '2025-13-01',
    '2025-03-01T25:00',
    '14:05',
    '1e3',
    '-5',
  ]) {
    t.equal(parseTime(text, 'utc'), null, text)
  }
})
