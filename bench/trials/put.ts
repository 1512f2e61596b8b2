import { type PlannedRequest, sendWithAutocannon } from '../load.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { requireDocuments } from './push.ts'

const CONNECTIONS = 32

export const put: Trial = {
  name: 'put',
  about: `new documents of 1 kB, one per PUT, ${CONNECTIONS} connections`,
  async run({ peer, scale, emptyDatabase }) {
    const bodies = makeNotes(1000).map(newDocument)
    const requestsInto = (path: string, count: number): PlannedRequest[] =>
      Array.from({ length: count }, (_, n) => ({
        method: 'PUT',
        path: `${path}/doc${n}`,
        body: bodies[n % bodies.length] as string,
      }))
    const settings = { connections: CONNECTIONS, status: 201 }
    await sendWithAutocannon(peer, requestsInto(await emptyDatabase(), scale.puts / 10), settings)
    const path = await emptyDatabase()
    const figures = await sendWithAutocannon(peer, requestsInto(path, scale.puts), settings)
    await requireDocuments(peer, path, scale.puts)
    return figures
  },
}
