/**
 * Contents on their way in. The chunks of a stage are written as they come, under a blob that no revision names
 * (state `staging`); the write of a revision that names it makes it `stored`. What was never named goes when its
 * stage is released, or, after a crash, at the next opening.
 */
import type { BlobPin, BlobStage } from '../engine.ts'
import type { Access } from './access.ts'
import { type Blobs, digestOf } from './blobs.ts'
import type { Holds } from './holds.ts'
import { Stage } from './stage.ts'

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
