import { medianSeconds, withCpu } from '../load.ts'
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
    // medianSeconds calls once more, to warm up.
    const rows = (scale.rounds + 1) * notes.length
    const { result: seconds, cpu } = await withCpu(peer, rows, 'row', () =>
      medianSeconds(scale.rounds, () => peer.call('GET', address, 200)),
    )
    return [{ name: 'rows', unit: 'rows/s', value: notes.length / seconds }, ...cpu]
  },
}
