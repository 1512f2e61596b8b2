import { type Listener, listen } from '../listener.ts'
import { medianOf, percentileOf } from '../load.ts'
import { makeNotes, newDocument } from '../seed.ts'
import type { Trial } from '../trial.ts'

const FEEDS = 100
const HEARTBEAT_MS = 2_000

export const fanout: Trial = {
  name: 'fanout',
  about: `one PUT at a time, from the call to the last line on ${FEEDS} continuous feeds`,
  async run({ peer, scale, emptyDatabase }) {
    const path = await emptyDatabase()
    const bodies = makeNotes(scale.fanouts).map(newDocument)
    const opening = Array.from({ length: FEEDS }, () => listen(peer, path, HEARTBEAT_MS))
    const feeds: Listener[] = await Promise.all(opening)
    try {
      const times: number[] = []
      for (const [n, body] of bodies.entries()) {
        const since = performance.now()
        const heard = feeds.map((feed) => feed.row(`doc${n}`))
        await Promise.all([peer.call('PUT', `${path}/doc${n}`, 201, body), ...heard])
        times.push(performance.now() - since)
      }
      // The first calls warm up the code.
      const warm = times.slice(Math.ceil(times.length / 10))
      return [
        { name: 'median', unit: 'ms', value: medianOf(warm) },
        { name: '99% within', unit: 'ms', value: percentileOf(warm, 0.99) },
      ]
    } finally {
      for (const feed of feeds) feed.close()
    }
  },
}
