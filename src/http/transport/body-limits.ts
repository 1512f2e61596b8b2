/**
 * What request bodies may take of this process: memory, room on the disk, and turns of large ones. Each is shared among
 * callers, so that one who sends much leaves room for the others.
 */
import { readFileSync } from 'node:fs'
import { Limiter } from '../../core/concurrency.ts'
import { CouchError } from '../../core/errors.ts'
import type { Space, UserCtx } from '../../core/types.ts'
import { shortage } from '../../documents/document-policy.ts'

/** A larger body, in bytes, goes to a file even if memory is free (architecture.md, "The path of a save"). */
export const MAX_IN_MEMORY = 8 * 1024 * 1024

/** What one caller may take at least, in bytes, within the budget: two of the largest bodies that stay in memory. */
const MIN_SHARE = 16 * 1024 * 1024

/** One caller's share of the memory. */
export interface MemoryShare {
  /** Takes `bytes` of the budget if they are free. @returns whether they were */
  reserve(bytes: number): boolean
  release(bytes: number): void
}

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

/** A body of up to so many bytes is never refused: it is in a file only for lack of memory, and may be a checkpoint. */
const NEVER_REFUSED = 64 * 1024
/** What all files may take even on a full disk, in bytes: bulk deletions must get through, since they free space. */
const MIN_SIZE = 2 * MAX_IN_MEMORY
/** What a tenant's bodies may take beyond the quota's rest, in bytes: they may repeat stored content, or be queries. */
const BEYOND_QUOTA = 64 * 1024 * 1024

/** The room on the disk for request bodies in files: of all, and of each caller. */
export class BodyFiles {
  readonly #space: () => Space
  readonly #share: () => number
  readonly #byCaller = new Map<string, number>()
  #used = 0
  /** The last measurement of the disk, and the bytes in use at that time, which it did not count as free. */
  #measured: Space | null = null
  #usedThen = 0

  /**
   * @param space the free space of the disk
   * @param share how much of it all files may take, from 0 to 1; read each time
   */
  constructor(space: () => Space, share: () => number) {
    this.#space = space
    this.#share = share
  }

  /** Bytes that all files take. */
  get used(): number {
    return this.#used
  }

  /** Bytes that all files may take. */
  get size(): number {
    const space = this.#space()
    if (space !== this.#measured) {
      this.#measured = space
      this.#usedThen = this.#used
    }
    return Math.max(MIN_SIZE, Math.floor(this.#share() * (space.free + this.#usedThen - space.floor)))
  }

  /**
   * @param caller the account, or the address of a caller without one
   * @param user the caller, with what may still be stored
   * @returns the allocation of one body, empty at first
   */
  allocation(caller: string, user: UserCtx): FileAllocation {
    return new FileAllocation(this, caller, user)
  }

  /** @param taken how many of the bytes are in the file already @returns the refusal of a body; null: there is room */
  refusalOf(caller: string, user: UserCtx, bytes: number, taken: number): CouchError | null {
    if (bytes <= NEVER_REFUSED) return null
    const refusal = bytes > MAX_IN_MEMORY ? shortage(this.#space(), user) : null
    if (refusal !== null) return refusal
    const more = bytes - taken
    const own = (this.#byCaller.get(caller) ?? 0) + more
    // A caller may take as much as is left for the others, so that the shares of several become equal.
    if (own > this.size - this.#used - more) return tooManyBodies()
    return quotaRefusal(user, own)
  }

  /** @param bytes below 0: they are released */
  add(caller: string, bytes: number): void {
    this.#used += bytes
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (own === 0) this.#byCaller.delete(caller)
    else this.#byCaller.set(caller, own)
  }
}

/** The room of one body's file. */
class FileAllocation {
  readonly #files: BodyFiles
  readonly #caller: string
  readonly #user: UserCtx
  #taken = 0

  constructor(files: BodyFiles, caller: string, user: UserCtx) {
    this.#files = files
    this.#caller = caller
    this.#user = user
  }

  /** @returns the refusal of a body of so many bytes; null: there is room. Takes none. */
  refusalOf(bytes: number): CouchError | null {
    return this.#files.refusalOf(this.#caller, this.#user, bytes, this.#taken)
  }

  /** @param bytes the new size of the file @throws the refusal, as {@link refusalOf} */
  resize(bytes: number): void {
    const refusal = this.refusalOf(bytes)
    if (refusal !== null) throw refusal
    this.#files.add(this.#caller, bytes - this.#taken)
    this.#taken = bytes
  }

  /** Releases the room of a closed file. Idempotent. */
  release(): void {
    this.#files.add(this.#caller, -this.#taken)
    this.#taken = 0
  }
}

function tooManyBodies(): CouchError {
  return new CouchError(
    'insufficient_storage',
    'The disk has no room for a request of this size while others are under way. Send it again later, or in parts.',
  )
}

function quotaRefusal({ allowance }: UserCtx, own: number): CouchError | null {
  if (allowance === undefined) return null
  const { limit, others, here } = allowance.bytes
  const used = others + here
  if (own <= Math.max(0, limit - used) + BEYOND_QUOTA) return null
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} bytes and stores ${used}. A request of ${own} bytes is too large.`,
  )
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
