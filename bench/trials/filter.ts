import { medianSeconds } from '../load.ts'
import { makeNotes, type Note } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { pushNotes } from './push.ts'

/** One document in this many is a file, which a phone leaves out. */
const FILES = 5
const DESIGN = JSON.stringify({
  filters: { sync: "function (doc, req) { return doc._id.indexOf('file:') === -1 }" },
})

export const filter: Trial = {
  name: 'filter',
  about: 'the whole feed through filter=mobile/sync, which leaves out every fifth document',
  async run({ peer, scale, emptyDatabase }) {
    const path = await emptyDatabase()
    const notes = makeNotes(scale.filtered).map((note, n): Note => {
      return n % FILES === 0 ? { ...note, _id: `file:${note._id}` } : note
    })
    await pushNotes(peer, path, notes)
    await peer.call('PUT', `${path}/_design/mobile`, 201, DESIGN)
    const wanted = notes.filter((_, n) => n % FILES !== 0).length + 1
    const read = async () => {
      const answer = await peer.call('GET', `${path}/_changes?filter=mobile/sync`, 200)
      const { results } = JSON.parse(answer.toString()) as { results: unknown[] }
      if (results.length !== wanted)
        throw new Error(`${peer.name} returned ${results.length} of ${wanted} documents`)
    }
    const seconds = await medianSeconds(Math.ceil(scale.rounds / 2), read)
    return [{ name: 'documents', unit: 'docs/s', value: notes.length / seconds }]
  },
}
