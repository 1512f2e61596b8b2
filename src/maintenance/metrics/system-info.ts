/** What CouchDB tells at `_system` of Erlang's machine, of it what has a meaning for Node's; protocol.md 15. */
import type { Measurements } from './measurements.ts'

export interface SystemInfo {
  /** Seconds. */
  readonly uptime: number
  /** Bytes. */
  readonly memory: Readonly<Record<string, number>>
  /** Calls that wait for their turn on a database thread, all together and by thread. */
  readonly run_queue: number
  readonly message_queues: Readonly<Record<string, number>>
  /** Threads that settee has started, its first one among them; and of them those that run functions. */
  readonly process_count: number
  readonly os_proc_count: number
  readonly context_switches: number
  /** Bytes over all connections. */
  readonly io_input: number
  readonly io_output: number
}

export function systemInfo(measured: Measurements): SystemInfo {
  const { http, threads, sandboxThreads, process } = measured
  const queues = threads.flatMap(({ number, stats }) =>
    stats === null ? [] : [[`database-${number}`, stats.waitingCalls] as const],
  )
  return {
    uptime: Math.floor(process.uptime),
    memory: memoryOf(measured),
    run_queue: queues.reduce((sum, [, length]) => sum + length, 0),
    message_queues: Object.fromEntries(queues),
    process_count: 1 + threads.length + sandboxThreads,
    os_proc_count: sandboxThreads,
    context_switches: process.contextSwitches,
    io_input: http.receivedBytes,
    io_output: http.sentBytes,
  }
}

/**
 * `processes` is what the heaps of JavaScript take, `binary` what they hold outside (buffers), and `other` the rest of
 * what the process takes, as far as the system says what that is.
 */
function memoryOf({ threads, process }: Measurements): Record<string, number> {
  const heaps = [process.heap, ...threads.flatMap(({ stats }) => (stats === null ? [] : [stats.heap]))]
  const sum = (member: 'total' | 'used' | 'external') =>
    heaps.reduce((total, heap) => total + heap[member], 0)
  const known = sum('total') + sum('external')
  return {
    processes: sum('total'),
    processes_used: sum('used'),
    binary: sum('external'),
    ...(process.residentBytes !== null && { other: Math.max(0, process.residentBytes - known) }),
  }
}
