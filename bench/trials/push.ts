import { inFlight, withCpu } from '../load.ts'
import type { Peer } from '../peer.ts'
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
    const { result: seconds, cpu } = await withCpu(peer, notes.length, 'doc', () =>
      pushNotes(peer, path, notes),
    )
    return [{ name: 'documents', unit: 'docs/s', value: notes.length / seconds }, ...cpu]
  },
}

/**
 * Pushes notes into an empty database like a replicator. Making the bodies and counting the documents are not measured.
 * @returns seconds
 * @throws when a document is refused or missing
 */
export async function pushNotes(peer: Peer, path: string, notes: readonly Note[]): Promise<number> {
  const jobs = pushBodies(notes, PER_BATCH).map((body) => async () => {
    const answer = (await peer.call('POST', `${path}/_bulk_docs`, 201, body)).toString().trim()
    if (answer !== '[]') throw new Error(`${peer.name} refused notes: ${answer.slice(0, 300)}`)
  })
  const seconds = await inFlight(IN_FLIGHT, jobs)
  await requireDocuments(peer, path, notes.length)
  return seconds
}

/** @throws when the database has another number of documents */
export async function requireDocuments(peer: Peer, path: string, count: number): Promise<void> {
  const { doc_count: found } = JSON.parse((await peer.call('GET', path, 200)).toString()) as {
    doc_count: number
  }
  if (found !== count) throw new Error(`${peer.name} has ${found} of ${count} documents in ${path}`)
}
