/** Ways to put load on a peer. */
import autocannon from 'autocannon'
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
 * @returns the result of the work, and the figure; none for a server whose process is elsewhere
 */
export async function withCpu<T>(
  { cpuSeconds }: Peer,
  operations: number,
  unit: string,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly cpu: readonly Figure[] }> {
  const before = cpuSeconds()
  const result = await work()
  const after = cpuSeconds()
  if (before === null || after === null) return { result, cpu: [] }
  return { result, cpu: [{ name: 'CPU', unit: `us/${unit}`, value: ((after - before) * 1e6) / operations }] }
}

/**
 * Repeats a call that answers with rows.
 * @param rows the number of rows in an answer
 * @returns rows per second in the median, and the CPU time of a row
 */
export async function rowFigures(
  peer: Peer,
  rounds: number,
  rows: number,
  call: () => Promise<unknown>,
): Promise<Figure[]> {
  // medianSeconds calls once more, to warm up.
  const { result: seconds, cpu } = await withCpu(peer, (rounds + 1) * rows, 'row', () =>
    medianSeconds(rounds, call),
  )
  return [{ name: 'rows', unit: 'rows/s', value: rows / seconds }, ...cpu]
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

export interface PlannedRequest {
  readonly method: 'GET' | 'PUT'
  readonly path: string
  readonly body?: string
}

/**
 * Sends every request once with autocannon. Each connection sends its next request after an answer.
 * @param status the status that every answer must have
 * @returns requests per second, the 99th percentile of the response time, and the CPU time of a request
 * @throws when a request has failed or was answered with another status
 */
export async function sendWithAutocannon(
  peer: Peer,
  plannedRequests: readonly PlannedRequest[],
  { connections, status }: { readonly connections: number; readonly status: number },
): Promise<Figure[]> {
  const { origin, headers, name } = peer
  // Distributed like autocannon's `amount`, so that each connection sends each of its requests once.
  const batches = Array.from({ length: connections }, (_, connection) =>
    plannedRequests.filter((_, n) => n % connections === connection),
  )
  const next = batches.values()
  const setupClient = (client: autocannon.Client) => {
    const batch: PlannedRequest[] = next.next().value ?? []
    client.setRequests(batch.map((request) => ({ ...request, headers: { ...headers } })))
  }
  const amount = plannedRequests.length
  const { result: fired, cpu } = await withCpu(peer, amount, 'req', () =>
    fire({ url: origin, connections, amount, setupClient }),
  )
  const { result, seconds } = fired
  const right = result.statusCodeStats?.[`${status}`]?.count ?? 0
  if (right !== amount) {
    const answers = JSON.stringify(result.statusCodeStats)
    throw new Error(`${name}: ${right} of ${amount} answers are ${status}: ${answers}`)
  }
  return [
    { name: 'requests', unit: 'req/s', value: amount / seconds },
    { name: '99% within', unit: 'ms', value: result.latency.p99 },
    ...cpu,
  ]
}

/** @returns the result, and the seconds from the first answer to the last: autocannon's own clock has steps of 1 s */
function fire(options: autocannon.Options): Promise<{ result: autocannon.Result; seconds: number }> {
  return new Promise((resolve, reject) => {
    let [first, last] = [0, 0]
    const cannon = autocannon(options, (error: Error | null, result) => {
      if (error) reject(error)
      else resolve({ result, seconds: (last - first) / 1000 })
    })
    cannon.on('response', () => {
      last = performance.now()
      first ||= last
    })
  })
}
