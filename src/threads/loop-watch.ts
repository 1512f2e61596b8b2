/** How late an event loop serves what is due: what everything on its thread waits behind other work. */
import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks'

/** Seconds of delay since somebody last asked. */
export interface LoopDelay {
  readonly mean: number
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** How often the delay is measured; what is shorter than that is not seen. */
const RESOLUTION_MS = 20
/** When nobody has asked for so long, nothing is measured any more: a server that rests shall rest. */
const FORGOTTEN_MS = 10 * 60_000

export class LoopWatch {
  #histogram: ELDHistogram | undefined
  #forget: NodeJS.Timeout | undefined
  #isClosed = false

  /** The delay of this thread's loop since the last call; null at the first, which begins the measurement. */
  read(): LoopDelay | null {
    if (this.#isClosed) return null
    this.#forget ??= setTimeout(() => this.#stop(), FORGOTTEN_MS).unref()
    this.#forget.refresh()
    if (this.#histogram === undefined) {
      this.#histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
      this.#histogram.enable()
      return null
    }
    const delay = delayOf(this.#histogram)
    this.#histogram.reset()
    return delay
  }

  #stop(): void {
    this.#histogram?.disable()
    this.#histogram = undefined
    clearTimeout(this.#forget)
    this.#forget = undefined
  }

  /** Measures nothing from now on. Idempotent. */
  close(): void {
    this.#isClosed = true
    this.#stop()
  }
}

/** Node counts from one measurement to the next, so that what is on time counts as the resolution. */
function delayOf(histogram: ELDHistogram): LoopDelay | null {
  if (histogram.count === 0) return null
  const seconds = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - RESOLUTION_MS / 1000)
  return {
    mean: seconds(histogram.mean),
    p50: seconds(histogram.percentile(50)),
    p99: seconds(histogram.percentile(99)),
    max: seconds(histogram.max),
  }
}
