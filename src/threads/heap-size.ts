/** The memory of JavaScript on one thread: what it takes, and what it may take. */
import { totalmem } from 'node:os'
import { getHeapStatistics } from 'node:v8'

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
