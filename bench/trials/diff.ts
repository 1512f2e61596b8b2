import { inFlight, withCpu } from '../load.ts'
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
    const job = (body: string) => async () => {
      const answer = await peer.call('POST', `${path}/_revs_diff`, 200, body)
      const missing = Object.keys(JSON.parse(answer.toString()) as object).length
      if (missing !== PER_CALL / 2) throw new Error(`${peer.name} misses ${missing} of ${PER_CALL}`)
    }
    const jobs = (calls: number) =>
      Array.from({ length: calls }, (_, n) => job(bodies[n % bodies.length] as string))
    await inFlight(IN_FLIGHT, jobs(scale.diffs / 10))
    const count = scale.diffs * PER_CALL
    const { result: seconds, cpu } = await withCpu(peer, count, 'id', () =>
      inFlight(IN_FLIGHT, jobs(scale.diffs)),
    )
    return [{ name: 'ids', unit: 'ids/s', value: count / seconds }, ...cpu]
  },
}

/** Half of the revisions are stored; the others are edits from elsewhere. */
function question({ _id, _rev }: Note, n: number): [id: string, revs: string[]] {
  return [_id, [n % 2 === 0 ? _rev : `4-${'e'.repeat(32)}`]]
}
