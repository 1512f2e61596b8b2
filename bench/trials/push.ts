import { inFlight } from '../load.ts'
import type { Peer } from '../peer.ts'
import { makeNotes, type Note, pushBodies } from '../seed.ts'
import type { Trial } from '../trial.ts'

const PER_BATCH = 100
const IN_FLIGHT = 4

export const push: Trial = {
  name: 'push',
  about: `_bulk_docs with new_edits=false, ${PER_BATCH} notes of 1 kB with 3 revisions, ${IN_FLIGHT} in flight`,
  async run({ peer, scale, emptyDatabase }) {
    const notes = makeNotes(scale.notes)
    await pushNotes(peer, await emptyDatabase(), notes.slice(0, scale.notes / 10))
    const seconds = await pushNotes(peer, await emptyDatabase(), notes)
    return [{ name: 'documents', unit: 'docs/s', value: notes.length / seconds }]
  },
}

/**
 * Pushes notes as a replicator does, the bodies made before the clock starts.
 * @returns seconds
 * @throws when a document is refused
 */
export async function pushNotes(peer: Peer, path: string, notes: readonly Note[]): Promise<number> {
  const jobs = pushBodies(notes, PER_BATCH).map((body) => async () => {
    const answer = (await peer.call('POST', `${path}/_bulk_docs`, 201, body)).toString().trim()
    if (answer !== '[]') throw new Error(`${peer.name} refuses notes: ${answer.slice(0, 300)}`)
  })
  return inFlight(IN_FLIGHT, jobs)
}
