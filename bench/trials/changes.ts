import { rowFigures } from '../load-client.ts'
import type { Trial } from '../trial.ts'

export const changes: Trial = {
  name: 'changes',
  about: 'the whole feed in one call, style=all_docs',
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const address = `${path}/_changes?style=all_docs`
    const first = JSON.parse((await peer.call('GET', address, 200)).toString()) as { results: unknown[] }
    if (first.results.length !== notes.length)
      throw new Error(`${peer.name} has ${first.results.length} rows`)
    return rowFigures(peer, address, { rounds: scale.rounds, rows: notes.length })
  },
}
