import { makeNotes } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { pushNotes, requireDocuments } from './push.ts'

export const replicate: Trial = {
  name: 'replicate',
  about: "the server's own replicator copies notes to an empty database, over HTTP at both ends",
  async run({ peer, scale, emptyDatabase }) {
    const source = await emptyDatabase()
    const target = await emptyDatabase()
    const notes = makeNotes(scale.notes)
    await pushNotes(peer, source, notes)
    const body = JSON.stringify({ source: `${peer.address}${source}`, target: `${peer.address}${target}` })
    const since = performance.now()
    await peer.call('POST', '/_replicate', 200, body)
    const seconds = (performance.now() - since) / 1000
    await requireDocuments(peer, target, notes.length)
    return [{ name: 'rate', unit: 'doc/s', value: notes.length / seconds }]
  },
}
