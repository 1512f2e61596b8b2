/**
 * The room on the disk for request bodies that are in files: how much all of them may take together, how much those of
 * one caller, and how much a quota leaves.
 */
import { readFileSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import { type Space, shortage, type UserCtx } from '../../core/types.ts'
import { MAX_IN_MEMORY } from './body-collector.ts'

/** A body of so many bytes is never refused: it is in a file for want of memory, and may be a checkpoint's. */
const ALWAYS_TAKEN = 64 * 1024
/** What all may take however full the disk is: a bulk of deletions must come in, and helps. */
const LEAST_SIZE = 2 * MAX_IN_MEMORY
/** What a tenant's bodies may take beyond the quota's rest: they may bring what is stored already, or only ask. */
const BEYOND_QUOTA = 64 * 1024 * 1024

export class BodyFiles {
  readonly #space: () => Space
  readonly #share: () => number
  readonly #byCaller = new Map<string, number>()
  #used = 0
  /** What was found free last, and what files took then: files are no part of what is free. */
  #seen: Space | null = null
  #usedThen = 0

  /**
   * @param space what is left of the disk now
   * @param share how much of it all files may take, from 0 to 1; asked for each time
   */
  constructor(space: () => Space, share: () => number) {
    this.#space = space
    this.#share = share
  }

  /** Bytes that all files take now. */
  get used(): number {
    return this.#used
  }

  /** Bytes that they may take. */
  get size(): number {
    const space = this.#space()
    if (space !== this.#seen) {
      this.#seen = space
      this.#usedThen = this.#used
    }
    return Math.max(LEAST_SIZE, Math.floor(this.#share() * (space.free + this.#usedThen - space.floor)))
  }

  /**
   * @param caller the account, or the address of who has none
   * @param user who asks, and what may still be stored
   * @returns the place of one body, which takes nothing yet
   */
  place(caller: string, user: UserCtx): BodyPlace {
    return new BodyPlace(this, caller, user)
  }

  /** What a body of so many bytes is refused with, of which `taken` are in its file; null while there is room. */
  refusalOf(caller: string, user: UserCtx, bytes: number, taken: number): CouchError | null {
    if (bytes <= ALWAYS_TAKEN) return null
    const refusal = bytes > MAX_IN_MEMORY ? shortage(this.#space(), user) : null
    if (refusal !== null) return refusal
    const more = bytes - taken
    const own = (this.#byCaller.get(caller) ?? 0) + more
    // A caller may take as much as stays free for others, so that several come to equal parts.
    if (own > this.size - this.#used - more) return tooManyBodies()
    return quotaRefusal(user, own)
  }

  /** @param bytes fewer than 0: they are given back */
  add(caller: string, bytes: number): void {
    this.#used += bytes
    const own = (this.#byCaller.get(caller) ?? 0) + bytes
    if (own === 0) this.#byCaller.delete(caller)
    else this.#byCaller.set(caller, own)
  }
}

/** The place of one body in a file. */
class BodyPlace {
  readonly #files: BodyFiles
  readonly #caller: string
  readonly #user: UserCtx
  #taken = 0

  constructor(files: BodyFiles, caller: string, user: UserCtx) {
    this.#files = files
    this.#caller = caller
    this.#user = user
  }

  /** What a body of so many bytes is refused with; null while there is room. Takes nothing. */
  refusalOf(bytes: number): CouchError | null {
    return this.#files.refusalOf(this.#caller, this.#user, bytes, this.#taken)
  }

  /** Takes the room that the file needs. @param bytes of the file from now on. @throws as {@link refusalOf} */
  take(bytes: number): void {
    const refusal = this.refusalOf(bytes)
    if (refusal !== null) throw refusal
    this.#files.add(this.#caller, bytes - this.#taken)
    this.#taken = bytes
  }

  /** The file is closed. Idempotent. */
  leave(): void {
    this.#files.add(this.#caller, -this.#taken)
    this.#taken = 0
  }
}

function tooManyBodies(): CouchError {
  return new CouchError(
    'insufficient_storage',
    'The disk has no room for a request of this size while others are under way: send it again later, or in parts.',
  )
}

function quotaRefusal({ allowance }: UserCtx, own: number): CouchError | null {
  if (allowance === undefined) return null
  const { limit, others, here } = allowance.bytes
  const used = others + here
  if (own <= Math.max(0, limit - used) + BEYOND_QUOTA) return null
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} bytes and stores ${used}: requests of ${own} bytes are not taken.`,
  )
}

/** @returns how many files and sockets this process may have open; Infinity where the system does not say */
export function maxOpenFiles(): number {
  try {
    const limits = readFileSync('/proc/self/limits', 'latin1')
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Infinity)
  } catch {
    return Infinity
  }
}
