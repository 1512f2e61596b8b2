/** One content on its way in: hashed and stored a piece at a time, in constant memory. */
import { createHash } from 'node:crypto'
import { Breath } from '../../core/breath.ts'
import type { BlobStage, StagedBlob } from '../engine.ts'
import type { Access } from './access.ts'
import { type Blobs, CHUNK_BYTES, digestOf } from './blobs.ts'
import type { Hold, Holds } from './holds.ts'

/** About a megabyte a write, as much as a group of writes may bring. */
const CHUNKS_A_WRITE = 4

export class Stage implements BlobStage {
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
    const breath = new Breath()
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
      const part = bytes.subarray(at, at + CHUNK_BYTES)
      this.#md5.update(part)
      this.#sha256.update(part)
      await breath.take()
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
