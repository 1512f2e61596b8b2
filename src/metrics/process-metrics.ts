/** The metrics of the process, with the names that Prometheus' own libraries use, and `_system`. */
import { readdir, statfs } from 'node:fs/promises'
import { heapSize, LoopWatch } from '../threads/thread-stats.ts'
import { type Measurements, type Metric, orNullAfter, type ProcessFacts, single } from './metric.ts'

export const PROCESS_METRICS: readonly Metric<Measurements>[] = [
  {
    name: 'couchdb_uptime_seconds',
    type: 'counter',
    help: 'Seconds since the process started.',
    read: ({ process }) => single(process.uptime),
  },
  {
    name: 'couchdb_open_os_files',
    type: 'gauge',
    help: 'Open file descriptors, including connections; on Linux.',
    read: ({ process }) => single(process.openFiles),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'Start time of the process, in seconds since 1970.',
    read: ({ process }) => single(process.startedAt),
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'Seconds of processor time, of all threads together.',
    read: ({ process }) => single(process.cpuSeconds),
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the process, in bytes.',
    read: ({ process }) => single(process.residentBytes),
  },
  {
    name: 'settee_data_free_bytes',
    type: 'gauge',
    help: 'Bytes that can still be written to the disk of the data folder.',
    read: ({ process }) => single(process.diskFreeBytes),
  },
  {
    name: 'settee_info',
    type: 'gauge',
    help: 'Always 1; the version is its label.',
    labels: ['version'],
    read: ({ version }) => [{ labels: { version }, value: 1 }],
  },
]

/** How long a file system may take to answer, in ms. */
const ANSWER_MS = 1000

export class ProcessWatch {
  readonly #loop = new LoopWatch()
  readonly #folder: string
  /** The call under way. There is only one at a time, because on a slow disk each blocks one of libuv's few threads. */
  #free: Promise<number> | undefined

  /** @param folder the data folder */
  constructor(folder: string) {
    this.#folder = folder
  }

  /** Reads all facts. Never rejects: a value that cannot be read in time is null. */
  async facts(): Promise<ProcessFacts> {
    this.#free ??= this.#freeBytes()
    const [openFiles, diskFreeBytes, residentBytes] = await Promise.all([
      orNullAfter(countOpenFiles(), ANSWER_MS),
      orNullAfter(this.#free, ANSWER_MS),
      orNullAfter(residentSize(), ANSWER_MS),
    ])
    const { userCPUTime, systemCPUTime, voluntaryContextSwitches, involuntaryContextSwitches } =
      process.resourceUsage()
    return {
      startedAt: performance.timeOrigin / 1000,
      uptime: process.uptime(),
      cpuSeconds: (userCPUTime + systemCPUTime) / 1e6,
      residentBytes,
      openFiles,
      diskFreeBytes,
      contextSwitches: voluntaryContextSwitches + involuntaryContextSwitches,
      heap: heapSize(),
      delay: this.#loop.read(),
      busySeconds: performance.eventLoopUtilization().active / 1000,
    }
  }

  async #freeBytes(): Promise<number> {
    try {
      const { bavail, bsize } = await statfs(this.#folder)
      return bavail * bsize
    } finally {
      this.#free = undefined
    }
  }

  /** Stops measuring. */
  close(): void {
    this.#loop.close()
  }
}

/** On Linux only. The listing itself has a descriptor, which is not counted. */
async function countOpenFiles(): Promise<number> {
  return (await readdir('/proc/self/fd')).length - 1
}

/** Rejects when no more files can be opened, because Node opens one for this. */
async function residentSize(): Promise<number> {
  return process.memoryUsage.rss()
}

/** The members of CouchDB's `_system` that have a meaning for Node; protocol.md 15. */
interface SystemInfo {
  /** Seconds. */
  readonly uptime: number
  /** Bytes. */
  readonly memory: Readonly<Record<string, number>>
  /** Calls that wait on database threads: the total, and by thread. */
  readonly run_queue: number
  readonly message_queues: Readonly<Record<string, number>>
  /** Threads of settee, including the first, and how many of them run functions. */
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
 * `processes` is the size of the JavaScript heaps, `binary` the memory of buffers outside them, and `other` the rest of
 * the resident memory, if the system reports it.
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
