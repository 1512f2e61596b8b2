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
