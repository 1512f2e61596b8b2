/** Documents of a rewind from when they are looked at until they are written. */
import type { BlobPin, DatabaseStore } from '../storage/engine.ts'
import type { RewindPlan } from './rewind-plan.ts'

/** Documents of one page, and about the bytes that it brings: what one group of writes takes. */
export const PAGE_DOCS = 256
const PAGE_BYTES = 1024 * 1024

/**
 * Plans that are written together. The contents that they name are held: no leaf may name them any more, and a
 * compaction between the plan and its writing would take them away.
 */
export class RewindPage {
  readonly #store: Pick<DatabaseStore, 'pinBlob'>
  readonly #pins: BlobPin[] = []
  #plans: RewindPlan[] = []
  #bytes = 0

  constructor(store: Pick<DatabaseStore, 'pinBlob'>) {
    this.#store = store
  }

  /** In the order that they came; those whose contents were gone already are `expired`. */
  get plans(): readonly RewindPlan[] {
    return this.#plans
  }

  get isFull(): boolean {
    return this.#plans.length >= PAGE_DOCS || this.#bytes > PAGE_BYTES
  }

  /** @param plans made just now: nothing was awaited since. @throws as `pinBlob` */
  async add(plans: readonly RewindPlan[]): Promise<void> {
    const blobs = [...new Set(plans.flatMap(blobsOf))]
    const pins = await Promise.all(blobs.map((blob) => this.#pin(blob)))
    const gone = new Set(blobs.filter((_, at) => pins[at] === null))
    for (const plan of plans) {
      this.#bytes += bytesOf(plan)
      const isWhole = !blobsOf(plan).some((blob) => gone.has(blob))
      this.#plans.push(isWhole ? plan : { ...plan, outcome: 'expired', docs: [] })
    }
  }

  async #pin(blob: number): Promise<BlobPin | null> {
    const pin = await this.#store.pinBlob(blob)
    if (pin !== null) this.#pins.push(pin)
    return pin
  }

  /** Lets go of what it held, when it is written or will not be. Idempotent. */
  release(): void {
    for (const pin of this.#pins) pin.release()
  }
}

/** About the bytes that a plan brings. */
export function bytesOf({ docs }: RewindPlan): number {
  return docs.reduce((sum, { body }) => sum + body.length, 0)
}

/** Whether documents of so many bytes make a page. */
export function isEnough(bytes: number): boolean {
  return bytes > PAGE_BYTES
}

function blobsOf({ docs }: RewindPlan): number[] {
  const contents = docs.flatMap((doc) => doc.attachments.map(({ content }) => content?.content))
  return contents.flatMap((content) => (content !== undefined && 'blob' in content ? content.blob : []))
}
