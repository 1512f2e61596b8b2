/** Ways to put load on a peer. */
import type { Peer } from './peer.ts'
import type { Figure } from './trial.ts'

/**
 * Runs jobs, a limited number at a time.
 * @returns seconds from the first job's start to the last one's end
 * @throws the error of a job
 */
export async function inFlight(atOnce: number, jobs: readonly (() => Promise<unknown>)[]): Promise<number> {
  const rest = jobs.values()
  const since = performance.now()
  const worker = async () => {
    for (const job of rest) await job()
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
  return (performance.now() - since) / 1000
}

/**
 * Repeats a job, after one run that is not measured.
 * @returns the median of its seconds
 */
export async function medianSeconds(rounds: number, job: () => Promise<unknown>): Promise<number> {
  await job()
  const seconds: number[] = []
  for (let round = 0; round < rounds; round++) seconds.push(await inFlight(1, [job]))
  return medianOf(seconds)
}

/**
 * Measures the CPU time that a server takes for some work, which varies less than a rate on a machine that others use.
 * @param operations the number of operations in the work
 * @param unit one operation, such as `doc`
 * @returns the result of the work, and the figures; none for a server whose process is elsewhere. With them come the waits
 * in its PostgreSQL, if they are asked for
 */
export async function withCpu<T>(
  { cpuSeconds, storeCpuSeconds, watchWaits }: Peer,
  operations: number,
  unit: string,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly cpu: readonly Figure[] }> {
  const clocks = [
    { name: 'CPU', clock: cpuSeconds },
    { name: 'CPU of PostgreSQL', clock: storeCpuSeconds },
  ]
  const waits = await watchWaits?.()
  const before = clocks.map(({ clock }) => clock?.() ?? null)
  const result = await work()
  const cpu = clocks.flatMap(({ name, clock }, at): Figure[] => {
    const [from, to] = [before[at] ?? null, clock?.() ?? null]
    if (from === null || to === null) return []
    return [{ name, unit: `us/${unit}`, value: ((to - from) * 1e6) / operations }]
  })
  return { result, cpu: [...cpu, ...((await waits?.()) ?? [])] }
}

export function megabytes(bytes: number): number {
  return bytes / 1e6
}

export function medianOf(values: readonly number[]): number {
  return percentileOf(values, 0.5)
}

/** @param share 0 to 1 @returns NaN if there are no values */
export function percentileOf(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}
