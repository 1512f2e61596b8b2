import { cannonade, type Shot } from '../load.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { requireDocuments } from './push.ts'

const CONNECTIONS = 32

export const put: Trial = {
  name: 'put',
  about: `new documents of 1 kB, one per PUT, ${CONNECTIONS} connections`,
  async run({ peer, scale, emptyDatabase }) {
    const bodies = makeNotes(1000).map(newDocument)
    const shotsInto = (path: string, count: number): Shot[] =>
      Array.from({ length: count }, (_, n) => ({
        method: 'PUT',
        path: `${path}/doc${n}`,
        body: bodies[n % bodies.length] as string,
      }))
    const settings = { connections: CONNECTIONS, status: 201 }
    await cannonade(peer, shotsInto(await emptyDatabase(), scale.puts / 10), settings)
    const path = await emptyDatabase()
    const figures = await cannonade(peer, shotsInto(path, scale.puts), settings)
    await requireDocuments(peer, path, scale.puts)
    return figures
  },
}
