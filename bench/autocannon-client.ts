/** Sends load with autocannon, which needs nothing but Node, and takes more of the processor than load-client.c. */
import autocannon from 'autocannon'
import { percentileOf } from './load.ts'
import type { Peer } from './peer.ts'
import type { PlannedRequest, Sent } from './planned-request.ts'

/** How often autocannon looks whether all answers have come, in ms. */
const SAMPLE_MS = 20

/**
 * Sends every request once.
 * @param connections each sends its next request after an answer
 * @throws when a connection fails
 */
export async function sendByAutocannon(
  { origin, headers }: Peer,
  requests: readonly PlannedRequest[],
  connections: number,
): Promise<Sent> {
  const planned = requests.map(({ method, path, body }) => ({
    method,
    path,
    headers: { accept: 'application/json', ...headers },
    ...(body !== undefined && { body }),
  }))
  const used = Math.min(connections, requests.length)
  const seconds: number[] = []
  const statuses: Record<string, number> = {}
  const since = performance.now()
  let last = since
  let begun = 0
  const { errors } = await new Promise<autocannon.Result>((resolve, reject) => {
    const options = {
      url: origin,
      connections: used,
      amount: requests.length,
      timeout: 600,
      sampleInt: SAMPLE_MS,
      // autocannon distributes the amount in the same way. Otherwise each connection would begin with the first request.
      setupClient: (client: autocannon.Client) => {
        const own = begun++
        client.setRequests(planned.filter((_, n) => n % used === own))
      },
    }
    const run = autocannon(options, (error, result) => (error ? reject(error) : resolve(result)))
    run.on('response', (_client, status, _bytes, responseMs) => {
      last = performance.now()
      seconds.push(responseMs / 1000)
      statuses[status] = (statuses[status] ?? 0) + 1
    })
  })
  if (errors > 0) throw new Error(`${errors} requests have failed`)
  return {
    seconds: (last - since) / 1000,
    median: percentileOf(seconds, 0.5),
    within99: percentileOf(seconds, 0.99),
    statuses,
  }
}
