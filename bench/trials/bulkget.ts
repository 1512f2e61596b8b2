import { posts, sendAll } from '../load-client.ts'
import { batches } from '../seed.ts'
import type { Trial } from '../trial.ts'

const PER_CALL = 100
const IN_FLIGHT = 4

export const bulkget: Trial = {
  name: 'bulkget',
  about: `_bulk_get with revs=true, ${PER_CALL} documents per call, ${IN_FLIGHT} calls at a time`,
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const bodies = batches(notes, PER_CALL).map((some) =>
      JSON.stringify({ docs: some.map(({ _id, _rev }) => ({ id: _id, rev: _rev })) }),
    )
    const address = `${path}/_bulk_get?revs=true&latest=true`
    const answer = await peer.call('POST', address, 200, bodies[0])
    const found = answer.toString('latin1').split('"_revisions"').length - 1
    if (found !== PER_CALL) throw new Error(`${peer.name} has ${found} of ${PER_CALL} documents`)
    const load = { connections: IN_FLIGHT, status: 200, unit: 'doc', perRequest: PER_CALL }
    await sendAll(peer, posts(address, bodies, scale.diffs / 10), load)
    const { rate, cpu } = await sendAll(peer, posts(address, bodies, scale.diffs), load)
    return [rate, ...cpu]
  },
}
