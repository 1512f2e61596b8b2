import { createHash } from 'node:crypto'
import { medianOf, percentileOf } from '../load.ts'
import type { Trial } from '../trial.ts'

const LEAVES = 200
const GENERATIONS = 1000
const SAVES = 200

const idOf = (text: string) => createHash('md5').update(text).digest('hex')

export const conflicts: Trial = {
  name: 'conflicts',
  about: `saves of a document with ${LEAVES} conflicts of ${GENERATIONS} revisions each`,
  async run({ peer, emptyDatabase }) {
    const path = await emptyDatabase()
    for (let leaf = 0; leaf < LEAVES; leaf++) {
      await peer.call(
        'POST',
        `${path}/_bulk_docs`,
        201,
        JSON.stringify({ new_edits: false, docs: [branch(leaf)] }),
      )
    }
    const times: number[] = []
    let rev = JSON.parse((await peer.call('GET', `${path}/doc`, 200)).toString())._rev as string
    for (let n = 0; n < SAVES; n++) {
      const body = JSON.stringify({ _rev: rev, n })
      const began = performance.now()
      const answer = await peer.call('PUT', `${path}/doc`, 201, body)
      times.push(performance.now() - began)
      rev = (JSON.parse(answer.toString()) as { rev: string }).rev
    }
    return [
      { name: 'save, median', unit: 'ms', value: medianOf(times) },
      { name: 'save, 99% within', unit: 'ms', value: percentileOf(times, 0.99) },
    ]
  },
}

/** One of the branches, which share no revision. */
function branch(leaf: number): object {
  const ids = Array.from({ length: GENERATIONS }, (_, back) => idOf(`${leaf} ${GENERATIONS - back}`))
  return { _id: 'doc', _rev: `${GENERATIONS}-${ids[0]}`, _revisions: { start: GENERATIONS, ids }, leaf }
}
