/**
 * Uploads of attachment contents. The chunks of an upload are written as they arrive, under a blob that no revision names
 * (state `staging`). The write of a revision that names the blob makes it `stored`. A blob that no
 * revision named is removed when its upload is released, or, after a crash, when the file is next opened.
 */
import { createHash } from 'node:crypto'
import { Yielder } from '../../core/event-loop.ts'
import type { BlobReference, BlobUpload, UploadedBlob } from '../blob-leases.ts'
import { type Blobs, CHUNK_BYTES, digestOf } from './blobs.ts'
import type { DatabaseAccess } from './database-access.ts'

/** The chunks that one write removes: 4 MB, about 2 ms of work. */
const REMOVED_PER_WRITE = 16

export class Uploads {
  readonly #access: DatabaseAccess
  readonly #blobs: Blobs
  readonly #references: References

  constructor(access: DatabaseAccess, blobs: Blobs, references: References) {
    this.#access = access
    this.#blobs = blobs
    this.#references = references
  }

  /** Begins an upload. @throws unavailable when the store is closed */
  begin(): BlobUpload {
    return this.#access.read(
      () => new Upload(this.#access, this.#blobs, this.#references, (blob) => this.removeUnnamed(blob)),
    )
  }

  /** Takes a reference to a complete blob; null if it does not exist. @throws unavailable when the store is closed */
  reference(blob: number): BlobReference | null {
    const row = this.#access.read(() => this.#blobs.find(blob))
    if (row === undefined) return null
    const reference = this.#references.add(blob)
    return {
      digest: digestOf(row.md5),
      length: row.length,
      release: () => {
        if (reference.release()) void this.removeUnnamed(blob)
      },
    }
  }

  /**
   * Removes, one after the other, the blobs that no revision named when the file was opened.
   * Never throws, like {@link removeUnnamed}.
   */
  sweep(): void {
    void this.#sweep()
  }

  async #sweep(): Promise<void> {
    try {
      for (const blob of this.#access.read(() => this.#blobs.uploads())) await this.removeUnnamed(blob)
    } catch {
      // The next opening tries again.
    }
  }

  /**
   * Removes a blob that has no references and that no revision names, a few chunks per write. Never rejects: after an
   * error, or when the store is closed, the next opening removes the remaining chunks.
   */
  async removeUnnamed(blob: number): Promise<void> {
    try {
      if (!this.#access.read(() => this.#blobs.isUpload(blob))) return
      const isAbandoned = await this.#access.writeOne(
        1024,
        () => !this.#references.isReferenced(blob) && this.#blobs.abandon(blob),
      )
      for (let isRemoved = !isAbandoned; !isRemoved; ) isRemoved = await this.#removeSome(blob)
    } catch {
      // See above.
    }
  }

  #removeSome(blob: number): Promise<boolean> {
    return this.#access.writeOne(64 * 1024, () => this.#blobs.removeSome(blob, REMOVED_PER_WRITE))
  }
}

/** About 1 MB, the maximum size of a group of writes. */
const CHUNKS_PER_WRITE = 4

/** One upload: hashed and stored chunk by chunk, in constant memory. */
class Upload implements BlobUpload {
  readonly #access: DatabaseAccess
  readonly #blobs: Blobs
  readonly #references: References
  readonly #remove: (blob: number) => Promise<void>
  readonly #md5 = createHash('md5')
  readonly #sha256 = createHash('sha256')
  /** Bytes that do not fill a chunk yet. */
  #rest: Buffer | undefined
  #restLength = 0
  #length = 0
  #chunks = 0
  /** The blob of this upload, once a chunk is stored. */
  #blob: number | undefined
  /** References to its own blob and to a blob with equal content. A retried write adds another. */
  readonly #ownReferences = new Map<number, Reference[]>()
  /** The last call; its failure fails all later ones. */
  #last: Promise<unknown> = Promise.resolve()
  #finished: Promise<UploadedBlob> | undefined
  #removed: Promise<void> | undefined
  #released: Promise<void> | undefined

  /** @param remove removes a blob that has no references and that no revision names; never rejects */
  constructor(
    access: DatabaseAccess,
    blobs: Blobs,
    references: References,
    remove: (blob: number) => Promise<void>,
  ) {
    this.#access = access
    this.#blobs = blobs
    this.#references = references
    this.#remove = remove
  }

  async append(bytes: Uint8Array): Promise<void> {
    if (this.#finished !== undefined) throw new RangeError('the content was finished')
    return this.#enqueue(async () => {
      this.#access.refuseIfClosed()
      await this.#hash(bytes)
      await this.#storeFullChunks(bytes)
    })
  }

  finish(): Promise<UploadedBlob> {
    this.#finished ??= this.#enqueue(() => this.#finish())
    return this.#finished
  }

  release(): Promise<void> {
    this.#released ??= this.#last
      .then(
        () => this.#removed,
        () => this.#removed,
      )
      .then(() => this.#releaseAll())
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

  /** Inside a transaction. @returns the blob's number */
  #addChunks(chunks: readonly Uint8Array[]): number {
    const blob = this.#blob ?? this.#reference(this.#blobs.create())
    chunks.forEach((chunk, at) => {
      this.#blobs.addChunk(blob, this.#chunks + at, chunk)
    })
    return blob
  }

  async #finish(): Promise<UploadedBlob> {
    const sha256 = this.#sha256.digest()
    const md5 = this.#md5.digest()
    const rest = this.#rest?.subarray(0, this.#restLength)
    const own = this.#blob
    const keep = () => {
      const known = this.#blobs.byHash(sha256)
      if (known !== undefined) return this.#reference(known)
      const made = this.#addChunks(rest === undefined || rest.length === 0 ? [] : [rest])
      this.#blobs.complete(made, sha256, md5, this.#length)
      return made
    }
    const blob = await this.#access.writeOne(this.#restLength + 1024, keep, { grows: true })
    this.#rest = undefined
    if (own !== undefined && own !== blob) this.#removed = this.#releaseBlob(own)
    return { blob, digest: digestOf(md5), length: this.#length }
  }

  #reference(blob: number): number {
    this.#ownReferences.set(blob, [...(this.#ownReferences.get(blob) ?? []), this.#references.add(blob)])
    return blob
  }

  async #releaseAll(): Promise<void> {
    for (const blob of [...this.#ownReferences.keys()]) await this.#releaseBlob(blob)
  }

  async #releaseBlob(blob: number): Promise<void> {
    for (const reference of this.#ownReferences.get(blob) ?? []) reference.release()
    this.#ownReferences.delete(blob)
    if (!this.#references.isReferenced(blob)) await this.#remove(blob)
  }
}

interface Reference {
  /** Releases the reference; only the first call counts. @returns whether the blob has no references now */
  release(): boolean
}

/** Counts the uploads and downloads that use each blob. In memory only. */
export class References {
  readonly #counts = new Map<number, number>()

  /** Whether a blob has references and must not be removed. Ask inside the transaction that removes it. */
  isReferenced(blob: number): boolean {
    return this.#counts.has(blob)
  }

  /** Adds a reference, which lasts until it is released. */
  add(blob: number): Reference {
    this.#counts.set(blob, (this.#counts.get(blob) ?? 0) + 1)
    let isOpen = true
    return {
      release: () => {
        if (isOpen) this.#drop(blob)
        isOpen = false
        return !this.isReferenced(blob)
      },
    }
  }

  #drop(blob: number): void {
    const count = this.#counts.get(blob) ?? 0
    if (count > 1) this.#counts.set(blob, count - 1)
    else this.#counts.delete(blob)
  }
}
