import { inFlight, withCpu } from '../load.ts'
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
    const job = (body: string) => async () => {
      const answer = await peer.call('POST', `${path}/_bulk_get?revs=true&latest=true`, 200, body)
      const found = answer.toString('latin1').split('"_revisions"').length - 1
      if (found !== PER_CALL) throw new Error(`${peer.name} has ${found} of ${PER_CALL} documents`)
    }
    const jobs = (calls: number) =>
      Array.from({ length: calls }, (_, n) => job(bodies[n % bodies.length] as string))
    await inFlight(IN_FLIGHT, jobs(scale.diffs / 10))
    const count = scale.diffs * PER_CALL
    const { result: seconds, cpu } = await withCpu(peer, count, 'doc', () =>
      inFlight(IN_FLIGHT, jobs(scale.diffs)),
    )
    return [{ name: 'documents', unit: 'docs/s', value: count / seconds }, ...cpu]
  },
}
