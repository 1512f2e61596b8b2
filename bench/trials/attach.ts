import { createHash, randomBytes } from 'node:crypto'
import { inFlight } from '../load.ts'
import type { Trial } from '../trial.ts'

const BYTES = 1_000_000
const IN_FLIGHT = 4

export const attach: Trial = {
  name: 'attach',
  about: `uploads and then downloads of 1 MB attachments, one per document, ${IN_FLIGHT} at a time`,
  async run({ peer, scale, emptyDatabase }) {
    const path = await emptyDatabase()
    const contents = Array.from({ length: scale.attachments }, () => randomBytes(BYTES))
    const digests = contents.map(digestOf)
    const up = contents.map((content, n) => async () => {
      await peer.call('PUT', `${path}/doc${n}/file.bin`, 201, content, 'application/octet-stream')
    })
    const arrived: Buffer[] = []
    const down = contents.map((_, n) => async () => {
      arrived[n] = await peer.call('GET', `${path}/doc${n}/file.bin`, 200)
    })
    const [upward, downward] = [await inFlight(IN_FLIGHT, up), await inFlight(IN_FLIGHT, down)]
    if (arrived.some((content, n) => digestOf(content) !== digests[n])) {
      throw new Error(`${peer.name} returned wrong bytes`)
    }
    const megabytes = (contents.length * BYTES) / 1e6
    return [
      { name: 'up', unit: 'MB/s', value: megabytes / upward },
      { name: 'down', unit: 'MB/s', value: megabytes / downward },
    ]
  },
}

function digestOf(content: Uint8Array): string {
  return createHash('md5').update(content).digest('base64')
}
