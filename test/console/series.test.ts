/** What the overview makes of the server's samples and health facts. */
import t from 'tap'
import { settingsVerdict, verdictsOf } from '../../console/src/screens/overview/health.ts'
import { valueText } from '../../console/src/screens/overview/plots.ts'
import {
  drawnOf,
  hasSamples,
  rateFactor,
  rowsOf,
  type SampleSeries,
  summaryOf,
  timesOf,
} from '../../console/src/screens/overview/series.ts'

const START = Date.UTC(2026, 2, 1, 12) / 1000

function day(saves: readonly (number | null)[]): SampleSeries {
  return { period: 'day', start: START, step: 60, points: saves.length, mean: { saves } }
}

t.test('a summary has the newest value, the mean and the peak', async (t) => {
  t.strictSame(summaryOf(day([1, null, 4, 1]), 'saves'), {
    now: 1,
    mean: 2,
    peak: 4,
    peakAt: START + 150,
    least: 1,
    leastAt: START + 30,
  })
  t.equal(summaryOf(day([1, 2, null, null]), 'saves')?.now, 2, 'the newest minute may not be stored yet')
  t.equal(summaryOf(day([1, null, null, null, null]), 'saves')?.now, null, 'the server was off')
  t.equal(summaryOf(day([null, null]), 'saves'), null)
  t.equal(summaryOf(day([1]), 'of-a-newer-page'), null)
  t.notOk(hasSamples(day([null])))
  const month = { ...day([1, 3]), period: 'month' as const, step: 1800, max: { saves: [9, 5] } }
  t.match(summaryOf(month, 'saves'), { peak: 9, peakAt: START + 900 })
})

t.test('a table has a row for each hour, in the time zone of the user, the newest first', async (t) => {
  const saves = Array.from({ length: 120 }, (_, minute) => (minute < 30 ? 1 : minute < 90 ? null : 3))
  t.strictSame(rowsOf(day(saves), ['saves'], 0), [
    { time: START + 3600, means: { saves: 3 } },
    { time: START, means: { saves: 1 } },
  ])
  t.strictSame(
    rowsOf(day(saves), ['saves'], 5.5 * 3600).map(({ time }) => time - START),
    [5400, -1800],
    'India is half an hour off',
  )
})

t.test('a day is drawn by five minutes, and a gap stays a gap', async (t) => {
  const drawn = drawnOf(day([1, 2, 3, null, null, null, null, null, null, null, 7, 7]))
  t.strictSame(drawn.mean.saves, [2, null, 7])
  t.strictSame(timesOf(drawn), [START + 150, START + 450, START + 750])
})

t.test('small rates are per minute', async (t) => {
  t.equal(valueText('rate', 0.05, rateFactor(0.05)), '3/min')
  t.equal(valueText('rate', 12.34, rateFactor(12.34)), '12/s')
  t.equal(valueText('rate', 0, rateFactor(0)), '0')
  t.equal(valueText('bytes', 1_250_000), '1.3 MB')
})

t.test('the worst of the unsafe settings is told in words', async (t) => {
  t.equal(settingsVerdict([]).tone, 'good')
  const keepDays = { section: 'settee', key: 'keep_days', severity: 'danger' as const, reason: 'It is off.' }
  t.match(settingsVerdict([keepDays]), { tone: 'warn', text: 'settee/keep_days is unsafe. It is off.' })
  t.match(settingsVerdict([{ ...keepDays, section: 'admins', key: null }, keepDays]), {
    text: '2 settings are unsafe, among them admins. It is off.',
  })
})

t.test('faults come first, and each says what to do', async (t) => {
  const verdicts = verdictsOf([
    { name: 'threads', ok: true, threads: 2 },
    { name: 'databases', ok: false, count: 1, reason: 'x', faulty: [{ database: 'notes', reason: 'torn' }] },
    { name: 'free_space', ok: true, free: 5e9, floor: 1e9 },
    { name: 'backup', ok: true, interval: 0, age: null, reason: 'No backups are scheduled' },
    { name: 'alarms', ok: true, count: 3 },
    { name: 'of a newer server', ok: false, reason: 'It is new.' },
  ])
  t.strictSame(
    verdicts.map(({ name, tone }) => [name, tone]),
    [
      ['databases', 'bad'],
      ['of a newer server', 'bad'],
      ['backup', 'warn'],
      ['threads', 'good'],
      ['free_space', 'good'],
    ],
  )
  t.match(verdicts[0], {
    text: /1 database has a fault. notes: torn/,
    help: /restore/,
    link: { href: '#/settings/backups' },
  })
  t.match(verdictsOf([{ name: 'store', ok: false, reason: 'It cannot be reached.' }])[0], {
    title: 'Store',
    text: 'It cannot be reached.',
    help: /Check that the store runs/,
  })
  t.match(
    verdictsOf([{ name: 'backup', ok: true, by_store: true, interval: 0, age: null, reason: 'x' }])[0],
    {
      tone: 'good',
      text: 'The store of the databases makes the backups.',
    },
  )
  const scrub = { name: 'scrub', interval: 604_800, last: null }
  t.match(verdictsOf([{ ...scrub, ok: true, last: '2026-11-22T01:30:00.000Z' }])[0], {
    tone: 'good',
    text: 'Everything was read and checked on 2026-11-22. Nothing is damaged.',
  })
  t.match(verdictsOf([{ ...scrub, ok: true, interval: 0, reason: 'x' }])[0], { tone: 'warn' })
  t.match(verdictsOf([{ ...scrub, ok: false, reason: 'Damaged.' }])[0], { tone: 'bad', text: 'Damaged.' })
  t.match(verdicts[1], { title: 'of a newer server', text: 'It is new.' })
  t.match(verdicts[4], { text: '5 GB free. Below 1 GB, only deletions are accepted.' })
})
