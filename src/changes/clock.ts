/** Time as feeds see it, so that tests can hold it still. */
export interface Clock {
  /** Milliseconds that only ever grow. */
  now(): number
  /** Calls back once. @returns a function that takes the call back */
  after(ms: number, call: () => void): () => void
}

export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, call) {
    const timer = setTimeout(call, ms)
    return () => clearTimeout(timer)
  },
}
