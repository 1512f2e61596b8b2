/** The samples of a day and a month, their file, and the count of the data's bytes. */
import { mkdir, open, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { DataSize } from '../../src/metrics/data-size.ts'
import { SampleFile, Sampler } from '../../src/metrics/sampler.ts'
import { COLUMNS, SAMPLE_BYTES, type Sampled, Samples } from '../../src/metrics/samples.ts'
import { temporaryFolder } from '../helpers/server.ts'

const NONE = Object.fromEntries(COLUMNS.map(({ name }) => [name, null])) as Sampled
const MINUTE = 60_000
const HALF_HOUR = 30 * MINUTE
const DAY = 24 * 60 * MINUTE
/** The beginning of a half hour. */
const NOW = Date.UTC(2026, 2, 1, 12)

/** The known values of a column, by the minutes from {@link NOW} at which their points begin. */
function known(
  samples: Samples,
  period: 'day' | 'month',
  now: number,
  which: 'mean' | 'max' = 'mean',
): [number, number][] {
  const { start, step, [which]: columns } = samples.read(period, now)
  const saves = new Map(columns ?? []).get('saves') ?? []
  return [...saves].flatMap((value, at): [number, number][] =>
    Number.isNaN(value) ? [] : [[(start + at * step - NOW / 1000) / 60, value]],
  )
}

t.test('a sample is of the minute before it, and a missed minute is a gap', async (t) => {
  const samples = new Samples(Buffer.alloc(0), NOW)
  samples.add(NOW + MINUTE + 3, { ...NONE, saves: 1 })
  samples.add(NOW + 2 * MINUTE - 3, { ...NONE, saves: 2 })
  samples.add(NOW + 4 * MINUTE, { ...NONE, saves: 1 / 3 })
  t.strictSame(known(samples, 'day', NOW + 4 * MINUTE), [
    [0, 1],
    [1, 2],
    [3, 0.333333],
  ])
  const { start, step, points, mean } = samples.read('day', NOW + 4 * MINUTE)
  t.equal(start + step * points, NOW / 1000 + 4 * 60, 'the last point ends now')
  t.equal(new Map(mean).get('memory_bytes')?.every(Number.isNaN), true)
})

t.test('a half hour has the mean and the maximum of its minutes, also while it lasts', async (t) => {
  const samples = new Samples(Buffer.alloc(0), NOW)
  for (let minute = 1; minute <= 33; minute += 1)
    samples.add(NOW + minute * MINUTE, { ...NONE, saves: minute })
  const now = NOW + 33 * MINUTE
  t.strictSame(known(samples, 'month', now), [
    [0, 15.5],
    [30, 32],
  ])
  t.strictSame(known(samples, 'month', now, 'max'), [
    [0, 30],
    [30, 33],
  ])
})

t.test('values grow old', async (t) => {
  const samples = new Samples(Buffer.alloc(0), NOW)
  samples.add(NOW + MINUTE, { ...NONE, saves: 7 })
  samples.add(NOW + HALF_HOUR + MINUTE, { ...NONE, saves: 8 })
  t.strictSame(known(samples, 'day', NOW + DAY + MINUTE), [[30, 8]])
  const later = NOW + 31 * DAY
  t.strictSame(known(samples, 'month', later), [[0, 7]], 'the other half hour has not ended for the ring')
  t.strictSame(known(samples, 'month', later + HALF_HOUR), [])
})

t.test('a server that was off makes up for the half hours that it had not summarized', async (t) => {
  const before = new Samples(Buffer.alloc(0), NOW)
  for (const minute of [1, 2, 29]) before.add(NOW + minute * MINUTE, { ...NONE, saves: minute })
  const same = new Samples(before.content, NOW + 29 * MINUTE)
  same.add(NOW + 30 * MINUTE, { ...NONE, saves: 100 })
  same.add(NOW + 31 * MINUTE, { ...NONE, saves: 0 })
  t.strictSame(known(same, 'month', NOW + 31 * MINUTE)[0], [0, 33], 'a restart within the half hour')
  const after = new Samples(before.content, NOW + 3 * DAY)
  t.strictSame(known(after, 'month', NOW + 3 * DAY), [[0, 10.6667]], 'days later')
  t.strictSame(known(after, 'day', NOW + 3 * DAY), [])
})

t.test('a clock that goes back overwrites, and hides what is in its future', async (t) => {
  const samples = new Samples(Buffer.alloc(0), NOW)
  samples.add(NOW + HALF_HOUR, { ...NONE, saves: 1 })
  samples.add(NOW + HALF_HOUR + MINUTE, { ...NONE, saves: 2 })
  samples.add(NOW + HALF_HOUR, { ...NONE, saves: 3 })
  t.strictSame(known(samples, 'day', NOW + HALF_HOUR), [[29, 3]])
  t.strictSame(known(samples, 'month', NOW + HALF_HOUR), [[0, 3]])
  samples.add(NOW + 366 * DAY, { ...NONE, saves: 9 })
  samples.add(NOW + HALF_HOUR + 2 * MINUTE, { ...NONE, saves: 4 })
  t.strictSame(known(samples, 'day', NOW + HALF_HOUR + 2 * MINUTE).at(-1), [31, 4])
})

t.test('the file', async (t) => {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'samples')
  const ended = MINUTE * Math.floor(Date.now() / MINUTE)
  const saved = ({ samples }: SampleFile) => known(samples, 'day', ended).map(([, value]) => value)
  const first = await SampleFile.open(dataDir, { warn: () => t.fail('a warning') })
  first.store(first.samples.add(ended - MINUTE, { ...NONE, saves: 1 }))
  first.store(first.samples.add(ended, { ...NONE, saves: 2 }))
  await first.close()
  t.equal((await stat(path)).mode & 0o777, 0o600)
  t.equal((await stat(path)).size, SAMPLE_BYTES)
  t.strictSame(await readFile(path), first.samples.content, 'nothing but what is in memory')

  const again = await SampleFile.open(dataDir, { warn: () => t.fail('a warning') })
  t.strictSame(saved(again), [1, 2])
  await again.close()

  const [changed] = first.samples.add(ended, { ...NONE, saves: 3 })
  t.ok(changed !== undefined && changed.end - changed.start < 512)
  const file = await open(path, 'r+')
  await file.write(first.samples.content, changed?.start ?? 0, 60, changed?.start ?? 0)
  await file.close()
  const torn = await SampleFile.open(dataDir, { warn: () => t.fail('a warning') })
  t.strictSame(saved(torn), [1], 'a record that was half written is missing')
  await torn.close()

  for (const content of [first.samples.content.subarray(0, 100_000), Buffer.from('another file'), '']) {
    await writeFile(path, content)
    const repaired = await SampleFile.open(dataDir, { warn: () => t.fail('a warning') })
    await repaired.close()
    t.equal((await stat(path)).size, SAMPLE_BYTES, `after ${content.length} bytes`)
  }
})

t.test('without its file, the samples are in memory', async (t) => {
  const warnings: unknown[] = []
  const file = await SampleFile.open('/nowhere', { warn: (...line: unknown[]) => warnings.push(line) })
  file.store(file.samples.add(NOW, { ...NONE, saves: 1 }))
  await file.close()
  t.equal(warnings.length, 1)
  t.strictSame(known(file.samples, 'day', NOW), [[-1, 1]])
})

t.test('rates are of the time between two samples', async (t) => {
  const file = await SampleFile.open(await temporaryFolder(t), { warn: () => t.fail('a warning') })
  const current = { ...NONE, saves: 100 as number | null, memory_bytes: 5 }
  const sampler = await Sampler.begin(file, async () => ({ ...current }))
  t.teardown(async () => {
    sampler.close()
    await file.close()
  })
  const started = performance.now()
  await sampler.take(NOW, started + 0.5)
  t.strictSame(known(file.samples, 'day', NOW), [], 'no sample covers less than a moment')
  current.saves = 220
  await sampler.take(NOW + MINUTE, started + MINUTE)
  const [[, saves] = [0, 0]] = known(file.samples, 'day', NOW + MINUTE)
  t.ok(Math.abs(saves - 2) < 0.01, String(saves))
  t.equal(new Map(file.samples.read('day', NOW + MINUTE).mean).get('memory_bytes')?.at(-1), 5)
  current.saves = 0
  await sampler.take(NOW + 2 * MINUTE, started + 2 * MINUTE)
  t.strictSame(known(file.samples, 'day', NOW + 2 * MINUTE).at(-1), [1, 0], 'never negative')
})

t.test('the bytes of databases and indexes', async (t) => {
  const dataDir = await temporaryFolder(t)
  await mkdir(join(dataDir, 'databases'))
  await mkdir(join(dataDir, 'indexes', 'notes'), { recursive: true })
  await writeFile(join(dataDir, 'databases', 'notes.sqlite'), 'x'.repeat(1000))
  await writeFile(join(dataDir, 'indexes', 'notes', 'a.sqlite'), 'x'.repeat(10))
  await writeFile(join(dataDir, 'local.ini'), 'x'.repeat(5))
  const size = new DataSize(dataDir)
  t.equal(size.bytes, null)
  size.start(0)
  while (size.bytes === null) await sleep(1)
  t.equal(size.bytes, 1010)
  await size.close()
})
