import { posts, sendAll } from '../load-client.ts'
import { batches, type Note } from '../seed.ts'
import type { Trial } from '../trial.ts'

const PER_CALL = 100
const IN_FLIGHT = 4

export const diff: Trial = {
  name: 'diff',
  about: `_revs_diff, ${PER_CALL} ids per call, half of them missing, ${IN_FLIGHT} calls at a time`,
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const bodies = batches(notes, PER_CALL).map((some) =>
      JSON.stringify(Object.fromEntries(some.map(question))),
    )
    const address = `${path}/_revs_diff`
    const answer = await peer.call('POST', address, 200, bodies[0])
    const missing = Object.keys(JSON.parse(answer.toString()) as object).length
    if (missing !== PER_CALL / 2) throw new Error(`${peer.name} misses ${missing} of ${PER_CALL}`)
    const load = { connections: IN_FLIGHT, status: 200, unit: 'id', perRequest: PER_CALL }
    await sendAll(peer, posts(address, bodies, scale.diffs / 10), load)
    const { rate, cpu } = await sendAll(peer, posts(address, bodies, scale.diffs), load)
    return [rate, ...cpu]
  },
}

/** Half of the revisions are stored; the others are edits from elsewhere. */
function question({ _id, _rev }: Note, n: number): [id: string, revs: string[]] {
  return [_id, [n % 2 === 0 ? _rev : `4-${'e'.repeat(32)}`]]
}
