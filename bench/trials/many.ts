import { readdir } from 'node:fs/promises'
import { inFlight, megabytes } from '../load.ts'
import type { Trial } from '../trial.ts'

const IN_FLIGHT = 8

export const many: Trial = {
  name: 'many',
  about: 'many small databases, created and then written to in turn',
  isAlone: true,
  async run({ peer, scale, emptyDatabase }) {
    const paths: string[] = []
    const make = Array.from({ length: scale.databases }, () => async () => {
      paths.push(await emptyDatabase())
    })
    const made = await inFlight(IN_FLIGHT, make)
    const save = paths.map((path) => () => peer.call('PUT', `${path}/doc`, 201, '{"a":1}'))
    const saved = await inFlight(IN_FLIGHT, save)
    const [bytes, files] = [await peer.memory(), await openFiles(peer.pid)]
    const figures = [
      { name: 'made', unit: 'dbs/s', value: paths.length / made },
      { name: 'written to in turn', unit: 'dbs/s', value: paths.length / saved },
    ]
    if (bytes === null || files === null) return figures
    return [
      ...figures,
      { name: 'memory', unit: 'MB', value: megabytes(bytes) },
      { name: 'open files', unit: '', value: files },
    ]
  },
}

async function openFiles(pid: number | undefined): Promise<number | null> {
  return pid === undefined ? null : (await readdir(`/proc/${pid}/fd`)).length
}
