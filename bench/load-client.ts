/**
 * Load from requests that are prepared here. load-client.c sends them, which leaves the processor to the server; where there is no C
 * compiler, autocannon does.
 */
import { sendByAutocannon } from './autocannon-client.ts'
import { compiledClient, prepareForC } from './c-client.ts'
import { withCpu } from './load.ts'
import type { Peer } from './peer.ts'
import type { PlannedRequest } from './planned-request.ts'
import type { Figure } from './trial.ts'

interface Load {
  /** Each sends its next request after an answer. */
  readonly connections: number
  /** The status that every answer must have. */
  readonly status: number
  /** What the figures count, such as `doc`. */
  readonly unit: string
  /** Units in a request. */
  readonly perRequest: number
}

/** The clients that can send the load. */
export const LOAD_CLIENTS = ['c', 'autocannon'] as const

export type LoadClient = (typeof LOAD_CLIENTS)[number]

let client: LoadClient = 'c'

/**
 * Decides which client sends all load from now on.
 * @param wanted undefined: load-client.c if it can be compiled, otherwise autocannon
 * @returns the client
 * @throws when load-client.c is wanted and there is no C compiler
 */
export async function chooseLoadClient(wanted: LoadClient | undefined): Promise<LoadClient> {
  const isCompiled =
    wanted !== 'autocannon' &&
    (await compiledClient().then(
      () => true,
      (error: unknown) => {
        if (wanted === 'c') throw error
        return false
      },
    ))
  client = isCompiled ? 'c' : 'autocannon'
  return client
}

/**
 * Sends every request once.
 * @returns units per second, and the CPU time of a unit
 * @throws when the program cannot be compiled, a request fails, or an answer has another status
 */
export async function sendAll(
  peer: Peer,
  requests: readonly PlannedRequest[],
  load: Load,
): Promise<{ readonly rate: Figure; readonly times: readonly Figure[]; readonly cpu: readonly Figure[] }> {
  const { connections, status, unit, perRequest } = load
  const count = requests.length * perRequest
  const send =
    client === 'c'
      ? await prepareForC(peer, requests, connections)
      : () => sendByAutocannon(peer, requests, connections)
  const { result: sent, cpu } = await withCpu(peer, count, unit, send)
  if (sent.statuses[status] !== requests.length) {
    throw new Error(
      `${peer.name}: not all of ${requests.length} answers are ${status}: ${JSON.stringify(sent.statuses)}`,
    )
  }
  return {
    rate: { name: `${unit}s`, unit: `${unit}s/s`, value: count / sent.seconds },
    times: [
      { name: 'median', unit: 'ms', value: sent.median * 1000 },
      { name: '99% within', unit: 'ms', value: sent.within99 * 1000 },
    ],
    cpu,
  }
}

/**
 * Repeats a GET that answers with rows, one call at a time.
 * @param rows the number of rows in an answer
 * @returns rows per second, and the CPU time of a row
 * @throws as {@link sendAll}
 */
export async function rowFigures(
  peer: Peer,
  path: string,
  { rounds, rows }: { readonly rounds: number; readonly rows: number },
): Promise<Figure[]> {
  const requests = Array.from({ length: rounds }, (): PlannedRequest => ({ method: 'GET', path }))
  const load = { connections: 1, status: 200, unit: 'row', perRequest: rows }
  await sendAll(peer, requests.slice(0, 1), load)
  const { rate, cpu } = await sendAll(peer, requests, load)
  return [rate, ...cpu]
}

/** @returns as many POST requests as `count`, with the bodies in turn */
export function posts(path: string, bodies: readonly string[], count: number): PlannedRequest[] {
  return Array.from({ length: count }, (_, n) => ({
    method: 'POST',
    path,
    body: bodies[n % bodies.length] as string,
  }))
}
