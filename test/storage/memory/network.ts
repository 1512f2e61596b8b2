/** How an opener reaches the state in memory: at once, or as over a network. */
import { setImmediate as turn } from 'node:timers/promises'

export interface Network {
  /** Whether several openers share the state. */
  readonly isShared: boolean
  /** The way of a call to the state. */
  ask(): Promise<void>
  /** The way of an answer back; undefined if it takes no time. */
  answer(): Promise<void> | undefined
  /** Tells an opener of another's change: late, perhaps with other changes, perhaps never. */
  notify(deliver: () => void): void
  /** Calls `deliver` as often as an opener asks for changes. @returns a function that ends it */
  poll(deliver: () => void): () => void
}

/** One opener in the same process. */
export const LOCAL: Network = {
  isShared: false,
  ask: turn,
  answer: () => undefined,
  notify: () => undefined,
  poll: () => () => undefined,
}

/** How a shared state is reached, and by which faults tests show that they find them. */
export interface SharedNetworkOptions {
  /** The share of notices that are lost; by default a fifth. */
  readonly lost?: number
  /** How often openers ask, in ms; null: never. */
  readonly pollMs?: number | null
}

/** The longest delays: of a call, in turns of the event loop; of a notice, in ms. */
const MAX_TURNS = 6
const MAX_NOTICE_MS = 12

/** Openers that are some round trips apart. */
export function sharedNetwork({ lost = 0.2, pollMs = 25 }: SharedNetworkOptions = {}): Network {
  const trip = async () => {
    for (let left = Math.floor(Math.random() * MAX_TURNS); left >= 0; left--) await turn()
  }
  return {
    isShared: true,
    ask: trip,
    answer: trip,
    notify: (deliver) => {
      if (Math.random() >= lost) setTimeout(deliver, Math.random() * MAX_NOTICE_MS).unref()
    },
    poll: (deliver) => {
      if (pollMs === null) return () => undefined
      const timer = setInterval(deliver, pollMs).unref()
      return () => clearInterval(timer)
    },
  }
}
