/**
 * Contents on their way in. The chunks of a stage are written as they come, under a blob that no revision names
 * (state `staging`); the write of a revision that names it makes it `checkDatabase`. What was never named goes when its
 * stage is released, or, after a crash, at the next opening.
 */
import { createHash } from 'node:crypto'
import { Yielder } from '../../core/yielder.ts'
import type { BlobPin, BlobStage, StagedBlob } from '../engine.ts'
import { type Blobs, CHUNK_BYTES, digestOf } from './blobs.ts'
import type { Access } from './database-access.ts'

/** Chunks removed by one write: 4 MB, about two milliseconds' work. */
const REMOVED_AT_ONCE = 16

export class Staging {
  readonly #access: Access
  readonly #blobs: Blobs
  readonly #holds: Holds

  constructor(access: Access, blobs: Blobs, holds: Holds) {
    this.#access = access
    this.#blobs = blobs
    this.#holds = holds
  }

  /** Begins to take in a content. @throws unavailable when the store is closed */
  begin(): BlobStage {
    return this.#access.read(
      () => new Stage(this.#access, this.#blobs, this.#holds, (blob) => this.removeUnnamed(blob)),
    )
  }

  /** Holds a whole blob; null when there is none of this number. @throws unavailable when the store is closed */
  pin(blob: number): BlobPin | null {
    const row = this.#access.read(() => this.#blobs.find(blob))
    if (row === undefined) return null
    const hold = this.#holds.take(blob)
    return {
      digest: digestOf(row.md5),
      length: row.length,
      release: () => {
        if (hold.release()) void this.removeUnnamed(blob)
      },
    }
  }

  /**
   * Removes, one after the other and while other work goes on, the blobs that no revision had named when the file
   * was opened. Never throws, as {@link removeUnnamed}.
   */
  sweep(): void {
    void this.#sweep()
  }

  async #sweep(): Promise<void> {
    try {
      for (const blob of this.#access.read(() => this.#blobs.staging())) await this.removeUnnamed(blob)
    } catch {
      // They are looked for again at the next opening.
    }
  }

  /**
   * Removes a blob that nobody holds and no revision has named, some chunks a write. Never rejects: what a fault
   * or the store's closing leaves of it can be found no more, and goes at the next opening.
   */
  async removeUnnamed(blob: number): Promise<void> {
    try {
      if (!this.#access.read(() => this.#blobs.isStaging(blob))) return
      const isDoomed = await this.#access.writeOne(
        1024,
        () => !this.#holds.isHeld(blob) && this.#blobs.abandon(blob),
      )
      for (let isGone = !isDoomed; !isGone; ) isGone = await this.#removeSome(blob)
    } catch {
      // Said above.
    }
  }

  #removeSome(blob: number): Promise<boolean> {
    return this.#access.writeOne(64 * 1024, () => this.#blobs.removeSome(blob, REMOVED_AT_ONCE))
  }
}

// One content on its way in: hashed and stored a piece at a time, in constant memory.

/** About a megabyte a write, as much as a group of writes may bring. */
const CHUNKS_A_WRITE = 4

class Stage implements BlobStage {
  readonly #access: Access
  readonly #blobs: Blobs
  readonly #holds: Holds
  readonly #remove: (blob: number) => Promise<void>
  readonly #md5 = createHash('md5')
  readonly #sha256 = createHash('sha256')
  /** What does not fill a chunk yet. */
  #rest: Buffer | undefined
  #restLength = 0
  #length = 0
  #chunks = 0
  /** Its own blob, once a chunk is stored. */
  #blob: number | undefined
  /** What it holds: its own blob, and that of equal content. A write that is tried again adds to it. */
  readonly #held = new Map<number, Hold[]>()
  /** The last call; a failure of one is that of all later ones. */
  #last: Promise<unknown> = Promise.resolve()
  #finished: Promise<StagedBlob> | undefined
  #removed: Promise<void> | undefined
  #released: Promise<void> | undefined

  /** @param remove removes a blob that no revision names and nobody holds; never rejects */
  constructor(access: Access, blobs: Blobs, holds: Holds, remove: (blob: number) => Promise<void>) {
    this.#access = access
    this.#blobs = blobs
    this.#holds = holds
    this.#remove = remove
  }

  async append(bytes: Uint8Array): Promise<void> {
    if (this.#finished !== undefined) throw new RangeError('the content was finished')
    return this.#next(async () => {
      this.#access.refuseIfClosed()
      await this.#hash(bytes)
      await this.#take(bytes)
    })
  }

  finish(): Promise<StagedBlob> {
    this.#finished ??= this.#next(() => this.#finish())
    return this.#finished
  }

  release(): Promise<void> {
    this.#released ??= this.#last
      .then(
        () => this.#removed,
        () => this.#removed,
      )
      .then(() => this.#letGo())
    return this.#released
  }

  async #next<R>(work: () => Promise<R>): Promise<R> {
    if (this.#released !== undefined) throw new RangeError('the stage was released')
    const done = this.#last.then(work)
    this.#last = done
    return done
  }

  async #hash(bytes: Uint8Array): Promise<void> {
    const yielder = new Yielder()
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
      const part = bytes.subarray(at, at + CHUNK_BYTES)
      this.#md5.update(part)
      this.#sha256.update(part)
      await yielder.yieldIfDue()
    }
    this.#length += bytes.length
  }

  /** Stores the chunks that are full with these bytes, and keeps a copy of what is left. */
  async #take(bytes: Uint8Array): Promise<void> {
    let at = 0
    while (this.#restLength + bytes.length - at >= CHUNK_BYTES) {
      const chunks: Uint8Array[] = []
      if (this.#restLength > 0) {
        at = this.#keep(bytes, CHUNK_BYTES - this.#restLength)
        chunks.push(this.#rest as Buffer)
      }
      for (; chunks.length < CHUNKS_A_WRITE && bytes.length - at >= CHUNK_BYTES; at += CHUNK_BYTES) {
        chunks.push(bytes.subarray(at, at + CHUNK_BYTES))
      }
      await this.#store(chunks)
      this.#restLength = 0
    }
    this.#keep(bytes.subarray(at), bytes.length - at)
  }

  #keep(bytes: Uint8Array, length: number): number {
    if (length === 0) return 0
    this.#rest ??= Buffer.allocUnsafeSlow(CHUNK_BYTES)
    this.#rest.set(bytes.subarray(0, length), this.#restLength)
    this.#restLength += length
    return length
  }

  async #store(chunks: readonly Uint8Array[]): Promise<void> {
    const bytes = chunks.reduce((sum, { length }) => sum + length, 0)
    this.#blob = await this.#access.writeOne(bytes, () => this.#addChunks(chunks), { grows: true })
    this.#chunks += chunks.length
  }

  /** Inside a transaction. @returns its blob's number */
  #addChunks(chunks: readonly Uint8Array[]): number {
    const blob = this.#blob ?? this.#hold(this.#blobs.begin())
    chunks.forEach((chunk, at) => {
      this.#blobs.addChunk(blob, this.#chunks + at, chunk)
    })
    return blob
  }

  async #finish(): Promise<StagedBlob> {
    const sha256 = this.#sha256.digest()
    const md5 = this.#md5.digest()
    const rest = this.#rest?.subarray(0, this.#restLength)
    const own = this.#blob
    const keep = () => {
      const known = this.#blobs.byHash(sha256)
      if (known !== undefined) return this.#hold(known)
      const made = this.#addChunks(rest === undefined || rest.length === 0 ? [] : [rest])
      this.#blobs.complete(made, sha256, md5, this.#length)
      return made
    }
    const blob = await this.#access.writeOne(this.#restLength + 1024, keep, { grows: true })
    this.#rest = undefined
    if (own !== undefined && own !== blob) this.#removed = this.#giveUp(own)
    return { blob, digest: digestOf(md5), length: this.#length }
  }

  #hold(blob: number): number {
    this.#held.set(blob, [...(this.#held.get(blob) ?? []), this.#holds.take(blob)])
    return blob
  }

  async #letGo(): Promise<void> {
    for (const blob of [...this.#held.keys()]) await this.#giveUp(blob)
  }

  async #giveUp(blob: number): Promise<void> {
    for (const hold of this.#held.get(blob) ?? []) hold.release()
    this.#held.delete(blob)
    if (!this.#holds.isHeld(blob)) await this.#remove(blob)
  }
}

// Who is using a blob right now: uploads that staged it and downloads that pinned it. Kept in memory alone.

interface Hold {
  /** Lets go; only the first call counts. @returns whether nobody holds the blob now */
  release(): boolean
}

export class Holds {
  readonly #counts = new Map<number, number>()

  /** Whether anybody holds a blob: it must not be removed then. Ask inside the transaction that removes it. */
  isHeld(blob: number): boolean {
    return this.#counts.has(blob)
  }

  /** Holds a blob until it is released. */
  take(blob: number): Hold {
    this.#counts.set(blob, (this.#counts.get(blob) ?? 0) + 1)
    let isOpen = true
    return {
      release: () => {
        if (isOpen) this.#drop(blob)
        isOpen = false
        return !this.isHeld(blob)
      },
    }
  }

  #drop(blob: number): void {
    const count = this.#counts.get(blob) ?? 0
    if (count > 1) this.#counts.set(blob, count - 1)
    else this.#counts.delete(blob)
  }
}
