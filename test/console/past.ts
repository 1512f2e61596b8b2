/** Samples of the past, for plots. */
import { SampleFile } from '../../src/metrics/sampler.ts'
import { COLUMNS, type Sampled } from '../../src/metrics/samples.ts'

const MINUTE = 60_000
const NONE = Object.fromEntries(COLUMNS.map(({ name }) => [name, null])) as Sampled

/** Writes the samples of a day of a household, with a night, a restart and an update of all devices, and three weeks before it. */
export async function writePast(dataDir: string): Promise<void> {
  const file = await SampleFile.open(dataDir, {
    warn: (...line: unknown[]) => {
      throw new Error(String(line))
    },
  })
  const now = MINUTE * Math.floor(Date.now() / MINUTE)
  for (let minute = 21 * 24 * 60; minute > 0; minute -= minute > 24 * 60 + 60 ? 10 : 1) {
    if (minute % 1440 > 500 && minute % 1440 < 560) continue
    const day = 0.5 + 0.5 * Math.sin((minute / 1440) * 2 * Math.PI)
    const noise = Math.abs(Math.sin(minute * 12.9898) * 43_758.5453) % 1
    const wave = day * (0.4 + noise)
    file.samples.add(now - (minute - 1) * MINUTE, {
      ...NONE,
      answers_ok: 4 * wave,
      answers_4xx: noise > 0.9 ? 0.4 : 0.02 * day,
      answers_5xx: minute > 700 && minute < 706 ? 1.1 : 0,
      saves: 0.4 * wave * noise,
      feeds: Math.round(3 + 5 * day),
      connections: Math.round(5 + 9 * day + 2 * noise),
      memory_bytes: 84_000_000 + 22_000_000 * day + 4_000_000 * noise,
      data_bytes: 412_000_000 - 2000 * minute,
      free_bytes: 213_000_000_000 + 40_000 * minute,
      delay: 0.004 * noise,
      busy: 0.02 * wave,
      databases: 6,
    })
  }
  file.store([{ start: 0, end: file.samples.content.length }])
  await file.close()
}
