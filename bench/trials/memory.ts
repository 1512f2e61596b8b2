import { setTimeout as delay } from 'node:timers/promises'
import { type Listener, listen } from '../listener.ts'
import { megabytes } from '../load.ts'
import type { Figure, Trial } from '../trial.ts'

const FEEDS = 2_000
const HEARTBEAT_MS = 10_000
const REST_MS = 3_000

export const memory: Trial = {
  name: 'memory',
  about: `resident memory after the other trials' first steps: at rest, and with ${FEEDS} idle continuous feeds`,
  isAlone: true,
  async run({ peer, emptyDatabase }) {
    const path = await emptyDatabase()
    await delay(REST_MS)
    const idle = await peer.memory()
    if (idle === null) return []
    const opening = Array.from({ length: FEEDS }, () => listen(peer, path, HEARTBEAT_MS))
    const feeds: Listener[] = await Promise.all(opening)
    try {
      await delay(REST_MS)
      const full = (await peer.memory()) ?? Number.NaN
      return [
        { name: 'idle', unit: 'MB', value: megabytes(idle) },
        { name: `${FEEDS} feeds add`, unit: 'MB', value: megabytes(full - idle) },
      ] satisfies Figure[]
    } finally {
      for (const feed of feeds) feed.close()
    }
  },
}
