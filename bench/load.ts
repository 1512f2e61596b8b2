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
 * @returns requests per second, and the 99th percentile of the response time
 * @throws when a request has failed or was answered with another status
 */
export async function sendWithAutocannon(
  { origin, headers, name }: Peer,
  plannedRequests: readonly PlannedRequest[],
  { connections, status }: { readonly connections: number; readonly status: number },
): Promise<Figure[]> {
  // Distributed like autocannon's `amount`, so that each connection sends each of its requests once.
  const batches = Array.from({ length: connections }, (_, connection) =>
    plannedRequests.filter((_, n) => n % connections === connection),
  )
  const next = batches.values()
  const setupClient = (client: autocannon.Client) => {
    const batch: PlannedRequest[] = next.next().value ?? []
    client.setRequests(batch.map((request) => ({ ...request, headers: { ...headers } })))
  }
  const { result, seconds } = await fire({
    url: origin,
    connections,
    amount: plannedRequests.length,
    setupClient,
  })
  const right = result.statusCodeStats?.[`${status}`]?.count ?? 0
  if (right !== plannedRequests.length) {
    const answers = JSON.stringify(result.statusCodeStats)
    throw new Error(`${name}: ${right} of ${plannedRequests.length} answers are ${status}: ${answers}`)
  }
  return [
    { name: 'requests', unit: 'req/s', value: plannedRequests.length / seconds },
    { name: '99% within', unit: 'ms', value: result.latency.p99 },
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
