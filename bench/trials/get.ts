import { sendAll } from '../load-client.ts'
import type { PlannedRequest } from '../planned-request.ts'
import { mulberry32, type Note } from '../seed.ts'
import type { Trial } from '../trial.ts'

const CONNECTIONS = 32
const LOAD = { connections: CONNECTIONS, status: 200, unit: 'request', perRequest: 1 }

export const get: Trial = {
  name: 'get',
  about: `documents by id, in random order, ${CONNECTIONS} connections`,
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const random = mulberry32(1)
    const plannedRequests = (count: number): PlannedRequest[] =>
      Array.from({ length: count }, () => {
        const { _id } = notes[Math.floor(random() * notes.length)] as Note
        return { method: 'GET', path: `${path}/${encodeURIComponent(_id)}` }
      })
    await sendAll(peer, plannedRequests(scale.gets / 10), LOAD)
    const { rate, times, cpu } = await sendAll(peer, plannedRequests(scale.gets), LOAD)
    return [rate, ...times, ...cpu]
  },
}
