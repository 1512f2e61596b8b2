import { setTimeout as delay } from 'node:timers/promises'
import { type Listener, listen } from '../listener.ts'
import { megabytes } from '../load.ts'
import type { Figure, Trial } from '../trial.ts'

const FEEDS = 2_000
const AT_ONCE = 50
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
    const feeds: Listener[] = []
    try {
      while (feeds.length < FEEDS) {
        feeds.push(...(await Promise.all(Array.from({ length: AT_ONCE }, () => listen(peer, path)))))
      }
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
