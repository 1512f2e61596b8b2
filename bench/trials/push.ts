import { inFlight } from '../load.ts'
import { sendAll } from '../load-client.ts'
import type { Peer } from '../peer.ts'
import type { PlannedRequest } from '../planned-request.ts'
import { makeNotes, type Note, pushBodies } from '../seed.ts'
import type { Trial } from '../trial.ts'

const PER_BATCH = 100
const IN_FLIGHT = 4

export const push: Trial = {
  name: 'push',
  about: `_bulk_docs with new_edits=false, ${PER_BATCH} notes of 1 kB with 3 revisions, ${IN_FLIGHT} calls at a time`,
  async run({ peer, scale, emptyDatabase }) {
    const notes = makeNotes(scale.notes)
    await pushNotes(peer, await emptyDatabase(), notes.slice(0, scale.notes / 10))
    const path = await emptyDatabase()
    const requests = pushBodies(notes, PER_BATCH).map((body): PlannedRequest => {
      return { method: 'POST', path: `${path}/_bulk_docs`, body }
    })
    const load = { connections: IN_FLIGHT, status: 201, unit: 'doc', perRequest: PER_BATCH }
    const { rate, cpu } = await sendAll(peer, requests, load)
    await requireDocuments(peer, path, notes.length)
    return [rate, ...cpu]
  },
}

/**
 * Pushes notes into an empty database like a replicator.
 * @throws when a document is refused or missing
 */
export async function pushNotes(peer: Peer, path: string, notes: readonly Note[]): Promise<void> {
  const jobs = pushBodies(notes, PER_BATCH).map((body) => async () => {
    const answer = (await peer.call('POST', `${path}/_bulk_docs`, 201, body)).toString().trim()
    if (answer !== '[]') throw new Error(`${peer.name} refused notes: ${answer.slice(0, 300)}`)
  })
  await inFlight(IN_FLIGHT, jobs)
  await requireDocuments(peer, path, notes.length)
}

/** @throws when the database has another number of documents */
export async function requireDocuments(peer: Peer, path: string, count: number): Promise<void> {
  const { doc_count: found } = JSON.parse((await peer.call('GET', path, 200)).toString()) as {
    doc_count: number
  }
  if (found !== count) throw new Error(`${peer.name} has ${found} of ${count} documents in ${path}`)
}
