/** What bodies in temporary files may take of the disk, shared among callers. */
import { CouchError } from '../core/errors.ts'
import type { Space, UserCtx } from '../core/types.ts'
import { MAX_IN_MEMORY } from './body-collector.ts'
import { shortage } from './document-policy.ts'
import type { FileRoom } from './temporary-file.ts'

/** A body of up to so many bytes is never refused: it is in a file only for lack of memory, and may be a checkpoint. */
const NEVER_REFUSED = 64 * 1024
/** What all files may take even on a full disk, in bytes: bulk deletions must get through, since they free space. */
const MIN_SIZE = 2 * MAX_IN_MEMORY
/** What a tenant's bodies may take beyond the quota's rest, in bytes: they may repeat stored content, or be queries. */
const BEYOND_QUOTA = 64 * 1024 * 1024

/**
 * The room on the disk for bodies in files, which clients have sent or other servers have answered: of all, and of each caller.
 */
export class BodyFiles {
  /** The folder for the files. */
  readonly folder: string
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
   * @param folder an existing one, which is emptied at each start of the server
   */
  constructor(space: () => Space, share: () => number, folder: string) {
    this.#space = space
    this.#share = share
    this.folder = folder
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
export class FileAllocation implements FileRoom {
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
