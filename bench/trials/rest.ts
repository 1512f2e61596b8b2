import { setTimeout as delay } from 'node:timers/promises'
import { medianOf, megabytes } from '../load.ts'
import { sendAll } from '../load-client.ts'
import type { PlannedRequest } from '../planned-request.ts'
import type { Note } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'

const BURST = 200
const LOAD = { connections: 4, status: 200, unit: 'request', perRequest: 1 }
/** Bursts before the first pause. */
const WARMING = 50

/** A server in a cupboard rests most of the time: what the next requests cost, and what the pause itself does. */
export const rest: Trial = {
  name: 'rest',
  about: `bursts of ${BURST} GETs: one after the other, and after pauses in which nothing happens`,
  isAlone: true,
  async run({ peer, scale, seeded }) {
    const { path, notes } = await seeded()
    const requests = Array.from({ length: BURST }, (_, n): PlannedRequest => {
      const { _id } = notes[n % notes.length] as Note
      return { method: 'GET', path: `${path}/${encodeURIComponent(_id)}` }
    })
    const burst = async () => (await sendAll(peer, requests, LOAD)).cpu[0]?.value ?? Number.NaN
    for (let n = 0; n < WARMING; n++) await burst()
    const figures: Figure[] = [await repeated('warm', scale.rounds, burst)]
    for (const seconds of scale.rests) {
      const name = `after ${seconds} s`
      const pauses: number[] = []
      const resting: number[] = []
      figures.push(
        await repeated(name, scale.rounds, async () => {
          const before = peer.cpuSeconds()
          await delay(seconds * 1000)
          const after = peer.cpuSeconds()
          if (before !== null && after !== null) pauses.push((after - before) * 1000)
          const memory = await peer.memory()
          if (memory !== null) resting.push(megabytes(memory))
          const used = await burst()
          for (let n = 0; n < WARMING; n++) await burst()
          return used
        }),
        { name: `${name}, CPU of the pause`, unit: 'ms', value: medianOf(pauses) },
        { name: `${name}, memory`, unit: 'MB', value: medianOf(resting) },
      )
    }
    return figures
  },
}

/** @returns the mean, since the CPU time of one burst is known to 10 ms alone */
async function repeated(name: string, rounds: number, burst: () => Promise<number>): Promise<Figure> {
  let sum = 0
  for (let round = 0; round < rounds; round++) sum += await burst()
  return { name: `${name}, CPU`, unit: 'us/request', value: sum / rounds }
}
