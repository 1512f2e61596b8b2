import { inFlight } from '../load.ts'
import { sendAll } from '../load-client.ts'
import type { PlannedRequest } from '../planned-request.ts'
import { makeNotes, newDocument, pushBodies } from '../seed.ts'
import type { Bench, Figure, Trial } from '../trial.ts'

const DATABASES = 100
const IN_FLIGHT = 8
const CONNECTIONS = 32
const PER_BATCH = 100

/** Whether commits are shared within one database alone decides these figures. */
export const spread: Trial = {
  name: 'spread',
  about: `the requests of put, get and push, each to the next of ${DATABASES} databases`,
  isAlone: true,
  async run(bench) {
    const paths = await databases(bench)
    const pathOf = (n: number) => paths[n % paths.length] as string
    const { puts, gets, notes } = bench.scale
    const bodies = makeNotes(1000).map(newDocument)
    const put = Array.from({ length: puts }, (_, n): PlannedRequest => {
      return { method: 'PUT', path: `${pathOf(n)}/doc${n}`, body: bodies[n % bodies.length] as string }
    })
    const get = Array.from({ length: gets }, (_, n): PlannedRequest => {
      return { method: 'GET', path: `${pathOf(n)}/doc${n % puts}` }
    })
    const push = pushBodies(makeNotes(notes), PER_BATCH).map((body, n): PlannedRequest => {
      return { method: 'POST', path: `${pathOf(n)}/_bulk_docs`, body }
    })
    const load = { connections: CONNECTIONS, status: 201, unit: 'request', perRequest: 1 }
    return [
      ...(await figuresOf('put', bench, put, load)),
      ...(await figuresOf('get', bench, get, { ...load, status: 200 })),
      ...(await figuresOf('push', bench, push, { ...load, unit: 'doc', perRequest: PER_BATCH })),
    ]
  },
}

async function databases({ emptyDatabase }: Bench): Promise<string[]> {
  const paths: string[] = []
  const make = Array.from({ length: DATABASES }, () => async () => {
    paths.push(await emptyDatabase())
  })
  await inFlight(IN_FLIGHT, make)
  return paths
}

async function figuresOf(
  name: string,
  { peer }: Bench,
  requests: readonly PlannedRequest[],
  load: Parameters<typeof sendAll>[2],
): Promise<Figure[]> {
  const { rate, times, cpu } = await sendAll(peer, requests, load)
  return [rate, ...times, ...cpu].map((figure) => ({ ...figure, name: `${name}, ${figure.name}` }))
}
