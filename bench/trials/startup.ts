/** The time from a start to the first answer, on an empty folder and on one with many databases. */
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inFlight, medianOf } from '../load.ts'
import { startOn } from '../own-server.ts'
import type { Trial } from '../trial.ts'

const STARTS = 5
const IN_FLIGHT = 8

export const startup: Trial = {
  name: 'startup',
  about:
    'time from start to first answer: first start, second start, and with many databases, which are then read in turn',
  isAlone: true,
  async run({ scale }) {
    const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
    try {
      const first = await startOn(folder)
      await first.peer.call('PUT', '/db0', 201)
      await first.peer.call('PUT', '/db0/doc', 201, '{"a":1}')
      await first.end('SIGTERM')
      const again = await starts(folder)
      const file = (n: number) => join(folder, 'databases', `db${n}.sqlite`)
      for (let n = 1; n < scale.databases; n++) await copyFile(file(0), file(n))
      const adopting = await startOn(folder)
      await adopting.end('SIGTERM')
      const many = await starts(folder)
      const server = await startOn(folder)
      const asks = Array.from(
        { length: scale.databases },
        (_, n) => () => server.peer.call('GET', `/db${n}/doc`, 200),
      )
      const seconds = await inFlight(IN_FLIGHT, asks)
      await server.end('SIGTERM')
      return [
        { name: 'first start', unit: 'ms', value: first.startMs },
        { name: 'start', unit: 'ms', value: again },
        { name: `first start with ${scale.databases} databases`, unit: 'ms', value: adopting.startMs },
        { name: `start with ${scale.databases} databases`, unit: 'ms', value: many },
        { name: 'a document of each', unit: 'dbs/s', value: scale.databases / seconds },
      ]
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
}

async function starts(folder: string): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < STARTS; n++) {
    const server = await startOn(folder)
    times.push(server.startMs)
    await server.end('SIGTERM')
  }
  return medianOf(times)
}
