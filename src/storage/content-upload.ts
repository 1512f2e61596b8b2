/** An upload as every engine has it: the content is hashed and cut into chunks as it arrives, in constant memory. */
import { createHash } from 'node:crypto'
import { Yielder } from '../core/event-loop.ts'
import type { BlobUpload, UploadedBlob } from './blob-leases.ts'

/** Bytes of a chunk: small enough to be read in a turn, large enough to cost few rows. */
export const CHUNK_BYTES = 256 * 1024

/** About 1 MB, the maximum size of a group of writes. */
const CHUNKS_PER_WRITE = 4

/** An MD5 in the format of attachment digests, protocol.md 7. */
export function digestOf(md5: Uint8Array): string {
  return `md5-${Buffer.from(md5).toString('base64')}`
}

/** A content whose last bytes have arrived. */
export interface WholeContent {
  readonly sha256: Buffer
  readonly md5: Buffer
  readonly length: number
  /** The number of chunks that are stored. */
  readonly chunks: number
  /** The bytes after them, fewer than a chunk has. */
  readonly rest: Uint8Array
}

/** Where an engine stores an upload. */
export interface UploadTarget {
  /** @throws unavailable when the store is closed */
  refuseIfClosed(): void
  /**
   * Stores the next chunks, at most 1 MB together.
   * @param position the number of the chunks before
   */
  addChunks(chunks: readonly Uint8Array[], position: number): Promise<void>
  /** Stores the rest and completes the content, or uses an equal one that is stored. @returns the blob */
  finish(content: WholeContent): Promise<number>
  /** Ends the leases and removes what no revision names. Called once; never rejects. */
  release(): Promise<void>
}

export class ContentUpload implements BlobUpload {
  readonly #target: UploadTarget
  readonly #md5 = createHash('md5')
  readonly #sha256 = createHash('sha256')
  /** Bytes that do not fill a chunk yet. */
  #rest: Buffer | undefined
  #restLength = 0
  #length = 0
  #chunks = 0
  /** The last call; its failure fails all later ones. */
  #last: Promise<unknown> = Promise.resolve()
  #finished: Promise<UploadedBlob> | undefined
  #released: Promise<void> | undefined

  constructor(target: UploadTarget) {
    this.#target = target
  }

  async append(bytes: Uint8Array): Promise<void> {
    if (this.#finished !== undefined) throw new RangeError('the content was finished')
    return this.#enqueue(async () => {
      this.#target.refuseIfClosed()
      await this.#hash(bytes)
      await this.#storeFullChunks(bytes)
    })
  }

  finish(): Promise<UploadedBlob> {
    this.#finished ??= this.#enqueue(() => this.#finish())
    return this.#finished
  }

  release(): Promise<void> {
    const release = () => this.#target.release()
    this.#released ??= this.#last.then(release, release)
    return this.#released
  }

  async #enqueue<R>(work: () => Promise<R>): Promise<R> {
    if (this.#released !== undefined) throw new RangeError('the upload was released')
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

  /** Stores the chunks that these bytes fill, and keeps a copy of the rest. */
  async #storeFullChunks(bytes: Uint8Array): Promise<void> {
    let at = 0
    while (this.#restLength + bytes.length - at >= CHUNK_BYTES) {
      const chunks: Uint8Array[] = []
      if (this.#restLength > 0) {
        at = this.#keep(bytes, CHUNK_BYTES - this.#restLength)
        chunks.push(this.#rest as Buffer)
      }
      for (; chunks.length < CHUNKS_PER_WRITE && bytes.length - at >= CHUNK_BYTES; at += CHUNK_BYTES) {
        chunks.push(bytes.subarray(at, at + CHUNK_BYTES))
      }
      await this.#target.addChunks(chunks, this.#chunks)
      this.#chunks += chunks.length
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

  async #finish(): Promise<UploadedBlob> {
    const md5 = this.#md5.digest()
    const blob = await this.#target.finish({
      sha256: this.#sha256.digest(),
      md5,
      length: this.#length,
      chunks: this.#chunks,
      rest: this.#rest?.subarray(0, this.#restLength) ?? new Uint8Array(0),
    })
    this.#rest = undefined
    return { blob, digest: digestOf(md5), length: this.#length }
  }
}
