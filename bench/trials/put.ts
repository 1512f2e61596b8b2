import { sendAll } from '../load-client.ts'
import type { PlannedRequest } from '../planned-request.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { requireDocuments } from './push.ts'

const CONNECTIONS = 32
const LOAD = { connections: CONNECTIONS, status: 201, unit: 'request', perRequest: 1 }

export const put: Trial = {
  name: 'put',
  about: `new documents of 1 kB, one per PUT: ${CONNECTIONS} connections, then one alone`,
  async run({ peer, scale, emptyDatabase }) {
    const bodies = makeNotes(1000).map(newDocument)
    const requestsInto = (path: string, count: number): PlannedRequest[] =>
      Array.from({ length: count }, (_, n) => ({
        method: 'PUT',
        path: `${path}/doc${n}`,
        body: bodies[n % bodies.length] as string,
      }))
    await sendAll(peer, requestsInto(await emptyDatabase(), scale.puts / 10), LOAD)
    const path = await emptyDatabase()
    const { rate, times, cpu } = await sendAll(peer, requestsInto(path, scale.puts), LOAD)
    await requireDocuments(peer, path, scale.puts)
    const alone = await sendAll(peer, requestsInto(await emptyDatabase(), scale.puts / 10), {
      ...LOAD,
      connections: 1,
    })
    const figures = [...alone.times, ...alone.cpu].map((figure) => ({
      ...figure,
      name: `alone, ${figure.name}`,
    }))
    return [rate, ...times, ...cpu, ...figures]
  },
}
