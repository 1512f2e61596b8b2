/** Contents on their way into a database of the engine in memory, and who holds which. */
import { createHash } from 'node:crypto'
import type { BlobReference, BlobUpload, UploadedBlob } from '../../../src/storage/blob-leases.ts'
import type { MemoryLeases, MemoryOpener } from './opener.ts'
import { dropUnnamed, type State, storeBytes } from './state.ts'

/** How the store reads and writes: each is an operation of the disk, and may fail. */
export interface StagingStore {
  /** In ms since 1970. */
  now(): number
  read<T>(read: (state: State) => T): Promise<T>
  write<T>(operation: string, change: (draft: State) => T): Promise<T>
}

export class MemoryStaging {
  readonly #store: StagingStore
  readonly #leases: MemoryLeases
  readonly #opener: MemoryOpener

  constructor(leases: MemoryLeases, opener: MemoryOpener, store: StagingStore) {
    this.#leases = leases
    this.#opener = opener
    this.#store = store
  }

  begin(): Promise<BlobUpload> {
    return this.#store.read(() => new MemoryStage(this.#store, this))
  }

  async pin(blob: number): Promise<BlobReference | null> {
    return this.#store.read(({ blobs }) => {
      const bytes = blobs.get(blob)
      if (bytes === undefined) return null
      const pin: BlobReference = {
        digest: md5(bytes),
        length: bytes.length,
        release: () => void this.release(pin, blob),
      }
      this.hold(pin, blob)
      return pin
    })
  }

  #isHeld(blob: number): boolean {
    return this.#leases.isHeld(blob, this.#opener, this.#store.now())
  }

  hold(holder: object, blob: number): void {
    this.#leases.set(holder, blob, this.#opener)
  }

  /** Ends a hold; then a blob goes that nobody holds and no revision has named. Never rejects. */
  async release(holder: object, ...blobs: number[]): Promise<void> {
    if (this.#opener.isDead) return
    this.#leases.end(holder)
    try {
      const isLeft = await this.#store.read(({ staged, unnamed }) =>
        blobs.some((blob) => staged.has(blob) || unnamed.has(blob)),
      )
      if (!isLeft) return
      await this.#store.write('remove what was staged', (draft) => {
        for (const blob of blobs) if (!this.#isHeld(blob)) dropUnnamed(draft, blob)
      })
    } catch {
      // The next opening forgets it.
    }
  }
}

class MemoryStage implements BlobUpload {
  readonly #store: StagingStore
  readonly #staging: MemoryStaging
  #own: number | undefined
  #last: Promise<unknown> = Promise.resolve()
  #finished: Promise<UploadedBlob> | undefined
  #released: Promise<void> | undefined

  constructor(store: StagingStore, staging: MemoryStaging) {
    this.#store = store
    this.#staging = staging
  }

  append(bytes: Uint8Array): Promise<void> {
    if (this.#finished !== undefined) return Promise.reject(new RangeError('the content was finished'))
    return this.#next(async () => {
      this.#own = await this.#store.write('stage bytes', (draft) => {
        const blob = this.#own ?? this.#begin(draft)
        draft.staged.set(blob, [...(draft.staged.get(blob) ?? []), Uint8Array.from(bytes)])
        return blob
      })
    })
  }

  finish(): Promise<UploadedBlob> {
    this.#finished ??= this.#next(() => this.#store.write('finish', (draft) => this.#finish(draft)))
    return this.#finished
  }

  #finish(draft: State): UploadedBlob {
    const own = this.#own ?? this.#begin(draft)
    const bytes = Buffer.concat(draft.staged.get(own) ?? [])
    draft.staged.delete(own)
    const blob = storeBytes(draft, createHash('sha256').update(bytes).digest(), bytes, own)
    if (blob === own) draft.unnamed.add(own)
    this.#staging.hold(this, blob)
    this.#own = own
    return { blob, digest: md5(bytes), length: bytes.length }
  }

  #begin(draft: State): number {
    draft.lastBlob += 1
    this.#staging.hold(this, draft.lastBlob)
    return draft.lastBlob
  }

  release(): Promise<void> {
    this.#released ??= this.#last.then(
      () => this.#letGo(),
      () => this.#letGo(),
    )
    return this.#released
  }

  async #letGo(): Promise<void> {
    const finished = await this.#finished?.catch(() => undefined)
    const blobs = [this.#own, finished?.blob].filter((blob) => blob !== undefined)
    await this.#staging.release(this, ...new Set(blobs))
  }

  async #next<R>(work: () => Promise<R>): Promise<R> {
    if (this.#released !== undefined) throw new RangeError('the stage was released')
    const done = this.#last.then(work)
    this.#last = done
    return done
  }
}

function md5(bytes: Uint8Array): string {
  return `md5-${createHash('md5').update(bytes).digest('base64')}`
}
