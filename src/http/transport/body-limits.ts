/**
 * What request bodies may take of this process: memory, and turns of large ones; room on the disk is in
 * documents/body-files.ts. Each is shared among callers, so that one who sends much leaves room for the others.
 */
import { readFileSync } from 'node:fs'
import { Limiter } from '../../core/concurrency.ts'
import type { MemoryShare } from '../../documents/body-collector.ts'

/** What one caller may take at least, in bytes, within the budget: two of the largest bodies that stay in memory. */
const MIN_SHARE = 16 * 1024 * 1024

/**
 * The memory for all request bodies of this process (architecture.md, "The path of a save", `settee/body_memory`). One
 * caller may take a quarter of it. Bodies that do not fit go to files: they do not wait for memory, since a slow upload
 * could hold it for hours.
 */
export class BodyMemory {
  readonly #size: () => number
  readonly #byCaller = new Map<string, number>()
  #used = 0

  /** @param size the budget in bytes, read each time, since the configuration may change */
  constructor(size: () => number) {
    this.#size = size
  }

  /** The budget in bytes. */
  get size(): number {
    return this.#size()
  }

  /** Bytes in use. */
  get used(): number {
    return this.#used
  }

  /** @param caller the account, or the address of a caller without one */
  of(caller: string): MemoryShare {
    return {
      reserve: (bytes) => this.#reserve(caller, bytes),
      release: (bytes) => this.#release(caller, bytes),
    }
  }

  #reserve(caller: string, bytes: number): boolean {
    const size = this.#size()
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (this.#used + bytes > size || own > Math.max(MIN_SHARE, size / 4)) return false
    this.#used += bytes
    this.#byCaller.set(caller, own)
    return true
  }

  #release(caller: string, bytes: number): void {
    this.#used -= bytes
    const own = (this.#byCaller.get(caller) ?? 0) - bytes
    if (own > 0) this.#byCaller.set(caller, own)
    else this.#byCaller.delete(caller)
  }
}

/** A larger body, in bytes, is limited: parsing it takes several times its size. */
const LARGE = 256 * 1024
const AT_ONCE = 2
/** Of bodies larger than this, in bytes, a caller has one processed at a time: a list of 8 MB takes up to 45 MB. */
const HUGE = 2 * 1024 * 1024
/** Waiting bodies of one caller. The limit of a network's connections bounds those of all. */
const MAX_WAITING = 100

interface Caller {
  readonly large: Limiter
  readonly huge: Limiter
  requests: number
}

/**
 * Limits how many large bodies of one caller are processed at once. A caller who sends many takes the memory of two, and
 * waits for nobody else.
 */
export class LargeBodies {
  readonly #callers = new Map<string, Caller>()

  /**
   * @param name the account, or the address of a caller without one
   * @param length of the body, in bytes
   * @returns the result of `work`, which begins at once for a small body
   * @throws unavailable if too many large bodies of the caller wait already; and as `work`
   */
  async take<T>(name: string, length: number, work: () => Promise<T>): Promise<T> {
    if (length <= LARGE) return work()
    const caller = this.#callers.get(name) ?? newCaller()
    this.#callers.set(name, caller)
    caller.requests += 1
    try {
      const inTurn = () => caller.large.run(work)
      return await (length > HUGE ? caller.huge.run(inTurn) : inTurn())
    } finally {
      caller.requests -= 1
      if (caller.requests === 0) this.#callers.delete(name)
    }
  }
}

function newCaller(): Caller {
  return { large: new Limiter(AT_ONCE, MAX_WAITING), huge: new Limiter(1, MAX_WAITING), requests: 0 }
}

/** @returns how many files and sockets this process may have open; Infinity if the system does not tell */
export function maxOpenFiles(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Infinity)
  } catch {
    return Infinity
  }
}
