/** The statistics of a database thread. */
import { totalmem } from 'node:os'
import { type ELDHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import { getHeapStatistics } from 'node:v8'
import type { Limits } from '../core/types.ts'
import type { FunctionCounts } from '../sandbox/sandbox-client.ts'
import { slotsWithin } from '../sandbox/slot-table.ts'
import type { CommitCounts } from '../storage/upkeep.ts'

/** The statistics as the thread reports them. */
export interface ThreadStats {
  /** Counters since the thread started. */
  readonly commits: CommitCounts
  readonly functions: FunctionCounts
  readonly unindexedQueries: number
  /** Current values: open databases, calls that wait for their turn, bytes of the thread's heap. */
  readonly openDatabases: number
  readonly waitingCalls: number
  /** Calls of functions that wait for a sandbox thread or run there. */
  readonly functionCalls: number
  readonly heap: HeapSize
  readonly delay: LoopDelay | null
}

/** A database thread as the HTTP thread sees it. Counters never decrease, even when a thread dies and is replaced. */
export interface ThreadReport {
  /** From 1. */
  readonly number: number
  /** Whether the thread has answered in time; if not, the report repeats its last values. */
  readonly isAnswering: boolean
  /** Calls and streams under way. */
  readonly calls: number
  /** Seconds that its event loop was busy, since the server started. */
  readonly busySeconds: number
  /** null if it has never answered. */
  readonly stats: ThreadStats | null
}

/** The delay of an event loop since the last reading, in seconds: how late it runs timers. */
export interface LoopDelay {
  readonly mean: number
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** How often the delay is measured; shorter delays go unnoticed. */
const RESOLUTION_MS = 20
/** The measurement stops after this time without a reading, so that an idle server stays idle. */
const STOP_AFTER_MS = 10 * 60_000

export class LoopWatch {
  #histogram: ELDHistogram | undefined
  #stopTimer: NodeJS.Timeout | undefined
  #isClosed = false

  /**
   * The delay of this thread's loop since the last reading. The first reading starts the measurement and gives null.
   */
  read(): LoopDelay | null {
    if (this.#isClosed) return null
    this.#stopTimer ??= setTimeout(() => this.#stop(), STOP_AFTER_MS).unref()
    this.#stopTimer.refresh()
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
    clearTimeout(this.#stopTimer)
    this.#stopTimer = undefined
  }

  /** Stops measuring. Idempotent. */
  close(): void {
    this.#isClosed = true
    this.#stop()
  }
}

/** Node counts the time between two measurements, so the resolution is subtracted. */
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

/** The memory of JavaScript on one thread, in bytes. */
export interface HeapSize {
  readonly total: number
  readonly used: number
  /** Buffers and other memory that objects hold outside the heap. */
  readonly external: number
}

/** The memory of the calling thread. */
export function heapSize(): HeapSize {
  const { total_heap_size, used_heap_size, external_memory } = getHeapStatistics()
  return { total: total_heap_size, used: used_heap_size, external: external_memory }
}

const MIB = 1024 * 1024
/** The bounds of the default heap limit of a database thread, in bytes. */
const MIN_LIMIT = 256 * MIB
const MAX_LIMIT = 512 * MIB

/**
 * The limit of the old generation of a database thread's heap, in bytes; V8 ends a thread that needs more.
 * @param configured `settee/thread_heap`; null for a quarter of the memory of the machine or container, within bounds
 * @param memory bytes of the machine
 */
export function heapLimit(configured: number | null, memory: number = availableMemory()): number {
  return configured ?? Math.min(MAX_LIMIT, Math.max(MIN_LIMIT, memory / 4))
}

/** The least and the most bytes for the threads of functions, unless they are configured. */
const MIN_SANDBOXES = 384 * MIB
const MAX_SANDBOXES = 1024 * MIB

/** @param memory bytes of the machine @returns how many threads may run functions of design documents */
export function sandboxThreads(
  { sandboxMemory, functionMemory }: Pick<Limits, 'sandboxMemory' | 'functionMemory'>,
  memory: number = availableMemory(),
): number {
  const total = sandboxMemory ?? Math.min(MAX_SANDBOXES, Math.max(MIN_SANDBOXES, memory / 4))
  return slotsWithin(total, functionMemory)
}

function availableMemory(): number {
  const constrained = process.constrainedMemory()
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
}
