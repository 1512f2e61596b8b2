import { Limiter } from '../../core/concurrency.ts'

/** The least that one caller may take, in bytes, if all may take so much: two bodies that are just not put into a file. */
const LEAST_SHARE = 16 * 1024 * 1024

/** One caller's part of the memory of bodies. */
export interface BodyRoom {
  /** Takes `bytes` of the budget, if there is room. @returns whether there was */
  reserve(bytes: number): boolean
  release(bytes: number): void
}

/**
 * The memory that request bodies may take in this process, all together (architecture.md, "How a save travels",
 * `settee/body_memory`); those of one caller may take a quarter of it. What does not fit goes to a file. Nothing waits for
 * memory, since a slow upload could hold it for hours.
 */
export class BodyMemory {
  readonly #size: () => number
  readonly #byCaller = new Map<string, number>()
  #used = 0

  /** @param size the budget in bytes, asked for each time, since the configuration may change */
  constructor(size: () => number) {
    this.#size = size
  }

  /** The budget in bytes. */
  get size(): number {
    return this.#size()
  }

  /** Bytes taken now. */
  get used(): number {
    return this.#used
  }

  /** @param caller the account, or the address of a caller without one */
  of(caller: string): BodyRoom {
    return {
      reserve: (bytes) => this.#reserve(caller, bytes),
      release: (bytes) => this.#release(caller, bytes),
    }
  }

  #reserve(caller: string, bytes: number): boolean {
    const size = this.#size()
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (this.#used + bytes > size || own > Math.max(LEAST_SHARE, size / 4)) return false
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

// How many large bodies of one caller are worked on at once.

/** A larger body counts, in bytes: what is made of it takes several times as much memory. */
const LARGE = 256 * 1024
const AT_ONCE = 2
/** What is made of a list of 8 MB takes up to 45 MB: of bodies larger than this, in bytes, one is worked on at a time. */
const HUGE = 2 * 1024 * 1024
/** Of one caller; the connections that a network may have are the bound of all. */
const MAY_WAIT = 100

interface Caller {
  readonly large: Limiter
  readonly huge: Limiter
  requests: number
}

/**
 * Large bodies that have arrived take turns by caller, so that one who sends many at once takes the memory of two, and
 * waits behind nobody else.
 */
export class LargeBodies {
  readonly #callers = new Map<string, Caller>()

  /**
   * @param name the account, or the address of a caller without one
   * @param length of the body, in bytes
   * @returns what the work returns; the work of a small body begins at once
   * @throws unavailable when too many large bodies of the caller wait already; and as the work
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
  return { large: new Limiter(AT_ONCE, MAY_WAIT), huge: new Limiter(1, MAY_WAIT), requests: 0 }
}
