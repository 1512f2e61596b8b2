/**
 * Uploads of attachment contents. The chunks of an upload are written as they arrive, under a blob that no revision names
 * (state `staging`). The write of a revision that names the blob makes it `stored`. A blob that no
 * revision named is removed when its upload is released, or, after a crash, when the file is next opened.
 */
import type { BlobReference, BlobUpload } from '../blob-leases.ts'
import {
  CHUNK_BYTES,
  ContentUpload,
  digestOf,
  type UploadTarget,
  type WholeContent,
} from '../content-upload.ts'
import type { Blobs } from './blobs.ts'
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
    const remove = (blob: number) => this.removeUnnamed(blob)
    return this.#access.read(
      () => new ContentUpload(new SqliteUpload(this.#access, this.#blobs, this.#references, remove)),
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

/** One upload. */
class SqliteUpload implements UploadTarget {
  readonly #access: DatabaseAccess
  readonly #blobs: Blobs
  readonly #references: References
  readonly #remove: (blob: number) => Promise<void>
  /** The blob of this upload, once a chunk is stored. */
  #blob: number | undefined
  /** References to its own blob and to a blob with equal content. A retried write adds another. */
  readonly #ownReferences = new Map<number, Reference[]>()
  #removed: Promise<void> | undefined

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

  refuseIfClosed(): void {
    this.#access.refuseIfClosed()
  }

  async addChunks(chunks: readonly Uint8Array[], position: number): Promise<void> {
    const bytes = chunks.reduce((sum, { length }) => sum + length, 0)
    const add = () => this.#addChunks(chunks, position)
    this.#blob = await this.#access.writeOne(bytes, add, { grows: true })
  }

  /** Inside a transaction. @returns the blob's number */
  #addChunks(chunks: readonly Uint8Array[], position: number): number {
    const blob = this.#blob ?? this.#reference(this.#blobs.create())
    chunks.forEach((chunk, at) => {
      this.#blobs.putChunk(blob, position + at, chunk)
    })
    return blob
  }

  async finish({ sha256, md5, length, chunks, rest }: WholeContent): Promise<number> {
    const own = this.#blob
    let isKnown = false
    const keep = () => {
      const known = this.#blobs.byHash(sha256)
      isKnown = known !== undefined
      const blob =
        known === undefined
          ? this.#addChunks(rest.length === 0 ? [] : [rest], chunks)
          : this.#reference(known)
      this.#blobs.complete(blob, sha256, md5, length)
      return blob
    }
    const blob = await this.#access.writeOne(rest.length + 1024, keep, { grows: true })
    if (isKnown) await this.#mend(blob, own, chunks, rest)
    if (own !== undefined && own !== blob) this.#removed = this.#releaseBlob(own)
    return blob
  }

  /** Replaces the damaged chunks of a content that was stored before by those of this upload, one in each turn. */
  async #mend(blob: number, own: number | undefined, chunks: number, rest: Uint8Array): Promise<void> {
    for (let position = 0; position <= chunks; position++) {
      const isLast = position === chunks
      if ((isLast && rest.length === 0) || this.#access.read(() => this.#blobs.chunk(blob, position)))
        continue
      await this.#access.writeOne(CHUNK_BYTES, () => {
        const good = isLast ? rest : own === undefined ? null : this.#blobs.chunk(own, position)
        if (good !== null) this.#blobs.putChunk(blob, position, good)
      })
    }
  }

  #reference(blob: number): number {
    this.#ownReferences.set(blob, [...(this.#ownReferences.get(blob) ?? []), this.#references.add(blob)])
    return blob
  }

  async release(): Promise<void> {
    await this.#removed
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
