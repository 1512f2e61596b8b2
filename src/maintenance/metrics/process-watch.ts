/** What the operating system says of this process, and the loop of the thread that asks. */
import { readdir, statfs } from 'node:fs/promises'
import { heapSize } from '../../threads/heap-size.ts'
import { LoopWatch } from '../../threads/loop-watch.ts'
import { orNull } from './in-time.ts'
import type { ProcessFacts } from './measurements.ts'

/** How long a file system may take to answer, in ms. */
const ANSWER_MS = 1000

export class ProcessWatch {
  readonly #loop = new LoopWatch()
  readonly #folder: string
  /** A disk that does not answer is not asked again: each question holds one of the few threads for files. */
  #free: Promise<number> | undefined

  /** @param folder on the disk that the databases are on */
  constructor(folder: string) {
    this.#folder = folder
  }

  /** Reads it all. Never rejects: what cannot be read, or not in time, is null. */
  async facts(): Promise<ProcessFacts> {
    this.#free ??= this.#freeBytes()
    const [openFiles, diskFreeBytes, residentBytes] = await Promise.all([
      orNull(countOpenFiles(), ANSWER_MS),
      orNull(this.#free, ANSWER_MS),
      orNull(residentSize(), ANSWER_MS),
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

  /** Measures nothing from now on. */
  close(): void {
    this.#loop.close()
  }
}

/** Linux lists them; the listing itself is one of them. */
async function countOpenFiles(): Promise<number> {
  return (await readdir('/proc/self/fd')).length - 1
}

/** Node opens a file for it, which fails where no more can be opened. */
async function residentSize(): Promise<number> {
  return process.memoryUsage.rss()
}
