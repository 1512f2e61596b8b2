import { rowFigures } from '../load-client.ts'
import type { Trial } from '../trial.ts'

export const alldocs: Trial = {
  name: 'alldocs',
  about: 'all documents in one call, include_docs=true',
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const address = `${path}/_all_docs?include_docs=true`
    const first = JSON.parse((await peer.call('GET', address, 200)).toString()) as {
      rows: { doc?: object }[]
    }
    const found = first.rows.filter(({ doc }) => doc).length
    if (found !== notes.length) throw new Error(`${peer.name} has ${found} documents`)
    return rowFigures(peer, address, { rounds: scale.rounds, rows: notes.length })
  },
}
