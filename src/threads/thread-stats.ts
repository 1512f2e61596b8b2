/** What a database thread tells of itself when it is asked. */
import { totalmem } from 'node:os'
import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import { getHeapStatistics } from 'node:v8'
import type { FunctionCounts } from '../sandbox/sandbox-client.ts'
import type { CommitCounts } from '../storage/upkeep.ts'

/** A thread's own words. */
export interface ThreadStats {
  /** What was counted since the thread began. */
  readonly commits: CommitCounts
  readonly functions: FunctionCounts
  /** As it is now: databases held open, calls that wait for their database's turn, bytes of the thread's own heap. */
  readonly openDatabases: number
  readonly waitingCalls: number
  /** Calls of functions that wait for a sandbox thread or are at work there. */
  readonly functionCalls: number
  readonly heap: HeapSize
  readonly delay: LoopDelay | null
}

/** A database thread as the HTTP thread sees it. What is counted never falls, though threads die and others follow. */
export interface ThreadReport {
  /** From 1. */
  readonly number: number
  /** Whether it has answered in time; if not, what it told last is told again. */
  readonly isAnswering: boolean
  /** Databases that are its to serve, open or not. */
  readonly databases: number
  /** Calls and streams that were asked of it and are not over. */
  readonly calls: number
  /** Seconds that its event loop was not waiting for anything, since the server began. */
  readonly busySeconds: number
  /** null: it has never answered. */
  readonly stats: ThreadStats | null
}

// How late an event loop serves what is due: what everything on its thread waits behind other work.

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

// The memory of JavaScript on one thread: what it takes, and what it may take.

/** The memory of JavaScript on one thread, in bytes. */
export interface HeapSize {
  readonly total: number
  readonly used: number
  /** Buffers, and what else objects hold outside the heap. */
  readonly external: number
}

/** That of the calling thread. */
export function heapSize(): HeapSize {
  const { total_heap_size, used_heap_size, external_memory } = getHeapStatistics()
  return { total: total_heap_size, used: used_heap_size, external: external_memory }
}

/** The least and the most that a database thread may take where nothing is configured, in bytes. */
const LEAST_LIMIT = 256 * 1024 * 1024
const MOST_LIMIT = 512 * 1024 * 1024

/**
 * How large the old generation of a database thread's heap may grow, in bytes; V8 ends a thread that needs more.
 * @param configured `settee/thread_heap`; null: a quarter of the machine's memory, or of the container's, within bounds
 * @param memory bytes of the machine
 */
export function heapLimit(configured: number | null, memory: number = availableMemory()): number {
  return configured ?? Math.min(MOST_LIMIT, Math.max(LEAST_LIMIT, memory / 4))
}

function availableMemory(): number {
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
